// matmul.cpp: splits matmuls over threads by output rows, and over the caches by tiles of activation rows.
//
// bits    an output value is one kernel call's lane: the sum runs over the blocks of its weight row in order, whatever the number of
//         rows, the tile they share or the threads are. By type (da, s: scale of an activation block of 32 and that times its code sum;
//         dot: the exact integer sum of code products):
//           Q4_0, Q8_0   acc = fma(dot, d * da, acc) over blocks
//           Q4_K, Q5_K   per superblock a = fma(scale * dot, da, a), m = fma(min, s, m); acc = fma(d, a, acc), acc = fma(-dmin, m, acc)
//           Q6_K         per superblock a = fma(sum of scale * dot over both 16s, da, a), blocks in the order 0 2 1 3 4 6 5 7;
//                        acc = fma(d, a, acc)
//           F32 F16 BF16 16 lanes (impl/float_dot.h, impl/float_panel.h for many rows); every other type decoded to f32 and then the same
// floor   one row: the bytes of the matrix; many rows: 32 multiply-adds a cycle and maddubs (two a cycle on Zen 3); measured there: 30
//         multiply-adds a cycle for Q4_K and Q5_K, 19 to 29 for the others, bound by instruction issue;
//         float weights: two fma of 8 lanes a cycle, 78 GFLOP/s a core there; measured 40 to 65
#include "matmul.h"

#include <algorithm>

#include "../common/quantize.h"

