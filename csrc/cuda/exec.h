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
  void begin(const StepInput &input) override;
  void run_to(uint32_t end) override;
  void take(uint32_t id, uint8_t *rows) override;
  void give(uint32_t id, const uint8_t *rows) override;
  void finish() override;
  std::shared_ptr<uint8_t> host_memory(uint64_t bytes) override;

 private:
  friend class Compiler;
  void fill_inputs(const StepInput &input);
  void gather(const StepInput &input);
  void capture();
  cudaGraphExec_t capture(size_t first, size_t end);  // of the launches; the first graph copies the step's inputs
  uint64_t step_bytes(uint32_t id) const;
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
  // A program is one graph; a part of a program over several devices is one between any two places where values leave or arrive.
  struct Cut {
    uint32_t op;
    size_t launch;
  };
  struct Piece {
    uint32_t end;  // op
    cudaGraphExec_t graph;
  };
  std::vector<Cut> cuts_;
  std::vector<Piece> pieces_;
  size_t next_ = 0;                              // piece of the step
  std::map<uint32_t, const uint8_t *> leaving_;  // values that other devices read, without gaps
  const StepInput *in_ = nullptr;
};

}  // namespace bl::cuda
