// tensor.h: weights and caches of the host.
#pragma once

#include <memory>

#include "../runtime/device.h"
#include "buffer.h"
#include "packing.h"

namespace bl {

class CpuTensor : public DeviceTensor {
 public:
  CpuTensor(ThreadPool &pool, const TensorSource &source);
  uint64_t device_bytes() const override { return packed_.size() + copy_.size(); }

  Layout layout = Layout::rows;     // of the matmul weights
  const uint8_t *rows = nullptr;    // row-major, as in the file; nullptr when only packed weights are kept
  uint64_t row_bytes = 0;
  const uint8_t *packed = nullptr;  // matrices one after the other, groups of 8 rows
  uint64_t matrix_bytes = 0;        // of one matrix (expert), packed or as rows

  const float *vector() const { return reinterpret_cast<const float *>(rows); }  // BL_USE_VECTOR: f32, aligned

 private:
  Buffer packed_, copy_;
  std::shared_ptr<const File> file_;  // keeps the mapping that `rows` lies in
};

class CpuCache : public DeviceCache {
 public:
  explicit CpuCache(const CacheShape &shape);
  void copy(const int32_t *src, const int32_t *dst, uint32_t n) override;
  void read(const int32_t *pages, uint32_t n, uint8_t *data) override;
  void write(const int32_t *pages, uint32_t n, const uint8_t *data) override;

  // Row `page * shape.page_rows(s) + slot` of stream s is at stream(s) + row * shape.row_bytes(s).
  uint8_t *stream(size_t s) { return streams_[s].data(); }
  // The row of position `last`, the last of those that it stands for, in a sequence with these pages.
  uint8_t *row(size_t s, const int32_t *pages, uint32_t last) {
    const uint64_t slot = uint64_t(uint32_t(pages[last / shape.page_size])) * shape.page_rows(s) + last % shape.page_size / shape.ratio[s];
    return stream(s) + slot * shape.row_bytes(s);
  }

 private:
  std::vector<Buffer> streams_;
};

}  // namespace bl
