// tensor.h: weights and caches of the host.
#pragma once

#include <memory>

#include "../runtime/device.h"
#include "buffer.h"
#include "packing.h"

namespace bl {

// How matmul weights of a type lie in memory.   fails with BL_ERR_UNSUPPORTED where the host cannot compute with them
Layout checked_layout(uint32_t type, uint32_t uses);
// Bytes of a matrix of n_out rows of n_in values in a layout.
uint64_t packed_bytes(Layout layout, uint64_t n_in, uint64_t n_out, uint64_t row_bytes);
// Packs groups [begin, end) of 8 rows of a matrix.
void pack_groups(Layout layout, const uint8_t *rows, uint64_t row_bytes, uint64_t n_in, uint64_t n_out, uint64_t begin, uint64_t end,
                 uint8_t *packed);

// Packs the matrices of a source one after the other.
void pack_matrices(ThreadPool &pool, const TensorSource &source, uint8_t *to);

class CpuTensor : public DeviceTensor {
 public:
  CpuTensor(ThreadPool &pool, const TensorSource &source);
  CpuTensor(const TensorSource &source, const PackedBytes &packed);
  uint64_t device_bytes() const override { return packed_.size() + copy_.size(); }
  // One of its matrices, packed or as rows.
  const uint8_t *matrix(uint64_t i) const { return (layout == Layout::rows ? rows : packed) + i * matrix_bytes; }

  Layout layout = Layout::rows;     // of the matmul weights
  const uint8_t *rows = nullptr;    // row-major, as in the file; nullptr when only packed weights are kept
  uint64_t row_bytes = 0;
  const uint8_t *packed = nullptr;  // matrices one after the other, groups of 8 rows
  uint64_t matrix_bytes = 0;        // of one matrix (expert), packed or as rows

  const float *vector() const { return reinterpret_cast<const float *>(rows); }  // BL_USE_VECTOR: f32, aligned

 protected:
  CpuTensor() = default;

 private:
  void keep_rows(const TensorSource &source);
  Buffer packed_, copy_;
  std::shared_ptr<const File> file_, packed_file_;  // keep the mappings that `rows` and `packed` lie in
};

// A weight's type and shape without its bytes, to measure programs.
class DescribedTensor : public CpuTensor {
 public:
  DescribedTensor(uint32_t type, uint32_t uses) { layout = checked_layout(type, uses); }
};

class CpuCache : public DeviceCache {
 public:
  explicit CpuCache(const CacheShape &shape);
  CpuCache() { splits_blocks = true; }  // without memory, to measure programs
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
