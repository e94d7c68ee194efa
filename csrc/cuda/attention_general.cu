// attention_general.cu: attention in f32 over any streams (attention_general.h).
//   q [head_dim_k, n_head, n_tok] f32 · k, v cache rows f32, f16 or q8_0 · y [head_dim_v, n_head, n_tok] f32
// launch  grid (chunks or spans: 1 where a block walks a row, groups of up to 8 heads of a kv head, n_tok), block 128. Keys of a chunk
//         are decoded to shared memory some at a time; thread (key, head) scores, then a thread has up to 8 dimensions of the values
//         of all heads. With states: a second launch, a block a (head, token), merges them.
// needs   head_dim_v <= 1024, n_tok < 2^16
// bits    a score: four sums of every fourth dimension, added in pairs; then attention_general.h: a row's own positions and lists alone
// floor   decode: bytes of keys and values over bandwidth. Prompts: f32 multiply-adds, 2 n_head (head_dim_k + head_dim_v) rows a token
//         over 60 TFLOP/s: every token reads its rows anew, so that this is far from what tensor cores reach
#include "attention_general.h"
#include "attention_state.cuh"

namespace bl::cuda {

namespace {

constexpr uint32_t BLOCK = 128;
constexpr uint32_t MAX_HEADS = 8;
constexpr uint32_t KEY_BYTES = 72u << 10;  // shared memory for decoded keys

// What one row sees of a segment.
struct Visible {
  uint32_t first, end;      // rows
  uint32_t place0, place1;  // of the list
  int32_t last_block;       // selected besides the listed ones, or -1
};

// All threads of a block together: `listed` is found by them all.
__device__ Visible visible(const AttentionSegment &g, uint32_t row, int32_t position, int32_t last) {
  Visible v;
  v.end = (uint32_t(last) + 1) / g.k.ratio;
  const int32_t behind = position - int32_t(g.window) + 1;
  v.first = g.window != 0 && behind > 0 ? uint32_t(behind) / g.k.ratio : 0;
  v.place0 = v.first, v.place1 = v.end, v.last_block = -1;
  if (g.select == nullptr) return v;
  v.place0 = 0, v.place1 = g.n_select * g.unit;
  if (g.unit > 1) {
    v.last_block = int32_t(v.end / g.unit);
    v.place1 += g.unit;
    bool listed = false;
    for (uint32_t i = threadIdx.x; i < g.n_select; i += blockDim.x)
      listed = listed || g.select[uint64_t(row) * g.n_select + i] == v.last_block;
    if (__syncthreads_or(listed)) v.last_block = -1;
  }
  return v;
}

// The row at a place of the list, or -1.
__device__ inline int64_t row_at(const AttentionSegment &g, const Visible &v, uint32_t row, uint32_t place) {
  if (place < v.place0 || place >= v.place1) return -1;
  if (g.select == nullptr) return place;
  const uint32_t i = place / g.unit;
  const int32_t block = i < g.n_select ? g.select[uint64_t(row) * g.n_select + i] : v.last_block;
  if (block < 0) return -1;
  const uint64_t w = uint64_t(block) * g.unit + place % g.unit;
  return w >= v.first && w < v.end ? int64_t(w) : -1;
}

// Numbers e .. e + 3 of a row, those past `end` as zeros.
__device__ inline float4 load4(const CacheStream &c, const uint8_t *row, uint32_t e, uint32_t end, bool whole) {
  if (whole && c.type == TYPE_F16) {
    const uint2 w = *reinterpret_cast<const uint2 *>(row + e * 2);
    return make_float4(half_lo(w.x), half_hi(w.x), half_lo(w.y), half_hi(w.y));
  }
  if (whole && c.type == TYPE_F32) return *reinterpret_cast<const float4 *>(row + e * 4);
  return make_float4(e < end ? stream_value(c, row, e) : 0.0f, e + 1 < end ? stream_value(c, row, e + 1) : 0.0f,
                     e + 2 < end ? stream_value(c, row, e + 2) : 0.0f, e + 3 < end ? stream_value(c, row, e + 3) : 0.0f);
}
// Rows whose heads all begin where four numbers may be read at once.
__device__ inline bool whole4(const CacheStream &c, uint32_t head_dim) { return head_dim % 4 == 0 && c.row_bytes % 16 == 0; }

// A state of HEADS heads; of the values a thread has DIMS dimensions.
template <int HEADS, int DIMS>
struct State {
  float largest[HEADS], sum[HEADS], value[HEADS][DIMS];
  __device__ void clear() {
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
      largest[h] = -INFINITY, sum[h] = 0.0f;
#pragma unroll
      for (int i = 0; i < DIMS; i++) value[h][i] = 0.0f;
    }
  }
  template <class Newer>
  __device__ void merge_with(int h, float newer_largest, float newer_sum, Newer newer) {
    float keep, take;
    merge_weights(largest[h], newer_largest, keep, take);
    sum[h] = merge(sum[h], keep, newer_sum, take);
#pragma unroll
    for (int i = 0; i < DIMS; i++) value[h][i] = merge(value[h][i], keep, newer(i), take);
  }
};

template <int HEADS, int DIMS>
__global__ __launch_bounds__(BLOCK) void general_kernel(const __grid_constant__ GeneralAttentionArgs p, uint32_t key_tile) {
  extern __shared__ __align__(16) float4 shared[];  // q [HEADS][stride], keys [key_tile][stride]
  __shared__ const uint8_t *k_row[CHUNK_KEYS], *v_row[CHUNK_KEYS];
  __shared__ float score[CHUNK_KEYS][HEADS];  // then probabilities
  __shared__ float chunk_largest[HEADS], chunk_sum[HEADS];
  release();
  depend();
  const uint32_t token = blockIdx.z, t = threadIdx.x;
  if (token >= row_count(p.rows)) return;
  const uint32_t dims4 = ceil_div(p.head_dim_k, 4u), stride = dims4 | 1;  // odd: neighbouring keys lie in other banks
  float4 *queries = shared, *keys = shared + HEADS * stride;
  const uint32_t group = p.n_head / p.n_head_kv, blocks = ceil_div(group, uint32_t(HEADS)), kv_head = blockIdx.y / blocks;
  const uint32_t in_group = blockIdx.y % blocks * HEADS, first_head = kv_head * group + in_group;
  const uint32_t n_head = min(uint32_t(HEADS), group - in_group);
  const int32_t position = p.positions[token];
  int32_t last = position;  // that it sees
  if (p.ahead != 0) {
    const SequenceRun run = p.runs[p.seqs[token]];
    last = int32_t(min(int64_t(position) + p.ahead, int64_t(p.positions[run.first + run.count - 1])));
  }

  for (uint32_t i = t; i < HEADS * dims4; i += BLOCK) {
    const uint32_t h = i / dims4, d = i % dims4 * 4;
    const float *q = p.q + token * p.q_row + (first_head + h) * p.q_head;
    float4 v = make_float4(0, 0, 0, 0);
    if (h < n_head) {
      v.x = q[d];
      if (d + 1 < p.head_dim_k) v.y = q[d + 1];
      if (d + 2 < p.head_dim_k) v.z = q[d + 2];
      if (d + 3 < p.head_dim_k) v.w = q[d + 3];
    }
    queries[h * stride + d / 4] = v;
  }

  State<HEADS, DIMS> total, span;
  total.clear();
  uint32_t span0 = 0;  // number of the segment's first span
  for (uint32_t g = 0; g < p.n_segment; g++) {
    const AttentionSegment &segment = p.segment[g];
    const int32_t *pages = segment.table.pages + uint64_t(p.seqs[token]) * segment.table.n_page;
    const Visible seen = visible(segment, token, position, last);
    const bool k_whole = whole4(segment.k, p.head_dim_k);
    const uint32_t chunk_end = min(ceil_div(seen.place1, CHUNK_KEYS), segment.n_span * SPAN_CHUNKS);
    const uint32_t k_first = kv_head * p.head_dim_k, v_first = kv_head * segment.v_head + t * DIMS;

    // This block's chunks: all, those of one span, or one.
    uint32_t chunk = seen.place0 / CHUNK_KEYS, to = chunk_end;
    if (p.n_state != 0) {
      const uint32_t unit = p.by_chunk ? 1 : SPAN_CHUNKS, first = span0 * (SPAN_CHUNKS / unit);
      if (blockIdx.x < first) break;
      if (blockIdx.x - first >= segment.n_span * (SPAN_CHUNKS / unit)) {
        span0 += segment.n_span;
        continue;
      }
      chunk = max(chunk, (blockIdx.x - first) * unit), to = min(to, (blockIdx.x - first + 1) * unit);
    }
    span.clear();
    for (; chunk < to; chunk++) {
      bool some = false;
      if (t < CHUNK_KEYS) {
        const int64_t w = row_at(segment, seen, token, chunk * CHUNK_KEYS + t);
        k_row[t] = w < 0 ? nullptr : stream_row(segment.k, pages, segment.table.page_size, uint32_t(w));
        v_row[t] = w < 0 ? nullptr : stream_row(segment.v, pages, segment.table.page_size, uint32_t(w));
        some = k_row[t] != nullptr;
      }
      if (__syncthreads_or(some)) {
        for (uint32_t first = 0; first < CHUNK_KEYS; first += key_tile) {
#pragma unroll 4
          for (uint32_t i = t; i < key_tile * dims4; i += BLOCK) {
            const uint32_t key = i / dims4, d = i % dims4 * 4;
            const uint8_t *row = k_row[first + key];
            if (row != nullptr) keys[key * stride + d / 4] = load4(segment.k, row, k_first + d, k_first + p.head_dim_k, k_whole);
          }
          __syncthreads();
          for (uint32_t i = t; i < key_tile * HEADS; i += BLOCK) {
            const uint32_t key = i % key_tile, h = i / key_tile;
            float4 sum = make_float4(0, 0, 0, 0);
            if (k_row[first + key] == nullptr || h >= n_head) {
              score[first + key][h] = -INFINITY;
              continue;
            }
#pragma unroll 4
            for (uint32_t d = 0; d < dims4; d++) {
              const float4 a = queries[h * stride + d], b = keys[key * stride + d];
              sum.x = __fmaf_rn(a.x, b.x, sum.x), sum.y = __fmaf_rn(a.y, b.y, sum.y);
              sum.z = __fmaf_rn(a.z, b.z, sum.z), sum.w = __fmaf_rn(a.w, b.w, sum.w);
            }
            float dot = __fmul_rn(__fadd_rn(__fadd_rn(sum.x, sum.y), __fadd_rn(sum.z, sum.w)), p.scale);
            if (p.softcap != 0.0f) dot = __fmul_rn(p.softcap, tanhf(__fdiv_rn(dot, p.softcap)));
            score[first + key][h] = __fmul_rn(dot, LOG2_E);
          }
          __syncthreads();
        }
        for (uint32_t h = t / WARP; h < HEADS; h += BLOCK / WARP) {
          const uint32_t lane = t % WARP;
          const float a = score[lane][h], b = score[lane + WARP][h];
          float largest = fmaxf(a, b);
          for (int o = 16; o > 0; o >>= 1) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, o));
          const float base = largest == -INFINITY ? 0.0f : largest;
          const float ea = exp2f(__fsub_rn(a, base)), eb = exp2f(__fsub_rn(b, base));
          float sum = __fadd_rn(ea, eb);
          for (int o = 16; o > 0; o >>= 1) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, o));
          score[lane][h] = ea, score[lane + WARP][h] = eb;
          if (lane == 0) chunk_largest[h] = largest, chunk_sum[h] = sum;
        }
        __syncthreads();
        float value[HEADS][DIMS] = {};
#pragma unroll 4
        for (uint32_t key = 0; key < CHUNK_KEYS; key++) {
          const uint8_t *row = v_row[key];
          if (row == nullptr) continue;
          float v[DIMS];
#pragma unroll
          for (int i = 0; i < DIMS; i++) v[i] = t * DIMS + i < p.head_dim_v ? stream_value(segment.v, row, v_first + i) : 0.0f;
#pragma unroll
          for (int h = 0; h < HEADS; h++)
#pragma unroll
            for (int i = 0; i < DIMS; i++) value[h][i] = __fmaf_rn(score[key][h], v[i], value[h][i]);
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++) span.merge_with(h, chunk_largest[h], chunk_sum[h], [&](int i) { return value[h][i]; });
      }
      if (p.n_state == 0 && (chunk % SPAN_CHUNKS == SPAN_CHUNKS - 1 || chunk + 1 == to)) {
#pragma unroll
        for (int h = 0; h < HEADS; h++) total.merge_with(h, span.largest[h], span.sum[h], [&](int i) { return span.value[h][i]; });
        span.clear();
      }
      __syncthreads();  // scores and rows of this chunk have been read
    }
    if (p.n_state != 0) {  // the one segment that this block has a part of
#pragma unroll
      for (int h = 0; h < HEADS; h++) {
        if (uint32_t(h) >= n_head) break;
        const uint64_t at = (uint64_t(token) * p.n_head + first_head + h) * p.n_state + blockIdx.x;
        if (t == 0) reinterpret_cast<float2 *>(p.states)[at] = make_float2(span.largest[h], span.sum[h]);
        if (span.largest[h] == -INFINITY) continue;  // nobody reads its values
        float *out = p.states + uint64_t(p.rows.max) * p.n_head * p.n_state * 2 + at * p.head_dim_v;
#pragma unroll
        for (int i = 0; i < DIMS; i++)
          if (t * DIMS + i < p.head_dim_v) out[t * DIMS + i] = span.value[h][i];
      }
      return;
    }
    span0 += segment.n_span;
  }
  if (p.n_state != 0) return;
