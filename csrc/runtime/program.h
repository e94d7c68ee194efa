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

constexpr uint32_t NO_TENSOR = 0xFFFFFFFFu;
constexpr uint64_t ARENA_ALIGN = 256;  // of every scratch tensor: a CUDA allocation's, a multiple of a cache line

// What the rows of a tensor count. A step computes only as many rows as its input names.
enum class Rows : uint8_t {
  fixed,  // weights: none of the step's counts
  tok,    // token rows
  out,    // output rows
};

struct Tensor {
  bl_tensor_kind kind = BL_KIND_SCRATCH;
  uint32_t type = TYPE_F32;
  uint64_t ne[4] = {1, 1, 1, 1};  // fastest first; the row dimension holds the bucket's size
  uint32_t ref = 0;
  uint32_t device = 0;
  uint32_t root = 0;       // the tensor that owns the memory: itself, or what a view looks at in the end
  Rows rows = Rows::fixed;
  uint64_t row_elems = 0;  // elements of one row: row r is [r * row_elems, (r + 1) * row_elems). All elements when rows is fixed
  uint64_t offset = 0;     // scratch (and views of it): byte offset in its device's arena
  uint64_t limit = 0;      // i32: values lie in [0, limit); 0 = not known
  int32_t first = -1;      // ops that write it first and use it last (roots only)
  int32_t last = -1;

  uint64_t elems() const { return ne[0] * ne[1] * ne[2] * ne[3]; }
};

struct Op {
  bl_op code;
  uint32_t device;
  std::vector<uint32_t> dst, src, param;

  float param_f32(size_t i) const {
    float v;
    memcpy(&v, &param[i], 4);
    return v;
  }
};

// Names for param[] of the ops that have several.
enum RopeParam { ROPE_KIND, ROPE_N_ROT, ROPE_MSCALE };
enum KvParam { KV_CACHE, KV_K_STREAM, KV_V_STREAM };
enum AttentionParam { ATT_CACHE, ATT_K_STREAM, ATT_V_STREAM, ATT_N_HEAD_KV, ATT_SCALE, ATT_WINDOW };
enum RouterParam { ROUTER_SCORE, ROUTER_RENORM, ROUTER_SCALE };

struct Program {
  uint32_t n_tok, n_out, n_seq, n_page;  // the bucket
  std::vector<Tensor> tensors;
  std::vector<Op> ops;
  std::vector<uint32_t> outputs;       // tensor ids
  std::vector<uint64_t> arena_bytes;   // by device: scratch that the offsets lie in
  uint64_t token_limit = 0;            // token ids are below this (0: no op reads them)
  uint64_t target_limit = 0;           // target ids are below this (0: no op reads them)
  uint32_t page_size = 0;              // of every cache an op uses (0: none is used)
  uint64_t page_limit = 0;             // page ids are below this

  const Tensor &root(uint32_t id) const { return tensors[tensors[id].root]; }
  // Rows of tensor `id` in a step of n_tok token rows and n_out output rows.
  uint64_t step_rows(uint32_t id, uint32_t n_tok_step, uint32_t n_out_step) const {
    const Tensor &t = tensors[id];
    return t.rows == Rows::tok ? n_tok_step : t.rows == Rows::out ? n_out_step : 1;
  }
  // Bytes of one row of tensor `id` (scratch and inputs: four per element).
  uint64_t row_bytes(uint32_t id) const { return tensors[id].row_elems * 4; }
};

// Parses and checks `n_code` bytes of words and lays out the scratch arenas. Scratch of one device never overlaps while alive, nor
// within FUSE_WINDOW ops before its first and after its last use, so that a backend may run that many neighbouring ops as one.
//   weights, caches  what BL_KIND_WEIGHT refs and cache params index; their types, shapes, uses and devices must fit the program
//   fails with BL_ERR_PROGRAM, naming op, tensor, found and wanted
constexpr int32_t FUSE_WINDOW = 4;
Program parse_program(const uint8_t *code, uint64_t n_code, const std::vector<const DeviceTensor *> &weights,
                      const std::vector<const DeviceCache *> &caches);

const char *op_name(uint32_t code);

}  // namespace bl
