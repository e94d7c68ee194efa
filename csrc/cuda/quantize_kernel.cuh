// quantize_kernel.cuh: the one kernel that runs a row encoder of ../common on a card. Included by the quantize_*.cu files, which
// instantiate it for their types.
#pragma once

#define BL_LANES lanes_cuda
#include "../common/encode_simple.h"
#include "cuda.h"
#include "quantize.h"

namespace bl::cuda {

// A piece of a row, for its encoder: up to PIECE values, which depend on nothing else but the row's mean square.
struct Piece {
  const float *x;
  uint64_t n;
  const float *weights;  // [n] or nullptr
  float mean_square;
  const Lattice &lattice;
  uint8_t *dst;
};

// Each group of eight threads encodes a piece into memory of its own, which then goes to the row.
//   BYTES  of an encoded piece, at most · ENCODE  the encoder; false: a block has no encoding, and the row's number goes to no_code
template <uint32_t BYTES, bool (*ENCODE)(const Piece &)>
__global__ void __launch_bounds__(lanes_cuda::BLOCK_THREADS) encode_kernel(const EncodeJob job) {
  const uint64_t pieces = ceil_div<uint64_t>(job.n_per_row, PIECE);
  const uint64_t task = (uint64_t(blockIdx.x) * lanes_cuda::BLOCK_THREADS + threadIdx.x) / 8;
  if (task >= job.n_rows * pieces) return;
  const uint64_t row = task / pieces, piece = task % pieces, at = piece * PIECE;
  const uint64_t n = min(uint64_t(PIECE), job.n_per_row - at);
  __align__(8) uint8_t out[BYTES];
  const bool encoded = ENCODE(Piece{job.x + row * job.n_per_row + at, n, job.weights ? job.weights + at : nullptr,
                                    job.mean_squares ? job.mean_squares[row] : 0.0f, job.lattice, out});
  if (!encoded) {
    if (threadIdx.x % 8 == 0) atomicMin(job.no_code, (unsigned long long)row);
    return;
  }
  uint8_t *dst = job.dst + row * job.row_bytes + piece * job.piece_bytes;
  const uint32_t bytes = uint32_t(min(uint64_t(job.piece_bytes), job.row_bytes - piece * job.piece_bytes));
  for (uint32_t i = threadIdx.x % 8; i < bytes; i += 8) dst[i] = out[i];
}

template <uint32_t BYTES, bool (*ENCODE)(const Piece &)>
void launch_encoder(const EncodeJob &job, cudaStream_t stream) {
  const uint64_t threads = job.n_rows * ceil_div<uint64_t>(job.n_per_row, PIECE) * 8;
  encode_kernel<BYTES, ENCODE><<<uint32_t(ceil_div<uint64_t>(threads, lanes_cuda::BLOCK_THREADS)), lanes_cuda::BLOCK_THREADS, 0, stream>>>(job);
  check(cudaGetLastError(), "encode_kernel");
}

// Encoders of ../common as the kernel calls them.
template <bool (*ENCODE)(const float *, uint64_t, const float *, void *)>
__device__ bool plain(const Piece &p) {
  return ENCODE(p.x, p.n, p.weights, p.dst);
}
template <bool (*ENCODE)(const float *, uint64_t, const float *, float, void *)>
__device__ bool with_mean_square(const Piece &p) {
  return ENCODE(p.x, p.n, p.weights, p.mean_square, p.dst);
}
template <bool (*ENCODE)(const Lattice &, const float *, uint64_t, const float *, void *)>
__device__ bool with_lattice(const Piece &p) {
  return ENCODE(p.lattice, p.x, p.n, p.weights, p.dst);
}

// Launches the encoder of a type whose blocks are a STRUCT of BLOCK values.   returns true
template <class STRUCT, uint32_t BLOCK, bool (*ENCODE)(const Piece &)>
bool encode_with(const EncodeJob &job, cudaStream_t stream) {
  launch_encoder<PIECE / BLOCK * sizeof(STRUCT), ENCODE>(job, stream);
  return true;
}

}  // namespace bl::cuda
