// visible.h: which rows of a stream a token row sees. Static: files of several instruction sets include it.
#pragma once

#include <cstdint>

namespace bl {

// The first row of a stream of ratio `ratio` that a row at `position` sees: its last position is above position - window.
static inline uint32_t first_visible(uint32_t position, uint32_t window, uint32_t ratio) {
  return window != 0 && position + 1 > window ? (position + 1 - window) / ratio : 0;
}

// One past the last that it sees.
static inline uint32_t end_visible(uint32_t position, uint32_t ratio) { return (position + 1) / ratio; }

}  // namespace bl
