// ops_rows.cpp: the ops that work row by row: embedding, norm, sums, activation, rotation, row copies, expert mixing.
#include <algorithm>
#include <cstring>

#include "../common/quantize.h"
#include "exec.h"

namespace bl {

void CpuExec::embed_rows(const Op &op) {
  const CpuTensor &table = weight(op.src[0]);
  const uint64_t n = table.ne[0];
  float *y = f32(op.dst[0]);
  by_rows(in_->n_tok, n, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t t = begin; t < end; t++)
      dequantize_row(table.type, table.rows + uint64_t(uint32_t(in_->tokens[t])) * table.row_bytes, y + t * n, n);
  });
}

void CpuExec::rms_norm(const Op &op) {
  const Tensor &t = p_.tensors[op.src[0]];
  const uint64_t n = t.ne[0];
  const float *x = f32(op.src[0]), *w = weight(op.src[1]).vector();
  float *y = f32(op.dst[0]);
  const float eps = op.param_f32(0);
  by_rows(rows(op.src[0]) * (t.row_elems / n), n, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t r = begin; r < end; r++) k_.rms_norm(x + r * n, w, y + r * n, n, eps);
  });
}

void CpuExec::add(const Op &op) {
  const Tensor &t = p_.tensors[op.src[0]];
  const bool bias = p_.tensors[op.src[1]].kind == BL_KIND_WEIGHT;
  const uint64_t n = bias ? t.ne[0] : t.row_elems;
  const float *a = f32(op.src[0]), *b = bias ? weight(op.src[1]).vector() : f32(op.src[1]);
  float *y = f32(op.dst[0]);
  by_rows(rows(op.src[0]) * (t.row_elems / n), n, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t r = begin; r < end; r++) k_.add(a + r * n, bias ? b : b + r * n, y + r * n, n);
  });
}

void CpuExec::silu_mul(const Op &op) {
  const uint64_t n = p_.tensors[op.src[0]].row_elems;
  const float *a = f32(op.src[0]), *b = f32(op.src[1]);
  float *y = f32(op.dst[0]);
  by_rows(rows(op.src[0]), 4 * n, [&](uint64_t begin, uint64_t end, uint32_t) {
    k_.silu_mul(a + begin * n, b + begin * n, y + begin * n, (end - begin) * n);
  });
}

void CpuExec::rope(const Op &op) {
  const Tensor &t = p_.tensors[op.src[0]];
  const Angles &a = angles(op);
  const uint64_t half = op.param[ROPE_N_ROT] / 2, n = t.row_elems;
  const float *cos = const_cast<Angles &>(a).table.floats(), *sin = cos + half * p_.n_tok;
  const float *x = f32(op.src[0]);
  float *y = f32(op.dst[0]);
  by_rows(in_->n_tok, n, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t r = begin; r < end; r++)
      k_.rope(x + r * n, y + r * n, cos + r * half, sin + r * half, uint32_t(t.ne[1]), uint32_t(t.ne[0]), op.param[ROPE_N_ROT],
              op.param[ROPE_KIND] == BL_ROPE_HALVES);
  });
}

void CpuExec::expert_sum(const Op &op) {
  const Tensor &t = p_.tensors[op.src[0]];
  const uint64_t n = t.ne[0], k = t.ne[1];
  const float *x = f32(op.src[0]), *w = f32(op.src[1]);
  float *y = f32(op.dst[0]);
  by_rows(rows(op.src[0]), n * k, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t r = begin; r < end; r++) {
      std::fill_n(y + r * n, n, 0.0f);
      for (uint64_t i = 0; i < k; i++) k_.axpy(w[r * k + i], x + (r * k + i) * n, y + r * n, n);
    }
  });
}

void CpuExec::get_rows(const Op &op) {
  const uint64_t n = p_.tensors[op.src[0]].ne[0];
  const float *x = f32(op.src[0]);
  float *y = f32(op.dst[0]);
  for (uint32_t i = 0; i < in_->n_out; i++) memcpy(y + i * n, x + uint64_t(uint32_t(in_->out_rows[i])) * n, n * 4);
}

}  // namespace bl
