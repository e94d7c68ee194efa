// pieces.h: how the host's threads divide rows of a tensor, and how they find what stands first without waiting for each other.
#pragma once

#include <atomic>
#include <cstdint>

namespace bl {

constexpr uint64_t PIECE = 1u << 16;  // elements a thread takes at a time

inline void keep_min(std::atomic<uint64_t> &least, uint64_t value) {
  uint64_t old = least.load();
  while (value < old && !least.compare_exchange_weak(old, value)) {
  }
}

}  // namespace bl
