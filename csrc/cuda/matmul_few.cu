// matmul_few.cu: y = W x for up to 8 rows (decode), W packed (packed.h), and for routed pairs one by one.
//   W [n_out, n_in] packed · x encoded rows [n, n_in] · y [n, n_out] f32, overwritten
// launch  grid (blocks over tiles of 16 features of all parts, pairs), block 256: 8 warps take (tile, superblock) items in turn, the
//         next one's codes loading as this one's are used; a tile's superblock values meet in shared memory and are added in order of k
// needs   rows <= 8 (dense); n_in a multiple of 32 for quantized types; runs in the caller's stream, no allocation (capturable)
// bits    per row: as packed.h says; n_in alone decides, not the launch, the mapping to warps or the other rows
// floor   bytes of W over memory bandwidth: 4096 x 24576 Q4_K 58 MB: 13.5 us at 4.3 TB/s
// have    whole decode steps on an H200, Q4_K with a Q6_K head: 8B (5.0 GB) 2.39 ms, 49 % of the floor; 30B-A3B 2.59 ms, 17 %
//         slower when tried: weights brought into L2 three items ahead (x 0.89), three or four blocks a multiprocessor with fewer
//         registers (x 0.92, x 0.80)
#include "matmul.h"

namespace bl::cuda {

namespace {

constexpr int N_WARP = 8;
constexpr int BLOCK = N_WARP * WARP;

struct FewPlan {
  uint32_t tiles_per_block;      // tiles of a block, a multiple of `group` but for the last
  uint32_t group;                // tiles whose superblocks are dealt to the warps together
  uint32_t first[MAX_PARTS + 1]; // first block of each part
};

// The values of a C fragment: rows g, g + 8 of columns 2t, 2t + 1.
template <int NC>
__device__ inline void store(const float (&c)[4], int lane, float *v) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < 4; i++)
    if (NC > 1 || (t == 0 && i % 2 == 0)) v[(i / 2 * 8 + g) * NC + (NC > 1 ? 2 * t + i % 2 : 0)] = c[i];
}

// This warp's items in turn: superblock `sb` of tile `ti` of a group, `slot` in the group's values.
struct Cursor {
  uint32_t group, slot, ti, sb;
};

// Walks a block's (tile, superblock) items and adds up their values.
//   body: load(at) asks for the first item; run(sb, at, ahead, out) computes the item at `at` into out [16][NC] and asks for the one at `ahead`
//   SPANS: superblocks are added in four spans, and these in order; else all of them in order
template <int NC, bool SPANS, class Body>
__device__ void few_tiles(Body &body, uint32_t sb_bytes, const MatmulPart &part, const uint8_t *w, uint32_t tile0, uint32_t tile1,
                          const FewPlan &plan, uint32_t n_sb, uint32_t y_row, uint32_t n, float *values) {
  const int warp = threadIdx.x / WARP;
  const uint32_t per_group = plan.group * n_sb, n_group = ceil_div(tile1 - tile0, plan.group);
  const uint32_t first_tile = warp / n_sb, first_sb = warp % n_sb;
  auto weights_at = [&](const Cursor &c) -> const uint8_t * {
    const uint32_t tile = tile0 + c.group * plan.group + c.ti;
    return c.group < n_group && c.slot < per_group && tile < tile1 ? w + (uint64_t(tile) * n_sb + c.sb) * sb_bytes : nullptr;
  };
  auto advance = [&](Cursor &c) {
    c.slot += N_WARP, c.sb += N_WARP;
    while (c.sb >= n_sb) c.sb -= n_sb, c.ti++;
    if (c.slot >= per_group) c.group++, c.slot = warp, c.ti = first_tile, c.sb = first_sb;
  };
  // Weights are no result of this step: the first are asked for before the wait for the rows.
  Cursor now = {0, uint32_t(warp), first_tile, first_sb};
  const uint8_t *at = weights_at(now);
  if (at != nullptr) body.load(at);
  depend();

  for (uint32_t done = 0; done < n_group; done++) {
    float *out = values + (done & 1) * per_group * TILE_ROWS * NC;
    while (now.group == done && now.slot < per_group) {
      const bool live = at != nullptr;
      const uint32_t this_slot = now.slot, this_sb = now.sb;
      advance(now);
      if (!live) continue;  // only in the last group: nothing follows
      const uint8_t *next = weights_at(now);
      body.run(this_sb, next != nullptr ? next : at, out + this_slot * TILE_ROWS * NC);  // the last item loads itself again rather than branch
      at = next;
    }
    __syncthreads();  // the group's values are complete, and the other buffer's readers are done: they passed here
    for (uint32_t o = threadIdx.x; o < plan.group * TILE_ROWS * NC; o += BLOCK) {
      const uint32_t row = o % TILE_ROWS, col = o / TILE_ROWS % NC, tile_at = o / (TILE_ROWS * NC);
      const uint32_t tile = tile0 + done * plan.group + tile_at, feature = tile * TILE_ROWS + row;
      if (tile >= tile1 || feature >= part.n_out || col >= n) continue;
      const float *v = out + (tile_at * n_sb * TILE_ROWS + row) * NC + col;
      float sum = 0.0f;
      if constexpr (SPANS) {
        const uint32_t span = span_of(n_sb);
        for (uint32_t first = 0; first < n_sb; first += span) {
          float acc = 0.0f;
#pragma unroll 8
          for (uint32_t i = first; i < min(first + span, n_sb); i++) acc = __fadd_rn(acc, v[i * TILE_ROWS * NC]);
          sum = __fadd_rn(sum, acc);
        }
      } else {
#pragma unroll 8
        for (uint32_t i = 0; i < n_sb; i++) sum = __fadd_rn(sum, v[i * TILE_ROWS * NC]);
      }
      part.y[uint64_t(y_row + col) * part.n_out + feature] = sum;
    }
  }
}

