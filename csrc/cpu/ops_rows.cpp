// ops_rows.cpp: the ops that make a row of numbers from rows of numbers, without a cache.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "../common/quantize.h"
#include "exec.h"

namespace bl {

void CpuExec::get_rows(const Op &op) {
  const uint32_t table = op.src[BL_SRC_GET_ROWS_TABLE], ids = op.src[BL_SRC_GET_ROWS_IDS];
  float *y = result(op.dst[0]);
  if (p_.tensors[table].kind != BL_KIND_WEIGHT) {  // output rows of an activation
    const Lines x = runs(table);
    const uint64_t n = p_.tensors[table].row_elems;
    for (uint32_t i = 0; i < in_->n_out; i++)
      for (uint64_t line = 0; line < x.per_row; line++)
        memcpy(y + i * n + line * x.n, x.at(uint32_t(in_->out_rows[i]) * x.per_row + line), x.n * 4);
    return;
  }
  const CpuTensor &w = weight(table);
  const Lines id = lines(ids);
  const uint64_t n = w.ne[0];
  by_rows(n_lines(ids) * id.n, n, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t i = begin; i < end; i++) {
      const int32_t row = reinterpret_cast<const int32_t *>(id.at(i / id.n))[i % id.n];
      const uint8_t *from = w.rows + uint64_t(uint32_t(row)) * w.row_bytes;
      if (row < 0) memset(y + i * n, 0, n * 4);
      else if (w.type == TYPE_I32) memcpy(y + i * n, from, n * 4);
      else dequantize_row(w.type, from, y + i * n, n);
    }
  });
}

void CpuExec::norm(const Op &op) {
  const uint32_t source = op.src[BL_SRC_NORM_X], w_id = op.src[BL_SRC_NORM_W], b_id = op.src[BL_SRC_NORM_B];
  const Lines x = lines(source);
  const float *w = vector(w_id), *b = vector(b_id);
  // Weights of their own for each line along the second axis.
  const uint64_t w_step = w != nullptr && p_.tensors[w_id].ne[1] > 1 ? x.n : 0, b_step = b != nullptr && p_.tensors[b_id].ne[1] > 1 ? x.n : 0;
  const uint32_t kind = op.param[BL_PARAM_NORM_KIND];
  const float eps = op.param_f32(BL_PARAM_NORM_EPS);
  float *y = result(op.dst[0]);
  by_rows(n_lines(source), x.n, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t i = begin; i < end; i++) {
      const uint64_t i1 = w_step + b_step == 0 ? 0 : i % x.n1;
      k_.norm(kind, x.at(i), w == nullptr ? nullptr : w + i1 * w_step, b == nullptr ? nullptr : b + i1 * b_step, y + i * x.n, x.n, eps);
    }
  });
}

void CpuExec::unary(const Op &op) {
  const Lines x = runs(op.src[0]);
  float *y = result(op.dst[0]);
  const uint32_t kind = op.param[BL_PARAM_UNARY_KIND];
  const float a = op.param_f32(BL_PARAM_UNARY_A), b = op.param_f32(BL_PARAM_UNARY_B);
  by_rows(rows(op.src[0]) * x.per_row, 4 * x.n, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t i = begin; i < end; i++) k_.unary(kind, x.at(i), y + i * x.n, x.n, a, b);
  });
}

void CpuExec::gate(const Op &op) {
  const uint32_t one = op.src[BL_SRC_GATE_X], other = op.src[BL_SRC_GATE_Y];
  const bool whole = p_.tensors[one].packed() && p_.tensors[other].packed();
  const Lines x = whole ? runs(one) : lines(one), v = whole ? runs(other) : lines(other);
  float *z = result(op.dst[0]);
  const uint32_t kind = op.param[BL_PARAM_GATE_KIND];
  const float a = op.param_f32(BL_PARAM_GATE_A), b = op.param_f32(BL_PARAM_GATE_B);
  by_rows(rows(one) * x.per_row, 4 * x.n, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t i = begin; i < end; i++) k_.gate(kind, x.at(i), v.at(i), z + i * x.n, x.n, a, b);
  });
}

