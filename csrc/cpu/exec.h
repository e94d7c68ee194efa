// exec.h: runs a program on the host.
#pragma once

#include <memory>
#include <vector>

#include "../runtime/device.h"
#include "matmul.h"
#include "tensor.h"

namespace bl {

class CpuExec : public Exec {
 public:
  CpuExec(ThreadPool &pool, const Program &program, const std::vector<DeviceTensor *> &weights, const std::vector<DeviceCache *> &caches);
  uint64_t scratch_bytes() const override;
  void step(const StepInput &input, uint8_t *output, uint64_t mask) override;

 private:
  // cos and sin of one inverse-frequency table for the rows of a step, shared by all layers.
  struct Angles {
    uint32_t inv_freq;  // tensor id
    float mscale;
    Buffer table;       // cos [n_tok, n], sin [n_tok, n]
  };

  float *f32(uint32_t id) { return arena_.floats() + p_.tensors[id].offset / 4; }
  int32_t *i32(uint32_t id) { return reinterpret_cast<int32_t *>(arena_.data() + p_.tensors[id].offset); }
  const CpuTensor &weight(uint32_t id) const { return *weights_[p_.tensors[id].ref]; }
  uint64_t rows(uint32_t id) const { return p_.step_rows(id, in_->n_tok, in_->n_out); }
  // Runs body(begin, end, thread) over n_rows rows that cost as much as n elements each: a thread takes some 16,000 at a time.
  template <class F>
  void by_rows(uint64_t n_rows, uint64_t n, const F &body) {
    pool_.run(n_rows, 1 + 16384 / (n + 1), body);
  }
  Angles &angles(const Op &op);

  size_t run(size_t op);  // runs op, and those after it that it is run together with; returns the next
  size_t mul_mat(size_t op);
  size_t mul_mat_id(size_t op);
  void embed_rows(const Op &op);
  void rms_norm(const Op &op);
  void add(const Op &op);
  void silu_mul(const Op &op);
  void rope(const Op &op);
  void kv_write(const Op &op);
  void attention(const Op &op);
  void router(const Op &op);
  void expert_sum(const Op &op);
  void get_rows(const Op &op);
  void top_k(const Op &op);
  void target_logprob(const Op &op);

  ThreadPool &pool_;
  const Kernels &k_;
  const Program &p_;
  std::vector<const CpuTensor *> weights_;
  std::vector<CpuCache *> caches_;
  Buffer arena_;
  Matmul matmul_;
  std::vector<Angles> angles_;
  Buffer attention_buffer_;  // attention_floats_ for each thread
  uint64_t attention_floats_ = 0;
  std::vector<RowBlock> blocks_;
  std::vector<uint32_t> expert_count_, expert_row_;
  std::vector<std::vector<std::pair<float, int32_t>>> heaps_;  // by thread
  const StepInput *in_ = nullptr;
};

}  // namespace bl
