// device.cpp: the host as a device.
#include <cstdio>
#include <cstring>
#include <string>

#include "../runtime/device.h"
#include "exec.h"
#include "expert_pool.h"
#include "host_memory.h"
#include "kernels.h"
#include "tensor.h"

namespace bl {
namespace {

std::string cpu_name() {
  std::string name = "CPU";
  FILE *f = fopen("/proc/cpuinfo", "r");
  if (f == nullptr) return name;
  char line[256];
  while (fgets(line, sizeof line, f) != nullptr) {
    const char *colon = strchr(line, ':');
    if (strncmp(line, "model name", 10) != 0 || colon == nullptr) continue;
    name.clear();
    for (const char *c = colon + 1; *c != 0; c++)
      if (*c >= 32 && *c != '"' && *c != '\\' && (!name.empty() || *c != ' ')) name += *c;
    break;
  }
  fclose(f);
  return name;
}

class CpuDevice : public Device {
 public:
  explicit CpuDevice(ThreadPool &pool) : pool_(pool) {}

  std::unique_ptr<Device> another() override { return std::make_unique<CpuDevice>(pool_); }

  std::string info_json(uint32_t index) override {
    return "{\"index\":" + std::to_string(index) + ",\"kind\":\"cpu\",\"name\":\"" + cpu_name() +
           "\",\"memory_bytes\":" + std::to_string(meminfo("MemTotal")) + ",\"free_bytes\":" + std::to_string(host_free_bytes()) +
           ",\"threads\":" + std::to_string(pool_.size()) + ",\"pack_layout\":" + std::to_string(PACK_LAYOUT) + ",\"kernels\":\"" + kernels().name + "\",\"features\":" + cpu_features_json() + "}";
  }

  std::unique_ptr<DeviceTensor> load_tensor(const TensorSource &source) override { return std::make_unique<CpuTensor>(pool_, source); }

  uint64_t packed_matrix(uint32_t type, const uint64_t *ne) override {
    const Layout layout = layout_of(type);
    return layout == Layout::rows ? 0 : packed_bytes(layout, ne[0], ne[1], 0);
  }

  void pack(const TensorSource &source, uint8_t *to) override { pack_matrices(pool_, source, to); }

  std::unique_ptr<DeviceTensor> map_tensor(const TensorSource &source, const PackedBytes &packed) override {
    return std::make_unique<CpuTensor>(source, packed);
  }

  std::unique_ptr<DeviceCache> create_cache(const CacheShape &shape) override { return std::make_unique<CpuCache>(shape); }

  std::unique_ptr<DevicePool> create_pool(uint64_t slot_bytes, uint32_t n_slots) override {
    return std::make_unique<ExpertPool>(slot_bytes, n_slots);
  }

  std::unique_ptr<Exec> compile(const Program &program, const std::vector<DeviceTensor *> &weights,
                                const std::vector<DeviceCache *> &caches) override {
    auto exec = std::make_unique<CpuExec>(pool_, scratch_, program, weights, caches);
    scratch_->need(exec->shared_bytes());
    return exec;
  }

  std::unique_ptr<DeviceTensor> describe_tensor(uint32_t type, uint32_t uses) override { return std::make_unique<DescribedTensor>(type, uses); }

  std::unique_ptr<DeviceCache> describe_cache() override { return std::make_unique<CpuCache>(); }

  uint64_t measure(const Program &program, const std::vector<DeviceTensor *> &weights, const std::vector<DeviceCache *> &caches) override {
    return CpuExec(pool_, std::make_shared<HostScratch>(), program, weights, caches).scratch_bytes();
  }

 private:
  ThreadPool &pool_;
  std::shared_ptr<HostScratch> scratch_ = std::make_shared<HostScratch>();
};

}  // namespace

std::unique_ptr<Device> host_device(ThreadPool &pool) { return std::make_unique<CpuDevice>(pool); }

}  // namespace bl
