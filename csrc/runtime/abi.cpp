// abi.cpp: the C ABI of bloomery.h over Device objects. Everything that comes from outside is checked here, in program*.cpp or in
// step_input.cpp; no exception leaves this file.
#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "../bloomery.h"
#include "device.h"
#include "host_math.h"
#include "host_quantize.h"
#include "segments.h"

using namespace bl;

struct bl_runtime {
  explicit bl_runtime(uint32_t n_threads) : pool(n_threads) {
    devices.push_back(host_device(pool));
    for (auto &card : card_devices(pool)) devices.push_back(std::move(card));
    for (size_t i = 0; i < devices.size(); i++) locks.push_back(std::make_unique<std::mutex>());
  }
  ThreadPool pool;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<std::mutex>> locks;  // by device: one step, or one cache transfer, at a time
};

struct bl_file {
  std::shared_ptr<const File> file;
};

struct bl_tensor {
  std::unique_ptr<DeviceTensor> tensor;
};

struct bl_pool {
  std::unique_ptr<DevicePool> pool;
  uint32_t device;
  Device *on;
};

struct bl_cache {
  std::unique_ptr<DeviceCache> cache;
  std::mutex *lock;
};

struct bl_program {
  Program program;
  std::unique_ptr<StepReader> reader;
  std::unique_ptr<Exec> exec;
  std::vector<std::mutex *> locks;  // of its devices, ascending
};

namespace {

using ull = unsigned long long;

constexpr uint32_t MAX_DEVICES = 64;
constexpr uint32_t MAX_THREADS = 1024;
constexpr uint32_t MAX_SLOTS = 1u << 24;
constexpr uint32_t MAX_STREAMS = 1u << 16;
constexpr uint32_t MAX_PAGE_SIZE = 1u << 16;
constexpr uint32_t MAX_ROW_ELEMS = 1u << 28;

// Writes a NUL-terminated text, cut at a whole character.
void write_text(const std::string &text, uint8_t *out, uint64_t n_out) {
  if (out == nullptr || n_out == 0) return;
  uint64_t n = std::min<uint64_t>(text.size(), n_out - 1);
  while (n > 0 && n < text.size() && (uint8_t(text[n]) & 0xC0) == 0x80) n--;
  memcpy(out, text.data(), n);
  out[n] = 0;
}

template <class F>
int32_t guarded(uint8_t *err, uint64_t n_err, const F &body) {
  try {
    body();
    return BL_OK;
  } catch (const Failure &f) {
    write_text(f.text, err, n_err);
    return f.code;
  } catch (const std::bad_alloc &) {
    write_text("Cannot allocate host memory", err, n_err);
    return BL_ERR_MEMORY;
  } catch (const std::exception &e) {
    write_text(std::string("The native library failed: ") + e.what(), err, n_err);
    return BL_ERR_DEVICE;
  } catch (...) {
    write_text("The native library failed", err, n_err);
    return BL_ERR_DEVICE;
  }
}

void need(bool ok, const char *what) {
  if (!ok) fail(BL_ERR_ARGUMENT, "Cannot make the call: %s", what);
}

Device &device_at(bl_runtime *rt, uint32_t device) {
  need(rt != nullptr, "the runtime is NULL");
  if (device >= rt->devices.size()) fail(BL_ERR_ARGUMENT, "Cannot use device %u: there are %zu", device, rt->devices.size());
  return *rt->devices[device];
}

// Holds the devices of a program; all who hold several take them in one order.
class Held {
 public:
  explicit Held(const std::vector<std::mutex *> &locks) {
    for (std::mutex *m : locks) held_.emplace_back(*m);
  }

