// exec.h: a program compiled for a card: its launches, captured once as a graph and replayed each step.
#pragma once

#include <functional>
#include <map>

#include "attention.h"
#include "device.h"
#include "packed.h"

namespace bl::cuda {

constexpr size_t MAX_TILE_LISTS = sizeof(StepCounts::n_tile) / sizeof(int32_t);

// The step's inputs: pinned on the host and its twin on the card, copied by the graph's first node. Word offsets:
struct InputBlock {
  uint32_t tokens, positions, seqs, out_rows, targets, runs, tiles[MAX_TILE_LISTS], words;
  std::vector<uint32_t> pages, derived;  // by cache, by derived input
};

struct TileList {
  uint32_t tokens;     // of a tile
  uint32_t max_tiles;
};

// Rows of a table that stays with the host, for the ids of one step input.
struct HostRows {
  const CudaTensor *table;
  uint32_t type, input;  // of the table; a bl_input
  uint64_t n, ids;       // numbers of a row; ids of a token row
  float *rows;           // pinned [n_tok, ids, n]
};

class CudaExec : public Exec {
 public:
  CudaExec(CudaDevice &device, const Program &program, const std::vector<DeviceTensor *> &weights, const std::vector<DeviceCache *> &caches);
  ~CudaExec() override;
  uint64_t scratch_bytes() const override;
  void step(const StepInput &input, uint8_t *output, uint64_t mask) override;

 private:
  friend class Compiler;
  void fill_inputs(const StepInput &input);
  void gather(const StepInput &input);
  void capture();
  void release();

  CudaDevice &device_;
  const Program &program_;
  InputBlock at_ = {};
  std::vector<TileList> tile_lists_;  // at most MAX_TILE_LISTS
  std::vector<HostRows> host_rows_;
  Buffer arena_, inputs_;
  std::vector<Buffer> extra_;         // encodings, attention states, top-k, grouping
  int32_t *host_inputs_ = nullptr;    // pinned
  uint8_t *host_outputs_ = nullptr;   // pinned, for small outputs
  uint64_t host_output_bytes_ = 0;
  std::vector<const uint8_t *> outputs_;
  std::vector<std::function<void(Stream &)>> launches_;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace bl::cuda
