// matmul_wide.cuh: y = W x for prompts, weights of whole scales of six bits for 32 values (q4_K, q5_K), on the tensor cores of sm_90: warpgroups
// of 64 features by 64 rows.
//   W [n_out, n_in] packed · x encoded rows [n, n_in] · y [n, n_out] f32, overwritten
// launch  grid (tiles of 64 rows, tiles of 64 WGS features of all parts); block: WGS warpgroups of 64 features, and one that copies rows to
//         shared memory, a superblock at a time in 3 stages, by words, which puts high and low bytes into columns apart; weights go from
//         global memory to registers in fragment order, one superblock ahead
//         A scale s = 8 (s / 8) + s % 8: codes times either part fit a byte, so that a superblock's products need nothing between them: all
//         blocks with the high parts, the sums times 8, all blocks with the low parts.
// needs   machine code for sm_90a
// bits    per row: those of matmul_few: sums are exact, what follows them is the same
// floor   8 n n_in n_out / 1,979 TOP/s: a value is two bytes, a weight two: 4096 x 24576 x 512 208 us
// have    that 452 us, 46 % of the floor (matmul_many 613); ../../docs/card-notes.md says what was tried
#pragma once

#include "matmul_many.cuh"
#include "matmul_wide.h"
#include "wgmma.cuh"

