// cuda.h: what every file of this folder shares: checked CUDA calls, the launch helper, and the step's counts on the card.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "../common/blocks.h"
#include "../runtime/failure.h"

namespace bl::cuda {

constexpr int WARP = 32;

// The counts of a step, at the head of its input block in device memory: kernels of a captured graph read them there.
struct StepCounts {
  int32_t n_tok, n_out, n_seq;
  int32_t one;        // always 1: the count of tensors whose rows no step changes
  int32_t n_tile[4];  // attention tiles by tile size (attention.h)
  int32_t reserved[8];
};

// Rows of an operand in this step: *count * per, count pointing into StepCounts.
struct RowCount {
  const int32_t *count;
  uint32_t per;
  uint32_t max;  // rows of the bucket
};

#if defined(__CUDACC__)
__device__ inline uint32_t row_count(const RowCount &r) { return uint32_t(*r.count) * r.per; }

// Programmatic dependent launch (sm_90): a kernel may start while its predecessor drains. `depend` returns once everything before is
// complete and visible; `release` lets the successor start its own preamble. On older cards launches are ordered anyway.
__device__ inline void depend() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void release() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
#endif

// Throws BL_ERR_DEVICE (BL_ERR_MEMORY for failed allocations) with the call, CUDA's own words and the device.
inline void check(cudaError_t status, const char *call) {
  if (status == cudaSuccess) return;
  int device = -1;
  cudaGetDevice(&device);
  cudaGetLastError();  // the error is reported here and must not surface in a later call
  fail(status == cudaErrorMemoryAllocation ? BL_ERR_MEMORY : BL_ERR_DEVICE, "%s failed on cuda device %d: %s (%s)", call, device,
       cudaGetErrorString(status), cudaGetErrorName(status));
}

// Device memory that frees itself.
class Buffer {
 public:
  Buffer() = default;
  Buffer(uint64_t bytes, const char *what) { allocate(bytes, what); }
  ~Buffer() { reset(); }
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;
  Buffer(Buffer &&other) noexcept : data_(other.data_), bytes_(other.bytes_) { other.data_ = nullptr, other.bytes_ = 0; }
  Buffer &operator=(Buffer &&other) noexcept {
    if (this != &other) {
      reset();
      data_ = other.data_, bytes_ = other.bytes_;
      other.data_ = nullptr, other.bytes_ = 0;
    }
    return *this;
  }

  void allocate(uint64_t bytes, const char *what) {
    reset();
    if (bytes == 0) return;
    const cudaError_t status = cudaMalloc(&data_, bytes);
    if (status != cudaSuccess) {
      int device = -1;
      size_t free = 0, total = 0;
      cudaGetDevice(&device);
      cudaGetLastError();
      cudaMemGetInfo(&free, &total);
      data_ = nullptr;
      fail(BL_ERR_MEMORY, "Cannot allocate %llu bytes for %s on cuda device %d: %llu of %llu bytes are free (%s)",
           (unsigned long long)bytes, what, device, (unsigned long long)free, (unsigned long long)total, cudaGetErrorName(status));
    }
    bytes_ = bytes;
  }
  void reset() {
    if (data_ != nullptr) cudaFree(data_);
    data_ = nullptr, bytes_ = 0;
  }
  uint64_t bytes() const { return bytes_; }
  uint8_t *data() const { return static_cast<uint8_t *>(data_); }
  template <class T>
  T *as() const { return static_cast<T *>(data_); }

 private:
  void *data_ = nullptr;
  uint64_t bytes_ = 0;
};

// Where kernels are launched: a stream, and whether the next one may overlap the tail of the one before (see depend()).
struct Stream {
  cudaStream_t stream = nullptr;
  bool can_overlap = false;  // the card has programmatic launch
  bool after_kernel = false; // the last thing in the stream is a kernel
};

// Launches and checks. Every kernel launched through here calls depend() before it reads what an earlier one wrote.
template <class... P, class... A>
void launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, Stream &s, A... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;  // a bucket without output rows
  cudaLaunchConfig_t config = {};
  config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = shared, config.stream = s.stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute, config.numAttrs = s.can_overlap && s.after_kernel ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, P(args)...), name);
  check(cudaGetLastError(), name);
  s.after_kernel = true;
}

// Dynamic shared memory of a launch; without this, 48 KiB less what the kernel has statically is the most.
template <class... P>
void allow_shared(void (*kernel)(P...), size_t bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)), "cudaFuncSetAttribute");
}

template <class T>
BL_HD constexpr T ceil_div(T a, T b) { return (a + b - 1) / b; }
template <class T>
BL_HD constexpr T round_up(T a, T b) { return ceil_div(a, b) * b; }

}  // namespace bl::cuda