// Float weights.
template <class F, int NC>
struct FloatBody {
  const uint16_t *x;
  uint64_t plane;
  int lane;
  typename F::Codes codes[SB_STEPS];

  __device__ FloatBody(const MatmulArgs &p, uint32_t x_row, uint32_t n) : plane(p.x.plane), lane(threadIdx.x % WARP) {
    // Columns past the last row repeat it: their results are not stored.
    const uint32_t column = NC == 1 ? 0 : min(uint32_t(lane / 4), n - 1);
    x = p.x.values + uint64_t(x_row + column) * p.x.k_stride + lane % 4 * 8;
  }
  __device__ void load(const uint8_t *at) {
#pragma unroll
    for (int i = 0; i < int(SB_STEPS); i++) F::load(codes[i], at, i, lane);
  }
  __device__ void run(uint32_t sb, const uint8_t *ahead, float *v) {
    float c[4] = {0, 0, 0, 0};
#pragma unroll
    for (int b = 0; b < int(SB / 32); b++) {
      uint4 xb[3];
#pragma unroll
      for (int j = 0; j < 3; j++) xb[j] = *reinterpret_cast<const uint4 *>(x + j * plane + sb * SB + b * 32);
      uint32_t a[F::NA][8];
      F::fragment(b, codes[b / 2], a);
      if (b & 1) F::load(codes[b / 2], ahead, b / 2, lane);  // its registers are free: the next item's codes
      accumulate<F>(c, a, xb);
    }
    store<NC>(c, lane, v);
  }
};

// Quantized weights, a column for each row of activations.
template <class F, int NC>
struct WholeBody {
  const uint8_t *x;       // of the lane's column: 16 bytes of each block
  const uint32_t *sums;   // of the lane's column: [superblock][hi 8 words, lo 8 words]
  const uint32_t *column_sums[2];  // of columns 2t, 2t + 1
  const float *scale[2];  // of columns 2t, 2t + 1
  uint4 table;
  int lane;
  Codes<F::KIND> codes[SB_STEPS];
  High<F::KIND> high;
  Scales<F::FORM> scales;

