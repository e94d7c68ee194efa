// experts.cu: routing. One warp per row picks experts; one block groups the pairs of (row, slot) by expert.
//   logits [rows, n_expert] f32 · ids [rows, k] i32 · weights [rows, k] f32 · order [pairs] · tiles (expert, begin, count)
// launch  router: grid ceil(rows / 4), block 128; grouping: one block of 1024
// needs   n_expert <= 4096
// bits    router: scores in f32, sums by a fixed xor tree: a row's result depends on its logits alone. The order of pairs within an
//         expert is not fixed: columns of a matrix product do not see each other
// floor   4 n_expert bytes a row over bandwidth: one launch is all it costs
#include "../bloomery_ops.h"
#include "experts.h"
#include "functions.cuh"

namespace bl::cuda {

namespace {

constexpr int N_WARP = 4;
constexpr uint32_t MAX_EXPERTS = 4096;

// A lane's best of values lane, lane + 32, .., the first of equals; MAX_EXPERTS where none is above -inf.
struct Best {
  float value;
  uint32_t at;
  __device__ void find(const float *values, uint32_t n, int lane) {
    value = -INFINITY, at = MAX_EXPERTS;
    for (uint32_t i = lane; i < n; i += WARP)
      if (values[i] > value) value = values[i], at = i;
  }
};
// The best of a warp's, ties to the lower index.
__device__ Best best_of(const Best &mine) {
  const uint32_t bits = __float_as_uint(__fadd_rn(mine.value, 0.0f));  // zeros of either sign are equal
  const uint32_t order = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  const uint32_t most = __reduce_max_sync(~0u, order);
  Best best;
  best.at = __reduce_min_sync(~0u, order == most ? mine.at : MAX_EXPERTS);
  best.value = __uint_as_float((most & 0x80000000u) != 0 ? most & 0x7FFFFFFFu : ~most);
  return best;
}

// Sum of the `top` largest of n values, largest first.
__device__ float sum_of_best(const float *values, uint32_t n, uint32_t top) {
  float sum = 0.0f, last = INFINITY;
  uint32_t last_at = 0;
  bool first = true;
  for (uint32_t k = 0; k < top; k++) {
    float best = -INFINITY;
    uint32_t at = n;
    for (uint32_t i = 0; i < n; i++) {
      const bool behind = first || values[i] < last || (values[i] == last && i > last_at);
      if (behind && (at == n || values[i] > best)) best = values[i], at = i;
    }
    if (at == n) break;
    sum = __fadd_rn(sum, best);
    last = best, last_at = at, first = false;
  }
  return sum;
}

__global__ __launch_bounds__(N_WARP *WARP) void router_kernel(const __grid_constant__ RouterArgs p) {
  extern __shared__ float shared[];  // [N_WARP]: scores [n_expert], and where they differ what is ranked [n_expert]; groups [n_group], weights [k]
  release();
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const uint32_t row = blockIdx.x * N_WARP + warp;
  const bool live = row < row_count(p.rows);
  depend();
  if (!live) return;
  const bool plain = p.bias == nullptr && p.n_group <= 1;  // ranked by their scores
  float *score = shared + warp * (2 * p.n_expert + p.n_group + p.k), *ranked = plain ? score : score + p.n_expert;
  float *group = score + 2 * p.n_expert, *weights = group + p.n_group;
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
    for (uint32_t i = lane; i < p.n_expert; i += WARP)
      score[i] = p.score == BL_SCORE_SIGMOID ? sigmoid(logits[i]) : __fsqrt_rn(softplus(logits[i]));
  }
  if (!plain)
    for (uint32_t i = lane; i < p.n_expert; i += WARP) ranked[i] = p.bias != nullptr ? __fadd_rn(score[i], p.bias[i]) : score[i];
  __syncwarp();

  if (p.n_group > 1 && p.given == nullptr) {  // experts of the other groups take no part
    const uint32_t per_group = p.n_expert / p.n_group;
    for (uint32_t g = lane; g < p.n_group; g += WARP) group[g] = sum_of_best(ranked + g * per_group, per_group, p.group_top);
    __syncwarp();
    for (uint32_t i = 0; i < p.n_group_used; i++) {
      Best mine;
      mine.find(group, p.n_group, lane);
      const uint32_t at = best_of(mine).at;
      __syncwarp();
      if (lane == 0 && at < p.n_group) group[at] = NAN;  // used
      __syncwarp();
    }
    for (uint32_t i = lane; i < p.n_expert; i += WARP)
      if (!isnan(group[i / per_group])) ranked[i] = -INFINITY;
    __syncwarp();
  }

  float total = 0.0f;
  Best mine;
  if (p.given == nullptr) mine.find(ranked, p.n_expert, lane);
  for (uint32_t slot = 0; slot < p.k; slot++) {
    float best;
    uint32_t at;
    if (p.given != nullptr) {
      at = uint32_t(p.given[uint64_t(row) * p.k + slot]);
      if (at >= p.n_expert) at = 0;
      best = score[at];
    } else {
      const Best found = best_of(mine);
      at = found.at, best = found.value;
      if (at == MAX_EXPERTS) at = slot, best = 0.0f;  // scores that are not numbers: any valid expert
      else best = score[at];
    }
    if (!(best > -INFINITY)) best = 0.0f;
    total = __fadd_rn(total, best);
    __syncwarp();  // the score has been read
    if (at % WARP == uint32_t(lane)) {  // its lane: taken, and what else it has
      p.ids[uint64_t(row) * p.k + slot] = int32_t(at);
      weights[slot] = best;
      if (p.given == nullptr) ranked[at] = -INFINITY, mine.find(ranked, p.n_expert, lane);
    }
  }
  __syncwarp();
  const float divisor = fmaxf(__fadd_rn(total, p.sum_add), p.sum_min);
  for (uint32_t i = lane; i < p.k; i += WARP)
    p.weights[uint64_t(row) * p.k + i] = __fmul_rn(p.renorm ? __fdiv_rn(weights[i], divisor) : weights[i], p.scale);
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
  const size_t shared = size_t(N_WARP) * (2 * args.n_expert + args.n_group + args.k) * sizeof(float);
  allow_shared(router_kernel, shared);
  launch("router", router_kernel, dim3(ceil_div(args.rows.max, uint32_t(N_WARP))), N_WARP * WARP, shared, s, args);
}

void group_by_expert(const GroupArgs &args, Stream &s) {
  if (args.n_expert > MAX_EXPERTS) fail(BL_ERR_UNSUPPORTED, "Cannot group %u experts on cuda: at most %u", args.n_expert, MAX_EXPERTS);
  launch("group_by_expert", group_kernel, dim3(1), 1024, 0, s, args);
}

}  // namespace bl::cuda
