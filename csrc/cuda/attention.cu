// attention.cu: attention on tensor cores over f16 and q8_0 caches.
//   q [head_dim_k, n_head, n_tok] f32, used as the sum of two halves · k, v cache rows · y [head_dim_v, n_head, n_tok] f32
// launch  rows of a tile are (token, head of the kv head's group); 16 rows per warp.
//         split (decode): grid (chunks, tiles, kv heads x groups of 16 heads), one block per chunk, then one block per (token, head)
//         that merges the states; walk (prompts): grid (tiles, kv heads x groups), 4 warps of 16 rows share each chunk in shared
//         memory and merge as they go.
// needs   head dims <= 256 and multiples of 8 (q8_0: 32)
// bits    see attention.h; products and sums of a chunk in one fixed order
// floor   decode: bytes of keys and values over bandwidth; prompts: 4 n_head head_dim keys flops a row over 788 TFLOP/s
#include <cuda_fp16.h>

#include "attention_state.cuh"
#include "encode.cuh"
#include "matmul_many.cuh"

namespace bl::cuda {

namespace {

constexpr int KEY_TILES = CHUNK_KEYS / 8;
constexpr int WALK_WARPS = 4, SPLIT_WARPS = 4;

// Shared memory of one chunk of keys or values: 64 rows of D halves in 16-byte units, unit u of row r at u ^ swizzle(r).
template <int D>
struct Chunk {
  static constexpr uint32_t ROW = D * 2, BYTES = CHUNK_KEYS * ROW;
  static __device__ uint32_t key_at(uint32_t row, uint32_t unit) { return row * ROW + ((unit ^ (row & 1) << 2) * 16); }
  static __device__ uint32_t value_at(uint32_t row, uint32_t unit) { return row * ROW + ((unit ^ (row & 7)) * 16); }
};

// Where the rows of a chunk lie in the cache: nullptr past the last key and where there is no page. One pair of lists per buffer.
struct ChunkRows {
  const uint8_t *k[CHUNK_KEYS], *v[CHUNK_KEYS];
};

__device__ void find_rows(ChunkRows &rows, const AttentionArgs &p, const int32_t *pages, uint32_t first_key, uint32_t last_key, int thread,
                          int n_thread) {
  for (int i = thread; i < int(CHUNK_KEYS); i += n_thread) {
    const uint32_t key = first_key + i;
    rows.k[i] = key <= last_key ? cache_row(p.k, pages, p.page_size, key) : nullptr;
    rows.v[i] = key <= last_key ? cache_row(p.v, pages, p.page_size, key) : nullptr;
  }
}

// Copies (f16) or decodes (q8_0) the rows of a chunk; zeros past head_dim and where there is no row.
template <int D, bool VALUES>
__device__ void load_chunk(uint8_t *shared, const CacheStream &c, const uint8_t *const *rows, uint32_t kv_head, uint32_t head_dim, int thread,
                           int n_thread) {
  const uint32_t shared_at = uint32_t(__cvta_generic_to_shared(shared));
#pragma unroll 4
  for (int i = thread; i < int(CHUNK_KEYS * (D / 8)); i += n_thread) {
    const uint32_t row = i / (D / 8), unit = i % (D / 8);
    const uint32_t at = VALUES ? Chunk<D>::value_at(row, unit) : Chunk<D>::key_at(row, unit);
    const uint8_t *src = unit * 8 < head_dim ? rows[row] : nullptr;
    if (c.type == TYPE_F16) {
      copy_async16(shared_at + at, src == nullptr ? c.base : src + (kv_head * head_dim + unit * 8) * 2, src != nullptr);
    } else {
      uint4 v = make_uint4(0, 0, 0, 0);
      if (src != nullptr) {
        const uint32_t e = kv_head * head_dim + unit * 8;
        const uint8_t *block = src + e / 32 * sizeof(BlockQ8_0);
        const float d = __half2float(__ushort_as_half(uint16_t(block[0] | block[1] << 8)));
        const int8_t *q = reinterpret_cast<const int8_t *>(block + 2 + e % 32);
        uint32_t w[4];
#pragma unroll
        for (int j = 0; j < 4; j++) w[j] = h2_bits(__floats2half2_rn(d * float(q[2 * j]), d * float(q[2 * j + 1])));
        v = make_uint4(w[0], w[1], w[2], w[3]);
      }
      *reinterpret_cast<uint4 *>(shared + at) = v;
    }
  }
}

// Queries of a warp's 16 rows as A operands in shared memory: [D / 32][high, low][row half][lane] of 16 bytes.
template <int D>
BL_HD constexpr uint32_t query_bytes() { return D / 32 * 2 * 2 * WARP * 16; }

template <int D, class RowAt>
__device__ void load_queries(uint8_t *shared, const AttentionArgs &p, int lane, RowAt row_at) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    uint32_t token, head;
    const bool live = row_at(g + 8 * r, token, head);
    const float *q = p.q + (uint64_t(token) * p.n_head + head) * p.head_dim_k;
#pragma unroll
    for (int b = 0; b < D / 32; b++) {
      uint32_t high[4], low[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float x[2];
#pragma unroll
        for (int j = 0; j < 2; j++) {
          const uint32_t d = b * 32 + t * 8 + 2 * i + j;
          x[j] = live && d < p.head_dim_k ? q[d] : 0.0f;
        }
        high[i] = h2_bits(__floats2half2_rn(x[0], x[1]));
        low[i] = h2_bits(__floats2half2_rn(x[0] - half_lo(high[i]), x[1] - half_hi(high[i])));
      }
      uint4 *out = reinterpret_cast<uint4 *>(shared) + (b * 4 + r) * WARP + lane;
      out[0] = make_uint4(high[0], high[1], high[2], high[3]);
      out[2 * WARP] = make_uint4(low[0], low[1], low[2], low[3]);
    }
  }
}

