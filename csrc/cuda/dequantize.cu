// dequantize.cu: ../common/decode.h on a card: one thread a block.
#include "../common/decode.h"

#include "quantize.h"

namespace bl::cuda {
namespace {

constexpr uint32_t THREADS = 128;

template <class Block, void (*DECODE)(const Block &, float *)>
__global__ void __launch_bounds__(THREADS) decode_kernel(const Block *src, float *dst, uint64_t n_blocks, uint32_t size) {
  const uint64_t i = uint64_t(blockIdx.x) * THREADS + threadIdx.x;
  if (i < n_blocks) DECODE(src[i], dst + i * size);
}

template <class Block, void (*DECODE)(const Block &, float *)>
void launch_decoder(const uint8_t *src, float *dst, uint64_t n_blocks, uint32_t size, cudaStream_t stream) {
  decode_kernel<Block, DECODE><<<uint32_t(ceil_div<uint64_t>(n_blocks, THREADS)), THREADS, 0, stream>>>(
      reinterpret_cast<const Block *>(src), dst, n_blocks, size);
  check(cudaGetLastError(), "decode_kernel");
}

}  // namespace

bool decode(uint32_t type, const uint8_t *src, float *dst, uint64_t n, cudaStream_t stream) {
  switch (type) {
#define BL_CASE(TYPE, BLOCK, SIZE, DECODE) \
  case TYPE: launch_decoder<BLOCK, DECODE>(src, dst, n / (SIZE), SIZE, stream); return true;
    BL_DECODERS(BL_CASE)
#undef BL_CASE
    default: return false;
  }
}

}  // namespace bl::cuda
