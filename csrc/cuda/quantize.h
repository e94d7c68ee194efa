// quantize.h: rows through the encoders and decoders of ../common on a card. The bytes are those of the host's.
#pragma once

#include <mutex>

#include "../common/lattice.h"
#include "../runtime/host_quantize.h"
#include "cuda.h"

namespace bl::cuda {

constexpr uint32_t PIECE = 256;  // values of a row that a group of eight threads encodes: whole blocks of every type

// Rows in the card's memory, to be encoded.
struct EncodeJob {
  const float *x;             // [n_rows, n_per_row]
  uint64_t n_rows, n_per_row;
  const float *weights;       // [n_per_row] or nullptr
  const float *mean_squares;  // [n_rows], for the types that need them
  Lattice lattice;            // of the type, in the card's memory; empty for types without one
  uint8_t *dst;               // [n_rows, row_bytes]
  uint64_t row_bytes;
  uint32_t piece_bytes;
  unsigned long long *no_code;  // least row with a block that has no encoding
};

// Each launches the encoder of `type` if it is among its own.   returns false otherwise
bool encode_simple(uint32_t type, const EncodeJob &job, cudaStream_t stream);
bool encode_k(uint32_t type, const EncodeJob &job, cudaStream_t stream);
bool encode_lattice(uint32_t type, const EncodeJob &job, cudaStream_t stream);
bool encode_iq1(uint32_t type, const EncodeJob &job, cudaStream_t stream);

// Mean square of each row, first to last, as the host adds it up.
void row_mean_squares(const float *x, uint64_t n_rows, uint64_t n_per_row, float *out, cudaStream_t stream);

// Decodes n values (whole blocks) of any type that the host reads.   returns false for a type that it does not
bool decode(uint32_t type, const uint8_t *src, float *dst, uint64_t n, cudaStream_t stream);

// Streams rows of host memory through a card: pinned stages, each with a stream of its own, so that copies both ways, kernels and the
// host's filling and emptying of stages overlap.
class RowCoder {
 public:
  RowCoder(int ordinal, ThreadPool &pool) : ordinal_(ordinal), pool_(pool) {}
  ~RowCoder();
  RowCoder(const RowCoder &) = delete;
  RowCoder &operator=(const RowCoder &) = delete;

  // Arguments as Device::quantize and Device::dequantize have them.   errors BL_ERR_UNSUPPORTED, BL_ERR_DATA as the host's
  void quantize(uint32_t src_type, const RowSource &src, uint32_t dst_type, uint8_t *dst, uint64_t n_rows, uint64_t n_per_row,
                const float *weights);
  void dequantize(uint32_t type, const uint8_t *src, float *dst, uint64_t n);

 private:
  static constexpr int N_STAGE = 3;
  static constexpr uint64_t STAGE_VALUES = 2u << 20;

  struct Stage {
    cudaStream_t stream = nullptr;
    cudaEvent_t done = nullptr;
    uint8_t *pinned_in = nullptr, *pinned_out = nullptr;
    uint64_t in_bytes = 0, out_bytes = 0;  // of the pinned memory
    Buffer raw, values, coded, mean_squares;
    bool in_flight = false;
    uint64_t begin = 0, count = 0;  // rows (quantize) or values (dequantize) in flight
  };

  void prepare(Stage &s, uint64_t in_bytes, uint64_t n_values, uint64_t out_bytes);
  void receive(Stage &s, uint64_t n);
  void send_back(Stage &s, const uint8_t *from, uint64_t n, uint64_t begin, uint64_t count);
  bool wait(Stage &s);
  void launch(Stage &s, const RowJob &job, const float *weights, const Lattice &lattice);
  void hand_over(Stage &s, RowJob &job, uint8_t *dst);
  void drain();
  Lattice lattice_for(uint32_t type);
  void copy(uint8_t *dst, const uint8_t *src, uint64_t n);

  int ordinal_;
  ThreadPool &pool_;
  std::mutex lock_;
  Stage stages_[N_STAGE];
  Buffer weights_;
  Buffer lattice_memory_[6];
  Lattice lattices_[6] = {};
};

}  // namespace bl::cuda
