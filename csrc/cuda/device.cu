// device.cu: finds the cards, loads tensors into them, holds their caches.
#include "device.h"

#include <algorithm>
#include <cstring>

#include "../cpu/kernels.h"
#include "pack.h"

namespace bl::cuda {

CudaDevice::CudaDevice(int ordinal, const cudaDeviceProp &properties, ThreadPool &pool)
    : ordinal_(ordinal),
      pool_(pool),
      name_(properties.name),
      memory_(properties.totalGlobalMem),
      major_(properties.major),
      minor_(properties.minor),
      n_sm_(uint32_t(properties.multiProcessorCount)),
      coder_(ordinal, pool) {}

CudaDevice::~CudaDevice() {
  if (cudaSetDevice(ordinal_) != cudaSuccess) return;
  for (int i = 0; i < 2; i++) {
    if (pinned_[i] != nullptr) cudaFreeHost(pinned_[i]);
    if (sent_[i] != nullptr) cudaEventDestroy(sent_[i]);
    raw_[i].reset();
  }
  if (load_stream_ != nullptr) cudaStreamDestroy(load_stream_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

std::unique_ptr<Device> CudaDevice::another() {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, ordinal_), "cudaGetDeviceProperties");
  return std::make_unique<CudaDevice>(ordinal_, properties, pool_);
}

bool CudaDevice::can_overlap() const { return major_ >= 9 && code_version() >= 90; }

std::string CudaDevice::info_json(uint32_t index) {
  size_t free = 0, total = 0;
  if (cudaSetDevice(ordinal_) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess) cudaGetLastError();
  std::string name;
  for (const char c : name_)
    if (c != '"' && c != '\\' && c >= 32) name += c;
  std::string features = "\"sm_" + std::to_string(major_) + std::to_string(minor_) + "\"";
  return "{\"index\":" + std::to_string(index) + ",\"kind\":\"cuda\",\"name\":\"" + name + "\",\"memory_bytes\":" +
         std::to_string(memory_) + ",\"free_bytes\":" + std::to_string(free) + ",\"features\":[" + features + "]}";
}

void CudaDevice::copy_in(Buffer &to, const TensorSource &source, const char *what) {
  to.allocate(source.n_bytes, what);
  check(cudaMemcpy(to.data(), source.data, source.n_bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
}

std::unique_ptr<DeviceTensor> CudaDevice::load_tensor(const TensorSource &source) {
  const TypeInfo &type = *type_info(source.type);
  use();
  auto tensor = std::make_unique<CudaTensor>();
  const bool rows = (source.uses & BL_USE_ROWS) != 0, products = (source.uses & BL_USE_MUL_MAT) != 0;
  // Tables that would fill much of the card and of which a step reads a few rows stay in the file's mapping.
  if (rows && (source.uses & ~(BL_USE_ROWS | BL_USE_HOST)) == 0 && ((source.uses & BL_USE_HOST) != 0 || source.n_bytes > memory_ / 4)) {
    tensor->file = source.file;
    if (source.file == nullptr) tensor->host_copy.assign(source.data, source.data + source.n_bytes);
    tensor->host = source.file == nullptr ? tensor->host_copy.data() : source.data;
    return tensor;
  }
  const bool vector = (source.uses & BL_USE_VECTOR) != 0 || (source.uses & (BL_USE_MUL_MAT | BL_USE_ROWS)) == 0;
  if (vector) {
    if (source.type != TYPE_F32 && source.type != TYPE_I32)
      fail(BL_ERR_UNSUPPORTED, "Cannot load a %s vector on cuda device %d: expected f32", type.name, ordinal_);
    copy_in(tensor->vector, source, "a vector");
  }
  const bool known = has_products(source.type), from_packed = known && !packs_coded(source.type);
  if (products && !known)
    fail(BL_ERR_UNSUPPORTED, "Cannot load a %s matrix on cuda device %d: it has no products of that type", type.name, ordinal_);
  if (products || (rows && from_packed)) pack_from(source, *tensor);
  if (rows && !from_packed) copy_in(tensor->raw, source, "a table");
  return tensor;
}

void CudaDevice::pack_from(const TensorSource &source, CudaTensor &tensor) {
  const TypeInfo &type = *type_info(source.type);
  const uint64_t n_in = source.ne[0], n_row = source.ne[1], n_matrix = source.ne[2] * source.ne[3];
  const uint64_t row_bytes = n_in / type.block * type.bytes;
  if (n_in > UINT32_MAX || n_row > UINT32_MAX) fail(BL_ERR_UNSUPPORTED, "Cannot load a matrix of more than 2^32 rows or columns on cuda");
  tensor.matrix_bytes = packed_bytes(source.type, n_in, n_row, 1);
  tensor.packed.allocate(tensor.matrix_bytes * n_matrix, "a weight");

  std::lock_guard<std::mutex> lock(load_);
  if (load_stream_ == nullptr) check(cudaStreamCreateWithFlags(&load_stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  // Rows travel as the file has them, or as the codes and scales that the host makes of them; whole tiles of 16 rows at once. A tile larger
  // than a buffer gets larger buffers.
  const uint64_t n_sb = ceil_div(n_in, uint64_t(SB));
  const bool coded = packs_coded(source.type);
  const uint64_t sent_bytes = coded ? n_sb * sizeof(Coded) : row_bytes, tile = sent_bytes * TILE_ROWS;
  const uint64_t stage = std::max<uint64_t>(STAGE, tile);
  for (int i = 0; i < 2; i++) {
    if (raw_[i].bytes() >= stage) continue;
    if (pinned_[i] != nullptr) check(cudaFreeHost(pinned_[i]), "cudaFreeHost"), pinned_[i] = nullptr;
    check(cudaHostAlloc(reinterpret_cast<void **>(&pinned_[i]), stage, cudaHostAllocDefault), "cudaHostAlloc");
    if (sent_[i] == nullptr) check(cudaEventCreateWithFlags(&sent_[i], cudaEventDisableTiming), "cudaEventCreateWithFlags");
    raw_[i].allocate(stage, "loading");
  }
  const uint64_t rows_per_stage = stage / tile * TILE_ROWS;
  int turn = 0;
  for (uint64_t m = 0; m < n_matrix; m++) {
    for (uint64_t row = 0; row < n_row; row += rows_per_stage) {
      const uint64_t n = std::min(rows_per_stage, n_row - row);
      const uint8_t *from = source.data + (m * n_row + row) * row_bytes;
      check(cudaEventSynchronize(sent_[turn]), "cudaEventSynchronize");
      if (coded) {
        const CodedKernels &kernels = bl::kernels().coded[coded_type(source.type)];
        Coded *to = reinterpret_cast<Coded *>(pinned_[turn]);
        pool_.run(n, std::max<uint64_t>(1, 4096 / n_in), [&](uint64_t begin, uint64_t end, uint32_t) {
          for (uint64_t i = begin; i < end; i++) kernels.row(from + i * row_bytes, n_in, to + i * n_sb);
        });
      } else {
        memcpy(pinned_[turn], from, n * row_bytes);
      }
      check(cudaMemcpyAsync(raw_[turn].data(), pinned_[turn], n * sent_bytes, cudaMemcpyHostToDevice, load_stream_), "cudaMemcpyAsync");
      uint8_t *to = tensor.packed.data() + m * tensor.matrix_bytes + packed_bytes(source.type, n_in, row, 1);
      if (coded) pack_coded(source.type, raw_[turn].as<Coded>(), to, n_in, n, load_stream_);
      else pack_rows(source.type, raw_[turn].data(), to, n_in, n, load_stream_);
      check(cudaEventRecord(sent_[turn], load_stream_), "cudaEventRecord");
      turn ^= 1;
    }
  }
  check(cudaStreamSynchronize(load_stream_), "cudaStreamSynchronize");
}

std::unique_ptr<DeviceCache> CudaDevice::create_cache(const CacheShape &shape) {
  use();
  if (stream_ == nullptr) check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return std::make_unique<CudaCache>(ordinal_, stream_, shape);
}

std::unique_ptr<Exec> CudaDevice::compile(const Program &program, const std::vector<DeviceTensor *> &weights,
                                          const std::vector<DeviceCache *> &caches) {
  use();
  if (stream_ == nullptr) check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return compile_program(*this, program, weights, caches);
}

bool CudaDevice::quantize(uint32_t src_type, const RowSource &src, uint32_t dst_type, uint8_t *dst, uint64_t n_rows, uint64_t n_per_row,
                          const float *weights) {
  coder_.quantize(src_type, src, dst_type, dst, n_rows, n_per_row, weights);
  return true;
}

bool CudaDevice::dequantize(uint32_t type, const uint8_t *src, float *dst, uint64_t n) {
  coder_.dequantize(type, src, dst, n);
  return true;
}

// --- caches -----------------------------------------------------------------------------------------------------------------------

CudaCache::CudaCache(int ordinal, cudaStream_t stream, const CacheShape &shape) : ordinal_(ordinal), stream_(stream), shape_(shape) {
  uint64_t bytes = 0;
  for (size_t s = 0; s < shape.type.size(); s++) {
    offset_.push_back(bytes);
    bytes = round_up(bytes + shape.row_bytes(s) * shape.page_rows(s) * shape.n_pages, uint64_t(256));
  }
  memory_.allocate(bytes, "a cache");
  check(cudaMemsetAsync(memory_.data(), 0, bytes, stream_), "cudaMemsetAsync");
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

CacheStream CudaCache::stream(uint32_t s) const {
  return {memory_.data() + offset_[s], shape_.type[s], uint32_t(shape_.row_bytes(s)), shape_.ratio[s], shape_.page_rows(s)};
}

template <class F>
void CudaCache::each_run(F move) {
  check(cudaSetDevice(ordinal_), "cudaSetDevice");
  for (size_t s = 0; s < shape_.type.size(); s++) move(memory_.data() + offset_[s], shape_.row_bytes(s) * shape_.page_rows(s));
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

void CudaCache::copy(const int32_t *src, const int32_t *dst, uint32_t n) {
  each_run([&](uint8_t *base, uint64_t bytes) {
    for (uint32_t i = 0; i < n; i++)
      if (src[i] != dst[i])
        check(cudaMemcpyAsync(base + uint64_t(dst[i]) * bytes, base + uint64_t(src[i]) * bytes, bytes, cudaMemcpyDeviceToDevice, stream_),
              "cudaMemcpyAsync");
  });
}

void CudaCache::read(const int32_t *pages, uint32_t n, uint8_t *data) {
  uint64_t at = 0;
  const uint64_t page_bytes = shape_.page_bytes();
  each_run([&](uint8_t *base, uint64_t bytes) {
    for (uint32_t i = 0; i < n; i++)
      check(cudaMemcpyAsync(data + i * page_bytes + at, base + uint64_t(pages[i]) * bytes, bytes, cudaMemcpyDeviceToHost, stream_),
            "cudaMemcpyAsync");
    at += bytes;
  });
}

void CudaCache::write(const int32_t *pages, uint32_t n, const uint8_t *data) {
  uint64_t at = 0;
  const uint64_t page_bytes = shape_.page_bytes();
  each_run([&](uint8_t *base, uint64_t bytes) {
    for (uint32_t i = 0; i < n; i++)
      check(cudaMemcpyAsync(base + uint64_t(pages[i]) * bytes, data + i * page_bytes + at, bytes, cudaMemcpyHostToDevice, stream_),
            "cudaMemcpyAsync");
    at += bytes;
  });
}

}  // namespace bl::cuda

namespace bl {

std::vector<std::unique_ptr<Device>> card_devices(ThreadPool &pool) {
  std::vector<std::unique_ptr<Device>> devices;
  int n = 0;
  if (cudaGetDeviceCount(&n) != cudaSuccess) {  // no driver, or no card: this library still serves its host
    cudaGetLastError();
    return devices;
  }
  for (int i = 0; i < n; i++) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess || properties.major < 8) continue;  // mma of sm_80 is the least
    devices.push_back(std::make_unique<cuda::CudaDevice>(i, properties, pool));
  }
  return devices;
}

const char *card_backends_json() { return ",\"cuda\""; }

}  // namespace bl
