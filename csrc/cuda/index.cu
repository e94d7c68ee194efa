// index.cu: INDEX. Scores of all visible rows, then an exact choice of the n best by radix.
//   q [d, H, n_tok] f32, w [H, n_tok] f32 · keys: cache rows [d] f32, f16 or q8_0 · ids [n, n_tok] i32, ascending, -1 behind them
// launch  for each range of tokens whose scores fit the scratch: scores, grid (tiles of 64 rows, tokens), block 256 (a row is shared by
//         four threads, each takes every fourth group of 4 heads); choice, a block of 1024 a token: four passes over the scores find
//         the n-th best 8 bits at a time, one writes the chosen in order
// needs   shared memory for the queries of all heads: 4 H d bytes up to 160 KiB
// bits    a score: per head four sums of every fourth dimension, added in pairs; heads ascending within each of the four threads,
//         whose sums are added in order. Then integers alone: no tie is left to chance
// floor   2 H d multiply-adds a row and token over 60 TFLOP/s: 64 heads of 128, 100,000 rows: 27 us a token
#include "index.h"

namespace bl::cuda {

namespace {

constexpr uint32_t TILE = 64, SCORE_BLOCK = 256, PARTS = SCORE_BLOCK / TILE, HEADS = 4;
constexpr uint32_t SELECT_BLOCK = 1024;
constexpr uint64_t MAX_SCRATCH = 256u << 20;

// Larger scores give larger keys; 0 is a row that takes no part.
__device__ inline uint32_t key_of(float score) {
  const uint32_t b = __float_as_uint(__fadd_rn(score, 0.0f));  // -0 is 0
  return score != score ? 1u : (b & 0x80000000u) ? ~b : b | 0x80000000u;
}

__global__ __launch_bounds__(SCORE_BLOCK) void score_kernel(const __grid_constant__ IndexArgs p, uint32_t first_token) {
  extern __shared__ __align__(16) float4 shared[];  // q [H rounded up to 4][dims4], keys [TILE][stride]
  __shared__ const uint8_t *rows[TILE];
  __shared__ float partial[PARTS][TILE];
  __shared__ uint32_t listed[TILE];
  release();
  depend();
  const uint32_t token = first_token + blockIdx.y, t = threadIdx.x;
  if (token >= row_count(p.rows)) return;
  const uint32_t visible = (uint32_t(p.positions[token]) + 1) / p.k.ratio, first = blockIdx.x * TILE;
  if (first >= visible) return;
  const uint32_t dims4 = ceil_div(p.d, 4u), stride = dims4 | 1, n_head = round_up(p.n_head, HEADS);
  float4 *queries = shared, *keys = shared + n_head * dims4;
  const int32_t *pages = p.table.pages + uint64_t(p.seqs[token]) * p.table.n_page;

  if (t < TILE) {
    rows[t] = first + t < visible ? stream_row(p.k, pages, p.table.page_size, first + t) : nullptr;
    listed[t] = p.candidates == nullptr;
  }
  for (uint32_t i = t; i < n_head * dims4; i += SCORE_BLOCK) {
    const uint32_t h = i / dims4, d = i % dims4 * 4;
    const float *q = p.q + token * p.q_row + h * p.q_head;
    float4 v = make_float4(0, 0, 0, 0);
    if (h < p.n_head) {
      v.x = q[d];
      if (d + 1 < p.d) v.y = q[d + 1];
      if (d + 2 < p.d) v.z = q[d + 2];
      if (d + 3 < p.d) v.w = q[d + 3];
    }
    queries[i] = v;
  }
  __syncthreads();
  for (uint32_t i = t; i < p.n_candidate; i += SCORE_BLOCK) {
    const int32_t block = p.candidates[uint64_t(token) * p.n_candidate + i];
    if (block < 0) continue;
    const uint64_t from = uint64_t(block) * p.candidate_unit, to = from + p.candidate_unit;
    if (to <= first || from >= first + TILE) continue;
    const uint32_t begin = from > first ? uint32_t(from - first) : 0, end = to < first + TILE ? uint32_t(to - first) : TILE;
    for (uint32_t r = begin; r < end; r++) listed[r] = 1;  // whoever writes: the same
  }
#pragma unroll 4
  for (uint32_t i = t; i < TILE * dims4; i += SCORE_BLOCK) {
    const uint32_t r = i / dims4, d = i % dims4 * 4;
    float4 v = make_float4(0, 0, 0, 0);
    if (const uint8_t *row = rows[r]) {
      v.x = stream_value(p.k, row, d);
      if (d + 1 < p.d) v.y = stream_value(p.k, row, d + 1);
      if (d + 2 < p.d) v.z = stream_value(p.k, row, d + 2);
      if (d + 3 < p.d) v.w = stream_value(p.k, row, d + 3);
    }
    keys[r * stride + d / 4] = v;
  }
  __syncthreads();

  const uint32_t r = t % TILE, part = t / TILE;
  float score = 0.0f;
  for (uint32_t h = part * HEADS; h < n_head; h += PARTS * HEADS) {
    float4 sum[HEADS];
#pragma unroll
    for (int i = 0; i < int(HEADS); i++) sum[i] = make_float4(0, 0, 0, 0);
    for (uint32_t d = 0; d < dims4; d++) {
      const float4 k = keys[r * stride + d];
#pragma unroll
      for (int i = 0; i < int(HEADS); i++) {
        const float4 q = queries[(h + i) * dims4 + d];
        sum[i].x = __fmaf_rn(q.x, k.x, sum[i].x), sum[i].y = __fmaf_rn(q.y, k.y, sum[i].y);
        sum[i].z = __fmaf_rn(q.z, k.z, sum[i].z), sum[i].w = __fmaf_rn(q.w, k.w, sum[i].w);
      }
    }
#pragma unroll
    for (int i = 0; i < int(HEADS); i++) {
      if (h + i >= p.n_head) break;
      const float dot = __fadd_rn(__fadd_rn(sum[i].x, sum[i].y), __fadd_rn(sum[i].z, sum[i].w));
      const float weight = p.w != nullptr ? p.w[token * p.w_row + h + i] : 1.0f;
      score = __fmaf_rn(weight, fmaxf(__fmul_rn(p.scale, dot), 0.0f), score);
    }
  }
  partial[part][r] = score;
  __syncthreads();
  if (part != 0 || first + r >= visible) return;
  for (uint32_t i = 1; i < PARTS; i++) score = __fadd_rn(score, partial[i][r]);
  p.keys[uint64_t(blockIdx.y) * p.max_rows + first + r] = listed[r] != 0 && rows[r] != nullptr ? key_of(score) : 0;
}

// Sum over the block of v, and of the threads before this one.
struct Scan {
  uint32_t before, all;
};
__device__ Scan scan(uint32_t v, uint32_t *warps) {
  const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  uint32_t sum = v;
  for (int o = 1; o < WARP; o <<= 1) {
    const uint32_t up = __shfl_up_sync(~0u, sum, o);
    if (int(lane) >= o) sum += up;
  }
  __syncthreads();
  if (lane == WARP - 1) warps[warp] = sum;
  __syncthreads();
  uint32_t before = 0, all = 0;
  for (uint32_t i = 0; i < SELECT_BLOCK / WARP; i++) {
    if (i < warp) before += warps[i];
    all += warps[i];
  }
  return {before + sum - v, all};
}

__global__ __launch_bounds__(SELECT_BLOCK) void select_kernel(const __grid_constant__ IndexArgs p, uint32_t first_token) {
  __shared__ uint32_t count[256], warps[SELECT_BLOCK / WARP], found[3];
  release();
  depend();
  const uint32_t token = first_token + blockIdx.x, t = threadIdx.x;
  if (token >= row_count(p.rows)) return;
  const uint32_t visible = (uint32_t(p.positions[token]) + 1) / p.k.ratio, n_block = ceil_div(visible, p.unit);
  const uint32_t *keys = p.keys + uint64_t(blockIdx.x) * p.max_rows;
  int32_t *ids = p.ids + uint64_t(token) * p.n;
  auto key_at = [&](uint32_t block) {
    if (p.pin && block + 1 == n_block) return ~0u;
    uint32_t best = 0;
    for (uint32_t i = block * p.unit; i < min((block + 1) * p.unit, visible); i++) best = max(best, keys[i]);
    return best;
  };

  // The key of the n-th best, 8 bits at a time; `above` blocks have a larger one. Keys of 0 are not counted.
  uint32_t prefix = 0, above = 0, taking_part = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (uint32_t i = t; i < 256; i += SELECT_BLOCK) count[i] = 0;
    __syncthreads();
    for (uint32_t b = t; b < n_block; b += SELECT_BLOCK) {
      const uint32_t key = key_at(b);
      if (key != 0 && (shift == 24 || key >> (shift + 8) == prefix >> (shift + 8))) atomicAdd(&count[key >> shift & 255], 1u);
    }
    __syncthreads();
    if (t == 0) {
      uint32_t larger = above, total = 0;
      int digit = 255;
      for (int i = 0; i < 256; i++) total += count[i];
      while (digit > 0 && larger + count[digit] < p.n) larger += count[digit--];
      found[0] = uint32_t(digit), found[1] = larger, found[2] = total;
    }
    __syncthreads();
    if (shift == 24) taking_part = found[2];
    if (taking_part <= p.n) break;  // all of them
    prefix |= found[0] << shift, above = found[1];
    __syncthreads();
  }
  const bool all = taking_part <= p.n;
  const uint32_t equal_wanted = all ? 0 : p.n - above;

