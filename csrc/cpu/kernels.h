// kernels.h: the table of kernels that exists once per instruction set (kernels_portable.cpp, kernels_avx2.cpp, kernels_avx512.cpp).
// All versions of a kernel give the same bits. A kernel works on one piece of an op on the calling thread; ops split themselves over
// threads by outputs only.
#pragma once

#include <cstdint>

#include "packing.h"

namespace bl {

// Activation rows against 8 packed output rows.   group: n_block packed blocks · act: R rows of records, `stride` records apart
//   out f32 [R][8], overwritten
using PackedDot = void (*)(const uint8_t *group, uint64_t n_block, const ActRow *act, uint64_t stride, float *out);

// The same for up to MANY_ROWS rows against two groups: expand() puts the codes of one of the two groups together once
// (wide: MANY_BYTES per superblock for both), run() reads them from there.   out f32 [n_rows][16], overwritten
constexpr uint32_t MANY_ROWS = 16;
constexpr uint32_t MANY_BYTES = 8192;
struct ManyDot {
  void (*expand)(const uint8_t *group, uint64_t n_block, uint32_t which, uint8_t *wide);  // nullptr: nothing to gain
  void (*run)(const uint8_t *const *groups, const uint8_t *wide, uint64_t n_block, const ActRow *act, uint64_t stride, uint32_t n_rows,
              float *out);
};

// Activation rows against one row of float weights.   w [n_in] · x R rows [n_in] · out [R], overwritten
using FloatDot = void (*)(const uint8_t *w, const float *const *x, uint64_t n_in, float *out);

enum FloatType { FLOAT_F32, FLOAT_F16, FLOAT_BF16, N_FLOAT };

// Many activation rows against 1 to 8 rows of float weights: PANEL_K values of k meet all rows before the next.
//   w n_w rows [n_in], n_in a multiple of 16 · x n_rows <= PANEL_ROWS rows [n_in] · y n_rows rows, values o .. o + n_w are overwritten
//   buffer PANEL_FLOATS floats
constexpr uint64_t PANEL_K = 512;  // 16 KiB of decoded weights stay in the first-level cache
constexpr uint32_t PANEL_ROWS = 132;  // fewer decode the weights too often, whatever cache the rows then lie in
constexpr uint64_t PANEL_FLOATS = GROUP * PANEL_K + PANEL_ROWS * 16 * GROUP;
using FloatPanel = void (*)(const uint8_t *const *w, uint32_t n_w, uint64_t n_in, const float *const *x, uint32_t n_rows, float *buffer,
                            float *const *y, uint64_t o);

// One ATTENTION op in one step.
struct AttentionJob {
  const float *q;            // [n_tok, n_head, dim_k]
  float *y;                  // [n_tok, n_head, dim_v]
  const int32_t *positions;  // [n_tok]
  const int32_t *seqs;       // [n_tok]
  const int32_t *pages;      // [n_seq, n_page]
  uint32_t n_page, page_size;
  uint32_t n_head, n_head_kv, dim_k, dim_v;
  float scale;
  uint32_t window;           // 0: all positions
  uint32_t type_k, type_v;   // f32, f16 or q8_0
  const uint8_t *k, *v;      // the streams: rows of row_k, row_v bytes; row = page * page_size + slot
  uint64_t row_k, row_v;
};

// Rows [begin, end) of one sequence, ascending in position, that one work item attends together.
struct RowBlock {
  uint32_t begin, end;
};

struct Kernels {
  const char *name;

  // A row of n_in floats to act_records(n_in) records of packing.h.
  void (*encode_row)(const float *x, uint64_t n_in, ActRow *out);
  PackedDot packed[N_PACKED][TILE];  // by layout - 1 and R - 1
  ManyDot many[N_PACKED];            // by layout - 1
  FloatDot floats[N_FLOAT][TILE];    // by FloatType and R - 1
  FloatPanel panels[N_FLOAT];        // by FloatType

  // y = x / sqrt(mean(x^2) + eps) * w
  void (*rms_norm)(const float *x, const float *w, float *y, uint64_t n, float eps);
  void (*add)(const float *a, const float *b, float *y, uint64_t n);
  // y = a / (1 + e^-a) * b
  void (*silu_mul)(const float *a, const float *b, float *y, uint64_t n);
  // y += c * x
  void (*axpy)(float c, const float *x, float *y, uint64_t n);
  // Rotates the first n_rot values of each head; pairs are (2i, 2i + 1) or (i, i + n_rot / 2).   cos, sin [n_rot / 2]
  void (*rope)(const float *x, float *y, const float *cos, const float *sin, uint32_t n_head, uint32_t head_dim, uint32_t n_rot, bool halves);
  // log(sum(e^x)), and the largest value
  float (*log_sum_exp)(const float *x, uint64_t n, float *largest);
  // Index of the first value above `bound` at or after i; n when there is none.
  uint64_t (*find_above)(const float *x, uint64_t i, uint64_t n, float bound);
  // y = e^(x - shift)
  void (*exp_row)(const float *x, float shift, float *y, uint64_t n);

  // Encodes a row of n floats as a cache stream's type.
  void (*encode_cache)(const float *x, uint32_t type, uint64_t n, uint8_t *row);
  // y of the heads of one kv head for rows [rows.begin, rows.end).   buffer: attention_buffer_floats() floats
  void (*attend)(const AttentionJob &job, uint32_t kv_head, RowBlock rows, float *buffer);
};

// Rows that one work item of attention takes at most, and the floats of buffer it needs.
uint32_t attention_rows(uint32_t n_head, uint32_t n_head_kv);
uint64_t attention_buffer_floats(uint32_t n_head, uint32_t n_head_kv, uint32_t dim_k, uint32_t dim_v);

extern const Kernels kernels_portable;
#if defined(__x86_64__)
extern const Kernels kernels_avx2;
extern const Kernels kernels_avx512;
extern const Kernels kernels_amx;  // those of avx512, and matrix units for many rows
#endif

// The best kernels for the running CPU. BLOOMERY_CPU=portable|avx2|avx512|amx in the environment takes a lesser set (to compare and to
// find faults); what the CPU lacks is never chosen.
const Kernels &kernels();

// Names of the instruction set extensions of the running CPU that kernels exist for, as a JSON array.
const char *cpu_features_json();

}  // namespace bl