// Axes of length 1 are repeated: along the first by a kernel of its own, along others by a stride of 0.
void CpuExec::pair(const Op &op) {
  const Tensor &t = p_.tensors[op.dst[0]];
  struct Side {
    const float *base;
    uint64_t n, nb1, nb2, stride;
    bool whole;  // a row is t.row_elems numbers that lie together
  } side[2];
  for (int i = 0; i < 2; i++) {
    const Tensor &s = p_.tensors[op.src[size_t(i)]];
    const bool fixed = s.kind == BL_KIND_WEIGHT;
    side[i] = {fixed ? vector(op.src[size_t(i)]) : f32(op.src[size_t(i)]), s.dim[0], s.dim[1] == 1 ? 0 : s.nb[0], s.dim[2] == 1 ? 0 : s.nb[1],
               fixed ? 0 : s.row_stride, s.packed() && s.row_elems == t.row_elems};
  }
  const bool whole = side[0].whole && side[1].whole;
  const uint64_t n = whole ? t.row_elems : t.dim[0], n1 = whole ? 1 : t.dim[1], per_row = t.row_elems / n;
  const bool add = op.code == BL_OP_ADD;
  const auto both = add ? k_.add : k_.mul;
  const auto with_one = add ? k_.add_one : k_.mul_one;
  float *y = result(op.dst[0]);
  by_rows(rows(op.dst[0]) * per_row, n, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t i = begin; i < end; i++) {
      const uint64_t row = i / per_row, i1 = i % per_row % n1, i2 = i % per_row / n1;
      const auto at = [&](const Side &s) { return s.base + row * s.stride + i1 * s.nb1 + i2 * s.nb2; };
      const float *a = at(side[0]), *b = at(side[1]);
      if (side[0].n == side[1].n) both(a, b, y + i * n, n);
      else if (side[1].n == 1) with_one(a, *b, y + i * n, n);
      else with_one(b, *a, y + i * n, n);
    }
  });
}

void CpuExec::rope(const Op &op) {
  const Tensor &t = p_.tensors[op.src[BL_SRC_ROPE_X]];
  Angles &a = angles(op);
  const uint32_t n_rot = op.param[BL_PARAM_ROPE_N_ROT], offset = op.param[BL_PARAM_ROPE_OFFSET];
  const uint64_t half = n_rot / 2, n = t.row_elems;
  const float *cos = a.table.floats(), *sin = cos + half * p_.n_tok;
  const float *x = f32(op.src[BL_SRC_ROPE_X]);
  float *y = result(op.dst[0]);
  by_rows(in_->n_tok, n, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t r = begin; r < end; r++)
      k_.rope(x + r * t.row_stride, t.nb[0], y + r * n, cos + r * half, sin + r * half, uint32_t(t.dim[1]), uint32_t(t.dim[0]), offset, n_rot,
              op.param[BL_PARAM_ROPE_KIND] == BL_ROPE_HALVES);
  });
}

// bits: from 0, fma over j in order.
void CpuExec::mix(const Op &op) {
  const uint32_t w_id = op.src[BL_SRC_MIX_W];
  const Lines x = lines(op.src[BL_SRC_MIX_X]);
  const bool fixed = p_.tensors[w_id].kind == BL_KIND_WEIGHT;
  const uint64_t n = x.n, J = x.n1, M = p_.tensors[op.dst[0]].dim[1], w_row = fixed ? 0 : p_.tensors[w_id].row_stride;
  const uint64_t w_line = fixed ? J : p_.tensors[w_id].nb[0];
  const float *w = fixed ? vector(w_id) : f32(w_id);
  float *y = result(op.dst[0]);
  by_rows(rows(op.dst[0]), n * J * M, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t r = begin; r < end; r++)
      for (uint64_t m = 0; m < M; m++) {
        float *out = y + (r * M + m) * n;
        std::fill_n(out, n, 0.0f);
        for (uint64_t j = 0; j < J; j++) k_.axpy(w[r * w_row + m * w_line + j], x.of(r, j), out, n);
      }
  });
}

void CpuExec::dot(const Op &op) {
  const uint32_t b_id = op.src[BL_SRC_DOT_B];
  const Lines a = lines(op.src[BL_SRC_DOT_A]);
  const bool fixed = p_.tensors[b_id].kind == BL_KIND_WEIGHT;
  const float *w = fixed ? vector(b_id) : nullptr;
  const uint64_t w_step = fixed && p_.tensors[b_id].ne[1] > 1 ? a.n : 0;
  const Lines b = fixed ? a : lines(b_id);
  float *y = result(op.dst[0]);
  by_rows(n_lines(op.src[BL_SRC_DOT_A]), a.n, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t i = begin; i < end; i++) y[i] = k_.dot(a.at(i), fixed ? w + i % a.n1 * w_step : b.at(i), a.n);
  });
}

