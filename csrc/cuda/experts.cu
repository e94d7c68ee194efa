// experts.cu: routing. One warp per row picks experts; one block groups the pairs of (row, slot) by expert.
//   logits [rows, n_expert] f32 · ids [rows, k] i32 · weights [rows, k] f32 · order [pairs] · tiles (expert, begin, count)
// launch  router: grid ceil(rows / 4), block 128; grouping: one block of 1024
// needs   n_expert <= 4096
// bits    router: scores in f32, sums by a fixed xor tree: a row's result depends on its logits alone. The order of pairs within an
//         expert is not fixed: columns of a matrix product do not see each other
#include "experts.h"

namespace bl::cuda {

namespace {

constexpr int N_WARP = 4;
constexpr uint32_t MAX_EXPERTS = 4096;
constexpr float MIN_SUM = 6.103515625e-5f;  // smallest divisor of a renormalisation

__global__ __launch_bounds__(N_WARP *WARP) void router_kernel(const __grid_constant__ RouterArgs p) {
  extern __shared__ float all_scores[];  // [N_WARP][n_expert]
  release();
  depend();
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const uint32_t row = blockIdx.x * N_WARP + warp;
  if (row >= row_count(p.rows)) return;
  float *score = all_scores + warp * p.n_expert;
  const float *logits = p.logits + uint64_t(row) * p.n_expert;

  if (p.score == BL_SCORE_SOFTMAX) {
    float largest = -INFINITY, sum = 0.0f;
    for (uint32_t i = lane; i < p.n_expert; i += WARP) largest = fmaxf(largest, logits[i]);
    for (int o = 16; o > 0; o >>= 1) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, o));
    for (uint32_t i = lane; i < p.n_expert; i += WARP) {
      score[i] = expf(__fsub_rn(logits[i], largest));
      sum = __fadd_rn(sum, score[i]);
    }
    for (int o = 16; o > 0; o >>= 1) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, o));
    for (uint32_t i = lane; i < p.n_expert; i += WARP) score[i] = __fdiv_rn(score[i], sum);
  } else {
    for (uint32_t i = lane; i < p.n_expert; i += WARP) score[i] = __fdiv_rn(1.0f, __fadd_rn(1.0f, expf(-logits[i])));
  }
  __syncwarp();

  float total = 0.0f;
  for (uint32_t slot = 0; slot < p.k; slot++) {
    float best = -INFINITY;
    uint32_t at = MAX_EXPERTS;
    for (uint32_t i = lane; i < p.n_expert; i += WARP)
      if (score[i] > best) best = score[i], at = i;
    for (int o = 16; o > 0; o >>= 1) {
      const float other = __shfl_xor_sync(~0u, best, o);
      const uint32_t other_at = __shfl_xor_sync(~0u, at, o);
      if (other > best || (other == best && other_at < at)) best = other, at = other_at;
    }
    if (at == MAX_EXPERTS) at = slot, best = 0.0f;  // scores that are not numbers: any valid expert
    total = __fadd_rn(total, best);
    if (lane == 0) {
      p.ids[uint64_t(row) * p.k + slot] = int32_t(at);
      p.weights[uint64_t(row) * p.k + slot] = best;
      score[at] = -INFINITY;  // taken
    }
    __syncwarp();
  }
  const float divisor = fmaxf(total, MIN_SUM);
  for (uint32_t i = lane; i < p.k; i += WARP) {
    float &w = p.weights[uint64_t(row) * p.k + i];
    w = __fmul_rn(p.renorm ? __fdiv_rn(w, divisor) : w, p.scale);
  }
}

__global__ __launch_bounds__(1024) void group_kernel(const __grid_constant__ GroupArgs p) {
  __shared__ int32_t count[MAX_EXPERTS], next[MAX_EXPERTS];
  release();
  depend();
  const uint32_t n = row_count(p.pairs);
  for (uint32_t e = threadIdx.x; e < p.n_expert; e += blockDim.x) count[e] = 0;
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&count[p.ids[i]], 1);
  __syncthreads();
  if (threadIdx.x < WARP) {  // one warp walks the experts: starts of their runs, and their tiles
    int32_t begin = 0, tiles = 0;
    for (uint32_t base = 0; base < p.n_expert; base += WARP) {
      const uint32_t e = base + threadIdx.x;
      const int32_t c = e < p.n_expert ? count[e] : 0, t = ceil_div(c, int32_t(p.tile_columns));
      int32_t c_sum = c, t_sum = t;  // inclusive sums over the lanes
      for (int o = 1; o < WARP; o <<= 1) {
        const int32_t c_up = __shfl_up_sync(~0u, c_sum, o), t_up = __shfl_up_sync(~0u, t_sum, o);
        if (int(threadIdx.x) >= o) c_sum += c_up, t_sum += t_up;
      }
      const int32_t first = begin + c_sum - c, first_tile = tiles + t_sum - t;
      if (e < p.n_expert) next[e] = first;
      for (int32_t i = 0; i < t; i++) {
        const int32_t done = i * int32_t(p.tile_columns);
        p.tiles[first_tile + i] = {int32_t(e), first + done, min(c - done, int32_t(p.tile_columns))};
      }
      begin += __shfl_sync(~0u, c_sum, WARP - 1), tiles += __shfl_sync(~0u, t_sum, WARP - 1);
    }
    if (threadIdx.x == 0) *p.n_tiles = tiles;
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) p.order[atomicAdd(&next[p.ids[i]], 1)] = int32_t(i);
}

}  // namespace

void router(const RouterArgs &args, Stream &s) {
  if (args.n_expert > MAX_EXPERTS) fail(BL_ERR_UNSUPPORTED, "Cannot route to %u experts on cuda: at most %u", args.n_expert, MAX_EXPERTS);
  const size_t shared = size_t(N_WARP) * args.n_expert * sizeof(float);
  allow_shared(router_kernel, shared);
  launch("router", router_kernel, dim3(ceil_div(args.rows.max, uint32_t(N_WARP))), N_WARP * WARP, shared, s, args);
}

void group_by_expert(const GroupArgs &args, Stream &s) {
  if (args.n_expert > MAX_EXPERTS) fail(BL_ERR_UNSUPPORTED, "Cannot group %u experts on cuda: at most %u", args.n_expert, MAX_EXPERTS);
  launch("group_by_expert", group_kernel, dim3(1), 1024, 0, s, args);
}

}  // namespace bl::cuda
