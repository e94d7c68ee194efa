// lattice.h: codebooks with, for every point that is not in one, the list of its nearest points.
//
// A key packs the levels of a point, BITS bits each, lowest dimension first. A neighbour list holds the points whose squared level
// distance is among the `want` smallest distinct distances, nearest first, ties in index order. Built at first use (tens of
// milliseconds for the largest), shared by all threads afterwards.
#pragma once

#include <stdint.h>

#include "blocks.h"

namespace bl {

struct Lattice {
  const uint16_t *keys;   // of every point, in index order
  const int32_t *slots;   // by key: the point's index, or a list (see below), which is negative
  const uint16_t *lists;  // keys of neighbours, each list padded with its last entry to a multiple of 8
  uint32_t n_keys, n_slots, n_lists;

  // The list of a negative slot: slot = -1 - (first batch of eight * 64 + number of batches).
  BL_HD static int32_t list_slot(uint32_t first_batch, uint32_t batches) { return -1 - int32_t(first_batch * 64 + batches); }
  BL_HD const uint16_t *list(int32_t slot) const { return lists + 8 * (uint32_t(-1 - slot) / 64); }
  BL_HD static uint32_t batches(int32_t slot) { return uint32_t(-1 - slot) % 64; }
};

const Lattice &lattice_iq2xxs();
const Lattice &lattice_iq2xs();
const Lattice &lattice_iq2s();
const Lattice &lattice_iq1s();
const Lattice &lattice_iq3xxs();
const Lattice &lattice_iq3s();

}  // namespace bl