#pragma unroll
  for (int h = 0; h < HEADS; h++) {
    if (uint32_t(h) >= n_head) break;
    if (p.sinks != nullptr) total.merge_with(h, __fmul_rn(p.sinks[first_head + h], LOG2_E), 1.0f, [](int) { return 0.0f; });
    float *y = p.y + (uint64_t(token) * p.n_head + first_head + h) * p.head_dim_v;
#pragma unroll
    for (int i = 0; i < DIMS; i++)
      if (t * DIMS + i < p.head_dim_v) y[t * DIMS + i] = attention_result(total.value[h][i], total.sum[h]);
  }
}

__global__ __launch_bounds__(1024) void merge_kernel(const __grid_constant__ GeneralAttentionArgs p) {
  release();
  depend();
  const uint32_t token = blockIdx.y, head = blockIdx.x, d = threadIdx.x;
  if (token >= row_count(p.rows)) return;
  const uint64_t at = (uint64_t(token) * p.n_head + head) * p.n_state;
  const float2 *state = reinterpret_cast<const float2 *>(p.states) + at;
  const float *values = p.states + uint64_t(p.rows.max) * p.n_head * p.n_state * 2 + at * p.head_dim_v;
  State<1, 1> total, span;
  total.clear(), span.clear();
  const uint32_t unit = p.by_chunk ? SPAN_CHUNKS : 1;
  for (uint32_t i = 0; i < p.n_state; i++) {
    const float2 s = state[i];
    if (s.x != -INFINITY)
      span.merge_with(0, s.x, s.y, [&](int) { return d < p.head_dim_v ? values[uint64_t(i) * p.head_dim_v + d] : 0.0f; });
    if (i % unit == unit - 1) {
      total.merge_with(0, span.largest[0], span.sum[0], [&](int) { return span.value[0][0]; });
      span.clear();
    }
  }
  if (p.sinks != nullptr) total.merge_with(0, __fmul_rn(p.sinks[head], LOG2_E), 1.0f, [](int) { return 0.0f; });
  if (d < p.head_dim_v) p.y[(uint64_t(token) * p.n_head + head) * p.head_dim_v + d] = attention_result(total.value[0][0], total.sum[0]);
}

