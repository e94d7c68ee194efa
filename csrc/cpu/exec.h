// exec.h: runs a program on the host.
#pragma once

#include <memory>
#include <vector>

#include "../runtime/device.h"
#include "lookahead.h"
#include "matmul.h"
#include "tensor.h"

namespace bl {

// The numbers of a value, a line along the first axis at a time. Lines of a row come in the order of its other axes.
struct Lines {
  const uint8_t *base;        // four bytes a number
  uint64_t n;                 // numbers of a line
  uint64_t per_row, n1;       // lines of a row, lines along the second axis
  uint64_t nb1, nb2, stride;  // distances in numbers: along axes 1 and 2, of rows
  bool dense;                 // line i begins at number i * n

  const float *at(uint64_t line) const {
    if (dense) return reinterpret_cast<const float *>(base) + line * n;
    const uint64_t row = line / per_row, i = line % per_row;
    return of(row, i % n1, i / n1);
  }
  const float *of(uint64_t row, uint64_t i1 = 0, uint64_t i2 = 0) const {
    return reinterpret_cast<const float *>(base) + row * stride + i1 * nb1 + i2 * nb2;
  }
};

constexpr uint32_t PASS_ROWS = 32;   // token rows from which a step is a pass over a prompt, and no sign of what the next tokens need
constexpr uint64_t INDEX_BATCH = 16;  // token rows whose scores INDEX keeps at once

class CpuExec : public Exec {
 public:
  // Weights and caches may be described only; the program is measured then and cannot run.
  CpuExec(ThreadPool &pool, std::shared_ptr<HostScratch> scratch, const Program &program, const std::vector<DeviceTensor *> &weights,
          const std::vector<DeviceCache *> &caches);
  uint64_t scratch_bytes() const override;
  uint64_t shared_bytes() const { return scratch_.bytes(); }  // of it, what other programs use as well
  void step(const StepInput &input, uint8_t *output, uint64_t mask) override;
  void begin(const StepInput &input) override;
  void run_to(uint32_t end) override;
  void take(uint32_t id, uint8_t *rows) override;
  void give(uint32_t id, const uint8_t *rows) override;

 private:
  // A part of another program, on the same weights and without caches.
  CpuExec(ThreadPool &pool, std::shared_ptr<HostScratch> scratch, const Program &program, const std::vector<const CpuTensor *> &weights);
  void prepare_all();
  void prepare_guesses();
  void guess(size_t begin, size_t end);

  // cos and sin of one inverse-frequency table for the rows of a step, shared by all layers.
  struct Angles {
    uint32_t inv_freq;  // tensor id
    float mscale;
    int32_t shift;
    bool inverse;
    Scratch table;  // cos [n_tok, n], sin [n_tok, n]
  };
  const uint8_t *data(uint32_t id) const;  // element 0 of row 0 of an activation or a step input
  const float *f32(uint32_t id) const { return reinterpret_cast<const float *>(data(id)); }
  const int32_t *i32(uint32_t id) const { return reinterpret_cast<const int32_t *>(data(id)); }
  float *result(uint32_t id) { return reinterpret_cast<float *>(arena_.data() + p_.tensors[id].offset); }
  int32_t *int_result(uint32_t id) { return reinterpret_cast<int32_t *>(result(id)); }
  Lines lines(uint32_t id) const;
  // Lines of the longest run that lies together: of whole rows where all numbers do.
  Lines runs(uint32_t id) const;
  uint64_t n_lines(uint32_t id) const { return rows(id) * (p_.tensors[id].row_elems / p_.tensors[id].dim[0]); }
  const CpuTensor &weight(uint32_t id) const { return *weights_[p_.tensors[id].ref]; }
  const float *vector(uint32_t id) const { return id == BL_NO_OPERAND ? nullptr : weight(id).vector(); }
  uint64_t rows(uint32_t id) const { return p_.step_rows(id, in_->n_tok, in_->n_out); }
  // Runs body(begin, end, thread) over n_rows rows that cost as much as n elements each: a thread takes some 16,000 at a time.
  template <class F>
  void by_rows(uint64_t n_rows, uint64_t n, const F &body) {
    pool_.run(n_rows, 1 + 16384 / (n + 1), body);
  }
  Angles &angles(const Op &op);
  void prepare(const Op &op);
  void find_runs();

  size_t run(size_t op);  // runs op, and those after it that it is run together with; returns the next
  size_t mul_mat(size_t op);
  size_t mul_mat_id(size_t op);
  size_t stream_write(size_t op);
  void get_rows(const Op &op);
  void norm(const Op &op);
  void pair(const Op &op);
  void unary(const Op &op);
  void gate(const Op &op);
  void rope(const Op &op);
  void mix(const Op &op);
  void dot(const Op &op);
  void softmax(const Op &op);
  void concat(const Op &op);
  void copy(const Op &op);
  void sinkhorn(const Op &op);
  void attention(const Op &op);
  void index(const Op &op);
  void pool(const Op &op);
  void conv(const Op &op);
  void delta(const Op &op);
  void squares(const Op &op);
  void router(const Op &op);
  void top_k(const Op &op);
  void target_logprob(const Op &op);
  AttentionSegment segment(const Op &op, size_t first_param, size_t select, uint32_t which, const int32_t *sees);
  void list_rows(const Op &op, size_t select, uint32_t unit, uint32_t which, const int32_t *sees, AttentionSegment &segment);
  const int32_t *seen_until(uint32_t ahead);

  ThreadPool &pool_;
  const Kernels &k_;
  const Program &p_;
  std::vector<const CpuTensor *> weights_;
  std::vector<CpuCache *> caches_;
  ScratchLayout scratch_;
  Scratch arena_;
  Matmul matmul_;
  std::vector<Angles> angles_;
  std::vector<std::pair<uint32_t, Buffer>> taps_;  // CONV weights by tensor id, [K][C]
  Scratch buffer_;                                 // buffer_floats_ for each thread: attention, POOL, INDEX, DELTA
  uint64_t buffer_floats_ = 0;
  uint64_t list_rows_[2] = {0, 0};                 // numbers that a token row lists in a segment at most
  Scratch list_[2], n_list_[2];
  uint64_t index_rows_ = 0;                        // rows of a stream that an INDEX scores for one token row at most
  Scratch index_scores_, index_list_;              // INDEX_BATCH token rows of them
  std::vector<RowBlock> runs_;  // the rows of each sequence
  std::vector<int32_t> sees_;   // of ATTENTION that looks ahead
  std::vector<RowBlock> blocks_;
  std::vector<uint32_t> expert_count_, expert_row_, used_experts_;
  std::vector<std::vector<std::pair<float, int32_t>>> heaps_;  // by thread
  std::vector<std::vector<float>> scores_;                     // by thread
  struct Guess {
    Lookahead what;
    std::unique_ptr<CpuExec> exec;  // of the slice
  };
  std::vector<std::unique_ptr<Guess>> guesses_;  // in the order of the ops behind which they are made
  size_t next_guess_ = 0;
  std::vector<uint32_t> guessed_;
  const StepInput *in_ = nullptr;
  size_t next_ = 0;  // the first op of the step that has not run
};

}  // namespace bl
