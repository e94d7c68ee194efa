// kernels.h: the table of kernels that exists once per instruction set (kernels_portable.cpp, kernels_avx2.cpp, kernels_avx512.cpp).
// All versions of a kernel give the same bits. A kernel works on one piece of an op on the calling thread; ops split themselves over
// threads by outputs only.
#pragma once

#include <cstdint>

#include "../bloomery_ops.h"
#include "../runtime/visible.h"
#include "coded.h"

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

// Eight coded rows side by side, for `many`.   n_rows <= 8 rows, `stride` superblocks apart · group n_super times GROUP_BYTES
using CodedGroup = void (*)(const Coded *rows, uint64_t stride, uint32_t n_rows, uint64_t n_super, uint8_t *group);

// A row of n_in weights to its superblocks (coded.h); and activation rows against it.   act: R rows of records, `stride` records apart
//   out f32 [R], overwritten
struct CodedKernels {
  CodedForm form;
  void (*row)(const uint8_t *row, uint64_t n_in, Coded *out);
  void (*dot[TILE])(const Coded *w, uint64_t n_super, const ActRow *act, uint64_t stride, float *out);  // by R - 1
  CodedGroup group;  // nullptr: nothing to gain
  ManyDot many;      // of groups: n_block counts superblocks where scales are whole numbers, else blocks of 32 values
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

// Rows of one pair of streams that attention reads.
struct AttentionSegment {
  const int32_t *pages;      // [n_seq, n_page]
  uint32_t n_page, page_size;
  uint32_t ratio;            // positions of a row
  uint32_t window;           // 0: all positions
  uint32_t type_k, type_v;   // f32, f16 or q8_0
  const uint8_t *k, *v;      // the streams: rows of row_k, row_v bytes. v == k: values are the first dim_v numbers of each key
  uint64_t row_k, row_v;
  const uint32_t *list;      // of token row r, from r * list_stride on: n_list[r] visible rows, ascending; nullptr: all that are visible
  const uint32_t *n_list;
  uint64_t list_stride;
};

// One ATTENTION op in one step.
struct AttentionJob {
  const float *q;            // heads of dim_k numbers, q_head apart; rows q_row apart
  uint64_t q_row, q_head;
  float *y;                  // [n_tok, n_head, dim_v]
  const int32_t *positions;  // [n_tok]
  const int32_t *sees;       // [n_tok] the last position that a row sees, its own where it does not look ahead
  const int32_t *seqs;       // [n_tok]
  uint32_t n_head, n_head_kv, dim_k, dim_v;
  float scale, softcap;
  const float *sinks;        // [n_head] or nullptr
  uint32_t n_segment;
  AttentionSegment segment[2];
};

// Rows [begin, end) of one sequence, ascending in position, that one work item attends together; one row where a segment is listed.
struct RowBlock {
  uint32_t begin, end;
};

// Keys of a stream against the heads of one token row (INDEX).
struct IndexJob {
  const float *q;  // n_head heads of dim numbers, q_head apart
  uint64_t q_head;
  const float *w;  // [n_head], or nullptr: 1 for each
  uint32_t n_head, dim;
  float scale;
  uint32_t type;
};
constexpr uint32_t INDEX_ROWS = 32;  // keys of one call at most

// One value head of DELTA over neighbouring rows of one sequence. Pointers are to the head's numbers in the first row.
struct DeltaJob {
  const float *q, *k, *v, *g, *beta;
  float *y;
  uint64_t q_row, k_row, v_row, g_row, beta_row, y_row;  // distances of rows
  float *state;                                          // [dv][dk]
  uint32_t dk, dv, dg, n_row;                            // dg: 1 or dk
  bool plain;
};
constexpr uint32_t DELTA_ROWS = 32;  // rows of a pass; the buffer holds as many times dk, rounded up to 8, floats

struct Kernels {
  const char *name;