template <int HEADS, int DIMS>
void launch_general(const GeneralAttentionArgs &args, Stream &s) {
  const uint32_t stride = ceil_div(args.head_dim_k, 4u) | 1, group = args.n_head / args.n_head_kv;
  uint32_t key_tile = CHUNK_KEYS;
  while (key_tile > 8 && (key_tile * HEADS > BLOCK || key_tile * stride * sizeof(float4) > KEY_BYTES)) key_tile /= 2;
  const size_t shared = (HEADS + key_tile) * stride * sizeof(float4);
  allow_shared(general_kernel<HEADS, DIMS>, shared);
  const uint32_t parts = args.n_state == 0 ? 1 : args.n_state;
  launch("attention general", general_kernel<HEADS, DIMS>, dim3(parts, args.n_head_kv * ceil_div(group, uint32_t(HEADS)), args.rows.max), BLOCK,
         shared, s, args, key_tile);
  if (args.n_state != 0)
    launch("attention merge", merge_kernel, dim3(args.n_head, args.rows.max), round_up(args.head_dim_v, 32u), 0, s, args);
}

template <int DIMS>
void launch_dims(const GeneralAttentionArgs &args, Stream &s) {
  const uint32_t group = args.n_head / args.n_head_kv;
  if (group == 1) return launch_general<1, DIMS>(args, s);
  if (group <= 4 || DIMS > 4) return launch_general<4, DIMS>(args, s);
  return launch_general<MAX_HEADS, DIMS>(args, s);
}

}  // namespace

