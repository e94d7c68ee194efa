// groups.cu: groups of positions pooled into one row (POOL), and matrices brought to equal sums of rows and columns (SINKHORN).
//   pool: k, z cache rows f32, f16 or q8_0 · ape [width, ratio] f32 · y [n, n_tok] f32, zeros where no group ends
//   sinkhorn: m [n n + 2 n, R] f32 · pre, post [n, R], comb [n, n, R] f32
// launch  pool: grid (channels / 128, n_tok), block 128: a thread a channel; sinkhorn: a warp a row, 4 rows a block
// needs   pool: groups of up to 1024 positions; sinkhorn: n <= 16
// bits    pool: the largest z, then in order of position the exponentials and what they weigh; sinkhorn: sums in order
// floor   bytes of the groups over bandwidth; a launch is all they cost
#include "functions.cuh"
#include "groups.h"

namespace bl::cuda {

namespace {

constexpr uint32_t CHANNELS = 128, MAX_RATIO = 1024;
constexpr uint32_t MAX_N = 16, N_WARP = 4;

__global__ __launch_bounds__(CHANNELS) void pool_kernel(const __grid_constant__ PoolArgs p) {
  __shared__ const uint8_t *k_row[2 * MAX_RATIO], *z_row[2 * MAX_RATIO];
  release();
  depend();
  const uint32_t row = blockIdx.y, c = blockIdx.x * CHANNELS + threadIdx.x;
  if (row >= row_count(p.rows)) return;
  const uint32_t end = uint32_t(p.positions[row]) + 1;
  float *y = p.y + uint64_t(row) * p.n + c;
  if (end % p.ratio != 0) {
    if (c < p.n) *y = 0.0f;
    return;
  }
  const uint32_t own = end - p.ratio, from = p.overlap && own >= p.ratio ? own - p.ratio : own, count = end - from;
  const int32_t *pages = p.table.pages + uint64_t(p.seqs[row]) * p.table.n_page;
  for (uint32_t i = threadIdx.x; i < count; i += CHANNELS) {
    k_row[i] = cache_row(p.k, pages, p.table.page_size, from + i);
    z_row[i] = cache_row(p.z, pages, p.table.page_size, from + i);
  }
  __syncthreads();
  if (c >= p.n) return;
  const uint32_t width = p.overlap ? 2 * p.n : p.n;
  // Channel c of a row: the second half belongs to its own group, the first to the next one.
  auto channel = [&](uint32_t i) { return c + (p.overlap && from + i >= own ? p.n : 0); };
  auto score = [&](uint32_t i) {
    const float z = z_row[i] != nullptr ? stream_value(p.z, z_row[i], channel(i)) : 0.0f;
    return p.ape != nullptr ? __fadd_rn(z, p.ape[uint64_t((from + i) % p.ratio) * width + channel(i)]) : z;
  };
  auto key = [&](uint32_t i) { return k_row[i] != nullptr ? stream_value(p.k, k_row[i], channel(i)) : 0.0f; };
  float sum = 0.0f;
  if (p.mean) {
    for (uint32_t i = 0; i < count; i++) sum = __fadd_rn(sum, key(i));
    *y = __fdiv_rn(sum, float(count));
    return;
  }
  float largest = -INFINITY, weights = 0.0f;
  for (uint32_t i = 0; i < count; i++) largest = fmaxf(largest, score(i));
  for (uint32_t i = 0; i < count; i++) {
    const float e = expf(__fsub_rn(score(i), largest));
    weights = __fadd_rn(weights, e);
    sum = __fmaf_rn(e, key(i), sum);
  }
  *y = __fdiv_rn(sum, weights);
}

__global__ __launch_bounds__(N_WARP *WARP) void sinkhorn_kernel(const __grid_constant__ SinkhornArgs p) {
  __shared__ float matrices[N_WARP][MAX_N * MAX_N];
  release();
  depend();
  const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, row = blockIdx.x * N_WARP + warp, n = p.n;
  if (row >= row_count(p.rows)) return;
  const float *m = p.m + uint64_t(row) * (n * n + 2 * n);
  float *A = matrices[warp];
  for (uint32_t j = lane; j < n; j += WARP) {
    p.pre[uint64_t(row) * n + j] = __fadd_rn(sigmoid(__fmaf_rn(m[j], p.scale[0], p.base[j])), p.eps);
    p.post[uint64_t(row) * n + j] = __fmul_rn(2.0f, sigmoid(__fmaf_rn(m[n + j], p.scale[1], p.base[n + j])));
  }
  for (uint32_t i = lane; i < n * n; i += WARP) A[i] = __fmaf_rn(m[2 * n + i], p.scale[2], p.base[2 * n + i]);
  __syncwarp();
  if (lane < n) {  // softmax of row `lane`
    float *a = A + lane * n, largest = -INFINITY, sum = 0.0f;
    for (uint32_t k = 0; k < n; k++) largest = fmaxf(largest, a[k]);
    for (uint32_t k = 0; k < n; k++) sum = __fadd_rn(sum, a[k] = expf(__fsub_rn(a[k], largest)));
    for (uint32_t k = 0; k < n; k++) a[k] = __fadd_rn(__fdiv_rn(a[k], sum), p.eps);
  }
  // Numbers from `first` on, `step` apart, divided by their sum + eps.
  auto divide = [&](uint32_t first, uint32_t step) {
    __syncwarp();
    if (lane >= n) return;
    float sum = p.eps;
    for (uint32_t k = 0; k < n; k++) sum = __fadd_rn(sum, A[first + k * step]);
    for (uint32_t k = 0; k < n; k++) A[first + k * step] = __fdiv_rn(A[first + k * step], sum);
  };
  for (uint32_t i = 0; i < p.iterations; i++) {
    if (i > 0) divide(lane * n, 1);
    divide(lane, n);
  }
  __syncwarp();
  for (uint32_t i = lane; i < n * n; i += WARP) p.comb[uint64_t(row) * n * n + i] = A[i % n * n + i / n];
}

}  // namespace

void pool(const PoolArgs &args, Stream &s) {
  if (args.ratio > MAX_RATIO) fail(BL_ERR_UNSUPPORTED, "Cannot pool groups of %u positions on cuda: at most %u", args.ratio, MAX_RATIO);
  launch("pool", pool_kernel, dim3(ceil_div(args.n, CHANNELS), args.rows.max), CHANNELS, 0, s, args);
}

void sinkhorn(const SinkhornArgs &args, Stream &s) {
  if (args.n > MAX_N) fail(BL_ERR_UNSUPPORTED, "Cannot run SINKHORN with %u streams on cuda: at most %u", args.n, MAX_N);
  launch("sinkhorn", sinkhorn_kernel, dim3(ceil_div(args.rows.max, N_WARP)), N_WARP * WARP, 0, s, args);
}

}  // namespace bl::cuda
