// attention_general.h: ATTENTION as ../ops.def has it, for whatever attention.h's tensor core kernels do not take: two segments, streams
// of any ratio, lists of rows, values inside keys, any head size, f32 caches.
//
// The visible rows of a segment stand in a list: row w at place w, or where rows are selected those of the first selected block, then
// of the second, ... (places of rows that are not visible stay empty). 64 places make a chunk, 8 chunks a span. A chunk gives a row a
// state (largest score, sum, weighted values), chunks merge to a span in order, spans of both segments to the whole. That order is the
// definition: who computes which chunk is free.
#pragma once

#include "attention.h"
#include "recurrent.h"

namespace bl::cuda {

constexpr uint32_t SPAN_CHUNKS = 8;

struct AttentionSegment {
  CacheStream k, v;
  CachePages table;
  uint32_t window, unit;
  uint32_t v_head;        // elements from one kv head's values to the next
  const int32_t *select;  // [rows, n_select] blocks of `unit` rows, or nullptr
  uint32_t n_select;
  uint32_t n_span;        // of the longest list
};

struct GeneralAttentionArgs {
  const float *q;           // [head_dim_k, n_head, n_tok]
  uint64_t q_head, q_row;   // elements from head to head, from token to token
  float *y;                 // [head_dim_v, n_head, n_tok], dense
  const float *sinks;       // [n_head] or nullptr
  uint32_t n_head, n_head_kv, head_dim_k, head_dim_v;
  float scale, softcap;
  const int32_t *positions, *seqs;
  const SequenceRun *runs;  // [n_seq]
  uint32_t ahead;           // positions behind its own that a row sees
  RowCount rows;
  AttentionSegment segment[2];
  uint32_t n_segment;

  // Few tokens: the states of all chunks or spans [n_tok, n_head, n_state] (largest, sum), then [.., head_dim_v] values; n_state 0: a
  // block walks all of a row.
  float *states;
  uint32_t n_state;
  bool by_chunk;
};

// Sets n_state and by_chunk for a bucket.   returns the bytes of states
uint64_t plan_general_attention(GeneralAttentionArgs &args);

void general_attention(const GeneralAttentionArgs &args, Stream &s);

}  // namespace bl::cuda
