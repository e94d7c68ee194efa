// compiler.h: turns a checked program into launches, running neighbouring ops as one kernel where that is the same arithmetic.
//
// What is fused (a launch runs at its first op's place; the arena keeps values apart within FUSE_WINDOW ops):
//   matrix products that read the same rows            -> one launch, rows encoded once
//   ADD, MIX of experts, GET_ROWS before an RMS NORM   -> one row kernel
//   a norm, GATE or ADD before products                -> encodes its result on the way
//   NORM over heads, ROPE, STREAM_WRITE                -> one kernel for q, k and v
// compiler.cu has these; compiler_general.cu what runs op by op, over any slices.
#pragma once

#include "exec.h"
#include "heads.h"
#include "matmul.h"
#include "operand.h"
#include "rows.h"

namespace bl::cuda {

class Compiler {
 public:
  Compiler(CudaExec &exec, const std::vector<DeviceTensor *> &weights, const std::vector<DeviceCache *> &caches);
  void run();

 private:
  // An encoding of vectors of n numbers, from `start` of a root's first row on, `step` apart.
  struct EncodingKey {
    uint32_t root;
    uint64_t start, n, step;
    bool bf16;
    bool operator<(const EncodingKey &o) const {
      if (root != o.root) return root < o.root;
      if (start != o.start) return start < o.start;
      if (n != o.n) return n < o.n;
      return step != o.step ? step < o.step : bf16 < o.bf16;
    }
    bool operator==(const EncodingKey &o) const { return !(*this < o) && !(o < *this); }
  };
  struct Encoding {
    Encoded encoded;
    size_t buffer;
    uint32_t uses_left;  // products that have not read it yet
  };

  void place_inputs();
  void count_uses();
  void emit(uint32_t i);
  bool emit_rows(uint32_t i);  // false: not rows that the row kernel takes
  bool emit_heads(uint32_t i);
  void emit_products(uint32_t i);
  void emit_routed(uint32_t i);
  void emit_attention(uint32_t i);
  void emit_crossing(uint32_t i);

  // compiler_general.cu
  void emit_table(const Op &op);
  void emit_host_table(const Op &op);
  void emit_elements(const Op &op);
  void emit_mix(const Op &op);
  void emit_concat(const Op &op);
  void emit_line(const Op &op);
  void emit_general_attention(const Op &op);
  void emit_index(const Op &op);
  void emit_pool(const Op &op);
  void emit_router(const Op &op);
  void emit_conv(const Op &op);
  void emit_delta(const Op &op);
  void emit_sinkhorn(const Op &op);
  void emit_top_k(const Op &op);
  void emit_target_logprob(const Op &op);

  const Tensor &tensor(uint32_t id) const { return p_.tensors[id]; }
  uint32_t root(uint32_t id) const { return p_.tensors[id].root; }
  uint8_t *address(uint32_t id) const;
  template <class T>
  T *at(uint32_t id) const { return reinterpret_cast<T *>(address(id)); }
  const float *optional(const Op &op, size_t source) const { return op.has(source) ? at<float>(op.src[source]) : nullptr; }
  const CudaTensor &weight(uint32_t id) const { return *static_cast<const CudaTensor *>(weights_[tensor(id).ref]); }
  const CudaCache &cache(uint32_t c) const { return *static_cast<const CudaCache *>(caches_[c]); }
  const int32_t *input(uint32_t offset) const { return exec_.inputs_.as<int32_t>() + offset; }
  const StepCounts *counts() const { return exec_.inputs_.as<StepCounts>(); }
  CachePages pages(uint32_t c) const { return {input(exec_.at_.pages[c]), p_.caches[c].n_page, p_.caches[c].page_size}; }
  RowCount rows_of(uint32_t id, uint64_t n) const;       // vectors of n numbers
  RowCount token_rows() const { return {&counts()->n_tok, 1, p_.n_tok}; }
  uint8_t *allocate(uint64_t bytes, const char *what);
  bool is_op(uint32_t i, bl_op code) const { return i < p_.ops.size() && !done_[i] && p_.ops[i].code == code; }
  bool is_rms(uint32_t i) const;                         // an RMS NORM with one weight vector, or none, and no bias
  bool made(uint32_t id) const {                         // its values exist by now
    return p_.root(id).first < 0 || done_[size_t(p_.root(id).first)];
  }
  bool whole(uint32_t id) const;                         // all of its root, dense
  bool same(uint32_t view, uint32_t id) const { return root(view) == root(id) && whole(view) && whole(id); }
  bool lines(uint32_t id, uint64_t n, uint64_t &step) const;  // vectors of n numbers lie `step` apart
  bool only_use(uint32_t id, uint32_t op) const;         // no other op reads it and no output is it
  bool needs_values(uint32_t id, uint64_t n) const;      // someone reads its f32 values, not only its encoded rows of n
  Operand operand(uint32_t id) const;
  Result result(uint32_t id) const;
  const uint8_t *dense(uint32_t id);                     // its numbers without gaps: a copy where they have some

  EncodingKey key_of(uint32_t id, uint64_t n, bool bf16) const;
  void add_encodings(uint32_t id, uint64_t n, RowsArgs &args);  // those that products will read, made by this kernel
  Encoded encoded(uint32_t id, bool bf16);               // for a product; encodes now if nobody has
  Encoding &make_encoding(const EncodingKey &key, uint32_t id);
  void used_encoding(uint32_t id, bool bf16, uint32_t times);
  bool head_rope(uint32_t i, HeadJob &job, uint32_t &n_op, uint32_t &result) const;
  HeadJob write_job(const Op &op) const;
  AttentionKind attention_kind_of(const Op &op) const;
  void group(MatmulArgs &args, uint32_t n_expert, bool bf16, uint64_t routing);
  const int32_t *heads_as_experts(uint32_t n_head, uint32_t rows);
  void launch_products(const MatmulArgs &args);
  template <class F>
  void push(F f) { exec_.launches_.push_back(f); }

  CudaExec &exec_;
  CudaDevice &device_;
  const Program &p_;
  const std::vector<DeviceTensor *> &weights_;
  const std::vector<DeviceCache *> &caches_;
  std::vector<bool> done_;
  std::vector<std::vector<uint32_t>> readers_;  // by root: ops that read it
  std::vector<bool> is_output_;                 // by root
  std::map<EncodingKey, uint32_t> wanted_;      // products that will read each encoding
  std::map<EncodingKey, Encoding> encodings_;
  std::multimap<uint64_t, size_t> free_;        // buffers of encodings nobody reads any more, by size
  uint8_t *states_ = nullptr, *group_ = nullptr, *index_ = nullptr;  // one for all layers
  uint64_t states_bytes_ = 0, group_pairs_ = 0, index_bytes_ = 0;
  uint64_t grouped_ = ~0ull;                    // the routing that group_ holds
  uint32_t grouped_columns_ = 0;
  std::map<uint32_t, const int32_t *> head_ids_;
};

}  // namespace bl::cuda
