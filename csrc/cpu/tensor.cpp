// tensor.cpp: loads weights into the layout their kernels want; pages of caches.
#include "tensor.h"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include "../common/quantize.h"

namespace bl {
namespace {

// Takes the whole pages of a mapped range out of this process: their bytes are packed now. They stay in the page cache.
void release(const uint8_t *data, uint64_t n) {
  const uint64_t page = uint64_t(sysconf(_SC_PAGESIZE));
  const uint64_t begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  const uint64_t end = (reinterpret_cast<uintptr_t>(data) + n) / page * page;
  if (begin < end) madvise(reinterpret_cast<void *>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace

Layout checked_layout(uint32_t type, uint32_t uses) {
  const TypeInfo &t = *type_info(type);
  const Layout layout = (uses & BL_USE_MUL_MAT) != 0 ? layout_of(type) : Layout::rows;
  if (layout == Layout::rows && t.block > 1) {  // decoded row by row: only types that can be
    const uint8_t zeros[512] = {};
    float values[QK_K];
    if (t.bytes > sizeof zeros || !dequantize_row(type, zeros, values, t.block))
      fail(BL_ERR_UNSUPPORTED, "Cannot use weights of type %s", t.name);
  }
  return layout;
}

uint64_t packed_bytes(Layout layout, uint64_t n_in, uint64_t n_out, uint64_t row_bytes) {
  if (layout == Layout::rows) return row_bytes * n_out;
  const LayoutInfo info = layout_info(layout);
  return (n_out + GROUP - 1) / GROUP * (n_in / info.block * info.bytes);
}

void pack_groups(Layout layout, const uint8_t *rows, uint64_t row_bytes, uint64_t n_in, uint64_t n_out, uint64_t begin, uint64_t end,
                 uint8_t *packed) {
  const LayoutInfo info = layout_info(layout);
  const uint64_t group_bytes = n_in / info.block * info.bytes;
  for (uint64_t g = begin; g < end; g++) {
    const uint32_t n = uint32_t(std::min<uint64_t>(GROUP, n_out - g * GROUP));
    pack_group(layout, rows + g * GROUP * row_bytes, row_bytes, n, n_in, packed + g * group_bytes);
  }
}

void pack_matrices(ThreadPool &pool, const TensorSource &s, uint8_t *to) {
  const TypeInfo &t = *type_info(s.type);
  const Layout layout = layout_of(s.type);
  const uint64_t n_in = s.ne[0], n_out = s.ne[1], n_matrix = s.ne[2] * s.ne[3], row_bytes = n_in / t.block * t.bytes;
  const uint64_t n_group = (n_out + GROUP - 1) / GROUP, file_bytes = row_bytes * n_out, bytes = packed_bytes(layout, n_in, n_out, row_bytes);
  const uint64_t group_bytes = bytes / n_group;
  pool.run(n_group * n_matrix, std::max<uint64_t>(1, (256u << 10) / group_bytes), [&](uint64_t begin, uint64_t end, uint32_t) {
    while (begin < end) {
      const uint64_t matrix = begin / n_group, first = begin % n_group, last = std::min(n_group, first + end - begin);
      pack_groups(layout, s.data + matrix * file_bytes, row_bytes, n_in, n_out, first, last, to + matrix * bytes);
      begin += last - first;
    }
  });
  if (s.file != nullptr) release(s.data, s.n_bytes);
}

CpuTensor::CpuTensor(ThreadPool &pool, const TensorSource &s) {
  const TypeInfo &t = *type_info(s.type);
  row_bytes = s.ne[0] / t.block * t.bytes;
  matrix_bytes = row_bytes * s.ne[1];
  layout = checked_layout(s.type, s.uses);
  if (layout != Layout::rows) {
    matrix_bytes = packed_bytes(layout, s.ne[0], s.ne[1], row_bytes);
    packed_ = Buffer(matrix_bytes * s.ne[2] * s.ne[3], "packed weights");
    packed = packed_.data();
    pack_matrices(pool, s, packed_.data());
  }
  if (layout == Layout::rows || (s.uses & BL_USE_ROWS) != 0) keep_rows(s);
}

CpuTensor::CpuTensor(const TensorSource &s, const PackedBytes &where) {
  const TypeInfo &t = *type_info(s.type);
  row_bytes = s.ne[0] / t.block * t.bytes;
  matrix_bytes = where.stride;
  layout = layout_of(s.type);
  packed_file_ = where.file;
  packed = where.file->data() + where.offset;
  if ((s.uses & BL_USE_ROWS) != 0) keep_rows(s);
}

// Rows are read where they lie: quantized and float rows need no alignment. Vectors are small and read as floats.
void CpuTensor::keep_rows(const TensorSource &s) {
  const TypeInfo &t = *type_info(s.type);
  // It stays in the file wherever its numbers can be read: a checkpoint aligns them to their own size only.
  const bool aligned = reinterpret_cast<uintptr_t>(s.data) % t.bytes == 0;
  if (s.file != nullptr && (s.uses & BL_USE_VECTOR) == 0 && (aligned || t.block > 1)) {
    file_ = s.file;
    rows = s.data;
    return;
  }
  copy_ = Buffer(s.n_bytes, "a tensor");
  memcpy(copy_.data(), s.data, s.n_bytes);
  rows = copy_.data();
}

CpuCache::CpuCache(const CacheShape &c) : CpuCache() {
  for (size_t s = 0; s < c.type.size(); s++) streams_.emplace_back(c.row_bytes(s) * c.page_rows(s) * c.n_pages, "a cache");
}

void CpuCache::copy(const int32_t *src, const int32_t *dst, uint32_t n) {
  for (size_t s = 0; s < streams_.size(); s++) {
    const uint64_t bytes = shape.row_bytes(s) * shape.page_rows(s);
    for (uint32_t i = 0; i < n; i++)
      if (src[i] != dst[i]) memcpy(stream(s) + uint32_t(dst[i]) * bytes, stream(s) + uint32_t(src[i]) * bytes, bytes);
  }
}

void CpuCache::read(const int32_t *pages, uint32_t n, uint8_t *data) {
  for (uint32_t i = 0; i < n; i++)
    for (size_t s = 0; s < streams_.size(); s++) {
      const uint64_t bytes = shape.row_bytes(s) * shape.page_rows(s);
      memcpy(data, stream(s) + uint32_t(pages[i]) * bytes, bytes);
      data += bytes;
    }
}

void CpuCache::write(const int32_t *pages, uint32_t n, const uint8_t *data) {
  for (uint32_t i = 0; i < n; i++)
    for (size_t s = 0; s < streams_.size(); s++) {
      const uint64_t bytes = shape.row_bytes(s) * shape.page_rows(s);
      memcpy(stream(s) + uint32_t(pages[i]) * bytes, data, bytes);
      data += bytes;
    }
}

}  // namespace bl
