// host_quantize.h: bl_quantize and bl_quantize_file on the host, and what a card's way shares with it.
#pragma once

#include <atomic>
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

// --- shared with cards --------------------------------------------------------------------------------------------------------------

// One call's rows, and what threads found wrong with them. Every device says the same of the same rows.
struct RowJob {
  uint32_t src_type, dst_type;
  RowSource src;
  uint64_t n_rows, n_per_row;

  std::atomic<uint64_t> bad_source{UINT64_MAX}, bad{UINT64_MAX};  // first element whose block is not finite
  std::atomic<uint64_t> no_code{UINT64_MAX};                      // first row with a block that has no encoding
  std::atomic<int> io_error{0};                                   // an errno

  uint64_t src_row() const;  // bytes
  uint64_t dst_row() const;
  uint64_t grain() const;  // rows a thread takes at a time

  // Rows [begin, end) from memory or the file, where `room` has place for them; nullptr when they cannot be read or are not finite.
  const uint8_t *fetch(uint64_t begin, uint64_t end, uint8_t *room);
  // Looks at encoded rows [begin, end), which lie at `data`.
  void check(uint64_t begin, uint64_t end, const uint8_t *data);
  void found_no_code(uint64_t row);
  bool any_bad_source() const { return io_error.load() != 0 || bad_source.load() != UINT64_MAX; }
  // Fails with the first of what was found.
  void finish() const;
};

// Whether a type can be written.   fails with BL_ERR_UNSUPPORTED
void need_encoder(uint32_t type, bool has_weights);

}  // namespace bl