namespace bl::cuda {

template <class F, int WGS>
struct Wide {
  static constexpr int BM = WGS * 64, BN = 64, THREADS = WGS * 128, COPY_THREADS = 128, BLOCK = THREADS + COPY_THREADS, STAGES = 3;
  // 16 values of 64 columns of high bytes, then of low bytes; the 16 bytes behind spread the words of a row over the banks.
  static constexpr uint32_t LOW_AT = BN * 16, ALONG_K = 2 * BN * 16 + 16, ALONG_N = 128, STAGE_BYTES = SB / 16 * ALONG_K;
  static constexpr uint32_t SUMS_BYTES = 64 + 16;                           // 32 halves of a row, and again what keeps rows in banks of their own
  static constexpr uint32_t SUMS_AT = STAGES * STAGE_BYTES;                 // [STAGES][BN] of SUMS_BYTES
  static constexpr uint32_t SCALE_AT = SUMS_AT + STAGES * BN * SUMS_BYTES;  // [STAGES][BN] f32
  static constexpr uint32_t DONE_AT = SCALE_AT + STAGES * BN * 4;           // [32][THREADS] f32: the spans that are done
  static constexpr uint32_t ROWS_AT = DONE_AT + 32 * THREADS * 4;           // [BN] i32: rows (-1: none)
  static constexpr uint32_t BARRIERS_AT = ROWS_AT + BN * 4;                 // full, then empty: 8 bytes a stage
  static constexpr uint32_t SHARED = BARRIERS_AT + 2 * STAGES * 8;
};

template <class F, int WGS>
__global__ __launch_bounds__(WGS * 128 + 128, 1) void matmul_wide_kernel(const __grid_constant__ MatmulArgs p) {
#if BL_SM90A
  using C = Wide<F, WGS>;
  extern __shared__ __align__(128) uint8_t shared[];
  int32_t *rows = reinterpret_cast<int32_t *>(shared + C::ROWS_AT);
  const uint32_t shared_at = uint32_t(__cvta_generic_to_shared(shared));
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4, t = lane % 4;
  release();
  depend();

  uint32_t m_block = blockIdx.y;
  int part = 0;
  while (part + 1 < int(p.n_part) && m_block >= ceil_div(p.part[part].n_out, uint32_t(C::BM)))
    m_block -= ceil_div(p.part[part].n_out, uint32_t(C::BM)), part++;
  const MatmulPart &mp = p.part[part];
  const uint32_t n_row = row_count(p.rows), first = blockIdx.x * C::BN;
  if (first >= n_row) return;
  for (int c = threadIdx.x; c < C::BN; c += C::BLOCK) rows[c] = first + c < n_row ? int32_t(first + c) : -1;
  const uint32_t full = shared_at + C::BARRIERS_AT, empty = full + C::STAGES * 8;
  if (threadIdx.x == 0)
    for (int i = 0; i < C::STAGES; i++) barrier_init(full + i * 8, C::COPY_THREADS), barrier_init(empty + i * 8, C::THREADS / WARP);
  __syncthreads();
  const uint32_t n_sb = p.x.n_sb;

  if (threadIdx.x >= C::THREADS) {  // the warpgroup that copies rows
    fewer_registers<32>();
    const int thread = threadIdx.x - C::THREADS;
    // A warp copies 128 bytes of a row at a time, two blocks of 32 values, a word a lane: of block lane / 16, values of lane / 4 % 4, of half
    // lane % 2, and of high or low bytes.
    const uint32_t word_at = (lane / 16 * 2 + lane % 2) * C::ALONG_K + lane % 4 / 2 * C::LOW_AT + lane / 4 % 4 * 4;
    for (uint32_t sb = 0; sb <= n_sb; sb++) {
      if (sb < n_sb) {
        const uint32_t turn = sb % C::STAGES, stage = shared_at + turn * C::STAGE_BYTES + word_at;
        if (sb >= uint32_t(C::STAGES)) barrier_wait(empty + turn * 8, (sb / C::STAGES - 1) & 1);
#pragma unroll 4
        for (int c = thread / WARP; c < C::BN; c += C::COPY_THREADS / WARP) {
          const int32_t row = rows[c];
          const uint16_t *src = p.x.values + uint64_t(row < 0 ? 0 : row) * p.x.k_stride + sb * SB + lane * 2;
#pragma unroll
          for (int pair = 0; pair < 4; pair++) copy_async4(stage + pair * 4 * C::ALONG_K + c * 16, src + pair * 64, row >= 0);
        }
        for (int i = thread; i < C::BN * 4; i += C::COPY_THREADS) {
          const int32_t row = rows[i / 4];
          copy_async16(shared_at + C::SUMS_AT + (turn * C::BN + i / 4) * C::SUMS_BYTES + i % 4 * 16,
                       p.x.sums + (uint64_t(row < 0 ? 0 : row) * n_sb + sb) * 32 + i % 4 * 8, row >= 0);
        }
        if (thread < C::BN) {
          const int32_t row = rows[thread];
          copy_async4(shared_at + C::SCALE_AT + (turn * C::BN + thread) * 4, p.x.scale + uint64_t(row < 0 ? 0 : row) * n_sb + sb, row >= 0);
        }
      }
      copy_commit();
      if (sb > 0) {
        copy_wait<1>();
        shared_to_tensor_cores();
        barrier_arrive(full + (sb - 1) % C::STAGES * 8);
      }
    }
    return;
  }
  more_registers<160>();

  const uint32_t n_tile = ceil_div(mp.n_out, TILE_ROWS);
  const uint32_t tile = m_block * (C::BM / 16) + warp;  // one past the end reads the last one; its results are not stored
  const uint8_t *w = mp.w + uint64_t(min(tile, n_tile - 1)) * n_sb * F::SB_BYTES;
  Codes<F::KIND> codes[SB_STEPS];
  SuperCodes<F> super;
  super.load(w, lane);
#pragma unroll
  for (int i = 0; i < int(SB_STEPS); i++) codes[i].load(w, i, lane);
  float total[32] = {};  // of the span at hand
  float *done = reinterpret_cast<float *>(shared + C::DONE_AT) + threadIdx.x;
  const uint32_t span = span_of(n_sb);
  uint32_t in_span = 0;

  int c[64] = {};  // high bytes' products, then low bytes'
  for (uint32_t sb = 0; sb < n_sb; sb++) {
    const uint32_t turn = sb % C::STAGES, stage = shared_at + turn * C::STAGE_BYTES;
    const uint32_t *sums = reinterpret_cast<const uint32_t *>(shared + C::SUMS_AT + turn * C::BN * C::SUMS_BYTES);
    const uint8_t *ahead = w + uint64_t(min(sb + 1, n_sb - 1)) * F::SB_BYTES;
    barrier_wait(full + turn * 8, sb / C::STAGES & 1);
    SuperCodes<F> next;
    uint32_t a[2][4];
#pragma unroll
    for (int part = 0; part < 2; part++) {
#pragma unroll
      for (int b = 0; b < int(SB / 32); b++) {
        uint32_t(&now)[4] = a[b & 1];
        wgmma_hold(now);
        fragment<F::KIND>(b, codes[b / 2], super.high, mp.table, now);
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const uint32_t scale = uint32_t(super.scales.scale32(b, i & 1));
          now[i] *= part == 0 ? scale >> 3 : scale & 7;
        }
        if (part == 1 && b == 0) next.load(ahead, lane);
        if (part == 1 && (b & 1)) codes[b / 2].load(ahead, b / 2, lane);
        wgmma_hold(c);
        wgmma_fence();
        wgmma_u8_s8(c, now, wgmma_columns(stage + b * 2 * C::ALONG_K, C::ALONG_K, C::ALONG_N), part > 0 || b > 0);
        wgmma_commit();
        wgmma_wait<1>();  // the one before has read its operands
      }
      wgmma_wait<0>();
      wgmma_hold(c);
      if (part == 0)
#pragma unroll
        for (int i = 0; i < 64; i++) c[i] <<= 3;
    }
#pragma unroll
    for (int n = 0; n < 8; n++) {
      const float2 x_scale = *reinterpret_cast<const float2 *>(shared + C::SCALE_AT + (turn * C::BN + n * 8 + 2 * t) * 4);
      Sums<F> sum;
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if constexpr (F::JOINS) sum.hi[i] = c[4 * n + i] * 128 + c[32 + 4 * n + i];
        else sum.hi[i] = c[4 * n + i], sum.lo[i] = c[32 + 4 * n + i];
      }
      float value[4];
      sum.values(super, sums + (n * 8 + g) * (C::SUMS_BYTES / 4) + t, x_scale, value);
#pragma unroll
      for (int i = 0; i < 4; i++) total[n * 4 + i] = __fadd_rn(total[n * 4 + i], value[i]);
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(empty + turn * 8);
    super = next;
    if (++in_span == span || sb + 1 == n_sb) {  // the span joins those before it
#pragma unroll
      for (int i = 0; i < 32; i++) {
        float &d = done[i * C::THREADS];
        d = __fadd_rn(sb < span ? 0.0f : d, total[i]);
        total[i] = 0.0f;
      }
      in_span = 0;
    }
  }

#pragma unroll
  for (int i = 0; i < 32; i++) {
    const int32_t row = rows[i / 4 * 8 + 2 * t + i % 2];
    const uint32_t feature = tile * 16 + i % 4 / 2 * 8 + g;
    if (row < 0 || feature >= mp.n_out) continue;
    mp.y[uint64_t(row) * mp.n_out + feature] = done[i * C::THREADS];
  }
#endif
}

template <class F, int WGS>
void launch_wide(const MatmulArgs &args, Stream &s) {
  using C = Wide<F, WGS>;
  uint32_t m_blocks = 0;
  for (uint32_t i = 0; i < args.n_part; i++) m_blocks += ceil_div(args.part[i].n_out, uint32_t(C::BM));
  allow_shared(matmul_wide_kernel<F, WGS>, C::SHARED);
  launch("matmul_wide", matmul_wide_kernel<F, WGS>, dim3(ceil_div(args.rows.max, uint32_t(C::BN)), m_blocks), C::BLOCK, C::SHARED, s, args);
}

}  // namespace bl::cuda
