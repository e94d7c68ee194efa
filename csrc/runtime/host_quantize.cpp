// host_quantize.cpp: rows through the encoders, in pieces over the threads: each reads, checks, encodes and checks its own, while they
// are in its cache.
#include "host_quantize.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "../common/quantize.h"
#include "failure.h"
#include "pieces.h"

namespace bl {
namespace {

using ull = unsigned long long;

uint64_t row_bytes(uint32_t type, uint64_t n_per_row) {
  const TypeInfo &t = *type_info(type);
  return n_per_row / t.block * t.bytes;
}

}  // namespace

uint64_t RowJob::src_row() const { return row_bytes(src_type, n_per_row); }
uint64_t RowJob::dst_row() const { return row_bytes(dst_type, n_per_row); }
uint64_t RowJob::grain() const { return std::max<uint64_t>(1, PIECE / n_per_row); }

const uint8_t *RowJob::fetch(uint64_t begin, uint64_t end, uint8_t *room) {
  const uint8_t *rows = room;
  if (src.file == nullptr) {
    rows = src.data + begin * src_row();
  } else if (const int error = src.file->read(src.offset + begin * src_row(), room, (end - begin) * src_row()); error != 0) {
    io_error.store(error);
    return nullptr;
  }
  uint64_t first = 0;
  if (check_rows(src_type, rows, (end - begin) * n_per_row, &first) == 0) return rows;
  keep_min(bad_source, begin * n_per_row + first);
  return nullptr;
}

void RowJob::check(uint64_t begin, uint64_t end, const uint8_t *data) {
  uint64_t first = 0;
  if (check_rows(dst_type, data, (end - begin) * n_per_row, &first) != 0) keep_min(bad, begin * n_per_row + first);
}

void RowJob::found_no_code(uint64_t row) { keep_min(no_code, row); }

void RowJob::finish() const {
  const char *to = type_info(dst_type)->name;
  if (const int error = io_error.load(); error != 0) fail(BL_ERR_IO, "Cannot read %.300s: %s", src.file->path().c_str(), strerror(error));
  if (const uint64_t at = bad_source.load(); at != UINT64_MAX)
    fail(BL_ERR_DATA, "Cannot write %s: the source is not finite at row %llu, column %llu", to, (ull)(at / n_per_row), (ull)(at % n_per_row));
  if (const uint64_t row = no_code.load(); row != UINT64_MAX) {
    const uint64_t begin = row / grain() * grain();  // the host knows no more than the piece
    fail(BL_ERR_DATA, "Cannot write %s: a block in rows %llu to %llu has no encoding", to, (ull)begin,
         (ull)(std::min(begin + grain(), n_rows) - 1));
  }
  if (const uint64_t at = bad.load(); at != UINT64_MAX)
    fail(BL_ERR_DATA, "Cannot write %s: the scale at row %llu, column %llu is not finite", to, (ull)(at / n_per_row), (ull)(at % n_per_row));
}

void need_encoder(uint32_t type, bool has_weights) {
  if (!quantize_row_supported(type, has_weights))
    fail(BL_ERR_UNSUPPORTED, quantize_row_supported(type, true) ? "Cannot write %s without importance weights" : "Cannot write type %s",
         type_info(type)->name);
}

void host_quantize(ThreadPool &pool, uint32_t src_type, const RowSource &src, uint32_t dst_type, uint8_t *dst, uint64_t n_rows,
                   uint64_t n_per_row, const float *weights) {
  const bool copy = src_type == dst_type;
  if (!copy) need_encoder(dst_type, weights != nullptr);
  RowJob job{src_type, dst_type, src, n_rows, n_per_row};
  const uint64_t src_row = job.src_row(), dst_row = job.dst_row(), most = std::min(job.grain(), n_rows);
  const bool aligned = src.file != nullptr || reinterpret_cast<uintptr_t>(src.data) % alignof(float) == 0;
  const bool direct = src_type == TYPE_F32 && aligned;
  std::vector<std::vector<uint8_t>> raw(pool.size());  // rows as read from a file
  std::vector<std::vector<float>> rows(pool.size());   // the same as f32
  for (uint32_t t = 0; t < pool.size() && !copy; t++) {
    if (src.file != nullptr) raw[t].resize(most * src_row);
    if (!direct) rows[t].resize(most * n_per_row);
  }
  if (src.file != nullptr) src.file->expect(src.offset + n_rows * src_row, n_rows * src_row);  // most likely wanted next
  std::atomic<int> unknown{0};
  pool.run(n_rows, job.grain(), [&](uint64_t begin, uint64_t end, uint32_t thread) {
    uint8_t *d = dst + begin * dst_row;
    const uint8_t *s = job.fetch(begin, end, copy ? d : raw[thread].data());
    if (s == nullptr) return;
    if (copy) {
      if (s != d) memcpy(d, s, (end - begin) * src_row);
      return;
    }
    const uint64_t n = (end - begin) * n_per_row;
    const float *x = direct ? reinterpret_cast<const float *>(s) : rows[thread].data();
    if (!direct && !dequantize_row(src_type, s, rows[thread].data(), n)) return unknown.store(1);
    if (!quantize_rows(dst_type, x, end - begin, n_per_row, weights, d)) return job.found_no_code(begin);
    job.check(begin, end, d);
  });
  if (unknown.load() != 0) fail(BL_ERR_UNSUPPORTED, "Cannot read type %s", type_info(src_type)->name);
  job.finish();
}

}  // namespace bl
