// matmul.cpp: splits matmuls over threads by output rows, and over the caches by tiles of activation rows.
//
// bits    an output value is one kernel call's lane: the sum runs over the superblocks of its weight row in order, whatever the number of
//         rows, the tile they share or the threads are. Rows are encoded to 14 bits (packing.h). H and L: exact integer sums of codes (times
//         their integer scales) with the high and low bytes of the row; joined(H, L) = fma(H, 128, L), one rounding; da the row's scale:
//           Q4_K, Q5_K   fma(d, joined(H, L), -(dmin * joined(sums of minimums times block sums of the row's bytes))) * da
//           Q6_K         (d * joined(H, L)) * da
//           Q4_0, Q8_0   a = fma(d, joined(H, L), a) over the 8 blocks of a superblock from 0; a * da
//           the others   impl/coded_scales.h
//         Superblock values are added in four spans (packing.h).
//           F32 F16 BF16 16 lanes (impl/float_dot.h, impl/float_panel.h for many rows); numbers that are no weights' (I8, Q8_1, Q8_K ..)
//                        decoded to f32 and then the same
// floor   one row: the bytes of the matrix; many rows: 16 tile products of 16 cycles for 16 rows, 16 outputs and 256 values with AMX, else two
//         multiplies of bytes for each product
//         float weights: two fma of 8 lanes a cycle, 78 GFLOP/s a core there; measured 40 to 65
#include "matmul.h"

#include <algorithm>

#include "../common/quantize.h"

namespace bl {
namespace {

constexpr uint64_t PASS_BYTES = 160u << 10;       // encoded rows that one pass over a thread's weights keeps close
constexpr uint64_t MANY_PASS_BYTES = 1u << 20;    // the same where groups are expanded for each pass
constexpr uint64_t CODED_PASS_BYTES = 512u << 10; // the same where rows are coded for each pass
constexpr uint32_t MANY_FROM = 6;                 // rows of a pass from which expanding groups pays
constexpr uint32_t WIDE_FLOATS = 5;       // rows from which a panel of float weights pays
constexpr uint64_t MIN_WORK = 32u << 10;  // weight bytes times rows below which a thread is not worth waking

bool is_float(uint32_t type) { return type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16; }

bool has_panel(uint64_t n_rows, uint64_t n_in) { return n_rows >= WIDE_FLOATS && n_in % 16 == 0; }

enum class Way { packed, coded, rows };

Way way_of(const CpuTensor &w) {
  if (w.layout != Layout::rows) return Way::packed;
  return coded_type(w.type) != N_CODED ? Way::coded : Way::rows;
}

}  // namespace

void Matmul::reserve(uint64_t n_rows, const CpuTensor &w) {
  const uint64_t n_in = w.ne[0];
  const Way way = way_of(w);
  if (way != Way::rows) act_bytes_ = std::max(act_bytes_, n_rows * act_records(n_in) * sizeof(ActRow));
  if (way == Way::coded) {
    n_coded_ = std::max(n_coded_, GROUP * act_records(n_in));
    if (n_rows >= MANY_FROM && k_.coded[0].group != nullptr) {
      wide_bytes_ = std::max(wide_bytes_, act_records(n_in) * MANY_BYTES);
      group_bytes_ = std::max(group_bytes_, 2 * act_records(n_in) * GROUP_BYTES);
    }
  } else if (way == Way::packed) {
    if (n_rows >= MANY_FROM && k_.many[0].expand != nullptr) wide_bytes_ = std::max(wide_bytes_, act_records(n_in) * MANY_BYTES);
  } else {
    const bool panels = has_panel(n_rows, n_in);
    row_floats_ = std::max(row_floats_, panels ? GROUP * n_in : n_in);
    if (panels) panel_floats_ = PANEL_FLOATS;
  }
}

void Matmul::allocate(ScratchLayout &layout) {
  acts_ = Scratch(layout, act_bytes_);
  coded_ = Scratch(layout, pool_.size() * n_coded_ * sizeof(Coded));
  groups_ = Scratch(layout, pool_.size() * group_bytes_);
  wide_ = Scratch(layout, pool_.size() * wide_bytes_);
  weight_rows_ = Scratch(layout, pool_.size() * row_floats_ * 4);
  panels_ = Scratch(layout, pool_.size() * panel_floats_ * 4);
}

void Matmul::clear(size_t n_output) {
  x.clear();
  sets.clear();
  parts.clear();
  y.resize(n_output);
  for (auto &rows : y) rows.clear();
}

// Encodes the rows of every set: row i of the job's list is records [i * n, (i + 1) * n).
void Matmul::encode(uint64_t n_in) {
  const uint64_t n_record = act_records(n_in), grain = std::max<uint64_t>(1, (16u << 10) / n_in);
  ActRow *acts = reinterpret_cast<ActRow *>(acts_.data());
  pool_.run(x.size(), grain, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t i = begin; i < end; i++) k_.encode_row(x[i], n_in, acts + i * n_record);
  });
}

