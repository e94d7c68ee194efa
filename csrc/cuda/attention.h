// attention.h: causal softmax attention over a paged cache.
//
// Keys are taken in chunks of 64 absolute positions. Each chunk alone gives a row a state (largest score, sum, weighted values), and
// the states are merged in order of position. That is the definition: how chunks are spread over warps is free, and a chunk that is
// masked for a row leaves its state as it was, so that a row's bits do not depend on the rows computed with it.
#pragma once

#include "cache.h"
#include "packed.h"

namespace bl::cuda {

constexpr uint32_t CHUNK_KEYS = 64;

// Rows first .. first + count of a step: of one sequence, ascending in position.
struct AttentionTile {
  int32_t first, count, seq;
};

struct AttentionArgs {
  const float *q;  // [head_dim_k, n_head, n_tok]
  float *y;        // [head_dim_v, n_head, n_tok], overwritten; with split, nullptr where only an encoding is wanted
  Encoded f16, bf16;  // with split and attention_encodes(): encodings of y's rows [n_head * head_dim_v], or none
  CacheStream k, v;
  uint32_t n_head, n_head_kv, head_dim_k, head_dim_v;
  float scale, softcap;  // softcap 0: none
  uint32_t window;       // 0: all keys
  const float *sinks;    // [n_head] or nullptr
  const int32_t *positions, *seqs, *pages;
  uint32_t n_page, page_size;
  RowCount rows;    // tokens

  const AttentionTile *tiles;
  const int32_t *n_tiles;
  uint32_t max_tiles;

  // Split over chunks: states [n_tok, n_head, n_chunk] (largest, sum), then [.., head_dim_v] values; nullptr: one block walks them all.
  float *states;
  uint32_t n_chunk;
};

// How a layer's attention is run.
enum class AttentionKind { general, split, walk };

// split and walk: f16 products on tensor cores; general: what these do not take (attention_general.h).
AttentionKind attention_kind(const CacheStream &k, const CacheStream &v, uint32_t head_dim_k, uint32_t head_dim_v, uint32_t n_tok,
                             uint64_t state_bytes);
uint64_t attention_state_bytes(uint32_t n_tok, uint32_t n_head, uint32_t head_dim_v, uint32_t n_chunk);
// Tokens of a tile of AttentionTile for split and walk.
uint32_t attention_tile_tokens(AttentionKind kind, uint32_t n_head, uint32_t n_head_kv);

// Whether the merge of a split can encode its rows: whole superblocks of whole heads.
bool attention_encodes(uint32_t n_head, uint32_t head_dim_v);

void attention(const AttentionArgs &args, AttentionKind kind, Stream &s);

}  // namespace bl::cuda
