// device.h: a CUDA card as a backend device (runtime/device.h).
#pragma once

#include <mutex>

#include "../runtime/device.h"
#include "cache.h"
#include "cuda.h"
#include "quantize.h"

namespace bl::cuda {

class CudaTensor : public DeviceTensor {
 public:
  uint64_t device_bytes() const override { return packed.bytes() + raw.bytes() + vector.bytes(); }

  Buffer packed;              // for products and rows (packed.h)
  uint64_t matrix_bytes = 0;  // packed bytes of one [ne0, ne1] matrix
  Buffer raw;                 // rows as in the file, of types whose rows are not read from their packed form
  Buffer vector;              // f32 values

  // A table that stays with the host: its rows are gathered there for each step.
  const uint8_t *host = nullptr;
  std::shared_ptr<const File> file;  // whose mapping host points into, or
  std::vector<uint8_t> host_copy;
};

class CudaCache : public DeviceCache {
 public:
  CudaCache(int ordinal, cudaStream_t stream, const CacheShape &shape);
  void copy(const int32_t *src, const int32_t *dst, uint32_t n) override;
  void read(const int32_t *pages, uint32_t n, uint8_t *data) override;
  void write(const int32_t *pages, uint32_t n, const uint8_t *data) override;
  CacheStream stream(uint32_t s) const;

 private:
  template <class F>
  void each_run(F move);  // move(stream, bytes of a page in it)

  int ordinal_;
  cudaStream_t stream_;
  CacheShape shape_;
  Buffer memory_;
  std::vector<uint64_t> offset_;  // of each stream in memory_
};

class CudaDevice : public Device {
 public:
  CudaDevice(int ordinal, const cudaDeviceProp &properties, ThreadPool &pool);
  ~CudaDevice() override;

  std::unique_ptr<Device> another() override;
  std::string info_json(uint32_t index) override;
  std::unique_ptr<DeviceTensor> load_tensor(const TensorSource &source) override;
  std::unique_ptr<DeviceCache> create_cache(const CacheShape &shape) override;
  std::unique_ptr<Exec> compile(const Program &program, const std::vector<DeviceTensor *> &weights,
                                const std::vector<DeviceCache *> &caches) override;
  bool quantize(uint32_t src_type, const RowSource &src, uint32_t dst_type, uint8_t *dst, uint64_t n_rows, uint64_t n_per_row,
                const float *weights) override;
  bool dequantize(uint32_t type, const uint8_t *src, float *dst, uint64_t n) override;

  void use() const { check(cudaSetDevice(ordinal_), "cudaSetDevice"); }
  cudaStream_t stream() const { return stream_; }
  uint32_t n_sm() const { return n_sm_; }
  // Programmatic launch: the card has it, and the code that runs was compiled to wait for its predecessor (cuda.h).
  bool can_overlap() const;

 private:
  void pack_from(const TensorSource &source, CudaTensor &tensor);
  void copy_in(Buffer &to, const TensorSource &source, const char *what);

  int ordinal_;
  ThreadPool &pool_;
  std::string name_;
  uint64_t memory_;
  int major_, minor_;
  uint32_t n_sm_;
  cudaStream_t stream_ = nullptr;  // steps and cache transfers

  // Loading: two pinned buffers, filled and sent in turn.
  static constexpr uint64_t STAGE = 16u << 20;
  std::mutex load_;
  cudaStream_t load_stream_ = nullptr;
  uint8_t *pinned_[2] = {nullptr, nullptr};
  cudaEvent_t sent_[2] = {nullptr, nullptr};
  Buffer raw_[2];
  RowCoder coder_;
};

// Compiles a program into a captured graph (exec.cu).
std::unique_ptr<Exec> compile_program(CudaDevice &device, const Program &program, const std::vector<DeviceTensor *> &weights,
                                      const std::vector<DeviceCache *> &caches);

}  // namespace bl::cuda