 private:
  std::vector<std::unique_lock<std::mutex>> held_;
};

// A tensor or cache of another device than the one whose part of a program is measured.
class TensorElsewhere : public DeviceTensor {
 public:
  uint64_t device_bytes() const override { return 0; }
};

class CacheElsewhere : public DeviceCache {
 public:
  CacheElsewhere() { splits_blocks = true; }
  void copy(const int32_t *, const int32_t *, uint32_t) override {}
  void read(const int32_t *, uint32_t, uint8_t *) override {}
  void write(const int32_t *, uint32_t, const uint8_t *) override {}
};

const TypeInfo &type_at(uint32_t type) {
  const TypeInfo *t = type_info(type);
  if (t == nullptr) fail(BL_ERR_ARGUMENT, "Cannot use type %u: it is not a ggml type", type);
  return *t;
}

uint64_t multiply(uint64_t a, uint64_t b, const char *what) {
  uint64_t r;
  if (__builtin_mul_overflow(a, b, &r) || r > (1ull << 62)) fail(BL_ERR_ARGUMENT, "Cannot make the call: %s overflows", what);
  return r;
}

// Bytes of n elements in whole blocks of a type.
uint64_t type_bytes(const TypeInfo &t, uint64_t n) {
  if (n % t.block != 0) fail(BL_ERR_ARGUMENT, "Cannot use %llu elements of %s: not a multiple of %u", (ull)n, t.name, t.block);
  return multiply(n / t.block, t.bytes, "a size");
}

// The range of an i32 tensor's values, where it is one that ids can have: from -1 or 0 on.
void note_range(DeviceTensor &t, const int32_t *values, uint64_t n) {
  const auto [least, most] = std::minmax_element(values, values + n);
  if (*least < -1) return;
  t.i32_least = std::min(*least, 0);
  t.i32_limit = uint64_t(int64_t(std::max(*most, 0)) + 1);
}

// Checks that n_bytes are a tensor of this type and shape.
void check_shape(const TypeInfo &t, const uint64_t *ne, uint64_t n_bytes) {
  uint64_t n = 1;
  for (int i = 0; i < 4; i++) {
    if (ne[i] == 0) fail(BL_ERR_ARGUMENT, "Cannot load tensor: dimension %d is 0", i);
    n = multiply(n, ne[i], "a tensor's size");
  }
  if (ne[0] % t.block != 0)
    fail(BL_ERR_ARGUMENT, "Cannot load tensor: its rows have %llu elements, not a multiple of %s's %u", (ull)ne[0], t.name, t.block);
  const uint64_t want = type_bytes(t, n);
  if (n_bytes != want) fail(BL_ERR_ARGUMENT, "Cannot load tensor: it has %llu bytes, expected %llu", (ull)n_bytes, (ull)want);
}

void load(bl_runtime *rt, uint32_t device, uint32_t type, const uint64_t *ne, uint32_t uses, const uint8_t *data, uint64_t n_bytes,
          std::shared_ptr<const File> file, uint64_t offset, bl_tensor **out) {
  Device &d = device_at(rt, device);
  need(ne != nullptr && out != nullptr && data != nullptr, "a pointer is NULL");
  const TypeInfo &t = type_at(type);
  if (uses > (BL_USE_MUL_MAT | BL_USE_ROWS | BL_USE_VECTOR | BL_USE_HOST))
    fail(BL_ERR_ARGUMENT, "Cannot load tensor: uses is %u, expected 0 to 15", uses);
  check_shape(t, ne, n_bytes);
  std::vector<int32_t> i32;
  if (type == TYPE_I32) {
    // What a program is checked against must not change under it, as a file can: the device gets the values that are looked at.
    i32.resize(n_bytes / 4);
    memcpy(i32.data(), data, n_bytes);
    data = reinterpret_cast<const uint8_t *>(i32.data());
    file.reset();
  }
  TensorSource source{type, {ne[0], ne[1], ne[2], ne[3]}, uses, data, n_bytes, std::move(file), offset};
  auto handle = std::make_unique<bl_tensor>();
  handle->tensor = d.load_tensor(source);
  DeviceTensor &made = *handle->tensor;
  made.device = device, made.type = type, made.uses = uses;
  std::copy(ne, ne + 4, made.ne);
  if (type == TYPE_I32) note_range(made, i32.data(), i32.size());
  *out = handle.release();
}

void check_range(const File &f, uint64_t offset, uint64_t n_bytes, const char *what) {
  if (offset > f.size() || n_bytes > f.size() - offset)
    fail(BL_ERR_IO, "Cannot %s from %.300s: bytes %llu to %llu lie past its end at %llu", what, f.path().c_str(), (ull)offset,
         (ull)(offset + n_bytes), (ull)f.size());
}

// The packed matrices of a weight in a file.   align: of the first one and of their distance
PackedBytes packed_bytes(Device &d, uint32_t device, uint32_t type, const uint64_t *ne, const bl_file *packed, uint64_t offset, uint64_t stride,
                         uint64_t align) {
  const uint64_t bytes = d.packed_matrix(type, ne);
  if (bytes == 0) fail(BL_ERR_UNSUPPORTED, "Cannot map packed %s on device %u: it does not pack that type", type_at(type).name, device);
  if (offset % align != 0 || stride % align != 0 || stride < bytes)
    fail(BL_ERR_ARGUMENT, "Cannot map packed matrices: they lie %llu bytes apart from %llu on, expected multiples of %llu, and at least %llu apart",
         (ull)stride, (ull)offset, (ull)align, (ull)bytes);
  check_range(*packed->file, offset, multiply(stride, multiply(ne[2], ne[3], "a size") - 1, "a size") + (bytes + align - 1) / align * align, "map a tensor");
  return {packed->file, offset, stride};
}

void quantize(bl_runtime *rt, uint32_t device, uint32_t src_type, const RowSource &src, uint64_t n_src, uint32_t dst_type, uint8_t *dst,
              uint64_t n_dst, uint64_t n_rows, uint64_t n_per_row, const float *weights) {
  Device &d = device_at(rt, device);
  const TypeInfo &from = type_at(src_type), &to = type_at(dst_type);
  need(n_per_row > 0 || n_rows == 0, "n_per_row is 0");
  const uint64_t want_src = multiply(n_rows, type_bytes(from, n_per_row), "a size");
  const uint64_t want_dst = multiply(n_rows, type_bytes(to, n_per_row), "a size");
  multiply(n_rows, multiply(n_per_row, 4, "a size"), "a size");
  if (n_src != want_src || n_dst != want_dst)
    fail(BL_ERR_ARGUMENT, "Cannot quantize: the buffers have %llu and %llu bytes, expected %llu and %llu", (ull)n_src, (ull)n_dst,
         (ull)want_src, (ull)want_dst);
  if (n_rows == 0) return;
  need(dst != nullptr, "a pointer is NULL");
  if (device == 0 || src_type == dst_type) return host_quantize(rt->pool, src_type, src, dst_type, dst, n_rows, n_per_row, weights);
  if (!d.quantize(src_type, src, dst_type, dst, n_rows, n_per_row, weights))
    fail(BL_ERR_UNSUPPORTED, "Cannot quantize on device %u: it has no encoders, use device 0", device);
}

void check_pages(const bl_cache *cache, const int32_t *pages, uint32_t n) {
  need(cache != nullptr && (pages != nullptr || n == 0), "a pointer is NULL");
  const uint32_t n_pages = cache->cache->shape.n_pages;
  for (uint32_t i = 0; i < n; i++) {
    int32_t page;
    memcpy(&page, reinterpret_cast<const uint8_t *>(pages) + 4 * size_t(i), 4);
    if (page < 0 || uint32_t(page) >= n_pages) fail(BL_ERR_ARGUMENT, "Cannot use page %d: the cache has %u", page, n_pages);
  }
}

void check_transfer(const bl_cache *cache, const int32_t *pages, uint32_t n, const void *data, uint64_t n_data) {
  check_pages(cache, pages, n);
  need(data != nullptr || n == 0, "a pointer is NULL");
  const uint64_t want = multiply(n, cache->cache->shape.page_bytes(), "a size");
  if (n_data != want) fail(BL_ERR_ARGUMENT, "Cannot move %u pages: the buffer has %llu bytes, expected %llu", n, (ull)n_data, (ull)want);
}

// Checks one stream of a cache.
void check_stream(const CacheShape &shape, uint32_t s) {
  const uint32_t type = shape.type[s], ne = shape.ne[s], ratio = shape.ratio[s], page_size = shape.page_size;
  if (type != TYPE_F32 && type != TYPE_F16 && type != TYPE_Q8_0)
    fail(BL_ERR_ARGUMENT, "Cannot create cache: stream %u has type %u, expected f32, f16 or q8_0", s, type);
  if (ne == 0 || ne > MAX_ROW_ELEMS || ne % type_info(type)->block != 0)
    fail(BL_ERR_ARGUMENT, "Cannot create cache: rows of stream %u have %u elements, expected a positive multiple of %u up to %u", s, ne,
         type_info(type)->block, MAX_ROW_ELEMS);
  if (page_size == 0 || ratio == 0 || (page_size % ratio != 0 && ratio % page_size != 0))
    fail(BL_ERR_ARGUMENT, "Cannot create cache: stream %u has a row for %u positions, expected a divisor or a multiple of %u", s, ratio,
         page_size);
}

}  // namespace