// q k whose product with `scale` has been through the soft cap. The hyperbolic tangent is good to 2^-22 of the cap: keys are halves.
__device__ inline float capped(float dot, float scale, float softcap) {
  const float turns = exp2_fast(__fmul_rn(__fdividef(__fmul_rn(dot, scale), softcap), 2.0f * LOG2_E));
  return __fdividef(__fmul_rn(softcap, __fsub_rn(1.0f, __fdividef(2.0f, __fadd_rn(1.0f, turns)))), scale);
}

// The state of 16 rows over one chunk. `position[r]` is that of row g + 8 r (-1: no row).
//   largest, sum [2] by row half · begin() is called once they are known, take(group, o) with the values of 64 dimensions each:
//   o[tile][i] is row g + 8 (i / 2), dimension group * 64 + tile * 8 + 2 t + i % 2. Groups of dimensions are `first`, `first + step`, ...
template <int D, class Begin, class Take>
__device__ void chunk_state(const uint8_t *queries, const uint8_t *keys, const uint8_t *values, uint32_t first_key,
                            const int32_t (&position)[2], const AttentionArgs &p, int lane, int first, int step, float (&largest)[2],
                            float (&sum)[2], Begin begin, Take take) {
  const uint32_t window = p.window;
  const float scale = p.scale * LOG2_E;
  const int g = lane / 4, t = lane % 4;
  float s[KEY_TILES][4] = {};
#pragma unroll
  for (int b = 0; b < D / 32; b++) {
    const uint4 *q = reinterpret_cast<const uint4 *>(queries) + b * 4 * WARP + lane;
    uint32_t a[2][8];
#pragma unroll
    for (int part = 0; part < 2; part++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const uint4 v = q[(part * 2 + r) * WARP];
        a[part][0 + r] = v.x, a[part][2 + r] = v.y, a[part][4 + r] = v.z, a[part][6 + r] = v.w;
      }
#pragma unroll
    for (int n = 0; n < KEY_TILES; n++) {
      const uint4 k = *reinterpret_cast<const uint4 *>(keys + Chunk<D>::key_at(n * 8 + g, b * 4 + t));
#pragma unroll
      for (int part = 0; part < 2; part++) {
        mma_f16(s[n], a[part], k.x, k.y);
        mma_f16(s[n], a[part] + 4, k.z, k.w);
      }
    }
  }
  if (p.softcap != 0.0f)
#pragma unroll
    for (int n = 0; n < KEY_TILES; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) s[n][i] = capped(s[n][i], p.scale, p.softcap);
  largest[0] = largest[1] = -INFINITY;
#pragma unroll
  for (int n = 0; n < KEY_TILES; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int32_t key = int32_t(first_key) + n * 8 + 2 * t + i % 2, at = position[i / 2];
      const bool seen = key <= at && (window == 0 || key + int32_t(window) > at);
      s[n][i] = seen ? __fmul_rn(s[n][i], scale) : -INFINITY;
      largest[i / 2] = fmaxf(largest[i / 2], s[n][i]);
    }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    largest[r] = fmaxf(largest[r], __shfl_xor_sync(~0u, largest[r], 1));
    largest[r] = fmaxf(largest[r], __shfl_xor_sync(~0u, largest[r], 2));
    sum[r] = 0.0f;
  }
  const float base[2] = {largest[0] == -INFINITY ? 0.0f : largest[0], largest[1] == -INFINITY ? 0.0f : largest[1]};
  uint32_t probability[KEY_TILES][2];
