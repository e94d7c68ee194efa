// matmul_many.cuh: y = W x for many rows (prompts), dense and routed.
//   W [n_out, n_in] packed · x encoded rows [n, n_in] · y [n, n_out] f32, overwritten
// launch  dense: grid (tiles of BN rows, tiles of BM features of all parts); routed: grid (expert tiles, ...); block 256: WM x WN warps
//         of MT x NT products each. Rows stream through shared memory (cp.async, 4 stages of 64 k); weights go from global memory
//         straight to registers in fragment order, one step ahead.
// bits    per row: as packed.h says: the same numbers in the same order as matmul_few
// floor   quantized weights: 4 n n_in n_out byte operations over the 1,979 TOP/s of an H200, two for each product (hi, lo); float weights
//         three to six products of bfloat16 at 989 TFLOP/s
#pragma once

#include "matmul.h"

namespace bl::cuda {

template <class F>
constexpr bool IS_WHOLE = false;
template <Kind K, Form F>
constexpr bool IS_WHOLE<Whole<K, F>> = true;

template <class F, int WM, int WN, int MT, int NT>
struct Many {
  static constexpr bool WHOLE = IS_WHOLE<F>;
  static constexpr int BM = WM * MT * 16, BN = WN * NT * 8, BLOCK = WM * WN * WARP;
  static constexpr int STAGES = 4, PLANES = WHOLE ? 1 : 3;
  static constexpr uint32_t PLANE_BYTES = BN * STEP * 2;
  static constexpr uint32_t STAGE_BYTES = PLANES * PLANE_BYTES;
  static constexpr uint32_t SUMS_AT = STAGES * STAGE_BYTES;                           // [2][BN][32] halves
  static constexpr uint32_t SCALE_AT = SUMS_AT + (WHOLE ? 2 * BN * 64 : 0);           // [2][BN] f32
  static constexpr uint32_t TOTAL_AT = SCALE_AT + (WHOLE ? 2 * BN * 4 : 0);           // [MT * NT * 4][BLOCK] f32: the spans that are done
  static constexpr uint32_t ROWS_AT = TOTAL_AT + (WHOLE ? MT * NT * 4 * BLOCK * 4 : 0);  // [2][BN] i32: rows of x, rows of y (-1: none)
  static constexpr uint32_t SHARED = ROWS_AT + 2 * BN * 4;
};

// What a lane holds of a tile: codes of a step, and of a superblock what does not change within it; A operands of a block; sums of a superblock.
template <class F>
BL_HD constexpr uint32_t sb_bytes_of() {
  if constexpr (IS_WHOLE<F>) return F::SB_BYTES;
  else return float_sb_bytes(F::TYPE);
}

template <class F, bool = IS_WHOLE<F>>
struct StepCodes {
  typename F::Codes codes;
  __device__ void load(const uint8_t *sb, int step, int lane) { F::load(codes, sb, step, lane); }
};
template <class F>
struct StepCodes<F, true> : Codes<F::KIND> {};

template <class F, bool = IS_WHOLE<F>>
struct SuperCodes {
  __device__ void load(const uint8_t *, int) {}
};
template <class F>
struct SuperCodes<F, true> {
  High<F::KIND> high;
  Scales<F::FORM> scales;
  __device__ void load(const uint8_t *sb, int lane) { high.load(sb, lane), scales.load(sb + code_bytes(F::KIND), lane); }
};

template <class F, bool = IS_WHOLE<F>>
struct Operand_A {
  uint32_t a[F::NA][8];
  __device__ void make(int b, const StepCodes<F> &c, const SuperCodes<F> &, const uint4 &) { F::fragment(b, c.codes, a); }
};
template <class F>
struct Operand_A<F, true> {
  uint32_t a[4];
  __device__ void make(int b, const StepCodes<F> &c, const SuperCodes<F> &s, const uint4 &table) { fragment<F::KIND>(b, c, s.high, table, a); }
};

template <class F, bool = IS_WHOLE<F>>
struct Sums {
  float c[4];
  __device__ void clear() { c[0] = c[1] = c[2] = c[3] = 0.0f; }
  template <class BlockSum>
  __device__ void add(int, const Operand_A<F> &a, const uint4 (&x)[3], const SuperCodes<F> &, const BlockSum &) { accumulate<F>(c, a.a, x); }
  __device__ void values(const SuperCodes<F> &, const uint32_t *, float2, float (&v)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = c[i];
  }
};
template <class F>
struct Sums<F, true> : SuperSums<F> {
  template <class BlockSum>
  __device__ void add(int b, const Operand_A<F> &a, const uint4 (&x)[1], const SuperCodes<F> &s, const BlockSum &block_sum) {
    SuperSums<F>::add(b, a.a, x[0], s.scales, block_sum);
  }
  // sums: of the lane's column, from word t on
  __device__ void values(const SuperCodes<F> &s, const uint32_t *sums, float2 x_scale, float (&v)[4]) const {
    float mins[2][4] = {};
    if constexpr (F::MINS) {
      uint32_t a[4];
      s.scales.min_fragment(a);
#pragma unroll
      for (int plane = 0; plane < 2; plane++) mma_f16(mins[plane], a, sums[plane * 8], sums[plane * 8 + 4]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = SuperSums<F>::value(i, s.scales, mins, i % 2 ? x_scale.y : x_scale.x);
  }
};

// Volatile: one column ahead of its products, and no more.
__device__ inline uint4 shared16(uint32_t at) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
  return v;
}
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
  constexpr uint32_t SB_BYTES = sb_bytes_of<F>();
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
  for (int m = 0; m < MT; m++) tile_w[m] = w + uint64_t(min(first_tile + m, n_tile - 1)) * n_sb * SB_BYTES;

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
        for (int j = 0; j < C::PLANES; j++)
          copy_async16(stage + j * C::PLANE_BYTES + c * 128 + ((chunk ^ (c & 1) << 2) * 16), src + j * p.x.plane, real);
      }
      if constexpr (C::WHOLE) {
        if (step % SB_STEPS == 0) {
          const uint32_t sb = step / SB_STEPS;
          for (int i = threadIdx.x; i < C::BN * 4; i += C::BLOCK) {
            const int32_t row = x_rows[i / 4];
            copy_async16(shared_at + C::SUMS_AT + (sb & 1) * C::BN * 64 + i * 16,
                         p.x.sums + (uint64_t(row < 0 ? 0 : row) * n_sb + sb) * 32 + i % 4 * 8, row >= 0);
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

  using Step = StepCodes<F>;
  Step codes[MT];
#pragma unroll
  for (int m = 0; m < MT; m++) codes[m].load(tile_w[m], 0, lane);
  float total[MT][NT][4] = {};  // quantized weights: of the span at hand
  float *done = reinterpret_cast<float *>(shared + C::TOTAL_AT) + threadIdx.x;
  const uint32_t span = span_of(n_sb);

  for (uint32_t sb = 0; sb < n_sb; sb++) {
    SuperCodes<F> super[MT];
    Sums<F> sum[MT][NT];
#pragma unroll
    for (int m = 0; m < MT; m++) {
      super[m].load(tile_w[m] + uint64_t(sb) * SB_BYTES, lane);
#pragma unroll
      for (int n = 0; n < NT; n++) sum[m][n].clear();
    }
    const uint32_t *sums = reinterpret_cast<const uint32_t *>(shared + C::SUMS_AT + (sb & 1) * C::BN * 64);
#pragma unroll
    for (int s = 0; s < int(SB_STEPS); s++) {
      const uint32_t step = sb * SB_STEPS + s;
      copy_wait<C::STAGES - 2>();
      __syncthreads();
      issue(step + C::STAGES - 1);
      Step now[MT];
#pragma unroll
      for (int m = 0; m < MT; m++) {
        now[m] = codes[m];
        if (step + 1 < n_step) codes[m].load(tile_w[m] + uint64_t((step + 1) / SB_STEPS) * SB_BYTES, (s + 1) % SB_STEPS, lane);
      }
#pragma unroll
      for (int j = 0; j < 2; j++) {
        Operand_A<F> a[MT];
#pragma unroll
        for (int m = 0; m < MT; m++) a[m].make(2 * s + j, now[m], super[m], mp.table);
        const uint32_t at = shared_at + step % C::STAGES * C::STAGE_BYTES + (wn * NT * 8 + g) * 128 + (((j * 4 + t) ^ (g & 1) << 2) * 16);
        uint4 ahead[C::PLANES];
#pragma unroll
        for (int i = 0; i < C::PLANES; i++) ahead[i] = shared16(at + i * C::PLANE_BYTES);
#pragma unroll
        for (int n = 0; n < NT; n++) {
          uint4 x[C::PLANES];
#pragma unroll
          for (int i = 0; i < C::PLANES; i++) {
            x[i] = ahead[i];
            if (n + 1 < NT) ahead[i] = shared16(at + i * C::PLANE_BYTES + (n + 1) * 1024);
          }
          const uint32_t *column = sums + ((wn * NT + n) * 8 + 2 * t) * 16;
#pragma unroll
          for (int m = 0; m < MT; m++)
            sum[m][n].add(2 * s + j, a[m], x, super[m], [&](int i) { return joined_block_sum(column + i * 16, 2 * s + j); });
        }
      }
    }
    // The superblock's values join the sums.
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
      for (int n = 0; n < NT; n++) {
        const int col = (wn * NT + n) * 8;
        float2 x_scale = make_float2(1, 1);
        if constexpr (C::WHOLE) x_scale = *reinterpret_cast<const float2 *>(shared + C::SCALE_AT + ((sb & 1) * C::BN + col + 2 * t) * 4);
        float value[4];
        sum[m][n].values(super[m], sums + (col + g) * 16 + t, x_scale, value);
#pragma unroll
        for (int i = 0; i < 4; i++) total[m][n][i] = __fadd_rn(total[m][n][i], value[i]);
      }
    }
    if constexpr (C::WHOLE) {
      if ((sb + 1) % span == 0 || sb + 1 == n_sb) {
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
          for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
              float &spans = done[((m * NT + n) * 4 + i) * C::BLOCK];
              const float all = __fadd_rn(sb < span ? 0.0f : spans, total[m][n][i]);
              total[m][n][i] = sb + 1 == n_sb ? all : 0.0f;
              spans = all;
            }
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

// Narrow tiles where wide ones would be mostly empty. Sums of two integers take the registers of a second tile of features.
template <class F>
void launch_format(const MatmulArgs &args, Stream &s) {
  const bool wide = args.ids != nullptr ? args.tile_columns == WIDE : args.rows.max > 64;
  if (wide) launch_many<F, 4, 2, F::JOINS || F::BLOCKS ? 2 : 1, 8>(args, s);
  else launch_many<F, 8, 1, 1, 4>(args, s);
}

}  // namespace bl::cuda