extern "C" {

uint32_t bl_abi_version(void) { return BL_ABI_VERSION; }

uint64_t bl_build_info(uint8_t *out, uint64_t n_out) {
  try {
#if defined(__clang__)
    const std::string compiler = "clang " __clang_version__;
#else
    const std::string compiler = "g++ " __VERSION__;
#endif
    const std::string text = std::string("{\"backends\":[\"cpu\"") + card_backends_json() + "],\"compiler\":\"" + compiler + "\"}";
    write_text(text, out, n_out);
    return text.size();
  } catch (...) {
    return 0;
  }
}

int32_t bl_runtime_open(uint32_t n_threads, bl_runtime **out, uint8_t *err, uint64_t n_err) {
  return guarded(err, n_err, [&] {
    need(out != nullptr, "a pointer is NULL");
    if (n_threads > MAX_THREADS) fail(BL_ERR_ARGUMENT, "Cannot open runtime: n_threads is %u, expected up to %u", n_threads, MAX_THREADS);
    *out = new bl_runtime(n_threads);
  });
}

void bl_runtime_close(bl_runtime *rt) { delete rt; }

uint64_t bl_runtime_devices(bl_runtime *rt, uint8_t *out, uint64_t n_out) {
  try {
    if (rt == nullptr) return 0;
    std::string text = "[";
    for (size_t i = 0; i < rt->devices.size(); i++) text += (i ? "," : "") + rt->devices[i]->info_json(uint32_t(i));
    text += "]";
    write_text(text, out, n_out);
    return text.size();
  } catch (...) {
    return 0;
  }
}

int32_t bl_runtime_add_device(bl_runtime *rt, uint32_t like, uint32_t *out, uint8_t *err, uint64_t n_err) {
  return guarded(err, n_err, [&] {
    Device &d = device_at(rt, like);
    need(out != nullptr, "a pointer is NULL");
    if (rt->devices.size() == MAX_DEVICES) fail(BL_ERR_ARGUMENT, "Cannot add a device: there are %u, the most", MAX_DEVICES);
    auto made = d.another();
    if (made == nullptr) fail(BL_ERR_UNSUPPORTED, "Cannot add a device: device %u can be there once only", like);
    rt->locks.push_back(std::make_unique<std::mutex>());
    rt->devices.push_back(std::move(made));
    *out = uint32_t(rt->devices.size() - 1);
  });
}

int32_t bl_file_open(bl_runtime *rt, const uint8_t *path, bl_file **out, uint8_t *err, uint64_t n_err) {
  return guarded(err, n_err, [&] {
    need(rt != nullptr && path != nullptr && out != nullptr, "a pointer is NULL");
    *out = new bl_file{File::open(reinterpret_cast<const char *>(path))};
  });
}

void bl_file_close(bl_file *file) { delete file; }

int32_t bl_tensor_load(bl_runtime *rt, uint32_t device, uint32_t type, const uint64_t *ne, uint32_t uses, bl_file *file, uint64_t offset,
                       uint64_t n_bytes, bl_tensor **out, uint8_t *err, uint64_t n_err) {
  return guarded(err, n_err, [&] {
    need(file != nullptr, "the file is NULL");
    const File &f = *file->file;
    check_range(f, offset, n_bytes, "load tensor");
    load(rt, device, type, ne, uses, f.data() + offset, n_bytes, file->file, offset, out);
  });
}

int32_t bl_tensor_create(bl_runtime *rt, uint32_t device, uint32_t type, const uint64_t *ne, uint32_t uses, const uint8_t *data,
                         uint64_t n_bytes, bl_tensor **out, uint8_t *err, uint64_t n_err) {
  return guarded(err, n_err, [&] { load(rt, device, type, ne, uses, data, n_bytes, nullptr, 0, out); });
}

int32_t bl_pack(bl_runtime *rt, uint32_t device, uint32_t type, const uint64_t *ne, bl_file *file, uint64_t offset, uint64_t n_bytes,
                uint8_t *dst, uint64_t n_dst, uint8_t *err, uint64_t n_err) {
  return guarded(err, n_err, [&] {
    Device &d = device_at(rt, device);
    need(ne != nullptr && file != nullptr && dst != nullptr, "a pointer is NULL");
    check_shape(type_at(type), ne, n_bytes);
    const File &f = *file->file;
    check_range(f, offset, n_bytes, "pack a tensor");
    const uint64_t bytes = d.packed_matrix(type, ne);
    if (bytes == 0) fail(BL_ERR_UNSUPPORTED, "Cannot pack %s for device %u: it does not pack that type", type_at(type).name, device);
    const uint64_t want = multiply(bytes, multiply(ne[2], ne[3], "a size"), "a size");
    if (n_dst != want) fail(BL_ERR_ARGUMENT, "Cannot pack: the buffer has %llu bytes, expected %llu", (ull)n_dst, (ull)want);
    d.pack({type, {ne[0], ne[1], ne[2], ne[3]}, BL_USE_MUL_MAT, f.data() + offset, n_bytes, file->file, offset}, dst);
  });
}

int32_t bl_tensor_map(bl_runtime *rt, uint32_t device, uint32_t type, const uint64_t *ne, uint32_t uses, bl_file *file, uint64_t offset,
                      uint64_t n_bytes, bl_file *packed, uint64_t packed_offset, uint64_t stride, bl_tensor **out, uint8_t *err,
                      uint64_t n_err) {
  return guarded(err, n_err, [&] {
    Device &d = device_at(rt, device);
    need(ne != nullptr && file != nullptr && packed != nullptr && out != nullptr, "a pointer is NULL");
    if (uses != BL_USE_MUL_MAT && uses != (BL_USE_MUL_MAT | BL_USE_ROWS))
      fail(BL_ERR_ARGUMENT, "Cannot map tensor: uses is %u, expected BL_USE_MUL_MAT with or without BL_USE_ROWS", uses);
    check_shape(type_at(type), ne, n_bytes);
    const File &f = *file->file;
    check_range(f, offset, n_bytes, "load tensor");
    const PackedBytes bytes = packed_bytes(d, device, type, ne, packed, packed_offset, stride, 64);
    auto handle = std::make_unique<bl_tensor>();
    handle->tensor = d.map_tensor({type, {ne[0], ne[1], ne[2], ne[3]}, uses, f.data() + offset, n_bytes, file->file, offset}, bytes);
    DeviceTensor &made = *handle->tensor;
    made.device = device, made.type = type, made.uses = uses;
    std::copy(ne, ne + 4, made.ne);
    *out = handle.release();
  });
}

uint64_t bl_tensor_device_bytes(const bl_tensor *tensor) { return tensor == nullptr ? 0 : tensor->tensor->device_bytes(); }

void bl_tensor_free(bl_tensor *tensor) { delete tensor; }

int32_t bl_pool_create(bl_runtime *rt, uint32_t device, uint64_t slot_bytes, uint32_t n_slots, bl_pool **out, uint8_t *err, uint64_t n_err) {
  return guarded(err, n_err, [&] {
    Device &d = device_at(rt, device);
    need(out != nullptr, "a pointer is NULL");
    if (slot_bytes == 0 || n_slots == 0 || n_slots > MAX_SLOTS)
      fail(BL_ERR_ARGUMENT, "Cannot create pool of %u slots of %llu bytes: expected 1 to %u, and bytes", n_slots, (ull)slot_bytes, MAX_SLOTS);
    multiply(slot_bytes + 64, n_slots, "the pool's size");
    auto pool = d.create_pool(slot_bytes, n_slots);
    if (pool == nullptr) fail(BL_ERR_UNSUPPORTED, "Cannot create pool on device %u: it has none yet, use device 0", device);
    *out = new bl_pool{std::move(pool), device, &d};
  });
}

int32_t bl_pool_tensor(bl_pool *pool, uint32_t group, uint32_t type, const uint64_t *ne, bl_file *file, uint64_t offset, uint64_t n_bytes,
                       bl_tensor **out, uint8_t *err, uint64_t n_err) {
  return guarded(err, n_err, [&] {
    need(pool != nullptr && ne != nullptr && file != nullptr && out != nullptr, "a pointer is NULL");
    check_shape(type_at(type), ne, n_bytes);
    check_range(*file->file, offset, n_bytes, "load tensor");
    auto handle = std::make_unique<bl_tensor>();
    handle->tensor = pool->pool->add({type, {ne[0], ne[1], ne[2], ne[3]}, group, file->file, offset, n_bytes, {}});
    DeviceTensor &made = *handle->tensor;
    made.device = pool->device, made.type = type, made.uses = BL_USE_MUL_MAT;
    std::copy(ne, ne + 4, made.ne);
    *out = handle.release();
  });
}

int32_t bl_pool_map(bl_pool *pool, uint32_t group, uint32_t type, const uint64_t *ne, bl_file *packed, uint64_t packed_offset,
                    uint64_t stride, bl_tensor **out, uint8_t *err, uint64_t n_err) {
  return guarded(err, n_err, [&] {
    need(pool != nullptr && ne != nullptr && packed != nullptr && out != nullptr, "a pointer is NULL");
    const TypeInfo &t = type_at(type);
    uint64_t n = 1;
    for (int i = 0; i < 4; i++) n = multiply(n, ne[i], "a tensor's size");
    check_shape(t, ne, type_bytes(t, n));
    auto handle = std::make_unique<bl_tensor>();
    handle->tensor = pool->pool->add({type, {ne[0], ne[1], ne[2], ne[3]}, group, nullptr, 0, 0,
                                      packed_bytes(*pool->on, pool->device, type, ne, packed, packed_offset, stride, 4096)});
    DeviceTensor &made = *handle->tensor;
    made.device = pool->device, made.type = type, made.uses = BL_USE_MUL_MAT;
    std::copy(ne, ne + 4, made.ne);
    *out = handle.release();
  });
}

int32_t bl_pool_copy(bl_pool *pool, const bl_file *of, const bl_file *copy, uint8_t *err, uint64_t n_err) {
  return guarded(err, n_err, [&] {
    need(pool != nullptr && of != nullptr && copy != nullptr, "a pointer is NULL");
    pool->pool->add_copy(*of->file, copy->file);
  });
}

int32_t bl_pool_seat(bl_pool *pool, uint32_t group, const uint8_t *seated, uint64_t n_expert, uint8_t *err, uint64_t n_err) {
  return guarded(err, n_err, [&] {
    need(pool != nullptr && seated != nullptr, "a pointer is NULL");
    const uint32_t want = pool->pool->n_expert(group);
    if (want == 0 || n_expert != want)
      fail(BL_ERR_ARGUMENT, "Cannot seat %llu experts of group %u: expected %u", (ull)n_expert, group, want);
    pool->pool->seat(group, seated);
  });
}

int32_t bl_pool_fill(bl_pool *pool, uint8_t *err, uint64_t n_err) {
  return guarded(err, n_err, [&] {
    need(pool != nullptr, "the pool is NULL");
    pool->pool->fill();
  });
}

uint64_t bl_pool_counts(bl_pool *pool, uint64_t *out, uint64_t n_out) {
  try {
    if (pool == nullptr) return 0;
    const std::vector<uint64_t> counts = pool->pool->counts();
    if (out != nullptr) std::copy_n(counts.begin(), std::min<uint64_t>(n_out, counts.size()), out);
    return counts.size();
  } catch (...) {
    return 0;
  }
}

uint64_t bl_pool_bytes(const bl_pool *pool) { return pool == nullptr ? 0 : pool->pool->bytes(); }

void bl_pool_free(bl_pool *pool) { delete pool; }

int32_t bl_cache_create(bl_runtime *rt, uint32_t device, uint32_t n_stream, const uint32_t *stream_type, const uint32_t *stream_ne,
                        const uint32_t *stream_ratio, uint32_t page_size, uint32_t n_pages, bl_cache **out, uint8_t *err, uint64_t n_err) {
  return guarded(err, n_err, [&] {
    Device &d = device_at(rt, device);
    need(stream_type != nullptr && stream_ne != nullptr && stream_ratio != nullptr && out != nullptr, "a pointer is NULL");
    if (n_stream == 0 || n_stream > MAX_STREAMS || page_size == 0 || page_size > MAX_PAGE_SIZE || n_pages == 0 || n_pages > INT32_MAX)
      fail(BL_ERR_ARGUMENT, "Cannot create cache of %u streams, %u pages of %u positions: expected 1 to %u, 1 to %d, 1 to %u", n_stream, n_pages,
           page_size, MAX_STREAMS, INT32_MAX, MAX_PAGE_SIZE);
    CacheShape shape;
    shape.page_size = page_size, shape.n_pages = n_pages;
    for (uint32_t s = 0; s < n_stream; s++) {
      shape.type.push_back(stream_type[s]);
      shape.ne.push_back(stream_ne[s]);
      shape.ratio.push_back(stream_ratio[s]);
      check_stream(shape, s);
    }
    multiply(shape.page_bytes(), n_pages, "the cache's size");
    auto handle = std::make_unique<bl_cache>();
    handle->cache = d.create_cache(shape);
    handle->cache->device = device;
    handle->cache->shape = shape;
    handle->lock = rt->locks[device].get();
    *out = handle.release();
  });
}

uint64_t bl_cache_page_bytes(const bl_cache *cache) { return cache == nullptr ? 0 : cache->cache->shape.page_bytes(); }

int32_t bl_cache_copy(bl_cache *cache, const int32_t *src, const int32_t *dst, uint32_t n, uint8_t *err, uint64_t n_err) {
  return guarded(err, n_err, [&] {
    check_pages(cache, src, n);
    check_pages(cache, dst, n);
    std::lock_guard<std::mutex> lock(*cache->lock);
    cache->cache->copy(src, dst, n);
  });
}

int32_t bl_cache_read(bl_cache *cache, const int32_t *pages, uint32_t n, uint8_t *data, uint64_t n_data, uint8_t *err, uint64_t n_err) {
  return guarded(err, n_err, [&] {
    check_transfer(cache, pages, n, data, n_data);
    std::lock_guard<std::mutex> lock(*cache->lock);
    cache->cache->read(pages, n, data);
  });
}

int32_t bl_cache_write(bl_cache *cache, const int32_t *pages, uint32_t n, const uint8_t *data, uint64_t n_data, uint8_t *err,
                       uint64_t n_err) {
  return guarded(err, n_err, [&] {
    check_transfer(cache, pages, n, data, n_data);
    std::lock_guard<std::mutex> lock(*cache->lock);
    cache->cache->write(pages, n, data);
  });
}

void bl_cache_free(bl_cache *cache) { delete cache; }

int32_t bl_program_create(bl_runtime *rt, const uint8_t *code, uint64_t n_code, bl_tensor *const *weights, uint64_t n_weights,
                          bl_cache *const *caches, uint64_t n_caches, bl_program **out, uint8_t *err, uint64_t n_err) {
  return guarded(err, n_err, [&] {
    need(rt != nullptr && out != nullptr && code != nullptr, "a pointer is NULL");
    need((weights != nullptr || n_weights == 0) && (caches != nullptr || n_caches == 0), "a pointer is NULL");
    std::vector<DeviceTensor *> w;
    std::vector<DeviceCache *> c;
    for (uint64_t i = 0; i < n_weights; i++) {
      if (weights[i] == nullptr) fail(BL_ERR_ARGUMENT, "Cannot create program: weight %llu is NULL", (ull)i);
      w.push_back(weights[i]->tensor.get());
    }
    for (uint64_t i = 0; i < n_caches; i++) {
      if (caches[i] == nullptr) fail(BL_ERR_ARGUMENT, "Cannot create program: cache %llu is NULL", (ull)i);
      c.push_back(caches[i]->cache.get());
    }
    auto handle = std::make_unique<bl_program>();
    handle->program = parse_program(code, n_code, {w.begin(), w.end()}, {c.begin(), c.end()});
    const Program &p = handle->program;
    const std::vector<uint32_t> devices = p.devices();
    for (const uint32_t device : devices) {
      device_at(rt, device);
      handle->locks.push_back(rt->locks[device].get());
    }
    const Held held(handle->locks);  // programs of a device share its scratch memory
    if (devices.size() == 1) handle->exec = device_at(rt, p.device).compile(p, w, c);
    else {
      auto parts = std::make_unique<Segments>(p, devices);
      for (const uint32_t device : devices) parts->set_exec(device, device_at(rt, device).compile(parts->part(device), w, c));
      handle->exec = std::move(parts);
    }
    handle->reader = std::make_unique<StepReader>(p);
    *out = handle.release();
  });
}

uint64_t bl_program_scratch_bytes(const bl_program *program) { return program == nullptr ? 0 : program->exec->scratch_bytes(); }

int32_t bl_program_measure(bl_runtime *rt, uint32_t device, const uint8_t *code, uint64_t n_code, const uint64_t *weights,
                           uint64_t n_weights, const uint32_t *caches, uint64_t n_cache_words, uint64_t *out, uint8_t *err,
                           uint64_t n_err) {
  return guarded(err, n_err, [&] {
    Device &d = device_at(rt, device);
    need(code != nullptr && out != nullptr, "a pointer is NULL");
    need((weights != nullptr || n_weights == 0) && (caches != nullptr || n_cache_words == 0), "a pointer is NULL");
    const auto cannot = [&] { fail(BL_ERR_UNSUPPORTED, "Cannot measure a program on device %u: it needs the weights themselves", device); };
    std::vector<std::unique_ptr<DeviceTensor>> tensors;
    std::vector<std::unique_ptr<DeviceCache>> stores;
    std::vector<DeviceTensor *> w;
    std::vector<DeviceCache *> c;
    for (uint64_t i = 0; i < n_weights; i++) {
      const uint64_t *words = weights + 7 * i;
      const uint32_t type = uint32_t(words[0]), on = uint32_t(words[6]);
      const TypeInfo &t = type_at(type);
      uint64_t n = 1;
      for (int k = 1; k < 5; k++) n = multiply(n, words[k], "a tensor's size");
      check_shape(t, words + 1, type_bytes(t, n));
      tensors.push_back(on == device ? d.describe_tensor(type, uint32_t(words[5])) : std::make_unique<TensorElsewhere>());
      if (tensors.back() == nullptr) cannot();
      DeviceTensor &made = *tensors.back();
      made.device = on, made.type = type, made.uses = uint32_t(words[5]);
      std::copy(words + 1, words + 5, made.ne);
      if (type == TYPE_I32) made.i32_limit = 1;  // whatever its values are: they are checked when it is loaded
      w.push_back(&made);
    }
    for (uint64_t i = 0; i < n_cache_words;) {
      need(n_cache_words - i >= 4 && (n_cache_words - i - 4) / 3 >= caches[i + 3], "the caches' words end too early");
      const uint32_t on = caches[i];
      stores.push_back(on == device ? d.describe_cache() : std::make_unique<CacheElsewhere>());
      if (stores.back() == nullptr) cannot();
      CacheShape &shape = stores.back()->shape;
      shape.page_size = caches[i + 1], shape.n_pages = caches[i + 2];
      const uint32_t n_stream = caches[i + 3];
      i += 4;
      for (uint32_t s = 0; s < n_stream; s++, i += 3) {
        shape.type.push_back(caches[i]);
        shape.ne.push_back(caches[i + 1]);
        shape.ratio.push_back(caches[i + 2]);
        check_stream(shape, s);
      }
      stores.back()->device = on;
      c.push_back(stores.back().get());
    }
    const Program program = parse_program(code, n_code, {w.begin(), w.end()}, {c.begin(), c.end()});
    const std::vector<uint32_t> devices = program.devices();
    const bool is_there = std::binary_search(devices.begin(), devices.end(), device);
    *out = 0;
    if (devices.size() == 1 && is_there) *out = d.measure(program, w, c);
    if (devices.size() == 1) return;
    const Segments parts(program, devices);
    // What moves between devices passes through the host's memory.
    if (device == 0) *out += parts.buffer_bytes();
    if (is_there) *out += d.measure(parts.part(device), w, c);
  });
}

int32_t bl_program_step(bl_program *program, const uint8_t *input, uint64_t n_input, uint8_t *output, uint64_t n_output, uint64_t mask,
                        uint8_t *err, uint64_t n_err) {
  return guarded(err, n_err, [&] {
    need(program != nullptr && input != nullptr && (output != nullptr || n_output == 0), "a pointer is NULL");
    const StepInput &in = program->reader->read(input, n_input);
    const uint64_t want = program->reader->output_bytes(mask);
    if (n_output != want) fail(BL_ERR_ARGUMENT, "Cannot run step: the output has %llu bytes, expected %llu", (ull)n_output, (ull)want);
    const Held held(program->locks);
    program->exec->step(in, output, mask);
  });
}

void bl_program_free(bl_program *program) { delete program; }

int32_t bl_quantize(bl_runtime *rt, uint32_t device, uint32_t src_type, const uint8_t *src, uint64_t n_src, uint32_t dst_type, uint8_t *dst,
                    uint64_t n_dst, uint64_t n_rows, uint64_t n_per_row, const float *weights, uint8_t *err, uint64_t n_err) {
  return guarded(err, n_err, [&] {
    need(src != nullptr || n_src == 0, "a pointer is NULL");
    quantize(rt, device, src_type, {src, nullptr, 0}, n_src, dst_type, dst, n_dst, n_rows, n_per_row, weights);
  });
}

int32_t bl_quantize_file(bl_runtime *rt, uint32_t device, uint32_t src_type, bl_file *file, uint64_t offset, uint64_t n_src, uint32_t dst_type,
                         uint8_t *dst, uint64_t n_dst, uint64_t n_rows, uint64_t n_per_row, const float *weights, uint8_t *err, uint64_t n_err) {
  return guarded(err, n_err, [&] {
    need(file != nullptr, "the file is NULL");
    check_range(*file->file, offset, n_src, "quantize");
    quantize(rt, device, src_type, {nullptr, file->file.get(), offset}, n_src, dst_type, dst, n_dst, n_rows, n_per_row, weights);
  });
}

int32_t bl_dequantize(bl_runtime *rt, uint32_t device, uint32_t type, const uint8_t *src, uint64_t n_src, float *dst, uint64_t n, uint8_t *err,
                      uint64_t n_err) {
  return guarded(err, n_err, [&] {
    Device &d = device_at(rt, device);
    const uint64_t want = type_bytes(type_at(type), n);
    if (n_src != want) fail(BL_ERR_ARGUMENT, "Cannot dequantize: the source has %llu bytes, expected %llu", (ull)n_src, (ull)want);
    if (n == 0) return;
    need(src != nullptr && dst != nullptr, "a pointer is NULL");
    if (!d.dequantize(type, src, dst, n)) {
      if (device != 0) fail(BL_ERR_UNSUPPORTED, "Cannot dequantize on device %u: it has no decoders, use device 0", device);
      host_dequantize(rt->pool, type, src, dst, n);
    }
  });
}

int32_t bl_check_data(bl_runtime *rt, uint32_t type, const uint8_t *src, uint64_t n_src, uint64_t *bad, uint8_t *err, uint64_t n_err) {
  return guarded(err, n_err, [&] {
    need(rt != nullptr && bad != nullptr && (src != nullptr || n_src == 0), "a pointer is NULL");
    const TypeInfo &t = type_at(type);
    if (n_src % t.bytes != 0) fail(BL_ERR_ARGUMENT, "Cannot check data: %llu bytes are not whole blocks of %s", (ull)n_src, t.name);
    bad[0] = bad[1] = 0;
    uint64_t first = 0;
    const uint64_t count = host_check_data(rt->pool, type, src, multiply(n_src / t.bytes, t.block, "a size"), &first);
    if (count == 0) return;
    bad[0] = first, bad[1] = count;
    fail(BL_ERR_DATA, "Found %llu bad %s of %s, the first at element %llu", (ull)count, t.block == 1 ? "values" : "blocks", t.name, (ull)first);
  });
}

int32_t bl_compare_logits(bl_runtime *rt, const float *p, const float *q, uint64_t n_rows, uint64_t n_vocab, double *kl, uint8_t *same_top,
                          uint8_t *err, uint64_t n_err) {
  return guarded(err, n_err, [&] {
    need(rt != nullptr, "the runtime is NULL");
    need(n_rows == 0 || n_vocab > 0, "n_vocab is 0");
    multiply(n_rows, multiply(n_vocab, 4, "a size"), "a size");
    if (n_rows == 0) return;
    need(p != nullptr && q != nullptr && kl != nullptr && same_top != nullptr, "a pointer is NULL");
    host_compare_logits(rt->pool, p, q, n_rows, n_vocab, kl, same_top);
  });
}

}  // extern "C"