  // The chosen in order: those above the n-th best's key, and of those with that key the first.
  uint32_t written = 0, equal = 0;
  for (uint32_t base = 0; base < n_block; base += SELECT_BLOCK) {
    const uint32_t b = base + t, key = b < n_block ? key_at(b) : 0;
    const bool same = !all && key == prefix && key != 0;
    const Scan ties = scan(same, warps);
    const bool chosen = key != 0 && (all || key > prefix || (same && equal + ties.before < equal_wanted));
    const Scan place = scan(chosen, warps);
    if (chosen) ids[written + place.before] = int32_t(b);
    equal += ties.all, written += place.all;
  }
  for (uint32_t i = written + t; i < p.n; i += SELECT_BLOCK) ids[i] = -1;
}

uint32_t tokens_at_once(const IndexArgs &args) {
  const uint64_t most = MAX_SCRATCH / (uint64_t(args.max_rows) * 4);
  return most == 0 ? 1 : most < args.rows.max ? uint32_t(most) : args.rows.max;
}

}  // namespace

uint64_t index_scratch_bytes(const IndexArgs &args) { return uint64_t(tokens_at_once(args)) * args.max_rows * 4; }

void index_rows(const IndexArgs &args, Stream &s) {
  const uint32_t dims4 = ceil_div(args.d, 4u);
  const size_t shared = (round_up(args.n_head, HEADS) * dims4 + TILE * (dims4 | 1)) * sizeof(float4);
  if (shared > (220u << 10))
    fail(BL_ERR_UNSUPPORTED, "Cannot index with %u heads of %u on cuda: they need %zu bytes of shared memory, at most %u", args.n_head, args.d,
         shared, 220u << 10);
  allow_shared(score_kernel, shared);
  const uint32_t step = tokens_at_once(args);
  for (uint32_t first = 0; first < args.rows.max; first += step) {
    const uint32_t n = args.rows.max - first < step ? args.rows.max - first : step;
    launch("index scores", score_kernel, dim3(ceil_div(args.max_rows, TILE), n), SCORE_BLOCK, shared, s, args, first);
    launch("index choice", select_kernel, dim3(n), SELECT_BLOCK, 0, s, args, first);
  }
}

}  // namespace bl::cuda