  __device__ WholeBody(const MatmulArgs &p, const MatmulPart &part, uint32_t x_row, uint32_t n) : table(part.table), lane(threadIdx.x % WARP) {
    // Columns past the last row repeat it: their results are not stored.
    const int g = lane / 4, t = lane % 4;
    const uint32_t column = x_row + min(uint32_t(g), n - 1);
    x = reinterpret_cast<const uint8_t *>(p.x.values + uint64_t(column) * p.x.k_stride) + t * 16;
    sums = reinterpret_cast<const uint32_t *>(p.x.sums) + uint64_t(column) * p.x.n_sb * 16 + t;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const uint64_t row = x_row + min(uint32_t(2 * t + i), n - 1);
      scale[i] = p.x.scale + row * p.x.n_sb;
      column_sums[i] = reinterpret_cast<const uint32_t *>(p.x.sums) + row * p.x.n_sb * 16;
    }
  }
  __device__ void load(const uint8_t *at) {
    high.load(at, lane), scales.load(at + code_bytes(F::KIND), lane);
#pragma unroll
    for (int i = 0; i < int(SB_STEPS); i++) codes[i].load(at, i, lane);
  }
  __device__ void run(uint32_t sb, const uint8_t *ahead, float *v) {
    High<F::KIND> next_high;
    Scales<F::FORM> next_scales;
    next_high.load(ahead, lane), next_scales.load(ahead + code_bytes(F::KIND), lane);
    SuperSums<F> sum;
    sum.clear();
#pragma unroll
    for (int b = 0; b < int(SB / 32); b++) {
      const uint4 xb = *reinterpret_cast<const uint4 *>(x + sb * (SB * 2) + b * 64);
      uint32_t a[4];
      fragment<F::KIND>(b, codes[b / 2], high, table, a);
      if (b & 1) codes[b / 2].load(ahead, b / 2, lane);  // its registers are free: the next item's codes
      sum.add(b, a, xb, scales, [&](int column) { return joined_block_sum(column_sums[column] + sb * 16, b); });
    }
    float mins[2][4] = {};
    if constexpr (F::MINS) {
      uint32_t a[4];
      scales.min_fragment(a);
#pragma unroll
      for (int plane = 0; plane < 2; plane++) mma_f16(mins[plane], a, sums[sb * 16 + plane * 8], sums[sb * 16 + plane * 8 + 4]);
    }
    float c[4];
#pragma unroll
    for (int i = 0; i < 4; i++) c[i] = sum.value(i, scales, mins, scale[i % 2][sb]);
    store<NC>(c, lane, v);
    high = next_high, scales = next_scales;
  }
};

// Quantized weights, one row of activations. The eight columns of a product are four pieces of the row, blocks or halves of blocks, times
// (hi, lo), so that a block costs one product; lane t then has the sums of piece t.
template <class F>
struct WholeBody<F, 1> {
  static constexpr int SETS = F::BY16 ? 4 : 2;  // accumulators: of four pieces each
  const uint8_t *x;
  const uint32_t *sums;
  const float *scale;
  uint4 table;
  int lane;
  Codes<F::KIND> codes[SB_STEPS];
  High<F::KIND> high;
  Scales<F::FORM> scales;

