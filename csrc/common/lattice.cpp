// lattice.cpp: builds the neighbour lists of lattice.h.
#include "lattice.h"

#include <stddef.h>

#include <vector>

#include "generated/grids.h"

namespace bl {
namespace {

struct Storage {
  std::vector<int32_t> slots;
  std::vector<uint16_t> lists;
  Lattice view;
};

template <int DIM, int BITS, int LEVELS>
Storage *build(const uint16_t *keys, int n_points, int want) {
  constexpr int MASK = (1 << BITS) - 1;
  constexpr int FARTHEST = DIM * (LEVELS - 1) * (LEVELS - 1);
  Storage *s = new Storage;  // lives as long as the library
  s->slots.assign(size_t(1) << (DIM * BITS), 0);
  std::vector<uint8_t> levels(size_t(n_points) * DIM);
  for (int p = 0; p < n_points; p++)
    for (int i = 0; i < DIM; i++) levels[size_t(p) * DIM + i] = uint8_t((keys[p] >> (BITS * i)) & MASK);

  std::vector<bool> on(s->slots.size(), false);
  for (int p = 0; p < n_points; p++) {
    on[keys[p]] = true;
    s->slots[keys[p]] = p;
  }
  std::vector<uint16_t> distance(n_points);
  for (uint32_t key = 0; key < s->slots.size(); key++) {
    if (on[key]) continue;
    int at[DIM];
    bool valid = true;
    for (int i = 0; i < DIM; i++) {
      at[i] = int(key >> (BITS * i)) & MASK;
      valid = valid && at[i] < LEVELS;
    }
    if (!valid) continue;
    uint32_t count[FARTHEST + 1] = {0};
    for (int p = 0; p < n_points; p++) {
      int d = 0;
      for (int i = 0; i < DIM; i++) {
        const int e = levels[size_t(p) * DIM + i] - at[i];
        d += e * e;
      }
      distance[p] = uint16_t(d);
      count[d]++;
    }
    const size_t begin = s->lists.size();
    int taken = 0;
    for (int d = 0; d <= FARTHEST && taken < want; d++) {
      if (count[d] == 0) continue;
      taken++;
      for (int p = 0; p < n_points; p++)
        if (distance[p] == d) s->lists.push_back(keys[p]);
    }
    while (s->lists.size() % 8) s->lists.push_back(s->lists.back());
    s->slots[key] = Lattice::list_slot(uint32_t(begin / 8), uint32_t((s->lists.size() - begin) / 8));
  }
  s->view = Lattice{keys, s->slots.data(), s->lists.data(), uint32_t(n_points), uint32_t(s->slots.size()), uint32_t(s->lists.size())};
  return s;
}

}  // namespace

const Lattice &lattice_iq2xxs() {
  static const Storage *s = build<8, 2, 3>(keys_iq2xxs, 256, 2);
  return s->view;
}
const Lattice &lattice_iq2xs() {
  static const Storage *s = build<8, 2, 3>(keys_iq2xs, 512, 2);
  return s->view;
}
const Lattice &lattice_iq2s() {
  static const Storage *s = build<8, 2, 3>(keys_iq2s, 1024, 1);
  return s->view;
}
const Lattice &lattice_iq1s() {
  static const Storage *s = build<8, 2, 3>(keys_iq1s, 2048, 3);
  return s->view;
}
const Lattice &lattice_iq3xxs() {
  static const Storage *s = build<4, 3, 8>(keys_iq3xxs, 256, 2);
  return s->view;
}
const Lattice &lattice_iq3s() {
  static const Storage *s = build<4, 3, 8>(keys_iq3s, 512, 3);
  return s->view;
}

}  // namespace bl
