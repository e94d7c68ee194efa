// recurrent.cu: causal convolution of channels, and the linear recurrence of a state a head.
//   conv: x, y [C, n_tok] f32, state f32 [(K - 1) dilation, C] · delta: state f32, element (i, j) of head h at (h dv + j) dk + i
// launch  conv: grid (channels / 128, sequences, slices of 64 rows), block 128: a thread a channel. The first slice of a sequence reads
//         the state and writes it last; the others read rows of this step alone.
//         delta: grid (columns / 4, heads, sequences), block 128: a warp holds one column j of a head's state in registers and walks
//         the rows of its sequence
// needs   delta: dk <= 512
// bits    conv: bias, then taps ascending. delta: row by row, per lane elements lane, lane + 32, .. in order, then an xor tree: how a
//         prompt is cut into steps does not matter
// floor   delta: a row waits for the one before: about 300 cycles each, 0.2 us; decode: the bytes of the states, read and written
#include "functions.cuh"
#include "recurrent.h"

namespace bl::cuda {

namespace {

constexpr uint32_t CHANNELS = 128, SLICE = 64;
constexpr uint32_t COLUMNS = 4;

__device__ inline float *state_of(const CacheStream &state, const CachePages &table, uint32_t seq) {
  const int32_t page = table.pages[uint64_t(seq) * table.n_page];
  return page < 0 ? nullptr : reinterpret_cast<float *>(state.base + uint64_t(page) * state.row_bytes);
}

__global__ __launch_bounds__(CHANNELS) void conv_kernel(const __grid_constant__ ConvArgs p) {
  release();
  depend();
  const uint32_t c = blockIdx.x * CHANNELS + threadIdx.x, seq = blockIdx.y;
  if (c >= p.C || int(seq) >= *p.n_seq) return;
  const SequenceRun run = p.runs[seq];
  float *state = state_of(p.state, p.table, seq);
  if (run.count == 0 || state == nullptr) return;
  const int32_t kept = int32_t((p.K - 1) * p.dilation), position0 = p.positions[run.first];
  // Slice 0 has the rows that reach behind the step, and the rest of its own.
  const int32_t slice = int32_t(SLICE), head = min(run.count, ceil_div(max(kept, 1), slice) * slice);
  int32_t from = 0, to = head;
  if (blockIdx.z > 0) from = head + (int32_t(blockIdx.z) - 1) * slice, to = min(run.count, from + slice);

#pragma unroll 4
  for (int32_t i = from; i < to; i++) {
    const int32_t position = position0 + i;
    float sum = p.b != nullptr ? p.b[c] : 0.0f;
    for (uint32_t j = 0; j < p.K; j++) {
      const int32_t back = int32_t((p.K - 1 - j) * p.dilation);
      if (back > position) continue;  // before the sequence
      const float x = back <= i ? p.x[uint64_t(run.first + i - back) * p.x_row + c] : state[uint64_t((position - back) % kept) * p.C + c];
      sum = __fmaf_rn(p.w[uint64_t(c) * p.K + j], x, sum);
    }
    p.y[uint64_t(run.first + i) * p.C + c] = p.silu ? silu(sum) : sum;
  }
  if (blockIdx.z > 0) return;
  if (position0 == 0)  // what the page held before is of another sequence
    for (int32_t i = run.count; i < kept; i++) state[uint64_t(i) * p.C + c] = 0.0f;
  for (int32_t i = max(0, run.count - kept); i < run.count; i++)
    state[uint64_t((position0 + i) % max(kept, 1)) * p.C + c] = p.x[uint64_t(run.first + i) * p.x_row + c];
}

__device__ inline float sum_lanes(float v) {
  for (int o = 16; o > 0; o >>= 1) v = __fadd_rn(v, __shfl_xor_sync(~0u, v, o));
  return v;
}

template <int PER>  // elements of a lane
__global__ __launch_bounds__(COLUMNS *WARP) void delta_kernel(const __grid_constant__ DeltaArgs p) {
  release();
  depend();
  const uint32_t lane = threadIdx.x % WARP, j = blockIdx.x * COLUMNS + threadIdx.x / WARP, h = blockIdx.y, seq = blockIdx.z;
  if (j >= p.dv || int(seq) >= *p.n_seq) return;
  const SequenceRun run = p.runs[seq];
  float *state = state_of(p.state, p.table, seq);
  if (run.count == 0 || state == nullptr) return;
  state += (uint64_t(h) * p.dv + j) * p.dk;
  const uint32_t hk = p.tiled ? h % p.n_key_head : h / (p.n_head / p.n_key_head);
  const bool fresh = p.positions[run.first] == 0;

  struct Row {
    float q[PER], k[PER], g[PER], v, beta;
  };
  auto load = [&](Row &r, int32_t i) {
    const uint64_t row = uint64_t(run.first + i);
    const float *q = p.q.data + row * p.q.row + uint64_t(hk) * p.q.nb[1], *k = p.k.data + row * p.k.row + uint64_t(hk) * p.k.nb[1];
    const float *g = p.g.data + row * p.g.row + uint64_t(h) * p.g.nb[1];
#pragma unroll
    for (int e = 0; e < PER; e++) {
      const uint32_t at = e * WARP + lane;
      const bool in = at < p.dk;
      r.q[e] = in ? q[at] : 0.0f, r.k[e] = in ? k[at] : 0.0f;
      r.g[e] = p.one_decay ? (e == 0 ? g[0] : r.g[0]) : in ? g[at] : 0.0f;
    }
    r.v = p.v.data[row * p.v.row + uint64_t(h) * p.v.nb[1] + j];
    r.beta = p.beta.data[row * p.beta.row + uint64_t(h) * p.beta.nb[1]];
  };
  float s[PER];
#pragma unroll
  for (int e = 0; e < PER; e++) s[e] = !fresh && e * WARP + lane < p.dk ? state[e * WARP + lane] : 0.0f;
  Row now, next;
  load(now, 0);
  for (int32_t i = 0; i < run.count; i++) {
    load(next, min(i + 1, run.count - 1));  // on its way while this row is worked on
    float seen = 0.0f;
#pragma unroll
    for (int e = 0; e < PER; e++) {
      s[e] = __fmul_rn(expf(now.g[e]), s[e]);
      seen = __fmaf_rn(s[e], now.k[e], seen);
    }
    float u = now.v;
    if (!p.plain) u = __fsub_rn(u, sum_lanes(seen));
    u = __fmul_rn(now.beta, u);
    float y = 0.0f;
#pragma unroll
    for (int e = 0; e < PER; e++) {
      s[e] = __fmaf_rn(now.k[e], u, s[e]);
      y = __fmaf_rn(s[e], now.q[e], y);
    }
    y = sum_lanes(y);
    if (lane == 0) p.y[(uint64_t(run.first + i) * p.n_head + h) * p.dv + j] = y;
    now = next;
  }
#pragma unroll
  for (int e = 0; e < PER; e++)
    if (e * WARP + lane < p.dk) state[e * WARP + lane] = s[e];
}

template <int PER>
void launch_delta(const DeltaArgs &args, Stream &s) {
  launch("delta", delta_kernel<PER>, dim3(ceil_div(args.dv, COLUMNS), args.n_head, args.max_seq), COLUMNS * WARP, 0, s, args);
}

}  // namespace

void conv(const ConvArgs &args, Stream &s) {
  launch("conv", conv_kernel, dim3(ceil_div(args.C, CHANNELS), args.max_seq, ceil_div(args.max_rows, SLICE)), CHANNELS, 0, s, args);
}

void delta(const DeltaArgs &args, Stream &s) {
  if (args.dk <= 32) return launch_delta<1>(args, s);
  if (args.dk <= 64) return launch_delta<2>(args, s);
  if (args.dk <= 128) return launch_delta<4>(args, s);
  if (args.dk <= 256) return launch_delta<8>(args, s);
  if (args.dk <= 512) return launch_delta<16>(args, s);
  fail(BL_ERR_UNSUPPORTED, "Cannot run DELTA with keys of %u on cuda: at most 512", args.dk);
}

}  // namespace bl::cuda