namespace bl {
namespace {

constexpr uint64_t L2_ACTS = 160u << 10;  // bytes of quantized rows that one pass over a thread's weights keeps close
constexpr uint32_t WIDE_ROWS = 4 * TILE;  // rows of a pass from which expanding a group pays
constexpr uint32_t WIDE_FLOATS = 5;       // rows from which a panel of float weights pays
constexpr uint64_t MIN_WORK = 32u << 10;  // weight bytes times rows below which a thread is not worth waking

uint64_t tiles_of(uint64_t n_rows) { return (n_rows + TILE - 1) / TILE; }

bool is_float(uint32_t type) { return type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16; }

bool has_panel(uint64_t n_rows, uint64_t n_in) { return n_rows >= WIDE_FLOATS && n_in % 16 == 0; }

}  // namespace

void Matmul::reserve(uint64_t n_rows, uint64_t n_in, bool packed) {
  if (packed) {
    act_bytes_ = std::max(act_bytes_, n_rows * act_row_bytes(n_in));
    if (n_rows >= WIDE_ROWS) wide_bytes_ = std::max(wide_bytes_, n_in / 32 * WIDE_BYTES);
  } else {
    const bool panels = has_panel(n_rows, n_in);
    row_floats_ = std::max(row_floats_, panels ? GROUP * n_in : n_in);
    if (panels) panel_floats_ = PANEL_FLOATS;
  }
}

void Matmul::allocate() {
  acts_ = Buffer(act_bytes_, "quantized activations");
  wide_ = Buffer(pool_.size() * wide_bytes_, "expanded weights");
  weight_rows_ = Buffer(pool_.size() * row_floats_ * 4, "decoded weight rows");
  panels_ = Buffer(pool_.size() * panel_floats_ * 4, "panels of weights");
}

void Matmul::clear(size_t n_output) {
  x.clear();
  sets.clear();
  parts.clear();
  y.resize(n_output);
  for (auto &rows : y) rows.clear();
}

// Quantizes the rows of every set, tile by tile.
void Matmul::quantize(uint64_t n_in) {
  set_offset_.clear();
  first_tile_.clear();
  uint64_t offset = 0;
  uint32_t n_tile = 0;
  for (const RowSet &s : sets) {
    set_offset_.push_back(offset);
    first_tile_.push_back(n_tile);
    offset += s.count * act_row_bytes(n_in);
    n_tile += uint32_t(tiles_of(s.count));
  }
  const uint64_t grain = std::max<uint64_t>(1, (16u << 10) / (n_in * TILE));
  pool_.run(n_tile, grain, [&](uint64_t begin, uint64_t end, uint32_t) {
    size_t s = size_t(std::upper_bound(first_tile_.begin(), first_tile_.end(), uint32_t(begin)) - first_tile_.begin()) - 1;
    for (uint64_t i = begin; i < end; i++) {
      while (s + 1 < sets.size() && first_tile_[s + 1] <= i) s++;
      const uint32_t row = uint32_t(i - first_tile_[s]) * TILE;
      const uint32_t R = std::min(TILE, sets[s].count - row);
      k_.quantize_tile(x.data() + sets[s].begin + row, R, n_in, acts_.data() + set_offset_[s] + row * act_row_bytes(n_in));
    }
  });
}

void Matmul::packed_groups(const MatmulPart &part, uint64_t begin, uint64_t end, uint32_t thread) {
  const CpuTensor &w = *part.w;
  const RowSet set = sets[part.set];
  const LayoutInfo info = layout_info(w.layout);
  const uint64_t n_in = w.ne[0], n_out = w.ne[1], n_block = n_in / info.block, group_bytes = n_block * info.bytes;
  const uint64_t row_bytes = act_row_bytes(n_in);
  const uint32_t pass = uint32_t(std::max<uint64_t>(TILE, L2_ACTS / row_bytes / TILE * TILE));
  const uint8_t *groups = w.packed + part.matrix * w.matrix_bytes;
  const uint8_t *acts = acts_.data() + set_offset_[part.set];
  const PackedDot *dot = k_.packed[uint32_t(w.layout) - 1];
  const WideDot &wide = k_.wide[uint32_t(w.layout) - 1];
  uint8_t *codes = wide_.data() + thread * wide_bytes_;
  float *const *rows = y[part.output].data() + set.begin;
  float out[TILE * GROUP];
  for (uint32_t first = 0; first < set.count; first += pass) {
    const uint32_t last = std::min(set.count, first + pass);
    for (uint64_t g = begin; g < end; g++) {
      const uint64_t n = std::min<uint64_t>(GROUP, n_out - g * GROUP);
      const uint8_t *group = groups + g * group_bytes;
      const bool expanded = wide.expand != nullptr && last - first >= WIDE_ROWS;
      if (expanded) wide.expand(group, n_block, codes);
      for (uint32_t row = first; row < last; row += TILE) {
        const uint32_t R = std::min(TILE, set.count - row);
        if (expanded && R == TILE) wide.wide(group, codes, n_block, acts + row * row_bytes, out);
        else dot[R - 1](group, n_block, acts + row * row_bytes, out);
        for (uint32_t r = 0; r < R; r++) std::copy_n(out + r * GROUP, n, rows[row + r] + g * GROUP);
      }
    }
  }
}

void Matmul::row_groups(const MatmulPart &part, uint64_t begin, uint64_t end, uint32_t thread) {
  const CpuTensor &w = *part.w;
  const RowSet set = sets[part.set];
  const uint64_t n_in = w.ne[0], n_out = w.ne[1];
  const FloatType type = w.type == TYPE_F16 ? FLOAT_F16 : w.type == TYPE_BF16 ? FLOAT_BF16 : FLOAT_F32;
  const FloatDot *dot = k_.floats[type];
  float *decoded = weight_rows_.floats() + thread * row_floats_;
  float *const *rows = y[part.output].data() + set.begin;
  const auto weight_row = [&](uint64_t o, float *decoded) {
    const uint8_t *row = w.rows + part.matrix * w.matrix_bytes + o * w.row_bytes;
    if (is_float(w.type)) return row;
    dequantize_row(w.type, row, decoded, n_in);
    return reinterpret_cast<const uint8_t *>(decoded);
  };
  if (has_panel(set.count, n_in)) {
    const uint32_t n_pass = (set.count + PANEL_ROWS - 1) / PANEL_ROWS;
    const uint32_t pass = ((set.count + n_pass - 1) / n_pass + 2) / 3 * 3;  // even passes of whole threes
    float *buffer = panels_.floats() + thread * panel_floats_;
    for (uint32_t first = 0; first < set.count; first += pass)
      for (uint64_t o = begin * GROUP; o < std::min(n_out, end * GROUP); o += GROUP) {
        const uint32_t n = uint32_t(std::min<uint64_t>(GROUP, n_out - o));
        const uint8_t *group[GROUP];
        for (uint32_t i = 0; i < n; i++) group[i] = weight_row(o + i, decoded + i * n_in);
        k_.panels[type](group, n, n_in, x.data() + set.begin + first, std::min(pass, set.count - first), buffer, rows + first, o);
      }
    return;
  }
  for (uint64_t o = begin * GROUP; o < std::min(n_out, end * GROUP); o++) {
    const uint8_t *row = weight_row(o, decoded);
    for (uint32_t first = 0; first < set.count; first += TILE) {
      const uint32_t R = std::min(TILE, set.count - first);
      float out[TILE];
      dot[R - 1](row, x.data() + set.begin + first, n_in, out);
      for (uint32_t r = 0; r < R; r++) rows[first + r][o] = out[r];
    }
  }
}

void Matmul::run() {
  if (parts.empty()) return;
  uint64_t n_bytes = 0, n_group = 0;
  bool any_packed = false;
  first_group_.clear();
  for (const MatmulPart &p : parts) {
    first_group_.push_back(uint32_t(n_group));
    n_group += (p.w->ne[1] + GROUP - 1) / GROUP;
    n_bytes += p.w->ne[1] * p.w->row_bytes * sets[p.set].count;
    any_packed |= p.w->layout != Layout::rows;
  }
  if (any_packed) quantize(parts[0].w->ne[0]);
  // About eight chunks a thread even out what else the machine does; less work than MIN_WORK stays on the caller.
  const uint64_t chunks = std::max<uint64_t>(1, std::min<uint64_t>(8 * pool_.size(), n_bytes / MIN_WORK));
  const uint64_t grain = pool_.size() == 1 ? n_group : (n_group + chunks - 1) / chunks;
  pool_.run(n_group, grain, [&](uint64_t begin, uint64_t end, uint32_t thread) {
    size_t p = size_t(std::upper_bound(first_group_.begin(), first_group_.end(), uint32_t(begin)) - first_group_.begin()) - 1;
    while (begin < end) {
      while (p + 1 < parts.size() && first_group_[p + 1] <= begin) p++;
      const uint64_t stop = p + 1 < parts.size() ? std::min<uint64_t>(end, first_group_[p + 1]) : end;
      if (parts[p].w->layout != Layout::rows) packed_groups(parts[p], begin - first_group_[p], stop - first_group_[p], thread);
      else row_groups(parts[p], begin - first_group_[p], stop - first_group_[p], thread);
      begin = stop;
    }
  });
}

}  // namespace bl
