// device.h: what a backend implements. abi.cpp owns the C ABI, program.cpp and step_input.cpp check everything that comes from
// outside; a device gets only checked programs, checked step inputs and sizes that fit, and does the arithmetic.
//
// Failures are thrown as Failure (failure.h); abi.cpp catches them. std::bad_alloc is caught too.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../bloomery.h"
#include "failure.h"
#include "file.h"
#include "host_quantize.h"
#include "program.h"
#include "step_input.h"
#include "thread_pool.h"

namespace bl {

// What bl_tensor_load and bl_tensor_create ask for. The shape is checked: n_bytes fits type and ne, ne[0] is whole blocks.
struct TensorSource {
  uint32_t type;
  uint64_t ne[4];
  uint32_t uses;                    // BL_USE_*
  const uint8_t *data;              // the bytes: in the mapping, or in caller memory that is gone after the call
  uint64_t n_bytes;
  std::shared_ptr<const File> file; // set when data lies in its mapping: keep it to use the mapping after the call
  uint64_t offset;                  // of data in the file
};

class DeviceTensor {
 public:
  virtual ~DeviceTensor() = default;
  virtual uint64_t device_bytes() const = 0;

  uint32_t device = 0;
  uint32_t type = 0;
  uint64_t ne[4] = {1, 1, 1, 1};
  uint32_t uses = 0;
  int32_t i32_least = 0;   // the values of an i32 tensor lie in [i32_least, i32_limit), or 0, 0: not known. Set by abi.cpp
  uint64_t i32_limit = 0;
};

// Matrices as bl_pack gives them, in a file, `stride` bytes apart. The shape is checked: the file has them.
struct PackedBytes {
  std::shared_ptr<const File> file;  // nullptr: there are none
  uint64_t offset = 0, stride = 0;
};

// A routed weight whose matrices are read into slots of a pool. The shape is checked: n_bytes fits type and ne, and the file has them.
struct PooledSource {
  uint32_t type;
  uint64_t ne[4];
  uint32_t group;                     // the tensors of one layer: an expert's matrices of all of them lie in one slot
  std::shared_ptr<const File> file;
  uint64_t offset, n_bytes;
  PackedBytes packed;                 // read in place of the bytes above where there is a file
};

// Slots that experts are read into while steps run. Calls may come from any thread.
class DevicePool {
 public:
  virtual ~DevicePool() = default;
  virtual std::unique_ptr<DeviceTensor> add(const PooledSource &source) = 0;
  // A file with the same bytes as `of`, which tensors were or will be added from: on another drive, or another way to read them.
  virtual void add_copy(const File &of, std::shared_ptr<const File> copy) = 0;
  virtual uint32_t n_expert(uint32_t group) = 0;  // 0: there is no such group
  // seated[e] != 0: other experts leave before expert e does.
  virtual void seat(uint32_t group, const uint8_t *seated) = 0;
  // Reads the seated experts that are not there.
  virtual void fill() = 0;
  virtual std::vector<uint64_t> counts() = 0;  // as bl_pool_counts gives them
  virtual uint64_t bytes() const = 0;
};

struct CacheShape {
  std::vector<uint32_t> type, ne, ratio;  // by stream: f32, f16 or q8_0 (ne a multiple of 32 then); elements of a row; positions of a row
  uint32_t page_size, n_pages;

  // Rows of stream s in one page.
  uint32_t page_rows(size_t s) const { return (page_size + ratio[s] - 1) / ratio[s]; }
  // Bytes of one row of stream s.
  uint64_t row_bytes(size_t s) const {
    const TypeInfo *t = type_info(type[s]);
    return uint64_t(ne[s]) / t->block * t->bytes;
  }
  // Bytes of a page over all streams.
  uint64_t page_bytes() const {
    uint64_t n = 0;
    for (size_t s = 0; s < type.size(); s++) n += row_bytes(s) * page_rows(s);
    return n;
  }
};

// Paged storage. New pages read as zeros. Page ids and sizes that arrive here are checked.
// read and write move pages as: for each page, for each stream, its page_rows rows in the stream's ggml type.
class DeviceCache {
 public:
  virtual ~DeviceCache() = default;
  virtual void copy(const int32_t *src, const int32_t *dst, uint32_t n) = 0;
  virtual void read(const int32_t *pages, uint32_t n, uint8_t *data) = 0;
  virtual void write(const int32_t *pages, uint32_t n, const uint8_t *data) = 0;

  uint32_t device = 0;
  CacheShape shape;
  bool splits_blocks = false;  // heads of attention may share a block of a row's type
};

// A program made ready to run on one device.
class Exec {
 public:
  virtual ~Exec() = default;
  virtual uint64_t scratch_bytes() const = 0;
  // Runs a step and copies the outputs whose bit is set in mask, packed in output order, each cut to the step's rows (n_out rows may
  // be 0). Returns when they are on the host. Calls on one device never overlap.
  virtual void step(const StepInput &input, uint8_t *output, uint64_t mask) = 0;

