// host_quantize.h: bl_quantize and bl_quantize_file on the host.
#pragma once

#include <cstdint>

#include "file.h"
#include "thread_pool.h"

namespace bl {

// Rows to encode: in memory, or in a file from offset on when there is one.
struct RowSource {
  const uint8_t *data;
  const File *file;
  uint64_t offset;
};

// Re-encodes rows, or copies those that are of dst_type already; sizes and types are checked by the caller. Results do not depend on
// the thread count.
//   fails with BL_ERR_UNSUPPORTED (dst_type cannot be written, or not without weights), BL_ERR_DATA (source or result is not finite),
//   BL_ERR_IO
void host_quantize(ThreadPool &pool, uint32_t src_type, const RowSource &src, uint32_t dst_type, uint8_t *dst, uint64_t n_rows,
                   uint64_t n_per_row, const float *weights);

}  // namespace bl