#pragma unroll
  for (int n = 0; n < KEY_TILES; n++)
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const uint32_t w = h2_bits(__floats2half2_rn(exp2_fast(__fsub_rn(s[n][2 * r], base[r])), exp2_fast(__fsub_rn(s[n][2 * r + 1], base[r]))));
      probability[n][r] = w;
      sum[r] = __fadd_rn(__fadd_rn(sum[r], half_lo(w)), half_hi(w));
    }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    sum[r] = __fadd_rn(sum[r], __shfl_xor_sync(~0u, sum[r], 1));
    sum[r] = __fadd_rn(sum[r], __shfl_xor_sync(~0u, sum[r], 2));
  }
  begin();
  const uint32_t values_at = uint32_t(__cvta_generic_to_shared(values));
#pragma unroll
  for (int group = 0; group < D / 64; group++) {
    if (step > 1 && group % step != first) continue;
    float o[8][4] = {};
#pragma unroll
    for (int k = 0; k < KEY_TILES / 2; k++) {
      const uint32_t a[4] = {probability[2 * k][0], probability[2 * k][1], probability[2 * k + 1][0], probability[2 * k + 1][1]};
#pragma unroll
      for (int n = 0; n < 8; n += 2) {
        uint32_t v[4];
        const uint32_t row = k * 16 + (lane / 8 % 2) * 8 + lane % 8, unit = group * 8 + n + lane / 16;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                     : "r"(values_at + Chunk<D>::value_at(row, unit)));
        mma_f16(o[n], a, v[0], v[1]);
        mma_f16(o[n + 1], a, v[2], v[3]);
      }
    }
    take(group, o);
  }
}

// Which token and head row `i` of a tile is.
struct TileRows {
  uint32_t heads, first_head;  // heads per token here; the first one
  AttentionTile tile;
  __device__ bool operator()(uint32_t i, uint32_t &token, uint32_t &head) const {
    const uint32_t at = i / heads;
    const bool live = int(at) < tile.count;
    token = live ? uint32_t(tile.first) + at : 0;
    head = first_head + i % heads;
    return live;
  }
};

__device__ inline TileRows tile_rows(const AttentionArgs &p, const AttentionTile &tile, uint32_t block, uint32_t &kv_head) {
  const uint32_t group = p.n_head / p.n_head_kv, blocks = ceil_div(group, 16u), heads = ceil_div(group, blocks);
  kv_head = block / blocks;
  const uint32_t first = block % blocks * heads;
  return {min(heads, group - first), kv_head * group + first, tile};
}