// Rows [first, last) of a set against two groups: values o .. o + n of their results.
void Matmul::many_rows(const ManyDot &many, const uint8_t *const *two, uint64_t n_block, uint64_t n_in, const ActRow *acts, uint32_t first, uint32_t last,
                       uint32_t thread, float *const *rows, uint64_t o, uint64_t n) {
  const uint64_t n_record = act_records(n_in);
  uint8_t *wide = wide_.data() + thread * wide_bytes_;
  float out[MANY_ROWS * 2 * GROUP];
  for (uint32_t i = 0; i < 2; i++) many.expand(two[i], n_block, i, wide);
  for (uint32_t row = first; row < last; row += MANY_ROWS) {
    const uint32_t R = std::min(MANY_ROWS, last - row);
    many.run(two, wide, n_block, acts + row * n_record, n_record, R, out);
    for (uint32_t r = 0; r < R; r++) std::copy_n(out + r * 2 * GROUP, n, rows[row + r] + o);
  }
}

void Matmul::packed_groups(const MatmulPart &part, uint64_t begin, uint64_t end, uint32_t thread) {
  const CpuTensor &w = *part.w;
  const RowSet set = sets[part.set];
  const LayoutInfo info = layout_info(w.layout);
  const uint64_t n_in = w.ne[0], n_out = w.ne[1], n_block = n_in / info.block, group_bytes = n_block * info.bytes;
  const uint64_t n_record = act_records(n_in);
  const uint8_t *groups = part.matrix;
  const ActRow *acts = reinterpret_cast<const ActRow *>(acts_.data()) + set.begin * n_record;
  const PackedDot *dot = k_.packed[uint32_t(w.layout) - 1];
  const ManyDot &many = k_.many[uint32_t(w.layout) - 1];
  const bool expands = many.expand != nullptr && set.count >= MANY_FROM;
  const uint64_t fit = (expands ? MANY_PASS_BYTES : PASS_BYTES) / (n_record * sizeof(ActRow));
  const uint32_t pass = uint32_t(std::max<uint64_t>(MANY_ROWS, fit / MANY_ROWS * MANY_ROWS));
  float *const *rows = y[part.output].data() + set.begin;
  float out[TILE * GROUP];
  for (uint32_t first = 0; first < set.count; first += pass) {
    const uint32_t last = std::min(set.count, first + pass);
    uint64_t g = begin;
    for (; expands && last - first >= MANY_FROM && g + 2 <= end; g += 2) {
      const uint8_t *const two[2] = {groups + g * group_bytes, groups + (g + 1) * group_bytes};
      many_rows(many, two, n_block, n_in, acts, first, last, thread, rows, g * GROUP, std::min<uint64_t>(2 * GROUP, n_out - g * GROUP));
    }
    for (; g < end; g++) {
      const uint64_t n = std::min<uint64_t>(GROUP, n_out - g * GROUP);
      for (uint32_t row = first; row < last; row += TILE) {
        const uint32_t R = std::min(TILE, last - row);
        dot[R - 1](groups + g * group_bytes, n_block, acts + row * n_record, n_record, out);
        for (uint32_t r = 0; r < R; r++) std::copy_n(out + r * GROUP, n, rows[row + r] + g * GROUP);
      }
    }
  }
}

