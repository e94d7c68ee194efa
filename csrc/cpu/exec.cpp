// exec.cpp: prepares a program for the host and walks its ops. The ops are in ops_*.cpp.
#include "exec.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "expert_pool.h"

namespace bl {

CpuExec::CpuExec(ThreadPool &pool, std::shared_ptr<HostScratch> scratch, const Program &program, const std::vector<DeviceTensor *> &weights,
                 const std::vector<DeviceCache *> &caches)
    : pool_(pool), k_(kernels()), p_(program), scratch_(std::move(scratch)), matmul_(pool, k_) {
  for (DeviceTensor *w : weights) weights_.push_back(dynamic_cast<CpuTensor *>(w));
  for (DeviceCache *c : caches) caches_.push_back(dynamic_cast<CpuCache *>(c));
  prepare_all();
  prepare_guesses();
}

CpuExec::CpuExec(ThreadPool &pool, std::shared_ptr<HostScratch> scratch, const Program &program, const std::vector<const CpuTensor *> &weights)
    : pool_(pool), k_(kernels()), p_(program), weights_(weights), scratch_(std::move(scratch)), matmul_(pool, k_) {
  prepare_all();
}

void CpuExec::prepare_all() {
  arena_ = Scratch(scratch_, p_.arena_bytes.size() > p_.device ? p_.arena_bytes[p_.device] : 0);
  heaps_.resize(pool_.size());
  scores_.resize(pool_.size());
  for (const Op &op : p_.ops) prepare(op);
  matmul_.allocate(scratch_);
  buffer_ = Scratch(scratch_, buffer_floats_ * 4 * pool_.size());
  for (int i = 0; i < 2; i++) {
    list_[i] = Scratch(scratch_, list_rows_[i] * p_.n_tok * 4);
    n_list_[i] = Scratch(scratch_, list_rows_[i] == 0 ? 0 : p_.n_tok * 4);
  }
  index_scores_ = Scratch(scratch_, index_rows_ * INDEX_BATCH * 4);
  index_list_ = Scratch(scratch_, index_rows_ * INDEX_BATCH * 4);
}

// Room and tables that an op needs.
void CpuExec::prepare(const Op &op) {
  const auto need = [&](uint64_t n) { buffer_floats_ = std::max(buffer_floats_, n); };
  const auto dim = [&](uint32_t id, int axis) { return p_.tensors[id].dim[axis]; };
  const auto round8 = [](uint64_t n) { return (n + 7) / 8 * 8; };
  switch (op.code) {
    case BL_OP_MUL_MAT:
    case BL_OP_MUL_MAT_ID: {
      const Tensor &x = p_.tensors[op.src[1]];
      const uint64_t n_rows = op.code == BL_OP_MUL_MAT ? x.elems() / x.dim[0] : p_.tensors[op.src[2]].elems();
      if (op.code == BL_OP_MUL_MAT && dynamic_cast<const PooledTensor *>(&weight(op.src[0])) != nullptr)
        fail(BL_ERR_UNSUPPORTED, "Cannot create program: MUL_MAT reads weight %u, which is in a pool, expected MUL_MAT_ID", p_.tensors[op.src[0]].ref);
      matmul_.reserve(n_rows, weight(op.src[0]));
      break;
    }
    case BL_OP_ROPE: angles(op); break;
    case BL_OP_STREAM_WRITE: need(p_.tensors[op.src[0]].row_elems); break;
    case BL_OP_ATTENTION: {
      const uint32_t n_rep = uint32_t(dim(op.src[0], 1)) / op.param[BL_PARAM_ATTENTION_N_HEAD_KV];
      need(attention_buffer_floats(n_rep, uint32_t(dim(op.src[0], 0)), uint32_t(dim(op.dst[0], 0))));
      for (uint32_t i = 0; i < 2; i++) {
        const uint32_t select = op.src[BL_SRC_ATTENTION_SELECT_A + i];
        if (select == BL_NO_OPERAND) continue;
        const uint64_t unit = op.param[i == 0 ? BL_PARAM_ATTENTION_A_UNIT : BL_PARAM_ATTENTION_B_UNIT];
        list_rows_[i] = std::max(list_rows_[i], (dim(select, 0) + 1) * unit);
      }
      break;
    }
    case BL_OP_INDEX: {
      const uint32_t c = op.param[BL_PARAM_INDEX_K_CACHE];
      const uint32_t ratio = caches_[c]->shape.ratio[op.param[BL_PARAM_INDEX_K_STREAM]];
      index_rows_ = std::max(index_rows_, uint64_t(p_.caches[c].n_page) * p_.caches[c].page_size / ratio + 1);
      need(index_buffer_floats(uint32_t(dim(op.src[0], 1)), uint32_t(dim(op.src[0], 0))));
      break;
    }
    case BL_OP_POOL: {
      const bool overlap = op.param[BL_PARAM_POOL_OVERLAP] != 0;
      need(op.param[BL_PARAM_POOL_RATIO] * (overlap ? 4 : 2) * round8(dim(op.dst[0], 0) * (overlap ? 2 : 1)));
      break;
    }
    case BL_OP_DELTA: need(DELTA_ROWS * round8(dim(op.src[0], 0))); break;
    case BL_OP_CONV: {
      const uint32_t id = op.src[BL_SRC_CONV_W];
      for (const auto &known : taps_)
        if (known.first == id) return;
      const uint64_t n_tap = p_.tensors[id].ne[0], n = p_.tensors[id].ne[1];
      taps_.emplace_back(id, Buffer(n_tap * n * 4, "convolution weights"));
      if (vector(id) == nullptr) return;  // described
      float *out = taps_.back().second.floats();
      for (uint64_t c = 0; c < n; c++)
        for (uint64_t j = 0; j < n_tap; j++) out[j * n + c] = vector(id)[c * n_tap + j];
      break;
    }
    default: break;
  }
}

uint64_t CpuExec::scratch_bytes() const {
  uint64_t n = scratch_.bytes();
  for (const auto &t : taps_) n += t.second.size();
  return n;
}

CpuExec::Angles &CpuExec::angles(const Op &op) {
  const uint32_t inv_freq = op.src[BL_SRC_ROPE_INV_FREQ];
  const float mscale = op.param_f32(BL_PARAM_ROPE_MSCALE);
  const int32_t shift = int32_t(op.param[BL_PARAM_ROPE_SHIFT]);
  const bool inverse = op.param[BL_PARAM_ROPE_INVERSE] != 0;
  for (Angles &a : angles_)
    if (a.inv_freq == inv_freq && a.mscale == mscale && a.shift == shift && a.inverse == inverse) return a;
  const uint64_t n = p_.tensors[inv_freq].ne[0];
  angles_.push_back({inv_freq, mscale, shift, inverse, Scratch(scratch_, 2 * n * p_.n_tok * 4)});
  return angles_.back();
}

const uint8_t *CpuExec::data(uint32_t id) const {
  const Tensor &t = p_.tensors[id], &root = p_.root(id);
  return (root.is_input() ? reinterpret_cast<const uint8_t *>(in_->words(root.ref)) : arena_.data()) + t.offset;
}

Lines CpuExec::lines(uint32_t id) const {
  const Tensor &t = p_.tensors[id];
  return {data(id), t.dim[0], t.dim[1] * t.dim[2], t.dim[1], t.nb[0], t.nb[1], t.row_stride, t.dense()};
}

Lines CpuExec::runs(uint32_t id) const {
  const Tensor &t = p_.tensors[id];
  if (!t.packed()) return lines(id);
  return {data(id), t.row_elems, 1, 1, 0, 0, t.row_stride, t.dense()};
}

void CpuExec::find_runs() {
  runs_.clear();
  for (uint32_t t = 0; t < in_->n_tok;) {
    uint32_t end = t + 1;
    while (end < in_->n_tok && in_->seqs[end] == in_->seqs[t]) end++;
    runs_.push_back({t, end});
    t = end;
  }
}

void CpuExec::step(const StepInput &input, uint8_t *output, uint64_t mask) {
  begin(input);
  run_to(uint32_t(p_.ops.size()));
  for (size_t i = 0; i < p_.outputs.size(); i++) {
    if (((mask >> i) & 1) == 0) continue;
    take(p_.outputs[i], output);
    output += rows(p_.outputs[i]) * p_.row_bytes(p_.outputs[i]);
  }
}

void CpuExec::begin(const StepInput &input) {
  scratch_.memory()->need(scratch_.bytes());
  in_ = &input;
  next_ = 0;
  next_guess_ = 0;
  find_runs();
  // Angles are the f32 product of position and inverse frequency; their cosine and sine are taken in f64 and rounded once.
  for (Angles &a : angles_) {
    const uint64_t n = p_.tensors[a.inv_freq].ne[0];
    const float *inv_freq = vector(a.inv_freq);
    float *cos = a.table.floats(), *sin = cos + n * p_.n_tok;
    by_rows(input.n_tok, 32 * n, [&](uint64_t begin, uint64_t end, uint32_t) {
      for (uint64_t t = begin; t < end; t++) {
        const int64_t position = std::max<int64_t>(0, int64_t(input.positions[t]) + a.shift);
        for (uint64_t i = 0; i < n; i++) {
          const double angle = double(float(position) * inv_freq[i]);
          cos[t * n + i] = float(std::cos(angle)) * a.mscale;
          sin[t * n + i] = float(a.inverse ? -std::sin(angle) : std::sin(angle)) * a.mscale;
        }
      }
    });
  }
}

void CpuExec::run_to(uint32_t end) {
  while (next_ < end) {
    const size_t from = next_;
    next_ = run(from);
    guess(from, next_);
  }
}

void CpuExec::take(uint32_t id, uint8_t *to) {
  const Lines from = runs(id);
  const uint64_t n = rows(id) * from.per_row, bytes = from.n * 4;
  if (from.dense) memcpy(to, from.base, n * bytes);
  else
    for (uint64_t line = 0; line < n; line++) memcpy(to + line * bytes, from.at(line), bytes);
}

void CpuExec::give(uint32_t id, const uint8_t *from) { memcpy(result(id), from, rows(id) * p_.row_bytes(id)); }

size_t CpuExec::run(size_t i) {
  const Op &op = p_.ops[i];
  if (!op.dst.empty() && rows(op.dst[0]) == 0) return i + 1;  // a step that wants no output rows
  switch (op.code) {
    case BL_OP_MUL_MAT: return mul_mat(i);
    case BL_OP_MUL_MAT_ID: return mul_mat_id(i);
    case BL_OP_STREAM_WRITE: return stream_write(i);
    case BL_OP_GET_ROWS: get_rows(op); break;
    case BL_OP_NORM: norm(op); break;
    case BL_OP_ADD:
    case BL_OP_MUL: pair(op); break;
    case BL_OP_UNARY: unary(op); break;
    case BL_OP_GATE: gate(op); break;
    case BL_OP_ROPE: rope(op); break;
    case BL_OP_ATTENTION: attention(op); break;
    case BL_OP_INDEX: index(op); break;
    case BL_OP_POOL: this->pool(op); break;
    case BL_OP_ROUTER: router(op); break;
    case BL_OP_MIX: mix(op); break;
    case BL_OP_CONCAT: concat(op); break;
    case BL_OP_SOFTMAX: softmax(op); break;
    case BL_OP_CONV: conv(op); break;
    case BL_OP_DELTA: delta(op); break;
    case BL_OP_SQUARES: squares(op); break;
    case BL_OP_SINKHORN: sinkhorn(op); break;
    case BL_OP_DOT: dot(op); break;
    case BL_OP_TOP_K: top_k(op); break;
    case BL_OP_TARGET_LOGPROB: target_logprob(op); break;
    case BL_OP_COPY:
      if (!p_.crosses(op)) copy(op);
      break;
    case BL_OP_COUNT: break;
  }
  return i + 1;
}

}  // namespace bl
