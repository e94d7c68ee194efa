// scratch.h: memory that the steps of a device's programs share. They run one after the other and keep nothing there, so a device needs
// what its largest program needs.
#pragma once

#include <memory>

#include "buffer.h"

namespace bl {

class HostScratch {
 public:
  // Makes room for n bytes. What was there is gone. The caller has the device's lock.   fails with BL_ERR_MEMORY
  void need(uint64_t n) {
    if (n <= buffer_.size()) return;
    buffer_ = Buffer();
    buffer_ = Buffer(n, "scratch");
  }
  uint8_t *data() { return buffer_.data(); }
  const uint8_t *data() const { return buffer_.data(); }

 private:
  Buffer buffer_;
};

// Deals out parts of a scratch memory that is not yet there.
class ScratchLayout {
 public:
  explicit ScratchLayout(std::shared_ptr<HostScratch> memory) : memory_(std::move(memory)) {}
  const std::shared_ptr<HostScratch> &memory() const { return memory_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t take(uint64_t n) {
    const uint64_t at = bytes_;
    bytes_ += (n + 4095) / 4096 * 4096;
    return at;
  }

 private:
  std::shared_ptr<HostScratch> memory_;
  uint64_t bytes_ = 0;
};

// A part of it.
class Scratch {
 public:
  Scratch() = default;
  Scratch(ScratchLayout &layout, uint64_t n_bytes) : memory_(layout.memory()), at_(layout.take(n_bytes)), size_(n_bytes) {}
  uint8_t *data() { return memory_->data() + at_; }
  const uint8_t *data() const { return memory_->data() + at_; }
  float *floats() { return reinterpret_cast<float *>(data()); }
  uint64_t size() const { return size_; }

 private:
  std::shared_ptr<HostScratch> memory_;
  uint64_t at_ = 0, size_ = 0;
};

}  // namespace bl
