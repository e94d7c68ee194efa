// attention_exact.cu: attention in f32, for f32 caches and for head sizes the tensor core kernels do not take.
//   q [head_dim_k, n_head, n_tok] f32 · k, v cache rows f32, f16 or q8_0 · y [head_dim_v, n_head, n_tok] f32
// launch  grid (n_head, n_tok), block 32: one warp walks the chunks of a row's keys; lane l scores keys l and l + 32 of a chunk, then
//         holds dimensions l, l + 32, ...
// needs   head_dim_v <= 1024
// bits    see attention.h; a row's order depends on its position alone
// floor   bytes of keys and values over bandwidth, far from reached: this path is for exactness
#include <cuda_fp16.h>

#include "attention_state.cuh"

namespace bl::cuda {

namespace {

constexpr int MAX_DIMS = 32;  // dimensions of a lane

__device__ float element(const CacheStream &c, const uint8_t *row, uint32_t i) {
  if (c.type == TYPE_F32) return reinterpret_cast<const float *>(row)[i];
  if (c.type == TYPE_F16) return __half2float(reinterpret_cast<const __half *>(row)[i]);
  const uint8_t *block = row + i / 32 * sizeof(BlockQ8_0);
  return __fmul_rn(float(int8_t(block[2 + i % 32])), __half2float(__ushort_as_half(uint16_t(block[0] | block[1] << 8))));
}

__global__ __launch_bounds__(WARP) void exact_kernel(const __grid_constant__ AttentionArgs p) {
  extern __shared__ float shared[];  // q [head_dim_k], probabilities [64]
  __shared__ const uint8_t *value_row[CHUNK_KEYS];
  float *probability = shared + p.head_dim_k;
  release();
  depend();
  const uint32_t head = blockIdx.x, token = blockIdx.y;
  const int lane = threadIdx.x;
  if (token >= row_count(p.rows)) return;
  const int32_t position = p.positions[token];
  const int32_t first_seen = p.window == 0 ? 0 : max(0, position - int32_t(p.window) + 1);
  const int32_t *pages = p.pages + uint64_t(p.seqs[token]) * p.n_page;
  const uint32_t kv_head = head / (p.n_head / p.n_head_kv);
  const float *q = p.q + (uint64_t(token) * p.n_head + head) * p.head_dim_k;
  for (uint32_t d = lane; d < p.head_dim_k; d += WARP) shared[d] = q[d];
  __syncwarp();
  const float scale = p.scale * LOG2_E;

  float merged_largest = -INFINITY, merged_sum = 0.0f, merged[MAX_DIMS];
#pragma unroll
  for (int i = 0; i < MAX_DIMS; i++) merged[i] = 0.0f;
  for (int32_t chunk = first_seen / int32_t(CHUNK_KEYS); chunk <= position / int32_t(CHUNK_KEYS); chunk++) {
    float s[2];
    for (int i = 0; i < 2; i++) {
      const int32_t key = chunk * int32_t(CHUNK_KEYS) + lane + i * WARP;
      s[i] = -INFINITY;
      value_row[lane + i * WARP] = nullptr;
      if (key > position || key < first_seen) continue;
      const uint8_t *row = cache_row(p.k, pages, p.page_size, key);
      value_row[lane + i * WARP] = cache_row(p.v, pages, p.page_size, key);
      if (row == nullptr) continue;
      float dot = 0.0f;
      for (uint32_t d = 0; d < p.head_dim_k; d++) dot = __fmaf_rn(shared[d], element(p.k, row, kv_head * p.head_dim_k + d), dot);
      s[i] = __fmul_rn(dot, scale);
    }
    float largest = fmaxf(s[0], s[1]);
    for (int o = 16; o > 0; o >>= 1) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, o));
    const float base = largest == -INFINITY ? 0.0f : largest;
    const float e[2] = {exp2f(__fsub_rn(s[0], base)), exp2f(__fsub_rn(s[1], base))};
    float sum = __fadd_rn(e[0], e[1]);
    for (int o = 16; o > 0; o >>= 1) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, o));
    __syncwarp();
    probability[lane] = e[0], probability[lane + WARP] = e[1];
    __syncwarp();
    float keep, take;
    merge_weights(merged_largest, largest, keep, take);
    merged_sum = merge(merged_sum, keep, sum, take);
#pragma unroll
    for (int i = 0; i < MAX_DIMS; i++) {
      const uint32_t d = lane + i * WARP;
      if (d >= p.head_dim_v) break;
      float v = 0.0f;
      for (uint32_t key = 0; key < CHUNK_KEYS; key++)
        if (value_row[key] != nullptr) v = __fmaf_rn(probability[key], element(p.v, value_row[key], kv_head * p.head_dim_v + d), v);
      merged[i] = merge(merged[i], keep, v, take);
    }
    __syncwarp();
  }
#pragma unroll
  for (int i = 0; i < MAX_DIMS; i++) {
    const uint32_t d = lane + i * WARP;
    if (d < p.head_dim_v) p.y[(uint64_t(token) * p.n_head + head) * p.head_dim_v + d] = attention_result(merged[i], merged_sum);
  }
}

}  // namespace

void attention_exact(const AttentionArgs &args, Stream &s) {
  if (args.head_dim_v > MAX_DIMS * WARP)
    fail(BL_ERR_UNSUPPORTED, "Cannot attend with values of %u dimensions on cuda: at most %u", args.head_dim_v, MAX_DIMS * WARP);
  const size_t shared = (args.head_dim_k + CHUNK_KEYS) * sizeof(float);
  launch("attention exact", exact_kernel, dim3(args.n_head, args.rows.max), WARP, shared, s, args);
}

}  // namespace bl::cuda
