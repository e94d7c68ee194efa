// program_layout.cpp: places scratch tensors in one arena per device, reusing memory of values that are no longer needed.
#include <algorithm>

#include "failure.h"
#include "program_internal.h"

namespace bl {

// First fit by size: the largest values first, each at the lowest offset where nothing that lives at the same time lies.
void lay_out_scratch(Program &p) {
  struct Placed {
    uint64_t begin, end;
    int32_t first, last;
  };
  std::vector<uint32_t> order;
  uint32_t n_device = 1;
  for (uint32_t id = 0; id < p.tensors.size(); id++) {
    const Tensor &t = p.tensors[id];
    if (t.kind == BL_KIND_SCRATCH && t.first >= 0) order.push_back(id);
    if (t.kind == BL_KIND_SCRATCH && t.device > 1023) fail(BL_ERR_PROGRAM, "Cannot create program: tensor %u is on device %u", id, t.device);
    if (t.kind == BL_KIND_SCRATCH) n_device = std::max(n_device, t.device + 1);
  }
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return p.tensors[a].elems() > p.tensors[b].elems(); });
  p.arena_bytes.assign(n_device, 0);
  std::vector<std::vector<Placed>> placed(n_device);  // ascending by begin
  for (const uint32_t id : order) {
    Tensor &t = p.tensors[id];
    const uint64_t size = (t.elems() * 4 + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    const int32_t first = t.first - FUSE_WINDOW, last = t.last + FUSE_WINDOW;
    uint64_t at = 0;
    std::vector<Placed> &here = placed[t.device];
    for (const Placed &o : here) {
      if (o.last < first || o.first > last || o.end <= at) continue;
      if (o.begin >= at + size) break;
      at = o.end;
    }
    t.offset = at;
    const Placed mine{at, at + size, t.first, t.last};
    here.insert(std::upper_bound(here.begin(), here.end(), mine, [](const Placed &a, const Placed &b) { return a.begin < b.begin; }), mine);
    p.arena_bytes[t.device] = std::max(p.arena_bytes[t.device], at + size);
  }
  for (Tensor &t : p.tensors)
    if (t.kind == BL_KIND_VIEW) t.offset = p.tensors[t.root].offset + t.start * 4;
}

}  // namespace bl
