// matmul_many.cuh: y = W x for many rows (prompts), dense and routed.
//   W [n_out, n_in] packed · x encoded rows [n, n_in] · y [n, n_out] f32, overwritten
// launch  dense: grid (tiles of BN rows, tiles of BM features of all parts); routed: grid (expert tiles, ...); block 256: WM x WN warps
//         of MT x NT products each. Rows stream through shared memory (cp.async, 4 stages of 64 k); weights go from global memory
//         straight to registers in fragment order, one step ahead.
// bits    per row: as packed.h says: the same products in the same order as matmul_few
// floor   2 n n_in n_out / 788 TFLOP/s (dense f16 products of an H200)
// have    whole prompts of 512 rows on an H200, Q4_K: 8B 35 ms (240 TFLOP/s of products, 31 % of the floor), 30B-A3B 23 ms
#pragma once

#include "matmul.h"

namespace bl::cuda {

template <class F, int WM, int WN, int MT, int NT>
struct Many {
  static constexpr int BM = WM * MT * 16, BN = WN * NT * 8, BLOCK = WM * WN * WARP;
  static constexpr int STAGES = 4;
  static constexpr uint32_t PLANE_BYTES = BN * STEP * 2;
  static constexpr uint32_t STAGE_BYTES = F::NB * PLANE_BYTES;
  static constexpr uint32_t SUMS_AT = STAGES * STAGE_BYTES;            // [2][BN][16] halves
  static constexpr uint32_t SCALE_AT = SUMS_AT + 2 * BN * 32;          // [2][BN] f32
  static constexpr uint32_t ROWS_AT = SCALE_AT + 2 * BN * 4;           // [2][BN] i32: rows of x, rows of y (-1: none)
  static constexpr uint32_t SHARED = ROWS_AT + 2 * BN * 4;
};

__device__ inline void copy_async16(uint32_t dst, const void *src, bool real) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(real ? 16 : 0) : "memory");
}
__device__ inline void copy_async4(uint32_t dst, const void *src, bool real) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(dst), "l"(src), "r"(real ? 4 : 0) : "memory");
}
__device__ inline void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ inline void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

