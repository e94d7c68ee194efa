// logits.cu: top-k and log-sum-exp of rows of logits, and the log-probability of targets.
//   logits [rows, n] f32 · ids i32, values f32 [rows, k] · lse [rows] f32
// launch  per level: grid (chunks of 2048, rows), block 1024: a bitonic sort of 64-bit keys in shared memory leaves the best k of each
//         chunk; the next level sorts those, until one chunk is left. The first level also leaves each chunk's largest and its sum of
//         exponentials; the last adds them up in order.
// needs   k <= 1024
// bits    keys are (value, ~index): a total order, so the result is unique; sums run over fixed trees of n alone
// floor   4 n bytes a row over bandwidth: 151936: 0.6 MB, 0.14 us at 4.3 TB/s; a level's latency of a few us is what it costs
#include "logits.h"

namespace bl::cuda {

namespace {

constexpr uint32_t CHUNK = 2048;
constexpr int BLOCK = 1024;

// Larger floats give larger keys; NaN gives the smallest.
__device__ inline uint64_t key_of(float v, uint32_t index) {
  const uint32_t b = __float_as_uint(v);
  const uint32_t ordered = v != v ? 0u : (b & 0x80000000u) ? ~b : b | 0x80000000u;
  return uint64_t(ordered) << 32 | (0xFFFFFFFFu - index);
}
__device__ inline float value_of(uint64_t key) {
  const uint32_t o = uint32_t(key >> 32);
  return o == 0 ? NAN : __uint_as_float((o & 0x80000000u) ? o & 0x7FFFFFFFu : ~o);
}

struct LevelArgs {
  const uint64_t *in;     // [rows, n_in] keys, or nullptr: the first level reads logits
  uint64_t *out;          // [rows, chunks, keep]
  float2 *stats;          // [rows, n_stats]: largest, sum of exp(v - largest), of each chunk of the first level
  uint32_t n_in, keep, n_stats;
  bool last;
};

__global__ __launch_bounds__(BLOCK) void level_kernel(const __grid_constant__ TopKArgs p, const __grid_constant__ LevelArgs l) {
  __shared__ uint64_t keys[CHUNK];
  __shared__ float partial[BLOCK / WARP];
  release();
  depend();
  const uint32_t row = blockIdx.y, t = threadIdx.x;
  if (row >= row_count(p.rows)) return;
  const uint32_t first = blockIdx.x * CHUNK;

  float v[2];
  for (int i = 0; i < 2; i++) {
    const uint32_t at = first + t + i * BLOCK;
    v[i] = -INFINITY;
    if (at >= l.n_in) keys[t + i * BLOCK] = 0;
    else if (l.in != nullptr) keys[t + i * BLOCK] = l.in[uint64_t(row) * l.n_in + at];
    else v[i] = p.logits[uint64_t(row) * p.n + at], keys[t + i * BLOCK] = key_of(v[i], at);
  }
  if (l.in == nullptr) {
    float largest = fmaxf(v[0], v[1]);
    for (int o = 16; o > 0; o >>= 1) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, o));
    if (t % WARP == 0) partial[t / WARP] = largest;
    __syncthreads();
    largest = partial[t % WARP];
    for (int o = 16; o > 0; o >>= 1) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, o));
    float sum = largest == -INFINITY ? 0.0f : __fadd_rn(expf(__fsub_rn(v[0], largest)), expf(__fsub_rn(v[1], largest)));
    for (int o = 16; o > 0; o >>= 1) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, o));
    __syncthreads();
    if (t % WARP == 0) partial[t / WARP] = sum;
    __syncthreads();
    if (t < WARP) {
      sum = partial[t];
      for (int o = 16; o > 0; o >>= 1) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, o));
      if (t == 0) l.stats[uint64_t(row) * l.n_stats + blockIdx.x] = make_float2(largest, sum);
    }
  }
  __syncthreads();

  // Bitonic sort, largest first.
  for (uint32_t size = 2; size <= CHUNK; size *= 2)
    for (uint32_t stride = size / 2; stride > 0; stride /= 2) {
      const uint32_t i = 2 * t - (t & (stride - 1)), j = i + stride;
      const uint64_t a = keys[i], b = keys[j];
      if ((a < b) == ((i & size) == 0)) keys[i] = b, keys[j] = a;
      __syncthreads();
    }

  if (!l.last) {
    for (uint32_t i = t; i < l.keep; i += BLOCK) l.out[(uint64_t(row) * gridDim.x + blockIdx.x) * l.keep + i] = keys[i];
    return;
  }
  for (uint32_t i = t; i < p.k; i += BLOCK) {
    p.ids[uint64_t(row) * p.k + i] = int32_t(0xFFFFFFFFu - uint32_t(keys[i]));
    p.values[uint64_t(row) * p.k + i] = value_of(keys[i]);
  }
  if (t < WARP) {
    const float2 *stats = l.stats + uint64_t(row) * l.n_stats;
    float largest = -INFINITY;
    for (uint32_t i = t; i < l.n_stats; i += WARP) largest = fmaxf(largest, stats[i].x);
    for (int o = 16; o > 0; o >>= 1) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, o));
    double sum = 0.0;
    for (uint32_t i = t; i < l.n_stats; i += WARP) sum += double(stats[i].y) * exp(double(stats[i].x) - double(largest));
    for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
    if (t == 0) p.lse[row] = float(double(largest) + log(sum));
  }
}

__global__ __launch_bounds__(128) void target_kernel(const __grid_constant__ TargetArgs p) {
  release();
  depend();
  const uint32_t row = blockIdx.x * 128 + threadIdx.x;
  if (row >= row_count(p.rows)) return;
  const int32_t target = p.targets[row];
  p.y[row] = target < 0 ? 0.0f : __fsub_rn(p.logits[uint64_t(row) * p.n + uint32_t(target)], p.lse[row]);
}

uint32_t keep_of(uint32_t k) { return k < CHUNK / 2 ? k : CHUNK / 2; }

}  // namespace

uint64_t top_k_scratch_bytes(uint32_t n, uint32_t k, uint32_t rows) {
  const uint64_t chunks = ceil_div(n, CHUNK), next = ceil_div(chunks * keep_of(k), uint64_t(CHUNK));
  return uint64_t(rows) * 8 * (chunks + (chunks + next) * keep_of(k));
}

void top_k(const TopKArgs &args, Stream &s) {
  if (args.k > MAX_TOP_K) fail(BL_ERR_UNSUPPORTED, "Cannot take the best %u of a row on cuda: at most %u", args.k, MAX_TOP_K);
  const uint32_t keep = keep_of(args.k), rows = args.rows.max;
  uint32_t chunks = ceil_div(args.n, CHUNK);
  LevelArgs level = {};
  level.stats = reinterpret_cast<float2 *>(args.scratch);
  level.n_stats = chunks, level.keep = keep, level.n_in = args.n;
  uint64_t *buffer[2];
  buffer[0] = args.scratch + uint64_t(rows) * chunks;
  buffer[1] = buffer[0] + uint64_t(rows) * chunks * keep;
  for (int i = 0;; i ^= 1) {
    level.last = chunks == 1;
    level.out = buffer[i];
    launch("top_k", level_kernel, dim3(chunks, rows), BLOCK, 0, s, args, level);
    if (level.last) return;
    level.in = level.out, level.n_in = chunks * keep;
    chunks = ceil_div(level.n_in, CHUNK);
  }
}

void target_logprob(const TargetArgs &args, Stream &s) {
  launch("target_logprob", target_kernel, dim3(ceil_div(args.rows.max, 128u)), 128, 0, s, args);
}

}  // namespace bl::cuda