template <int D>
__global__ __launch_bounds__(SPLIT_WARPS *WARP) void split_kernel(const __grid_constant__ AttentionArgs p) {
  extern __shared__ __align__(128) uint8_t shared[];
  uint8_t *keys = shared, *values = keys + Chunk<D>::BYTES, *queries = values + Chunk<D>::BYTES;
  release();
  depend();
  if (int(blockIdx.y) >= *p.n_tiles) return;
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4, t = lane % 4;
  const AttentionTile tile = p.tiles[blockIdx.y];
  uint32_t kv_head;
  const TileRows rows = tile_rows(p, tile, blockIdx.z, kv_head);
  const int32_t first_position = p.positions[tile.first], last_position = p.positions[tile.first + tile.count - 1];
  const int32_t first_seen = p.window == 0 ? 0 : max(0, first_position - int32_t(p.window) + 1);
  const int32_t *pages = p.pages + uint64_t(tile.seq) * p.n_page;
  uint32_t token[2], head[2];
  int32_t position[2];
  for (int r = 0; r < 2; r++) position[r] = rows(g + 8 * r, token[r], head[r]) ? p.positions[token[r]] : -1;

  __shared__ ChunkRows chunk_rows;
  bool loaded = false;
  for (uint32_t chunk = first_seen / CHUNK_KEYS + blockIdx.x; int32_t(chunk * CHUNK_KEYS) <= last_position; chunk += gridDim.x) {
    const uint32_t first_key = chunk * CHUNK_KEYS;
    find_rows(chunk_rows, p, pages, first_key, last_position, threadIdx.x, SPLIT_WARPS * WARP);
    __syncthreads();
    load_chunk<D, false>(keys, p.k, chunk_rows.k, kv_head, p.head_dim_k, threadIdx.x, SPLIT_WARPS * WARP);
    load_chunk<D, true>(values, p.v, chunk_rows.v, kv_head, p.head_dim_v, threadIdx.x, SPLIT_WARPS * WARP);
    copy_commit();
    if (!loaded && warp == 0) load_queries<D>(queries, p, lane, rows);
    loaded = true;
    copy_wait<0>();
    __syncthreads();
    // Every warp scores all keys (that is short) and takes its share of the dimensions.
    if (warp < D / 64) {
      float largest[2], sum[2];
      chunk_state<D>(
          queries, keys, values, first_key, position, p, lane, warp, SPLIT_WARPS, largest, sum,
          [&] {
            for (int r = 0; r < 2; r++)
              if (warp == 0 && t == 0 && position[r] >= 0)
                reinterpret_cast<float2 *>(p.states)[(uint64_t(token[r]) * p.n_head + head[r]) * p.n_chunk + chunk] =
                    make_float2(largest[r], sum[r]);
          },
          [&](int group, const float (&o)[8][4]) {
            float *out = p.states + uint64_t(p.rows.max) * p.n_head * p.n_chunk * 2;
#pragma unroll
            for (int r = 0; r < 2; r++) {
              if (position[r] < 0) continue;
              float *row = out + ((uint64_t(token[r]) * p.n_head + head[r]) * p.n_chunk + chunk) * p.head_dim_v;
#pragma unroll
              for (int n = 0; n < 8; n++) {
                const uint32_t d = group * 64 + n * 8 + 2 * t;
                if (d < p.head_dim_v) *reinterpret_cast<float2 *>(row + d) = make_float2(o[n][2 * r], o[n][2 * r + 1]);
              }
            }
          });
    }
    __syncthreads();
  }
}

// A block has one head, or (ENCODE) the heads of one superblock of the row.
template <bool ENCODE>
__global__ __launch_bounds__(256) void combine_kernel(const __grid_constant__ AttentionArgs p) {
  __shared__ float row[SB];
  release();
  depend();
  const uint32_t token = blockIdx.y, head = ENCODE ? (blockIdx.x * SB + threadIdx.x) / p.head_dim_v : blockIdx.x;
  const uint32_t d = ENCODE ? threadIdx.x % p.head_dim_v : threadIdx.x;
  if (token >= row_count(p.rows)) return;
  const int32_t position = p.positions[token];
  const uint32_t first = p.window == 0 ? 0 : max(0, position - int32_t(p.window) + 1) / CHUNK_KEYS;
  const uint32_t n = position / CHUNK_KEYS + 1;
  const uint64_t at = (uint64_t(token) * p.n_head + head) * p.n_chunk;
  const float2 *state = reinterpret_cast<const float2 *>(p.states) + at;
  const float *values = p.states + uint64_t(p.rows.max) * p.n_head * p.n_chunk * 2 + at * p.head_dim_v;
  float largest = -INFINITY, sum = 0.0f, value = 0.0f;
#pragma unroll 4
  for (uint32_t chunk = first; chunk < n; chunk++) {
    const float2 s = state[chunk];
    const float v = d < p.head_dim_v ? values[uint64_t(chunk) * p.head_dim_v + d] : 0.0f;
    float keep, take;
    merge_weights(largest, s.x, keep, take);
    sum = merge(sum, keep, s.y, take);
    value = merge(value, keep, v, take);
  }
  if (p.sinks != nullptr && (!ENCODE || head < p.n_head)) {
    float keep, take;
    merge_weights(largest, __fmul_rn(p.sinks[head], LOG2_E), keep, take);
    sum = merge(sum, keep, 1.0f, take), value = __fmul_rn(value, keep);
  }
  value = attention_result(value, sum);
  if (p.y != nullptr && d < p.head_dim_v) p.y[(uint64_t(token) * p.n_head + head) * p.head_dim_v + d] = value;
  if constexpr (ENCODE) {
    row[threadIdx.x] = value;
    __syncthreads();
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    if (warp > 1) return;
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = row[lane * 8 + i];
    if (warp == 0 && p.f16.values != nullptr) encode_whole(p.f16, token, blockIdx.x, v, lane);
    if (warp == 1 && p.bf16.values != nullptr) encode_bf16(p.bf16, token, blockIdx.x, v, lane);
  }
}