  __device__ WholeBody(const MatmulArgs &p, const MatmulPart &part, uint32_t x_row, uint32_t) : table(part.table), lane(threadIdx.x % WARP) {
    // Column g: plane g % 2 of piece g / 2.
    const int g = lane / 4, t = lane % 4, piece = g / 2;
    x = reinterpret_cast<const uint8_t *>(p.x.values + uint64_t(x_row) * p.x.k_stride) + t * 16 + g % 2 * 8;
    x += F::BY16 ? piece / 2 * 64 + piece % 2 * 4 : piece * 64;
    sums = reinterpret_cast<const uint32_t *>(p.x.sums) + uint64_t(x_row) * p.x.n_sb * 16;
    scale = p.x.scale + uint64_t(x_row) * p.x.n_sb;
  }
  __device__ void load(const uint8_t *at) {
    high.load(at, lane), scales.load(at + code_bytes(F::KIND), lane);
#pragma unroll
    for (int i = 0; i < int(SB_STEPS); i++) codes[i].load(at, i, lane);
  }
  __device__ void run(uint32_t sb, const uint8_t *ahead, float *v) {
    const int g = lane / 4, t = lane % 4, piece = g / 2;
    High<F::KIND> next_high;
    Scales<F::FORM> next_scales;
    next_high.load(ahead, lane), next_scales.load(ahead + code_bytes(F::KIND), lane);
    uint2 xs[SETS];
#pragma unroll
    for (int q = 0; q < SETS; q++) {
      if constexpr (F::BY16) xs[q].x = *reinterpret_cast<const uint32_t *>(x + sb * (SB * 2) + q * 128);
      else xs[q] = *reinterpret_cast<const uint2 *>(x + sb * (SB * 2) + q * 256);
    }
    int32_t c[SETS][4] = {};
#pragma unroll
    for (int b = 0; b < int(SB / 32); b++) {
      uint32_t a[4];
      fragment<F::KIND>(b, codes[b / 2], high, table, a);
      if (b & 1) codes[b / 2].load(ahead, b / 2, lane);  // its registers are free: the next item's codes
      if constexpr (F::BY16) {
        const uint32_t w = piece / 2 == (b & 1) ? xs[b / 2].x : 0;
        mma_s8(c[b / 2], a, piece % 2 ? 0 : w, piece % 2 ? w : 0);
      } else {
        const bool mine = piece == (b & 3);
        mma_s8(c[b / 4], a, mine ? xs[b / 4].x : 0, mine ? xs[b / 4].y : 0);
      }
    }
    // c[q][2 r], c[q][2 r + 1]: sums with hi and lo of piece 4 q + t, for row g + 8 r.
    float value[4] = {};
    if constexpr (F::BLOCKS) {
#pragma unroll
      for (int r = 0; r < 2; r++) {
        float f = 0.0f, sum[SETS];
#pragma unroll
        for (int q = 0; q < SETS; q++) sum[q] = joined(c[q][2 * r], c[q][2 * r + 1]);
#pragma unroll
        for (int j = 0; j < 4 * SETS; j++) {
          const float s = __shfl_sync(~0u, sum[j / 4], (lane & ~3) | (j & 3));
          if constexpr (F::BY16) f = __fmaf_rn(scales.group(j, r), s, f);
          else f = __fmaf_rn(SuperSums<F>::block_scale(scales, j, r), s, f);
          if constexpr (F::FORM == Form::BLOCKS_MIN) f = __fmaf_rn(scales.addend(j, r), joined_block_sum(sums + sb * 16, j), f);
        }
        value[2 * r] = __fmul_rn(f, scale[sb]);
      }
    } else {
      SuperSums<F> sum;
      sum.clear();
#pragma unroll
      for (int q = 0; q < SETS; q++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
          int32_t s;
          if constexpr (F::BY16) s = int32_t(word(scales.sc[r], q) << (24 - 8 * t)) >> 24;
          else s = int32_t(scales.scales4(q, r) >> (8 * t) & 255u);
          sum.weigh(2 * r, s, c[q][2 * r], c[q][2 * r + 1]);
        }
#pragma unroll
      for (int i = 0; i < 4; i += 2)
#pragma unroll
        for (int o = 1; o < 4; o <<= 1) {
          sum.hi[i] += __shfl_xor_sync(~0u, sum.hi[i], o);
          if constexpr (!F::JOINS) sum.lo[i] += __shfl_xor_sync(~0u, sum.lo[i], o);
        }
      float mins[2][4] = {};
      if constexpr (F::MINS) {  // columns: sums of hi, of lo, in turn
        uint32_t a[4];
        scales.min_fragment(a);
        const uint32_t *w = sums + sb * 16 + g % 2 * 8 + t;
        float both[4] = {0, 0, 0, 0};
        mma_f16(both, a, w[0], w[4]);
        mins[0][0] = both[0], mins[1][0] = both[1], mins[0][2] = both[2], mins[1][2] = both[3];
      }
#pragma unroll
      for (int i = 0; i < 4; i += 2) value[i] = sum.value(i, scales, mins, scale[sb]);
    }
    store<1>(value, lane, v);
    high = next_high, scales = next_scales;
  }
};

// Formats whose code shares a kernel.
enum class Set { common, floats, others };

BL_HD constexpr Set set_of(Kind kind, Form form) {
  const bool common = form == Form::K32_MIN || kind == Kind::S6 || kind == Kind::S8 || (kind == Kind::S4 && form == Form::BLOCKS);
  return common ? Set::common : Set::others;
}