  // The same in pieces, for one device's part of a program over several (segments.h). Its COPYs that cross are no work: values leave with
  // take() and arrive with give() when the ops before them have been given. A card may return before they ran.
  virtual void begin(const StepInput &input) { (void)input, cannot_share(); }
  // The ops of the part before op `end` that were not given yet.
  virtual void run_to(uint32_t end) { (void)end, cannot_share(); }
  // The rows of a value in this step, packed, to and from host memory.
  virtual void take(uint32_t id, uint8_t *rows) { (void)id, (void)rows, cannot_share(); }
  virtual void give(uint32_t id, const uint8_t *rows) { (void)id, (void)rows, cannot_share(); }
  // Returns when all that was given has run.
  virtual void finish() {}
  // Host memory that this device reaches fast, for what it takes and gives.
  virtual std::shared_ptr<uint8_t> host_memory(uint64_t bytes) {
    return std::shared_ptr<uint8_t>(new uint8_t[bytes](), std::default_delete<uint8_t[]>());
  }

 private:
  [[noreturn]] static void cannot_share() { fail(BL_ERR_UNSUPPORTED, "Cannot run step: this device cannot share a program with others"); }
};

class Device {
 public:
  virtual ~Device() = default;

  // Another device of the same memory and processors, with scratch memory of its own; nullptr where there can be one only.
  virtual std::unique_ptr<Device> another() { return nullptr; }
  // One object of bl_runtime_devices' array for this index.
  virtual std::string info_json(uint32_t index) = 0;
  virtual std::unique_ptr<DeviceTensor> load_tensor(const TensorSource &source) = 0;
  virtual std::unique_ptr<DeviceCache> create_cache(const CacheShape &shape) = 0;
  // Bytes of one matrix as this device's kernels want it, with checked shape; 0 where they take it as files have it, or cannot be mapped.
  virtual uint64_t packed_matrix(uint32_t type, const uint64_t *ne) {
    (void)type, (void)ne;
    return 0;
  }
  // Where packed_matrix is not 0: packs the matrices of `source` one after the other, and makes a tensor whose packed matrices stay in a file.
  virtual void pack(const TensorSource &source, uint8_t *to) { (void)source, (void)to; }
  virtual std::unique_ptr<DeviceTensor> map_tensor(const TensorSource &source, const PackedBytes &packed) {
    (void)source, (void)packed;
    return nullptr;
  }
  // nullptr where this device has no pools, which abi.cpp then refuses.
  virtual std::unique_ptr<DevicePool> create_pool(uint64_t slot_bytes, uint32_t n_slots) {
    (void)slot_bytes, (void)n_slots;
    return nullptr;
  }
  // Weights and caches without bytes, and what a program on them takes to run; nullptr where this device cannot measure, which abi.cpp
  // then refuses. abi.cpp sets type, shape and uses as for those that are loaded.
  virtual std::unique_ptr<DeviceTensor> describe_tensor(uint32_t type, uint32_t uses) {
    (void)type, (void)uses;
    return nullptr;
  }
  virtual std::unique_ptr<DeviceCache> describe_cache() { return nullptr; }
  virtual uint64_t measure(const Program &program, const std::vector<DeviceTensor *> &weights, const std::vector<DeviceCache *> &caches) {
    (void)program, (void)weights, (void)caches;
    return 0;
  }
  // Every op and every weight of the program is on this device. `program`, weights and caches outlive the Exec.
  virtual std::unique_ptr<Exec> compile(const Program &program, const std::vector<DeviceTensor *> &weights,
                                        const std::vector<DeviceCache *> &caches) = 0;
  // bl_quantize and bl_quantize_file on a card, with checked sizes and different types; false where it has no encoders, which abi.cpp
  // then refuses. The host's are not a Device's: abi.cpp calls host_quantize for device 0.
  virtual bool quantize(uint32_t src_type, const RowSource &src, uint32_t dst_type, uint8_t *dst, uint64_t n_rows, uint64_t n_per_row,
                        const float *weights) {
    (void)src_type, (void)src, (void)dst_type, (void)dst, (void)n_rows, (void)n_per_row, (void)weights;
    return false;
  }
  // bl_dequantize with checked sizes; false where this device has no way of its own: abi.cpp then does it as the host does on device 0,
  // and refuses on a card.
  virtual bool dequantize(uint32_t type, const uint8_t *src, float *dst, uint64_t n) {
    (void)type, (void)src, (void)dst, (void)n;
    return false;
  }
};

// The host, device 0 of every library (csrc/cpu/device.cpp).
std::unique_ptr<Device> host_device(ThreadPool &pool);

// The cards of this library, from index 1: none in libbloomery_cpu (card_devices_none.cpp); csrc/cuda defines it in
// libbloomery_cuda. A library without a usable card returns none; it does not fail.
std::vector<std::unique_ptr<Device>> card_devices(ThreadPool &pool);

// The entries of bl_build_info's "backends" after "cpu", as JSON: "" or ",\"cuda\"". Defined beside card_devices.
const char *card_backends_json();

}  // namespace bl