template <int D>
__global__ __launch_bounds__(WALK_WARPS *WARP, D <= 128 ? 2 : 1) void walk_kernel(const __grid_constant__ AttentionArgs p) {
  extern __shared__ __align__(128) uint8_t shared[];  // two buffers of keys and values, then queries by warp
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4, t = lane % 4;
  uint8_t *queries = shared + 4 * Chunk<D>::BYTES + warp * query_bytes<D>();
  release();
  depend();
  // The last tiles see the most keys: they start first.
  if (int(blockIdx.x) >= *p.n_tiles) return;
  const AttentionTile tile = p.tiles[*p.n_tiles - 1 - blockIdx.x];
  uint32_t kv_head;
  const TileRows rows = tile_rows(p, tile, blockIdx.y, kv_head);
  const int32_t first_position = p.positions[tile.first], last_position = p.positions[tile.first + tile.count - 1];
  const int32_t first_seen = p.window == 0 ? 0 : max(0, first_position - int32_t(p.window) + 1);
  const int32_t *pages = p.pages + uint64_t(tile.seq) * p.n_page;
  uint32_t token[2], head[2];
  int32_t position[2];
  for (int r = 0; r < 2; r++) position[r] = rows(warp * 16 + g + 8 * r, token[r], head[r]) ? p.positions[token[r]] : -1;
  const int32_t warp_last = __reduce_max_sync(~0u, max(position[0], position[1]));
  load_queries<D>(queries, p, lane, [&](uint32_t i, uint32_t &a, uint32_t &b) { return rows(warp * 16 + i, a, b); });

  __shared__ ChunkRows chunk_rows[2];
  const uint32_t first_chunk = first_seen / CHUNK_KEYS, last_chunk = last_position / CHUNK_KEYS;
  auto find = [&](uint32_t chunk) {
    find_rows(chunk_rows[chunk & 1], p, pages, chunk * CHUNK_KEYS, last_position, threadIdx.x, WALK_WARPS * WARP);
  };
  auto issue = [&](uint32_t chunk) {
    if (chunk <= last_chunk) {
      uint8_t *buffer = shared + (chunk & 1) * 2 * Chunk<D>::BYTES;
      load_chunk<D, false>(buffer, p.k, chunk_rows[chunk & 1].k, kv_head, p.head_dim_k, threadIdx.x, WALK_WARPS * WARP);
      load_chunk<D, true>(buffer + Chunk<D>::BYTES, p.v, chunk_rows[chunk & 1].v, kv_head, p.head_dim_v, threadIdx.x, WALK_WARPS * WARP);
    }
    copy_commit();
  };
  float merged_largest[2] = {-INFINITY, -INFINITY}, merged_sum[2] = {0, 0}, keep[2], take[2];
  float merged[D / 8][4] = {};
  find(first_chunk);
  __syncthreads();
  issue(first_chunk);
  find(first_chunk + 1);
  for (uint32_t chunk = first_chunk; chunk <= last_chunk; chunk++) {
    __syncthreads();  // everyone is done with the buffer that is filled next
    issue(chunk + 1);
    find(chunk + 2);
    copy_wait<1>();
    __syncthreads();
    if (int32_t(chunk * CHUNK_KEYS) > warp_last) continue;
    const uint8_t *buffer = shared + (chunk & 1) * 2 * Chunk<D>::BYTES;
    float largest[2], sum[2];
    chunk_state<D>(
        queries, buffer, buffer + Chunk<D>::BYTES, chunk * CHUNK_KEYS, position, p, lane, 0, 1, largest, sum,
        [&] {
#pragma unroll
          for (int r = 0; r < 2; r++) {
            merge_weights(merged_largest[r], largest[r], keep[r], take[r]);
            merged_sum[r] = merge(merged_sum[r], keep[r], sum[r], take[r]);
          }
        },
        [&](int group, const float (&o)[8][4]) {
#pragma unroll
          for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) merged[group * 8 + n][i] = merge(merged[group * 8 + n][i], keep[i / 2], o[n][i], take[i / 2]);
        });
  }
  copy_wait<0>();
