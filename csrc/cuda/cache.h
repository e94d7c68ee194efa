// cache.h: a stream of a paged cache as kernels see it: [n_pages][page_rows] rows of row_bytes.
#pragma once

#include <cuda_fp16.h>

#include "cuda.h"

namespace bl::cuda {

struct CacheStream {
  uint8_t *base;
  uint32_t type;       // f32, f16 or q8_0
  uint32_t row_bytes;
  uint32_t ratio;      // positions of a row
  uint32_t page_rows;  // rows of a page
};

// The pages of each sequence of a step in one cache.
struct CachePages {
  const int32_t *pages;  // [n_seq, n_page]
  uint32_t n_page, page_size;
};

#if defined(__CUDACC__)
// The row of `position` of the sequence whose pages are `pages` in a stream of ratio 1; nullptr where it has no page.
__device__ inline uint8_t *cache_row(const CacheStream &c, const int32_t *pages, uint32_t page_size, uint32_t position) {
  const int32_t page = pages[position / page_size];
  return page < 0 ? nullptr : c.base + (uint64_t(page) * page_size + position % page_size) * c.row_bytes;
}

// Row w of a stream of any ratio: it lies in the page of its last position.
__device__ inline uint8_t *stream_row(const CacheStream &c, const int32_t *pages, uint32_t page_size, uint32_t w) {
  const uint32_t last = (w + 1) * c.ratio - 1;
  const int32_t page = pages[last / page_size];
  return page < 0 ? nullptr : c.base + (uint64_t(page) * c.page_rows + last % page_size / c.ratio) * c.row_bytes;
}

// Number i of a row.
__device__ inline float stream_value(const CacheStream &c, const uint8_t *row, uint32_t i) {
  if (c.type == TYPE_F32) return reinterpret_cast<const float *>(row)[i];
  if (c.type == TYPE_F16) return __half2float(reinterpret_cast<const __half *>(row)[i]);
  const uint8_t *block = row + i / 32 * sizeof(BlockQ8_0);
  return __fmul_rn(float(int8_t(block[2 + i % 32])), __half2float(__ushort_as_half(uint16_t(block[0] | block[1] << 8))));
}
#endif

}  // namespace bl::cuda
