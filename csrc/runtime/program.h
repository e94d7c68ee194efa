// program.h: an op program after parsing: every tensor with its shape, what its rows count and where it lies, every op with its
// operands checked. All backends compile from this, so that a malformed program is refused by one piece of code.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "../bloomery.h"
#include "../common/blocks.h"

namespace bl {

class DeviceTensor;
class DeviceCache;

constexpr uint64_t ARENA_ALIGN = 256;  // of every scratch tensor: a CUDA allocation's, a multiple of a cache line

// What the rows of a tensor count. A step computes only as many rows as its input names.
enum class Rows : uint8_t {
  fixed,  // weights: none of the step's counts
  tok,    // token rows
  out,    // output rows
};

// Element (i0, i1, i2) of row r of an activation or a step input lies `r * row_stride + i0 + i1 * nb[0] + i2 * nb[1]` elements behind
// `offset`, in the arena of its device or in the words of the input. The axis that counts rows is not among dim.
struct Tensor {
  bl_tensor_kind kind = BL_KIND_SCRATCH;
  uint32_t type = TYPE_F32;
  uint64_t ne[4] = {1, 1, 1, 1};  // fastest first; the row axis holds the bucket's size
  uint32_t ref = 0;
  uint32_t device = 0;
  uint32_t root = 0;              // the tensor that owns the memory: itself, or what a view looks at
  Rows rows = Rows::fixed;
  uint64_t dim[3] = {1, 1, 1};    // shape of one row. Weights: ne without its last axis
  uint64_t nb[2] = {1, 1};        // distance in elements of neighbours along dim[1] and dim[2]
  uint64_t row_elems = 0;         // dim[0] dim[1] dim[2]. Weights: all elements
  uint64_t row_stride = 0;        // of the root: its row_elems
  uint64_t start = 0;             // views: the first element in a row of the root
  uint64_t offset = 0;            // bytes from the arena or from the input's words to element 0 of row 0
  int32_t least = 0;              // i32 values lie in [least, limit), least 0 or -1; limit 0: not known
  uint64_t limit = 0;
  int32_t first = -1;             // ops that write it first and use it last (roots only)
  int32_t last = -1;

  uint64_t elems() const { return ne[0] * ne[1] * ne[2] * ne[3]; }
  bool is_input() const { return kind == BL_KIND_INPUT; }
  // A row's numbers lie one after the other.
  bool packed() const { return (dim[1] == 1 || nb[0] == dim[0]) && (dim[2] == 1 || nb[1] == dim[0] * dim[1]); }
  // So do the rows.
  bool dense() const { return packed() && row_stride == row_elems; }
};

// Operands and parameters are named BL_SRC_*, BL_DST_* and BL_PARAM_* in bloomery_ops.h.
struct Op {
  bl_op code;
  uint32_t device;
  std::vector<uint32_t> dst, src, param;

  bool has(size_t source) const { return src[source] != BL_NO_OPERAND; }
  float param_f32(size_t i) const {
    float v;
    memcpy(&v, &param[i], 4);
    return v;
  }
};

constexpr uint32_t REACH_ALL = 0xFFFFFFFFu;

// One cache of a program.
struct CacheUse {
  uint32_t n_page = 0;     // the most pages of one sequence
  uint32_t page_size = 0;  // of the cache
  uint32_t n_pages = 0;    // page ids are below this
  bool state = false;      // used by CONV or DELTA: page_size 1, one page a sequence
  bool rows = false;       // used by any other op
  bool written = false;
  uint32_t reach = 0;      // a row at position p uses the pages of positions p - reach + 1 .. p, those from 0 on; 0: none
};

// What a step hands in for each token row behind the five fixed inputs.
struct DerivedInput {
  uint32_t type = TYPE_I32;  // i32 or f32
  uint64_t n = 0;            // numbers of a row
  uint64_t limit = 0;        // i32: they lie in [-1, limit)
};

struct Program {
  uint32_t n_tok, n_out, n_seq;  // the bucket
  uint32_t device = 0;           // that every op runs on; of a program over several devices each has its part (segments.h)
  std::vector<CacheUse> caches;
  std::vector<DerivedInput> derived;
  std::vector<Tensor> tensors;
  std::vector<Op> ops;
  std::vector<uint32_t> outputs;      // tensor ids
  std::vector<uint64_t> arena_bytes;  // by device: scratch that the offsets lie in
  uint64_t token_limit = 0;           // token ids are below this (0: no op reads them)
  uint64_t position_limit = 0;        // positions that rows of a table are taken by are below this (0: no op does that)
  uint64_t target_limit = 0;          // target ids are below this (0: no op reads them)
  bool has_state = false;             // rows of a sequence ascend by one

  const Tensor &root(uint32_t id) const { return tensors[tensors[id].root]; }
  // Rows of tensor `id` in a step of n_tok token rows and n_out output rows.
  uint64_t step_rows(uint32_t id, uint32_t n_tok_step, uint32_t n_out_step) const {
    const Tensor &t = tensors[id];
    return t.rows == Rows::tok ? n_tok_step : t.rows == Rows::out ? n_out_step : 1;
  }
  // Those that ops run on, ascending.
  std::vector<uint32_t> devices() const;
  // A COPY of a value that another device holds: no kernel, but a place in the order of both (segments.h).
  bool crosses(const Op &op) const { return op.code == BL_OP_COPY && !root(op.src[0]).is_input() && tensors[op.src[0]].device != op.device; }
  uint64_t bucket_rows(uint32_t id) const { return step_rows(id, n_tok, n_out); }
  // Bytes of one row of tensor `id` when it is packed (scratch and inputs: four per element).
  uint64_t row_bytes(uint32_t id) const { return tensors[id].row_elems * 4; }
};

// Parses and checks `n_code` bytes of words and lays out the scratch arenas. Scratch of one device never overlaps while alive, nor
// within FUSE_WINDOW ops before its first and after its last use, so that a backend may run that many neighbouring ops, and the one
// before them, as one.
//   weights, caches  what BL_KIND_WEIGHT refs and cache params index; their types, shapes, uses and devices must fit the program
//   fails with BL_ERR_PROGRAM, naming op, tensor, found and wanted
constexpr int32_t FUSE_WINDOW = 6;
Program parse_program(const uint8_t *code, uint64_t n_code, const std::vector<const DeviceTensor *> &weights,
                      const std::vector<const DeviceCache *> &caches);

const char *op_name(uint32_t code);

}  // namespace bl
