// compiler.h: turns a checked program into launches, running neighbouring ops as one kernel where that is the same arithmetic.
//
// What is fused (a launch runs at its first op's place; the arena keeps values apart within FUSE_WINDOW ops):
//   matrix products that read the same rows            -> one launch, rows encoded once
//   ADD, EXPERT_SUM, GET_ROWS before an RMS_NORM       -> one row kernel
//   a norm, SILU_MUL or ADD before products            -> encodes its result on the way
//   RMS_NORM over heads, ROPE, KV_WRITE                -> one kernel for q, k and v
#pragma once

#include "exec.h"
#include "heads.h"
#include "matmul.h"
#include "rows.h"

namespace bl::cuda {

class Compiler {
 public:
  Compiler(CudaExec &exec, const std::vector<DeviceTensor *> &weights, const std::vector<DeviceCache *> &caches);
  void run();

 private:
  // An encoding of a tensor's rows: which tensor, row length, and whether bf16 planes.
  struct EncodingKey {
    uint32_t root;
    uint64_t n;
    bool bf16;
    bool operator<(const EncodingKey &o) const { return root != o.root ? root < o.root : n != o.n ? n < o.n : bf16 < o.bf16; }
  };
  struct Encoding {
    Encoded encoded;
    size_t buffer;
    uint32_t uses_left;  // products that have not read it yet
  };

  void place_inputs();
  void count_uses();
  void emit(uint32_t i);
  void emit_rows(uint32_t i);
  void emit_heads(uint32_t i);
  void emit_products(uint32_t i);
  void emit_routed(uint32_t i);
  void emit_attention(uint32_t i);
  void emit_router(uint32_t i);
  void emit_top_k(uint32_t i);

  const Tensor &tensor(uint32_t id) const { return p_.tensors[id]; }
  uint32_t root(uint32_t id) const { return p_.tensors[id].root; }
  uint8_t *address(uint32_t id) const;
  template <class T>
  T *at(uint32_t id) const { return reinterpret_cast<T *>(address(id)); }
  const CudaTensor &weight(uint32_t id) const { return *static_cast<const CudaTensor *>(weights_[tensor(id).ref]); }
  const int32_t *input(uint32_t offset) const { return exec_.inputs_.as<int32_t>() + offset; }
  RowCount rows_of(uint32_t id, uint64_t n) const;
  uint8_t *allocate(uint64_t bytes, const char *what);
  bool is_op(uint32_t i, bl_op code) const { return i < p_.ops.size() && !done_[i] && p_.ops[i].code == code; }
  bool made(uint32_t id) const {                     // its values exist by now
    return p_.root(id).first < 0 || done_[size_t(p_.root(id).first)];
  }
  bool only_use(uint32_t id, uint32_t op) const;     // no other op reads it and no output is it
  bool needs_values(uint32_t id, uint64_t n) const;  // someone reads its f32 values, not only its encoded rows of n
  void add_encodings(uint32_t id, RowsArgs &args);   // those that products will read, made by this kernel
  Encoded encoded(uint32_t id, uint64_t n, bool bf16);  // for a product; encodes now if nobody has
  Encoding &make_encoding(const EncodingKey &key, uint32_t id);
  void used_encoding(uint32_t id, uint64_t n, bool bf16, uint32_t times);
  bool head_rope(uint32_t i, HeadJob &job, uint32_t &n_op, uint32_t &result) const;
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
  uint8_t *states_ = nullptr, *group_ = nullptr;  // one for all layers
  uint64_t states_bytes_ = 0;
  uint32_t grouped_ids_ = NO_TENSOR;            // the routing that group_ holds
  uint32_t grouped_columns_ = 0;
};

}  // namespace bl::cuda
