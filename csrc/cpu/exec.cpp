// exec.cpp: prepares a program for the host and walks its ops. The ops are in ops_*.cpp.
#include "exec.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace bl {

CpuExec::CpuExec(ThreadPool &pool, const Program &program, const std::vector<DeviceTensor *> &weights,
                 const std::vector<DeviceCache *> &caches)
    : pool_(pool), k_(kernels()), p_(program), matmul_(pool, k_) {
  for (DeviceTensor *w : weights) weights_.push_back(dynamic_cast<CpuTensor *>(w));
  for (DeviceCache *c : caches) caches_.push_back(dynamic_cast<CpuCache *>(c));
  arena_ = Buffer(p_.arena_bytes[0], "scratch");
  heaps_.resize(pool.size());
  for (const Op &op : p_.ops) {
    if (op.code == BL_OP_MUL_MAT || op.code == BL_OP_MUL_MAT_ID) {
      const Tensor &x = p_.tensors[op.src[1]];
      const uint64_t n_rows = op.code == BL_OP_MUL_MAT ? x.elems() / x.ne[0] : p_.tensors[op.src[2]].elems();
      matmul_.reserve(n_rows, x.ne[0], weight(op.src[0]).layout != Layout::rows);
      for (size_t i = 4; i < op.src.size(); i++) matmul_.reserve(n_rows, x.ne[0], weight(op.src[i]).layout != Layout::rows);
    }
    if (op.code == BL_OP_ROPE) angles(op);
    if (op.code == BL_OP_ATTENTION) {
      const Tensor &q = p_.tensors[op.src[0]], &y = p_.tensors[op.dst[0]];
      attention_floats_ = std::max(attention_floats_, attention_buffer_floats(uint32_t(q.ne[1]), op.param[ATT_N_HEAD_KV], uint32_t(q.ne[0]),
                                                                              uint32_t(y.ne[0])));
    }
  }
  matmul_.allocate();
  attention_buffer_ = Buffer(attention_floats_ * 4 * pool.size(), "attention");
}

uint64_t CpuExec::scratch_bytes() const {
  uint64_t n = arena_.size() + attention_buffer_.size() + matmul_.bytes();
  for (const Angles &a : angles_) n += a.table.size();
  return n;
}

CpuExec::Angles &CpuExec::angles(const Op &op) {
  const uint32_t inv_freq = op.src[2];
  const float mscale = op.param_f32(ROPE_MSCALE);
  for (Angles &a : angles_)
    if (a.inv_freq == inv_freq && a.mscale == mscale) return a;
  const uint64_t n = p_.tensors[inv_freq].ne[0];
  angles_.push_back({inv_freq, mscale, Buffer(2 * n * p_.n_tok * 4, "rotation angles")});
  return angles_.back();
}

void CpuExec::step(const StepInput &input, uint8_t *output, uint64_t mask) {
  in_ = &input;
  // Angles are the f32 product of position and inverse frequency; their cosine and sine are taken in f64 and rounded once.
  for (Angles &a : angles_) {
    const uint64_t n = p_.tensors[a.inv_freq].ne[0];
    const float *inv_freq = weight(a.inv_freq).vector();
    float *cos = a.table.floats(), *sin = cos + n * p_.n_tok;
    by_rows(input.n_tok, 32 * n, [&](uint64_t begin, uint64_t end, uint32_t) {
      for (uint64_t t = begin; t < end; t++)
        for (uint64_t i = 0; i < n; i++) {
          const double angle = double(float(input.positions[t]) * inv_freq[i]);
          cos[t * n + i] = float(std::cos(angle)) * a.mscale;
          sin[t * n + i] = float(std::sin(angle)) * a.mscale;
        }
    });
  }
  for (size_t i = 0; i < p_.ops.size();) i = run(i);
  for (size_t i = 0; i < p_.outputs.size(); i++) {
    if (((mask >> i) & 1) == 0) continue;
    const uint32_t id = p_.outputs[i];
    const uint64_t n = rows(id) * p_.row_bytes(id);
    memcpy(output, f32(id), n);
    output += n;
  }
}

size_t CpuExec::run(size_t i) {
  const Op &op = p_.ops[i];
  if (!op.dst.empty() && rows(op.dst[0]) == 0) return i + 1;  // a step that wants no output rows
  switch (op.code) {
    case BL_OP_MUL_MAT: return mul_mat(i);
    case BL_OP_MUL_MAT_ID: return mul_mat_id(i);
    case BL_OP_EMBED_ROWS: embed_rows(op); break;
    case BL_OP_RMS_NORM: rms_norm(op); break;
    case BL_OP_ADD: add(op); break;
    case BL_OP_SILU_MUL: silu_mul(op); break;
    case BL_OP_ROPE: rope(op); break;
    case BL_OP_KV_WRITE: kv_write(op); break;
    case BL_OP_ATTENTION: attention(op); break;
    case BL_OP_ROUTER: router(op); break;
    case BL_OP_EXPERT_SUM: expert_sum(op); break;
    case BL_OP_GET_ROWS: get_rows(op); break;
    case BL_OP_TOP_K: top_k(op); break;
    case BL_OP_TARGET_LOGPROB: target_logprob(op); break;
  }
  return i + 1;
}

}  // namespace bl