void CpuExec::softmax(const Op &op) {
  const Lines x = lines(op.src[0]);
  float *y = result(op.dst[0]);
  by_rows(n_lines(op.src[0]), 4 * x.n, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t i = begin; i < end; i++) k_.softmax(x.at(i), y + i * x.n, x.n);
  });
}

void CpuExec::concat(const Op &op) {
  const uint32_t axis = op.param[BL_PARAM_CONCAT_AXIS];
  const Tensor &t = p_.tensors[op.dst[0]];
  float *y = result(op.dst[0]);
  by_rows(rows(op.dst[0]), t.row_elems, [&](uint64_t begin, uint64_t end, uint32_t) {
    uint64_t at[3] = {0, 0, 0};  // where a part begins
    for (const uint32_t id : op.src) {
      const Lines x = lines(id);
      const Tensor &part = p_.tensors[id];
      for (uint64_t r = begin; r < end; r++)
        for (uint64_t i2 = 0; i2 < part.dim[2]; i2++)
          for (uint64_t i1 = 0; i1 < part.dim[1]; i1++)
            memcpy(y + r * t.row_elems + ((at[2] + i2) * t.dim[1] + at[1] + i1) * t.dim[0] + at[0], x.of(r, i1, i2), x.n * 4);
      at[axis] += part.dim[axis];
    }
  });
}

void CpuExec::copy(const Op &op) {
  const Lines x = runs(op.src[0]);
  float *y = result(op.dst[0]);
  by_rows(rows(op.src[0]) * x.per_row, x.n, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t i = begin; i < end; i++) memcpy(y + i * x.n, x.at(i), x.n * 4);
  });
}

// bits: every sum in order, in f32, from eps or 0.
void CpuExec::sinkhorn(const Op &op) {
  const Lines m = lines(op.src[BL_SRC_SINKHORN_M]);
  const float *scale = vector(op.src[BL_SRC_SINKHORN_SCALE]), *base = vector(op.src[BL_SRC_SINKHORN_BASE]);
  const uint64_t n = op.param[BL_PARAM_SINKHORN_N];
  const uint32_t iterations = op.param[BL_PARAM_SINKHORN_ITERATIONS];
  const float eps = op.param_f32(BL_PARAM_SINKHORN_EPS);
  float *pre = result(op.dst[BL_DST_SINKHORN_PRE]), *post = result(op.dst[BL_DST_SINKHORN_POST]), *comb = result(op.dst[BL_DST_SINKHORN_COMB]);
  by_rows(rows(op.src[0]), 8 * n * n * iterations, [&](uint64_t begin, uint64_t end, uint32_t thread) {
    std::vector<float> &values = scores_[thread];
    values.resize(m.n);
    for (uint64_t r = begin; r < end; r++) {
      const float *x = m.of(r);
      for (uint64_t i = 0; i < m.n; i++) values[i] = x[i] * scale[i < n ? 0 : i < 2 * n ? 1 : 2] + base[i];
      k_.unary(BL_UNARY_SIGMOID, values.data(), values.data(), 2 * n, 0, 0);
      for (uint64_t i = 0; i < n; i++) pre[r * n + i] = values[i] + eps, post[r * n + i] = 2.0f * values[n + i];
      float *A = values.data() + 2 * n;  // A[j][k] at n j + k
      for (uint64_t j = 0; j < n; j++) k_.softmax(A + j * n, A + j * n, n);
      for (uint64_t i = 0; i < n * n; i++) A[i] += eps;
      const auto divide = [&](uint64_t outer, uint64_t inner) {
        for (uint64_t line = 0; line < n; line++) {
          float sum = eps;
          for (uint64_t i = 0; i < n; i++) sum += A[line * outer + i * inner];
          for (uint64_t i = 0; i < n; i++) A[line * outer + i * inner] /= sum;
        }
      };
      divide(1, n);
      for (uint32_t i = 1; i < iterations; i++) divide(n, 1), divide(1, n);
      for (uint64_t j = 0; j < n; j++)
        for (uint64_t k = 0; k < n; k++) comb[(r * n + k) * n + j] = A[j * n + k];
    }
  });
}

}  // namespace bl