  // A row of n_in floats to act_records(n_in) records of packing.h.
  void (*encode_row)(const float *x, uint64_t n_in, ActRow *out);
  PackedDot packed[N_PACKED][TILE];  // by layout - 1 and R - 1
  ManyDot many[N_PACKED];            // by layout - 1
  CodedKernels coded[N_CODED];       // by CodedType
  FloatDot floats[N_FLOAT][TILE];    // by FloatType and R - 1
  FloatPanel panels[N_FLOAT];        // by FloatType

  // NORM of one row.   w, b [n] or nullptr
  void (*norm)(uint32_t kind, const float *x, const float *w, const float *b, float *y, uint64_t n, float eps);
  void (*add)(const float *a, const float *b, float *y, uint64_t n);
  void (*mul)(const float *a, const float *b, float *y, uint64_t n);
  void (*add_one)(const float *a, float b, float *y, uint64_t n);
  void (*mul_one)(const float *a, float b, float *y, uint64_t n);
  void (*unary)(uint32_t kind, const float *x, float *y, uint64_t n, float a, float b);
  void (*gate)(uint32_t kind, const float *x, const float *y, float *z, uint64_t n, float a, float b);
  float (*dot)(const float *a, const float *b, uint64_t n);
  // y += c * x
  void (*axpy)(float c, const float *x, float *y, uint64_t n);
  // Rotates n_rot values of each head from `offset` on; pairs are (2i, 2i + 1) or (i, i + n_rot / 2).   cos, sin [n_rot / 2]
  // x: heads x_head apart · y dense
  void (*rope)(const float *x, uint64_t x_head, float *y, const float *cos, const float *sin, uint32_t n_head, uint32_t head_dim,
               uint32_t offset, uint32_t n_rot, bool halves);
  void (*softmax)(const float *x, float *y, uint64_t n);
  // One row of CONV.   x: n_tap inputs [n], nullptr for those before the sequence · w [n_tap][n] · b [n] or nullptr
  void (*conv)(const float *const *x, const float *w, const float *b, float *y, uint64_t n, uint32_t n_tap, bool silu);
  // One group of POOL.   k, z, ape: n_row rows [n]; z nullptr: the mean · ape nullptr: none
  void (*pool)(const float *const *k, const float *const *z, const float *const *ape, uint32_t n_row, float *y, uint64_t n);
  // log(sum(e^x)), and the largest value
  float (*log_sum_exp)(const float *x, uint64_t n, float *largest);
  // Index of the first value above `bound` at or after i; n when there is none.
  uint64_t (*find_above)(const float *x, uint64_t i, uint64_t n, float bound);
  // y = e^(x - shift)
  void (*exp_row)(const float *x, float shift, float *y, uint64_t n);

  // Encodes a row of n floats as a cache stream's type.
  void (*encode_cache)(const float *x, uint32_t type, uint64_t n, uint8_t *row);
  // n numbers of a stream's row to f32; up to 7 zeros follow.
  void (*decode_cache)(const uint8_t *row, uint32_t type, uint64_t n, float *x);
  // y of heads head .. head + n_head of one kv head for rows [rows.begin, rows.end).   buffer: attention_buffer_floats() floats
  void (*attend)(const AttentionJob &job, uint32_t kv_head, uint32_t head, uint32_t n_head, RowBlock rows, float *buffer);
  // scores of n <= INDEX_ROWS keys.   buffer: index_buffer_floats() floats
  void (*index)(const IndexJob &job, const uint8_t *const *keys, uint32_t n, float *scores, float *buffer);
  void (*delta)(const DeltaJob &job, float *buffer);
};

// What one work item of attention takes at most: heads of a kv head, and rows that it attends together; the floats of buffer it needs.
uint32_t attention_heads(uint32_t n_rep);
uint32_t attention_rows(uint32_t n_rep);
uint64_t attention_buffer_floats(uint32_t n_rep, uint32_t dim_k, uint32_t dim_v);
uint64_t index_buffer_floats(uint32_t n_head, uint32_t dim);

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
