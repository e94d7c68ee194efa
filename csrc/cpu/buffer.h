// buffer.h: zeroed host memory on a page, in huge pages where it is large.
#pragma once

#include <cstdint>
#include <new>
#include <utility>

namespace bl {

class Buffer {
 public:
  Buffer() = default;
  // fails with BL_ERR_MEMORY; `what` names the memory in the message.
  Buffer(uint64_t n_bytes, const char *what);
  ~Buffer();
  Buffer(Buffer &&o) noexcept : data_(std::exchange(o.data_, nullptr)), size_(std::exchange(o.size_, 0)) {}
  Buffer &operator=(Buffer &&o) noexcept {
    std::swap(data_, o.data_);
    std::swap(size_, o.size_);
    return *this;
  }

  uint8_t *data() { return data_; }
  const uint8_t *data() const { return data_; }
  float *floats() { return reinterpret_cast<float *>(data_); }
  uint64_t size() const { return size_; }

 private:
  uint8_t *data_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace bl
