// heads.cu: rms_norm over heads, rope, and writes to the cache: q and k of a layer and its v in one launch. ROPE and STREAM_WRITE.
//   x [head_dim, n_head, n_tok] f32, any slice · y f32, dense · cache rows [n_head * head_dim] f32, f16 or q8_0
// launch  grid (ceil(heads of all jobs / 4), n_tok), block 128: one warp per head, the head in shared memory
// needs   q8_0 rows: head_dim a multiple of 32 (the caller cuts a row into other heads where it is not)
// bits    a head's result depends on nothing but itself, its position and the weights
// floor   bytes read and written over bandwidth
#include <cuda_fp16.h>

#include "heads.h"

namespace bl::cuda {

namespace {

constexpr int N_WARP = 4;
constexpr uint32_t AHEAD = 2;  // angles of a lane that are made before the wait; twice as many weights

__device__ void write_cache(const HeadJob &job, uint8_t *row, uint32_t head, const float *v, int lane) {
  if (job.cache.type == TYPE_F32) {
    float *out = reinterpret_cast<float *>(row) + head * job.head_dim;
    for (uint32_t i = lane; i < job.head_dim; i += WARP) out[i] = v[i];
  } else if (job.cache.type == TYPE_F16) {
    __half *out = reinterpret_cast<__half *>(row) + head * job.head_dim;
    for (uint32_t i = lane; i < job.head_dim; i += WARP) out[i] = __float2half_rn(v[i]);
  } else {
    for (uint32_t b = 0; b < job.head_dim / 32; b++) {
      const float x = v[b * 32 + lane];
      float largest = fabsf(x);
      for (int o = 16; o > 0; o >>= 1) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, o));
      const float d = __fdiv_rn(largest, 127.0f), inverse = d != 0.0f ? __fdiv_rn(1.0f, d) : 0.0f;
      uint8_t *block = row + (uint64_t(head) * job.head_dim / 32 + b) * sizeof(BlockQ8_0);
      block[2 + lane] = uint8_t(int8_t(roundf(__fmul_rn(x, inverse))));
      if (lane == 0) {
        const uint32_t bits = f32_to_f16(d);  // not __float2half_rn: ptxas 13.0 stored its low byte as zero
        block[0] = uint8_t(bits), block[1] = uint8_t(bits >> 8);
      }
    }
  }
}

__global__ __launch_bounds__(N_WARP *WARP) void heads_kernel(const __grid_constant__ HeadsArgs p, uint32_t longest) {
  extern __shared__ float head_values[];  // [N_WARP][longest]
  release();
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const uint32_t token = blockIdx.y;
  if (token >= row_count(p.rows)) return depend();
  uint32_t head = blockIdx.x * N_WARP + warp, j = 0;
  while (j < p.n_job && head >= p.job[j].n_head) head -= p.job[j++].n_head;
  if (j == p.n_job) return depend();
  const HeadJob &job = p.job[j];
  float *v = head_values + warp * longest;
  const uint64_t at = (uint64_t(token) * job.n_head + head) * job.head_dim;
  const float *x = job.x + token * job.x_row + head * job.x_head;

  // What needs no earlier result: the angles, the norm's weights and the place in the cache.
  const int32_t position = p.positions[token];
  const uint32_t half = job.inv_freq != nullptr ? job.n_rot / 2 : 0;
  const float turns = float(max(position + job.shift, 0));
  const auto angle = [&](uint32_t i, float &sine, float &cosine) {
    sincosf(__fmul_rn(turns, job.inv_freq[i]), &sine, &cosine);
    sine = __fmul_rn(job.inverse ? -sine : sine, job.mscale), cosine = __fmul_rn(cosine, job.mscale);
  };
  float sines[AHEAD], cosines[AHEAD], weights[2 * AHEAD];
#pragma unroll
  for (uint32_t i = 0; i < AHEAD; i++)
    if (lane + i * WARP < half) angle(lane + i * WARP, sines[i], cosines[i]);
  if (job.norm != nullptr)
#pragma unroll
    for (uint32_t i = 0; i < 2 * AHEAD; i++)
      if (lane + i * WARP < job.head_dim) weights[i] = job.norm[lane + i * WARP];
  uint8_t *row = nullptr;
  if (job.cache.base != nullptr) {
    const uint32_t ratio = job.cache.ratio, end = uint32_t(position) + 1;
    const int32_t *pages = job.table.pages + uint64_t(p.seqs[token]) * job.table.n_page;
    if (ratio == 1) row = cache_row(job.cache, pages, job.table.page_size, uint32_t(position));
    else if (end % ratio == 0) row = stream_row(job.cache, pages, job.table.page_size, end / ratio - 1);
  }
  depend();

  float sum = 0.0f;
#pragma unroll 4
  for (uint32_t i = lane; i < job.head_dim; i += WARP) {
    const float value = x[i];
    v[i] = value;
    sum = __fmaf_rn(value, value, sum);
  }
  if (job.norm != nullptr) {
    for (int o = 16; o > 0; o >>= 1) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, o));
    const float factor = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, float(job.head_dim)), job.eps)));
#pragma unroll
    for (uint32_t i = 0; i < 2 * AHEAD; i++)
      if (lane + i * WARP < job.head_dim) v[lane + i * WARP] = __fmul_rn(__fmul_rn(v[lane + i * WARP], factor), weights[i]);
    for (uint32_t i = lane + 2 * AHEAD * WARP; i < job.head_dim; i += WARP) v[i] = __fmul_rn(__fmul_rn(v[i], factor), job.norm[i]);
  }
  __syncwarp();
  const auto turn = [&](uint32_t i, float sine, float cosine) {
    const uint32_t a = job.offset + (job.rope_kind == BL_ROPE_PAIRS ? 2 * i : i);
    const uint32_t b = job.offset + (job.rope_kind == BL_ROPE_PAIRS ? 2 * i + 1 : i + half);
    const float first = v[a], second = v[b];
    v[a] = __fsub_rn(__fmul_rn(first, cosine), __fmul_rn(second, sine));
    v[b] = __fadd_rn(__fmul_rn(second, cosine), __fmul_rn(first, sine));
  };
#pragma unroll
  for (uint32_t i = 0; i < AHEAD; i++)
    if (lane + i * WARP < half) turn(lane + i * WARP, sines[i], cosines[i]);
  for (uint32_t i = lane + AHEAD * WARP; i < half; i += WARP) {
    float sine, cosine;
    angle(i, sine, cosine);
    turn(i, sine, cosine);
  }
  __syncwarp();
  if (job.y != nullptr)
    for (uint32_t i = lane; i < job.head_dim; i += WARP) job.y[at + i] = v[i];
  if (row != nullptr) write_cache(job, row, head, v, lane);
}

}  // namespace

void heads_op(const HeadsArgs &args, Stream &s) {
  uint32_t heads = 0, longest = 0;
  for (uint32_t i = 0; i < args.n_job; i++) {
    heads += args.job[i].n_head;
    if (args.job[i].head_dim > longest) longest = args.job[i].head_dim;
  }
  const size_t shared = size_t(N_WARP) * longest * sizeof(float);
  allow_shared(heads_kernel, shared);
  launch("heads", heads_kernel, dim3(ceil_div(heads, uint32_t(N_WARP)), args.rows.max), N_WARP * WARP, shared, s, args, longest);
}

}  // namespace bl::cuda
