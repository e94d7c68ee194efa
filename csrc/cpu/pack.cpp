// pack.cpp: block rows of a file into the interleaved groups of packing.h. Memory-bound: it only moves words.
#include <cstring>

#include "packing.h"

namespace bl {
namespace {

// dst[v][row] = word v of this row, v < n
inline void scatter_words(const uint8_t *src, uint32_t n, uint32_t row, uint8_t *dst) {
  for (uint32_t v = 0; v < n; v++) memcpy(dst + 32 * v + 4 * row, src + 4 * v, 4);
}

void pack(const BlockQ4_0 &b, uint32_t row, PackedQ4_0 &p) {
  p.d[row] = b.d;
  scatter_words(b.qs, 4, row, p.qs[0]);
}

void pack(const BlockQ8_0 &b, uint32_t row, PackedQ8_0 &p) {
  p.d[row] = b.d;
  scatter_words(reinterpret_cast<const uint8_t *>(b.qs), 8, row, reinterpret_cast<uint8_t *>(p.qs[0]));
}

template <class Packed>
void pack_k4_scales(const uint8_t *scales, uint32_t row, Packed &p) {
  for (int j = 0; j < 8; j++) unpack_k4(scales, j, &p.scales[j][row], &p.mins[j][row]);
}

void pack(const BlockQ4_K &b, uint32_t row, PackedQ4_K &p) {
  p.d[row] = b.d;
  p.dmin[row] = b.dmin;
  pack_k4_scales(b.scales, row, p);
  scatter_words(b.qs, 32, row, p.qs[0]);
}

void pack(const BlockQ5_K &b, uint32_t row, PackedQ5_K &p) {
  p.d[row] = b.d;
  p.dmin[row] = b.dmin;
  pack_k4_scales(b.scales, row, p);
  scatter_words(b.qh, 8, row, p.qh[0]);
  scatter_words(b.qs, 32, row, p.qs[0]);
}

void pack(const BlockQ6_K &b, uint32_t row, PackedQ6_K &p) {
  p.d[row] = b.d;
  for (int j = 0; j < 16; j++) p.scales[j][row] = b.scales[j];
  scatter_words(b.qh, 16, row, p.qh[0]);
  scatter_words(b.ql, 32, row, p.ql[0]);
}

template <class Block, class Packed>
void pack_rows(const uint8_t *rows, uint64_t row_bytes, uint32_t n_rows, uint64_t n_block, uint8_t *group) {
  for (uint64_t i = 0; i < n_block; i++) {
    Packed *p = reinterpret_cast<Packed *>(group + i * sizeof(Packed));
    if (n_rows < GROUP) memset(p, 0, sizeof *p);
    for (uint32_t r = 0; r < n_rows; r++) pack(*reinterpret_cast<const Block *>(rows + r * row_bytes + i * sizeof(Block)), r, *p);
  }
}

}  // namespace

Layout layout_of(uint32_t type) {
  switch (type) {
    case TYPE_Q4_0: return Layout::q4_0;
    case TYPE_Q8_0: return Layout::q8_0;
    case TYPE_Q4_K: return Layout::q4_K;
    case TYPE_Q5_K: return Layout::q5_K;
    case TYPE_Q6_K: return Layout::q6_K;
    default: return Layout::rows;
  }
}

void pack_group(Layout layout, const uint8_t *rows, uint64_t row_bytes, uint32_t n_rows, uint64_t n_in, uint8_t *group) {
  switch (layout) {
    case Layout::q4_0: return pack_rows<BlockQ4_0, PackedQ4_0>(rows, row_bytes, n_rows, n_in / 32, group);
    case Layout::q8_0: return pack_rows<BlockQ8_0, PackedQ8_0>(rows, row_bytes, n_rows, n_in / 32, group);
    case Layout::q4_K: return pack_rows<BlockQ4_K, PackedQ4_K>(rows, row_bytes, n_rows, n_in / 256, group);
    case Layout::q5_K: return pack_rows<BlockQ5_K, PackedQ5_K>(rows, row_bytes, n_rows, n_in / 256, group);
    case Layout::q6_K: return pack_rows<BlockQ6_K, PackedQ6_K>(rows, row_bytes, n_rows, n_in / 256, group);
    case Layout::rows: return;
  }
}

}  // namespace bl
