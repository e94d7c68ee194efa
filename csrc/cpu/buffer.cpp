// buffer.cpp: anonymous mappings: they start as zeros and cost nothing until touched.
#include "buffer.h"

#include <sys/mman.h>

#include "../runtime/failure.h"

namespace bl {

namespace {
constexpr uint64_t HUGE = 2u << 20;  // mappings of several huge pages ask for them
}

Buffer::Buffer(uint64_t n_bytes, const char *what) : size_(n_bytes) {
  if (n_bytes == 0) return;
  void *p = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) fail(BL_ERR_MEMORY, "Cannot allocate %llu bytes of host memory for %s", (unsigned long long)n_bytes, what);
  data_ = static_cast<uint8_t *>(p);
#if defined(MADV_HUGEPAGE)
  if (n_bytes >= 4 * HUGE) madvise(p, n_bytes, MADV_HUGEPAGE);
#endif
}

Buffer::~Buffer() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace bl