uint64_t plan_general_attention(GeneralAttentionArgs &args) {
  constexpr uint64_t MANY_STATES = 64u << 20, MAX_STATES = 512u << 20;
  constexpr uint32_t MAX_SPLIT_ROWS = 64;
  uint32_t spans = 0;
  for (uint32_t g = 0; g < args.n_segment; g++) spans += args.segment[g].n_span;
  auto bytes = [&](uint64_t n) { return n * args.rows.max * args.n_head * (args.head_dim_v + 2) * sizeof(float); };
  args.n_state = 0, args.by_chunk = false;
  if (args.rows.max > MAX_SPLIT_ROWS || bytes(spans) > MAX_STATES) return 0;
  args.by_chunk = bytes(uint64_t(spans) * SPAN_CHUNKS) <= MANY_STATES;
  args.n_state = args.by_chunk ? spans * SPAN_CHUNKS : spans;
  return bytes(args.n_state);
}

void general_attention(const GeneralAttentionArgs &args, Stream &s) {
  const uint32_t dv = args.head_dim_v;
  if (dv > 1024) fail(BL_ERR_UNSUPPORTED, "Cannot attend with values of %u dimensions on cuda: at most 1024", dv);
  if (dv <= 128) return launch_dims<1>(args, s);
  if (dv <= 256) return launch_dims<2>(args, s);
  if (dv <= 512) return launch_dims<4>(args, s);
  return launch_dims<8>(args, s);
}

}  // namespace bl::cuda
