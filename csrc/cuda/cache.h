// cache.h: a stream of a paged cache as kernels see it: [n_pages][page_size] rows of row_bytes.
#pragma once

#include "cuda.h"

namespace bl::cuda {

struct CacheStream {
  uint8_t *base;
  uint32_t type;       // f32, f16 or q8_0
  uint32_t row_bytes;  // of one token
};

#if defined(__CUDACC__)
// The row of `position` of the sequence whose pages are `pages`; nullptr where it has no page.
__device__ inline uint8_t *cache_row(const CacheStream &c, const int32_t *pages, uint32_t page_size, uint32_t position) {
  const int32_t page = pages[position / page_size];
  return page < 0 ? nullptr : c.base + (uint64_t(page) * page_size + position % page_size) * c.row_bytes;
}
#endif

}  // namespace bl::cuda