template <class F, int WM, int WN, int MT, int NT>
__global__ __launch_bounds__(WM *WN *WARP, 1) void matmul_many_kernel(const __grid_constant__ MatmulArgs p) {
  using C = Many<F, WM, WN, MT, NT>;
  extern __shared__ __align__(128) uint8_t shared[];
  int32_t *x_rows = reinterpret_cast<int32_t *>(shared + C::ROWS_AT), *y_rows = x_rows + C::BN;
  const uint32_t shared_at = uint32_t(__cvta_generic_to_shared(shared));
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4, t = lane % 4;
  const int wm = warp / WN, wn = warp % WN;
  release();
  depend();

  // Which features and which rows.
  uint32_t m_block = blockIdx.y;
  int part = 0;
  while (part + 1 < int(p.n_part) && m_block >= ceil_div(p.part[part].n_out, uint32_t(C::BM)))
    m_block -= ceil_div(p.part[part].n_out, uint32_t(C::BM)), part++;
  const MatmulPart &mp = p.part[part];
  const uint8_t *w = mp.w;
  const uint32_t n_row = row_count(p.rows);
  if (p.ids != nullptr) {
    if (int(blockIdx.x) >= *p.n_tiles) return;
    const ExpertTile tile = p.tiles[blockIdx.x];
    w += uint64_t(tile.expert) * mp.expert_bytes;
    for (int c = threadIdx.x; c < C::BN; c += C::BLOCK) {
      const int32_t pair = c < tile.count ? p.order[tile.begin + c] : -1;
      x_rows[c] = pair < 0 ? -1 : pair / int32_t(p.pairs_per_x);
      y_rows[c] = pair;
    }
  } else {
    const uint32_t first = blockIdx.x * C::BN;
    if (first >= n_row) return;
    for (int c = threadIdx.x; c < C::BN; c += C::BLOCK) x_rows[c] = y_rows[c] = first + c < n_row ? int32_t(first + c) : -1;
  }
  __syncthreads();

  const uint32_t n_sb = p.x.n_sb, n_step = p.x.k_stride / STEP;
  const uint32_t n_tile = ceil_div(mp.n_out, TILE_ROWS);
  const uint32_t first_tile = m_block * (C::BM / 16) + wm * MT;
  const uint8_t *tile_w[MT];  // a tile past the end reads the last one; its results are not stored
#pragma unroll
  for (int m = 0; m < MT; m++) tile_w[m] = w + uint64_t(min(first_tile + m, n_tile - 1)) * n_sb * packed_sb_bytes(F::TYPE);

  // Chunks of 16 bytes that this thread copies per step: chunk threadIdx % 8 of rows threadIdx / 8 + i * ROWS_PER.
  constexpr int ROWS_PER = C::BLOCK / 8, COPIES = C::BN / ROWS_PER;
  static_assert(C::BN % ROWS_PER == 0, "rows divide over the threads");
  const int chunk = threadIdx.x % 8;
  int32_t copy_row[COPIES];
#pragma unroll
  for (int i = 0; i < COPIES; i++) copy_row[i] = x_rows[threadIdx.x / 8 + i * ROWS_PER];
  auto issue = [&](uint32_t step) {
    if (step < n_step) {
      const uint32_t stage = shared_at + step % C::STAGES * C::STAGE_BYTES;
#pragma unroll
      for (int i = 0; i < COPIES; i++) {
        const int c = threadIdx.x / 8 + i * ROWS_PER;
        const bool real = copy_row[i] >= 0;
        const uint16_t *src = p.x.values + uint64_t(real ? copy_row[i] : 0) * p.x.k_stride + step * STEP + chunk * 8;
#pragma unroll
        for (int j = 0; j < int(F::NB); j++)
          copy_async16(stage + j * C::PLANE_BYTES + c * 128 + ((chunk ^ (c & 1) << 2) * 16), src + j * p.x.plane, real);
      }
      if constexpr (F::NB == 1) {
        if (step % SB_STEPS == 0) {
          const uint32_t sb = step / SB_STEPS;
          for (int i = threadIdx.x; i < C::BN * 2; i += C::BLOCK) {
            const int32_t row = x_rows[i / 2];
            copy_async16(shared_at + C::SUMS_AT + (sb & 1) * C::BN * 32 + i * 16,
                         p.x.sums + (uint64_t(row < 0 ? 0 : row) * n_sb + sb) * 16 + i % 2 * 8, row >= 0);
          }
          for (int i = threadIdx.x; i < C::BN; i += C::BLOCK) {
            const int32_t row = x_rows[i];
            copy_async4(shared_at + C::SCALE_AT + ((sb & 1) * C::BN + i) * 4, p.x.scale + uint64_t(row < 0 ? 0 : row) * n_sb + sb,
                        row >= 0);
          }
        }
      }
    }
    copy_commit();
  };
  for (int i = 0; i < C::STAGES - 1; i++) issue(i);

  typename F::Codes codes[MT];
#pragma unroll
  for (int m = 0; m < MT; m++) F::load(codes[m], tile_w[m], 0, lane);
  float total[MT][NT][4] = {};

  for (uint32_t sb = 0; sb < n_sb; sb++) {
    typename F::Scales scales[MT];
#pragma unroll
    for (int m = 0; m < MT; m++) F::load(scales[m], tile_w[m] + uint64_t(sb) * packed_sb_bytes(F::TYPE), lane);
    float c[MT][NT][4] = {};
#pragma unroll
    for (int s = 0; s < int(SB_STEPS); s++) {
      const uint32_t step = sb * SB_STEPS + s;
      copy_wait<C::STAGES - 2>();
      __syncthreads();
      issue(step + C::STAGES - 1);
      typename F::Codes now[MT];
#pragma unroll
      for (int m = 0; m < MT; m++) {
        now[m] = codes[m];
        if (step + 1 < n_step)
          F::load(codes[m], tile_w[m] + uint64_t((step + 1) / SB_STEPS) * packed_sb_bytes(F::TYPE), (s + 1) % SB_STEPS, lane);
      }
      const uint8_t *stage = shared + step % C::STAGES * C::STAGE_BYTES;
#pragma unroll
      for (int j = 0; j < 2; j++) {
        uint32_t a[MT][F::NA][8];
#pragma unroll
        for (int m = 0; m < MT; m++) F::fragment(2 * s + j, now[m], scales[m], a[m]);
#pragma unroll
        for (int n = 0; n < NT; n++) {
          const int col = (wn * NT + n) * 8 + g;
          uint4 x[F::NB];
#pragma unroll
          for (int i = 0; i < int(F::NB); i++)
            x[i] = *reinterpret_cast<const uint4 *>(stage + i * C::PLANE_BYTES + col * 128 + (((j * 4 + t) ^ (col & 1) << 2) * 16));
#pragma unroll
          for (int m = 0; m < MT; m++) {
            if constexpr (F::PER_BLOCK) {
              float block[4] = {0, 0, 0, 0};
              accumulate<F>(block, a[m], x);
#pragma unroll
              for (int i = 0; i < 4; i++)
                c[m][n][i] = __fmaf_rn(F::block_scale(scales[m], 2 * s + j, i / 2), block[i], c[m][n][i]);
            } else {
              accumulate<F>(c[m][n], a[m], x);
            }
          }
        }
      }
    }
    // The superblock's values join the sums.
#pragma unroll
    for (int m = 0; m < MT; m++) {
      uint32_t a[4];
      if constexpr (F::MINS) F::min_fragment(scales[m], a);
#pragma unroll
      for (int n = 0; n < NT; n++) {
        const int col = (wn * NT + n) * 8;
        float mins[4] = {0, 0, 0, 0};
        float2 x_scale = make_float2(1, 1);
        if constexpr (F::NB == 1) {
          if constexpr (F::MINS) {
            const uint32_t *sums = reinterpret_cast<const uint32_t *>(shared + C::SUMS_AT + ((sb & 1) * C::BN + col + g) * 32);
            mma_f16(mins, a, sums[t], sums[4 + t]);
          }
          x_scale = *reinterpret_cast<const float2 *>(shared + C::SCALE_AT + ((sb & 1) * C::BN + col + 2 * t) * 4);
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
          total[m][n][i] = __fadd_rn(
              total[m][n][i], superblock_value<F>(scales[m], i, c[m][n][i], mins[i], i % 2 ? x_scale.y : x_scale.x));
      }
    }
  }
  copy_wait<0>();

#pragma unroll
  for (int n = 0; n < NT; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int32_t row = y_rows[(wn * NT + n) * 8 + 2 * t + i % 2];
      if (row < 0) continue;
#pragma unroll
      for (int m = 0; m < MT; m++) {
        const uint32_t feature = (first_tile + m) * 16 + i / 2 * 8 + g;
        if (feature < mp.n_out) mp.y[uint64_t(row) * mp.n_out + feature] = total[m][n][i];
      }
    }
}

template <class F, int WM, int WN, int MT, int NT>
void launch_many(const MatmulArgs &args, Stream &s) {
  using C = Many<F, WM, WN, MT, NT>;
  uint32_t m_blocks = 0;
  for (uint32_t i = 0; i < args.n_part; i++) m_blocks += ceil_div(args.part[i].n_out, uint32_t(C::BM));
  const uint32_t n_blocks = args.ids != nullptr ? args.max_tiles : ceil_div(args.rows.max, uint32_t(C::BN));
  allow_shared(matmul_many_kernel<F, WM, WN, MT, NT>, C::SHARED);
  launch("matmul_many", matmul_many_kernel<F, WM, WN, MT, NT>, dim3(n_blocks, m_blocks), C::BLOCK, C::SHARED, s, args);
}

constexpr uint32_t WIDE = 128, NARROW = 32;  // rows of a block's tile

// Narrow tiles where wide ones would be mostly empty.
template <class F>
void launch_format(const MatmulArgs &args, Stream &s) {
  const bool wide = args.ids != nullptr ? args.tile_columns == WIDE : args.rows.max > 64;
  if (wide) launch_many<F, 4, 2, 2, 8>(args, s);
  else launch_many<F, 8, 1, 1, 4>(args, s);
}

}  // namespace bl::cuda