#pragma unroll
  for (int r = 0; r < 2; r++) {
    if (position[r] < 0) continue;
    float values_keep = 1.0f;
    if (p.sinks != nullptr) {
      float sink;
      merge_weights(merged_largest[r], __fmul_rn(p.sinks[head[r]], LOG2_E), values_keep, sink);
      merged_sum[r] = merge(merged_sum[r], values_keep, 1.0f, sink);
    }
    float *y = p.y + (uint64_t(token[r]) * p.n_head + head[r]) * p.head_dim_v;
#pragma unroll
    for (int n = 0; n < D / 8; n++)
      if (n * 8 + 2 * t < int(p.head_dim_v))
        *reinterpret_cast<float2 *>(y + n * 8 + 2 * t) =
            make_float2(attention_result(__fmul_rn(merged[n][2 * r], values_keep), merged_sum[r]),
                        attention_result(__fmul_rn(merged[n][2 * r + 1], values_keep), merged_sum[r]));
  }
}

template <int D>
void launch_attention(const AttentionArgs &args, AttentionKind kind, Stream &s) {
  const uint32_t group = args.n_head / args.n_head_kv, blocks = args.n_head_kv * ceil_div(group, 16u);
  if (kind == AttentionKind::split) {
    const size_t shared = 2 * Chunk<D>::BYTES + query_bytes<D>();
    allow_shared(split_kernel<D>, shared);
    const uint32_t chunks = args.n_chunk < 256 ? args.n_chunk : 256;
    launch("attention split", split_kernel<D>, dim3(chunks, args.max_tiles, blocks), SPLIT_WARPS * WARP, shared, s, args);
    if (args.f16.values != nullptr || args.bf16.values != nullptr)
      launch("attention combine", combine_kernel<true>, dim3(args.n_head * args.head_dim_v / SB, args.rows.max), SB, 0, s, args);
    else
      launch("attention combine", combine_kernel<false>, dim3(args.n_head, args.rows.max), round_up(args.head_dim_v, 32u), 0, s, args);
  } else {
    const size_t shared = 4 * Chunk<D>::BYTES + WALK_WARPS * query_bytes<D>();
    allow_shared(walk_kernel<D>, shared);
    launch("attention walk", walk_kernel<D>, dim3(args.max_tiles, blocks), WALK_WARPS * WARP, shared, s, args);
  }
}

}  // namespace

uint64_t attention_state_bytes(uint32_t n_tok, uint32_t n_head, uint32_t head_dim_v, uint32_t n_chunk) {
  return uint64_t(n_tok) * n_head * n_chunk * (head_dim_v + 2) * sizeof(float);
}

AttentionKind attention_kind(const CacheStream &k, const CacheStream &v, uint32_t head_dim_k, uint32_t head_dim_v, uint32_t n_tok,
                             uint64_t state_bytes) {
  constexpr uint64_t MAX_STATES = 512u << 20;
  constexpr uint32_t MAX_SPLIT_ROWS = 64;
  auto fits = [](const CacheStream &c, uint32_t head_dim) {
    if (head_dim > 256 || c.ratio != 1) return false;
    return c.type == TYPE_F16 ? head_dim % 8 == 0 : c.type == TYPE_Q8_0 ? head_dim % 32 == 0 : false;
  };
  if (!fits(k, head_dim_k) || !fits(v, head_dim_v)) return AttentionKind::general;
  return n_tok <= MAX_SPLIT_ROWS && state_bytes <= MAX_STATES ? AttentionKind::split : AttentionKind::walk;
}

uint32_t attention_tile_tokens(AttentionKind kind, uint32_t n_head, uint32_t n_head_kv) {
  const uint32_t group = n_head / n_head_kv, heads = ceil_div(group, ceil_div(group, 16u));
  return (kind == AttentionKind::walk ? WALK_WARPS * 16 : 16) / heads;
}

bool attention_encodes(uint32_t n_head, uint32_t head_dim_v) { return SB % head_dim_v == 0 && n_head * head_dim_v % SB == 0; }

void attention(const AttentionArgs &args, AttentionKind kind, Stream &s) {
  const uint32_t dim = args.head_dim_k > args.head_dim_v ? args.head_dim_k : args.head_dim_v;
  if (dim <= 64) launch_attention<64>(args, kind, s);
  else if (dim <= 128) launch_attention<128>(args, kind, s);
  else launch_attention<256>(args, kind, s);
}

}  // namespace bl::cuda
