// recurrent.h: CONV and DELTA: ops that carry a state from row to row of a sequence.
#pragma once

#include "cache.h"
#include "operand.h"

namespace bl::cuda {

// Rows first .. first + count of a step: those of one sequence, ascending by one.
struct SequenceRun {
  int32_t first, count;
};

struct ConvArgs {
  const float *x;        // [C, n_tok]
  uint64_t x_row;        // elements from row to row
  const float *w, *b;    // [K, C], [C] or nullptr
  float *y;              // [C, n_tok], dense
  uint32_t C, K, dilation;
  bool silu;
  CacheStream state;     // f32 [(K - 1) dilation, C]
  CachePages table;
  const int32_t *positions;
  const SequenceRun *runs;  // [n_seq]
  const int32_t *n_seq;
  uint32_t max_seq, max_rows;
};

void conv(const ConvArgs &args, Stream &s);

struct DeltaArgs {
  Operand q, k, v, g, beta;  // [dk, Hk], [dk, Hk], [dv, Hv], [1 or dk, Hv], [1, Hv], each n_tok
  float *y;                  // [dv, Hv, n_tok], dense
  uint32_t dk, dv, n_key_head, n_head;
  bool plain, tiled, one_decay;
  CacheStream state;         // f32 [Hv, dv, dk]
  CachePages table;
  const int32_t *positions;
  const SequenceRun *runs;
  const int32_t *n_seq;
  uint32_t max_seq;
};

void delta(const DeltaArgs &args, Stream &s);

}  // namespace bl::cuda