void Matmul::coded_groups(const MatmulPart &part, uint64_t begin, uint64_t end, uint32_t thread) {
  const CpuTensor &w = *part.w;
  const RowSet set = sets[part.set];
  const uint64_t n_in = w.ne[0], n_record = act_records(n_in), stop = std::min(w.ne[1], end * GROUP);
  const ActRow *acts = reinterpret_cast<const ActRow *>(acts_.data()) + set.begin * n_record;
  const CodedKernels &coded = k_.coded[coded_type(w.type)];
  const uint8_t *weights = part.matrix;
  Coded *buffer = reinterpret_cast<Coded *>(coded_.data()) + thread * n_coded_;
  float *const *rows = y[part.output].data() + set.begin;
  const bool together = coded.group != nullptr && set.count >= MANY_FROM;
  const uint64_t fit = (together ? MANY_PASS_BYTES : CODED_PASS_BYTES) / (n_record * sizeof(ActRow));
  const uint32_t pass = uint32_t(std::max<uint64_t>(MANY_ROWS, fit / MANY_ROWS * MANY_ROWS));
  const auto code = [&](uint64_t o, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) coded.row(weights + (o + i) * w.row_bytes, n_in, buffer + i * n_record);
  };
  for (uint32_t first = 0; first < set.count; first += pass) {
    const uint32_t last = std::min(set.count, first + pass);
    if (together && last - first >= MANY_FROM) {
      const uint64_t in_super = n_record * GROUP_BYTES;
      const uint64_t n_block = coded.form == CodedForm::scaled || coded.form == CodedForm::scaled_min ? n_record : n_record * (SUPER / 32);
      uint8_t *const groups = groups_.data() + thread * group_bytes_;
      for (uint64_t o = begin * GROUP; o < stop; o += 2 * GROUP) {
        const uint8_t *two[2] = {groups, groups};  // a last group stands for two
        for (uint64_t i = 0; i < 2 && o + i * GROUP < stop; i++) {
          const uint64_t at = o + i * GROUP, n = std::min<uint64_t>(GROUP, stop - at);
          code(at, n);
          coded.group(buffer, n_record, uint32_t(n), n_record, groups + i * in_super);
          two[i] = groups + i * in_super;
        }
        many_rows(coded.many, two, n_block, n_in, acts, first, last, thread, rows, o, std::min<uint64_t>(2 * GROUP, stop - o));
      }
      continue;
    }
    const uint64_t n_at_once = set.count <= TILE ? 1 : GROUP;  // few rows: a weight row's codes stay in the first-level cache
    for (uint64_t o = begin * GROUP; o < stop; o += n_at_once) {
      const uint64_t n = std::min(n_at_once, stop - o);
      code(o, n);
      for (uint32_t row = first; row < last; row += TILE) {
        const uint32_t R = std::min(TILE, last - row);
        for (uint64_t i = 0; i < n; i++) {
          float out[TILE];
          coded.dot[R - 1](buffer + i * n_record, n_record, acts + row * n_record, n_record, out);
          for (uint32_t r = 0; r < R; r++) rows[row + r][o + i] = out[r];
        }
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
    const uint8_t *row = part.matrix + o * w.row_bytes;
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

void Matmul::run(bool new_rows) {
  if (parts.empty()) return;
  uint64_t n_bytes = 0, n_group = 0;
  bool any_encoded = false;
  first_group_.clear();
  for (const MatmulPart &p : parts) {
    first_group_.push_back(uint32_t(n_group));
    n_group += (p.w->ne[1] + GROUP - 1) / GROUP;
    n_bytes += p.w->ne[1] * p.w->row_bytes * sets[p.set].count;
    any_encoded |= way_of(*p.w) != Way::rows;
  }
  if (any_encoded && new_rows) encode(parts[0].w->ne[0]);
  // About eight chunks a thread even out what else the machine does; less work than MIN_WORK stays on the caller.
  const uint64_t chunks = std::max<uint64_t>(1, std::min<uint64_t>(8 * pool_.size(), n_bytes / MIN_WORK));
  const uint64_t grain = pool_.size() == 1 ? n_group : (n_group + chunks - 1) / chunks;
  pool_.run(n_group, grain, [&](uint64_t begin, uint64_t end, uint32_t thread) {
    size_t p = size_t(std::upper_bound(first_group_.begin(), first_group_.end(), uint32_t(begin)) - first_group_.begin()) - 1;
    while (begin < end) {
      while (p + 1 < parts.size() && first_group_[p + 1] <= begin) p++;
      const uint64_t stop = p + 1 < parts.size() ? std::min<uint64_t>(end, first_group_[p + 1]) : end;
      const uint64_t from = begin - first_group_[p], to = stop - first_group_[p];
      switch (way_of(*parts[p].w)) {
        case Way::packed: packed_groups(parts[p], from, to, thread); break;
        case Way::coded: coded_groups(parts[p], from, to, thread); break;
        case Way::rows: row_groups(parts[p], from, to, thread); break;
      }
      begin = stop;
    }
  });
}

}  // namespace bl
