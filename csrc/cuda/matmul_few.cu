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

template <class F, int NC>
__device__ void few_tiles(const MatmulPart &part, const uint8_t *w, uint32_t tile0, uint32_t tile1, const FewPlan &plan,
                          const MatmulArgs &p, uint32_t x_row, uint32_t y_row, uint32_t n, float *values) {
  constexpr uint32_t SB_BYTES = packed_sb_bytes(F::TYPE);
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4, t = lane % 4;
  const uint32_t n_sb = p.x.n_sb, per_group = plan.group * n_sb, n_group = ceil_div(tile1 - tile0, plan.group);
  const uint32_t first_tile = warp / n_sb, first_sb = warp % n_sb;

  // Columns past the last row repeat it: their results are not stored.
  const uint32_t column = NC == 1 ? 0 : min(uint32_t(g), n - 1);
  const uint16_t *x = p.x.values + uint64_t(x_row + column) * p.x.k_stride + t * 8;
  const uint32_t *sums = reinterpret_cast<const uint32_t *>(p.x.sums + uint64_t(x_row + column) * n_sb * 16) + t;
  const float *scale[2];
#pragma unroll
  for (int i = 0; i < 2; i++) scale[i] = p.x.scale + uint64_t(x_row + (NC == 1 ? 0 : min(uint32_t(2 * t + i), n - 1))) * n_sb;

  // This warp's items in turn: superblock `sb` of tile `ti` of a group, `slot` in the group's values.
  struct Cursor {
    uint32_t group, slot, ti, sb;
  };
  auto weights_at = [&](const Cursor &c) -> const uint8_t * {
    const uint32_t tile = tile0 + c.group * plan.group + c.ti;
    return c.group < n_group && c.slot < per_group && tile < tile1 ? w + (uint64_t(tile) * n_sb + c.sb) * SB_BYTES : nullptr;
  };
  auto advance = [&](Cursor &c) {
    c.slot += N_WARP, c.sb += N_WARP;
    while (c.sb >= n_sb) c.sb -= n_sb, c.ti++;
    if (c.slot >= per_group) c.group++, c.slot = warp, c.ti = first_tile, c.sb = first_sb;
  };
  // Weights are no result of this step: the first are asked for before the wait for the rows.
  Cursor now = {0, uint32_t(warp), first_tile, first_sb};
  typename F::Scales scales;
  typename F::Codes codes[SB_STEPS];
  const uint8_t *at = weights_at(now);
  if (at != nullptr) {
    F::load(scales, at, lane);
#pragma unroll
    for (int i = 0; i < int(SB_STEPS); i++) F::load(codes[i], at, i, lane);
  }
  depend();

  for (uint32_t done = 0; done < n_group; done++) {
    float *out = values + (done & 1) * per_group * TILE_ROWS * NC;
    while (now.group == done && now.slot < per_group) {
      const bool live = at != nullptr;
      const uint32_t this_slot = now.slot, this_sb = now.sb;
      advance(now);
      if (!live) continue;  // only in the last group: nothing follows
      const uint8_t *next = weights_at(now);
      uint32_t sum_high = 0, sum_low = 0;
      float x_scale[2] = {1, 1};
      if constexpr (F::NB == 1) {
        if constexpr (F::MINS) sum_high = sums[this_sb * 8], sum_low = sums[this_sb * 8 + 4];
        x_scale[0] = scale[0][this_sb];
        x_scale[1] = NC == 1 ? x_scale[0] : scale[1][this_sb];
      }
      const uint8_t *ahead = next != nullptr ? next : at;  // the last item loads itself again rather than branch
      typename F::Scales next_scales;
      F::load(next_scales, ahead, lane);
      float c[4] = {0, 0, 0, 0};
#pragma unroll
      for (int b = 0; b < int(SB / 32); b++) {
        uint4 xb[F::NB];
#pragma unroll
        for (int j = 0; j < int(F::NB); j++) xb[j] = *reinterpret_cast<const uint4 *>(x + j * p.x.plane + this_sb * SB + b * 32);
        uint32_t a[F::NA][8];
        F::fragment(b, codes[b / 2], scales, a);
        if (b & 1) F::load(codes[b / 2], ahead, b / 2, lane);  // its registers are free: the next item's codes
        if constexpr (F::PER_BLOCK) {
          float block[4] = {0, 0, 0, 0};
          accumulate<F>(block, a, xb);
#pragma unroll
          for (int i = 0; i < 4; i++) c[i] = __fmaf_rn(F::block_scale(scales, b, i / 2), block[i], c[i]);
        } else {
          accumulate<F>(c, a, xb);
        }
      }
      float m[4] = {0, 0, 0, 0};
      if constexpr (F::MINS) {
        uint32_t a[4];
        F::min_fragment(scales, a);
        mma_f16(m, a, sum_high, sum_low);
      }
      float *v = out + this_slot * TILE_ROWS * NC;
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float value = superblock_value<F>(scales, i, c[i], m[i], x_scale[i % 2]);
        if (NC > 1 || (t == 0 && i % 2 == 0)) v[(i / 2 * 8 + g) * NC + (NC > 1 ? 2 * t + i % 2 : 0)] = value;
      }
      scales = next_scales;
      at = next;
    }
    __syncthreads();  // the group's values are complete, and the other buffer's readers are done: they passed here
    for (uint32_t o = threadIdx.x; o < plan.group * TILE_ROWS * NC; o += BLOCK) {
      const uint32_t row = o % TILE_ROWS, col = o / TILE_ROWS % NC, tile_at = o / (TILE_ROWS * NC);
      const uint32_t tile = tile0 + done * plan.group + tile_at, feature = tile * TILE_ROWS + row;
      if (tile >= tile1 || feature >= part.n_out || col >= n) continue;
      const float *v = out + (tile_at * n_sb * TILE_ROWS + row) * NC + col;
      float sum = 0.0f;
#pragma unroll 8
      for (uint32_t i = 0; i < n_sb; i++) sum = __fadd_rn(sum, v[i * TILE_ROWS * NC]);
      part.y[uint64_t(y_row + col) * part.n_out + feature] = sum;
    }
  }
}