template <int NC, Set SET>
__global__ __launch_bounds__(BLOCK, SET == Set::floats ? 1 : 2) void matmul_few_kernel(const __grid_constant__ MatmulArgs p,
                                                                           const __grid_constant__ FewPlan plan) {
  extern __shared__ float values[];  // [2][group * n_sb][16][NC]
  release();
  int part = 0;
  while (part + 1 < int(p.n_part) && blockIdx.x >= plan.first[part + 1]) part++;
  const MatmulPart &mp = p.part[part];
  const uint32_t n_tile = ceil_div(mp.n_out, TILE_ROWS);
  const uint32_t tile0 = (blockIdx.x - plan.first[part]) * plan.tiles_per_block;
  const uint32_t tile1 = min(tile0 + plan.tiles_per_block, n_tile);
  const uint8_t *w = mp.w;
  uint32_t n, x_row = 0, y_row = 0;
  if (p.ids != nullptr) {
    depend();  // the experts are a result of this step
    const uint32_t pair = blockIdx.y;
    if (pair >= row_count(p.rows)) return;
    w += uint64_t(p.ids[pair]) * mp.expert_bytes;
    n = 1, x_row = pair / p.pairs_per_x, y_row = pair;
  } else {
    n = row_count(p.rows);  // written by the step's input copy, before any kernel
    if (n == 0) return depend();  // a grid that has not waited would let its successor overtake its predecessor
  }
  if constexpr (SET == Set::floats) {
    auto run = [&](auto format) {
      using F = decltype(format);
      FloatBody<F, NC> body(p, x_row, n);
      few_tiles<NC, false>(body, float_sb_bytes(F::TYPE), mp, w, tile0, tile1, plan, p.x.n_sb, y_row, n, values);
    };
    switch (mp.type) {
      case TYPE_F32: return run(FormatF32());
      case TYPE_F16: return run(FormatF16());
      default: return run(FormatBF16());
    }
  } else {
    with_whole(mp.kind, mp.form, [&](auto format) {
      using F = decltype(format);
      if constexpr (set_of(F::KIND, F::FORM) == SET) {
        WholeBody<F, NC> body(p, mp, x_row, n);
        few_tiles<NC, true>(body, F::SB_BYTES, mp, w, tile0, tile1, plan, p.x.n_sb, y_row, n, values);
      }
    });
  }
}

template <int NC, Set SET>
void launch_few(const MatmulArgs &args, const FewPlan &plan, uint32_t pairs, Stream &s) {
  const size_t shared = size_t(2) * plan.group * args.x.n_sb * TILE_ROWS * NC * sizeof(float);
  allow_shared(matmul_few_kernel<NC, SET>, shared);
  launch("matmul_few", matmul_few_kernel<NC, SET>, dim3(plan.first[args.n_part], pairs), BLOCK, shared, s, args, plan);
}

Set set_of(uint32_t type) {
  const WholeType *w = whole_type(type);
  return w == nullptr ? Set::floats : set_of(w->kind, w->form);
}

}  // namespace

void matmul_few(const MatmulArgs &args, uint32_t n_sm, Stream &s) {
  const uint32_t pairs = args.ids != nullptr ? args.rows.max : 1;
  FewPlan plan = {};
  plan.group = 1;
  while (plan.group < 8 && plan.group * args.x.n_sb % N_WARP != 0) plan.group++;
  if (args.x.n_sb >= 2 * N_WARP) plan.group = 1;

  // Tiles per block: least work for the busiest multiprocessor; among equals the fewest blocks that still fill it.
  uint64_t best_cost = ~0ull;
  for (uint32_t tiles = plan.group; tiles <= 64 * plan.group; tiles += plan.group) {
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < args.n_part; i++) blocks += ceil_div(ceil_div(args.part[i].n_out, TILE_ROWS), tiles);
    blocks *= pairs;
    const uint64_t cost = ceil_div(blocks, uint64_t(n_sm)) * tiles;
    if (tiles > plan.group && blocks * 2 < uint64_t(n_sm) * 3) break;
    if (cost <= best_cost) best_cost = cost, plan.tiles_per_block = tiles;
  }
  // A barrier per group: as many tiles as the shared memory of a full multiprocessor allows.
  const bool one = args.ids != nullptr || args.rows.max == 1;
  const uint32_t slots = one ? 128 : 32, least = plan.group;
  while (plan.group + least <= plan.tiles_per_block && (plan.group + least) * args.x.n_sb <= slots) plan.group += least;
  for (uint32_t i = 0; i < args.n_part; i++)
    plan.first[i + 1] = plan.first[i] + ceil_div(ceil_div(args.part[i].n_out, TILE_ROWS), plan.tiles_per_block);

  switch (set_of(args.part[0].type)) {
    case Set::common: return one ? launch_few<1, Set::common>(args, plan, pairs, s) : launch_few<8, Set::common>(args, plan, pairs, s);
    case Set::floats: return one ? launch_few<1, Set::floats>(args, plan, pairs, s) : launch_few<8, Set::floats>(args, plan, pairs, s);
    case Set::others: return one ? launch_few<1, Set::others>(args, plan, pairs, s) : launch_few<8, Set::others>(args, plan, pairs, s);
  }
}

bool few_together(uint32_t type, uint32_t other) { return set_of(type) == set_of(other); }

}  // namespace bl::cuda
