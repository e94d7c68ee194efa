// host_quantize.cpp: rows through the encoders, in pieces over the threads: each reads, checks, encodes and checks its own, while they
// are in its cache.
#include "host_quantize.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "../common/quantize.h"
#include "failure.h"

namespace bl {
namespace {

constexpr uint64_t PIECE = 1u << 16;  // elements a thread takes at a time

void keep_min(std::atomic<uint64_t> &least, uint64_t value) {
  uint64_t old = least.load();
  while (value < old && !least.compare_exchange_weak(old, value)) {
  }
}

}  // namespace

void host_quantize(ThreadPool &pool, uint32_t src_type, const RowSource &src, uint32_t dst_type, uint8_t *dst, uint64_t n_rows,
                   uint64_t n_per_row, const float *weights) {
  const TypeInfo &from = *type_info(src_type), &to = *type_info(dst_type);
  const bool copy = src_type == dst_type;
  if (!copy && !quantize_row_supported(dst_type, weights != nullptr))
    fail(BL_ERR_UNSUPPORTED, quantize_row_supported(dst_type, true) ? "Cannot write %s without importance weights" : "Cannot write type %s", to.name);
  const uint64_t src_row = n_per_row / from.block * from.bytes, dst_row = n_per_row / to.block * to.bytes;
  const uint64_t grain = std::max<uint64_t>(1, PIECE / n_per_row), most = std::min(grain, n_rows);
  const bool aligned = src.file != nullptr || reinterpret_cast<uintptr_t>(src.data) % alignof(float) == 0;
  const bool direct = src_type == TYPE_F32 && aligned;
  std::vector<std::vector<uint8_t>> raw(pool.size());  // rows as read from a file
  std::vector<std::vector<float>> rows(pool.size());   // the same as f32
  for (uint32_t t = 0; t < pool.size() && !copy; t++) {
    if (src.file != nullptr) raw[t].resize(most * src_row);
    if (!direct) rows[t].resize(most * n_per_row);
  }
  if (src.file != nullptr) src.file->expect(src.offset + n_rows * src_row, n_rows * src_row);  // most likely wanted next
  std::atomic<uint64_t> bad_source{UINT64_MAX}, no_code{UINT64_MAX}, bad{UINT64_MAX};
  std::atomic<int> unknown{0}, io_error{0};
  pool.run(n_rows, grain, [&](uint64_t begin, uint64_t end, uint32_t thread) {
    const uint64_t n = (end - begin) * n_per_row, n_src = (end - begin) * src_row;
    uint8_t *d = dst + begin * dst_row;
    const uint8_t *s;
    if (src.file == nullptr) {
      s = src.data + begin * src_row;
    } else {
      uint8_t *to_read = copy ? d : raw[thread].data();
      if (const int error = src.file->read(src.offset + begin * src_row, to_read, n_src); error != 0) return io_error.store(error);
      s = to_read;
    }
    uint64_t first = 0;
    if (check_rows(src_type, s, n, &first) != 0) return keep_min(bad_source, begin * n_per_row + first);
    if (copy) {
      if (s != d) memcpy(d, s, n_src);
      return;
    }
    const float *x = direct ? reinterpret_cast<const float *>(s) : rows[thread].data();
    if (!direct && !dequantize_row(src_type, s, rows[thread].data(), n)) return unknown.store(1);
    if (!quantize_rows(dst_type, x, end - begin, n_per_row, weights, d)) return keep_min(no_code, begin);
    if (check_rows(dst_type, d, n, &first) != 0) keep_min(bad, begin * n_per_row + first);
  });
  if (const int error = io_error.load(); error != 0) fail(BL_ERR_IO, "Cannot read %.300s: %s", src.file->path().c_str(), strerror(error));
  if (unknown.load() != 0) fail(BL_ERR_UNSUPPORTED, "Cannot read type %s", from.name);
  if (bad_source.load() != UINT64_MAX)
    fail(BL_ERR_DATA, "Cannot write %s: the source is not finite at row %llu, column %llu", to.name,
         (unsigned long long)(bad_source.load() / n_per_row), (unsigned long long)(bad_source.load() % n_per_row));
  if (no_code.load() != UINT64_MAX)
    fail(BL_ERR_DATA, "Cannot write %s: a block in rows %llu to %llu has no encoding", to.name, (unsigned long long)no_code.load(),
         (unsigned long long)(std::min(no_code.load() + grain, n_rows) - 1));
  if (bad.load() != UINT64_MAX)
    fail(BL_ERR_DATA, "Cannot write %s: the scale at row %llu, column %llu is not finite", to.name, (unsigned long long)(bad.load() / n_per_row),
         (unsigned long long)(bad.load() % n_per_row));
}

}  // namespace bl