// Types whose code shares a kernel.
enum class Set { common, floats, others };

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
  if constexpr (SET == Set::others) {
    switch (mp.type) {
      case TYPE_MXFP4: few_tiles<FormatMXFP4, NC>(mp, w, tile0, tile1, plan, p, x_row, y_row, n, values); break;
      case PACKED_HALF: few_tiles<FormatHalf, NC>(mp, w, tile0, tile1, plan, p, x_row, y_row, n, values); break;
    }
  } else if constexpr (SET == Set::floats) {
    switch (mp.type) {
      case TYPE_F32: few_tiles<FormatF32, NC>(mp, w, tile0, tile1, plan, p, x_row, y_row, n, values); break;
      case TYPE_F16: few_tiles<FormatF16, NC>(mp, w, tile0, tile1, plan, p, x_row, y_row, n, values); break;
      case TYPE_BF16: few_tiles<FormatBF16, NC>(mp, w, tile0, tile1, plan, p, x_row, y_row, n, values); break;
    }
  } else {
    switch (mp.type) {
      case TYPE_Q4_K: few_tiles<FormatQ4K, NC>(mp, w, tile0, tile1, plan, p, x_row, y_row, n, values); break;
      case TYPE_Q5_K: few_tiles<FormatQ5K, NC>(mp, w, tile0, tile1, plan, p, x_row, y_row, n, values); break;
      case TYPE_Q6_K: few_tiles<FormatQ6K, NC>(mp, w, tile0, tile1, plan, p, x_row, y_row, n, values); break;
      case TYPE_Q8_0: few_tiles<FormatQ80, NC>(mp, w, tile0, tile1, plan, p, x_row, y_row, n, values); break;
      case TYPE_Q4_0: few_tiles<FormatQ40, NC>(mp, w, tile0, tile1, plan, p, x_row, y_row, n, values); break;
    }
  }
}

template <int NC, Set SET>
void launch_few(const MatmulArgs &args, const FewPlan &plan, uint32_t pairs, Stream &s) {
  const size_t shared = size_t(2) * plan.group * args.x.n_sb * TILE_ROWS * NC * sizeof(float);
  allow_shared(matmul_few_kernel<NC, SET>, shared);
  launch("matmul_few", matmul_few_kernel<NC, SET>, dim3(plan.first[args.n_part], pairs), BLOCK, shared, s, args, plan);
}

Set set_of(uint32_t type) {
  if (!reads_f16_rows(type)) return Set::floats;
  return type == TYPE_MXFP4 || type == PACKED_HALF ? Set::others : Set::common;
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
