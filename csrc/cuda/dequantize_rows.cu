// dequantize_rows.cu: rows of tables that lie as in the file, by ../common/decode.h: GET_ROWS of types without packed products, and of i32.
//   table [n, N] in the type's blocks · ids [rows] i32 · y [rows, n] f32 (i32 tables: i32)
// launch  grid (blocks of a row / 128, rows), block 128: a thread decodes a block
// bits    those of csrc/common/dequantize.cpp; id -1 gives zeros
// floor   bytes of the rows over bandwidth; a launch is all it costs
#include "../common/decode.h"

#include "pack.h"

namespace bl::cuda {
namespace {

constexpr uint32_t THREADS = 128;

template <class Block, void (*DECODE)(const Block &, float *)>
__global__ void __launch_bounds__(THREADS) embed_raw_kernel(const __grid_constant__ EmbedArgs p, uint32_t size) {
  release();
  depend();
  const uint32_t row = blockIdx.y, b = blockIdx.x * THREADS + threadIdx.x;
  if (row >= row_count(p.rows) || b * size >= p.n) return;
  const int32_t id = p.ids[row];
  float *y = p.y + uint64_t(row) * p.n + b * size;
  if (id >= 0) DECODE(reinterpret_cast<const Block *>(p.table + uint64_t(id) * p.row_bytes)[b], y);
  else
    for (uint32_t i = 0; i < size; i++) y[i] = 0.0f;
}

__global__ void __launch_bounds__(THREADS) embed_i32_kernel(const __grid_constant__ EmbedArgs p) {
  release();
  depend();
  const uint32_t row = blockIdx.y, i = blockIdx.x * THREADS + threadIdx.x;
  if (row >= row_count(p.rows) || i >= p.n) return;
  const int32_t id = p.ids[row];
  reinterpret_cast<int32_t *>(p.y)[uint64_t(row) * p.n + i] =
      id >= 0 ? reinterpret_cast<const int32_t *>(p.table + uint64_t(id) * p.row_bytes)[i] : 0;
}

template <class Block, void (*DECODE)(const Block &, float *)>
void launch_decoder(const EmbedArgs &args, uint32_t size, Stream &s) {
  launch("embed_rows (raw)", embed_raw_kernel<Block, DECODE>, dim3(ceil_div(args.n / size, THREADS), args.rows.max), THREADS, 0, s, args, size);
}

}  // namespace

void embed_raw_rows(const EmbedArgs &args, Stream &s) {
  if (args.type == TYPE_I32) return launch("embed_rows (i32)", embed_i32_kernel, dim3(ceil_div(args.n, THREADS), args.rows.max), THREADS, 0, s, args);
  switch (args.type) {
#define BL_CASE(TYPE, BLOCK, SIZE, DECODE) \
  case TYPE: return launch_decoder<BLOCK, DECODE>(args, SIZE, s);
    BL_DECODERS(BL_CASE)
#undef BL_CASE
    default: fail(BL_ERR_UNSUPPORTED, "Cannot take rows of type %u on cuda", args.type);
  }
}

}  // namespace bl::cuda
