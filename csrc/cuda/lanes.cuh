// lanes.cuh: ../common/lanes.h for a card: the lanes of a vector are eight neighbouring threads, a vector is one register of each.
//
// The eight run the same code on the same scalars: what is no vector, and every array of the encoder's own, each of them computes and
// holds whole. So vectors leave the registers only where lanes mix: by shuffles within the eight, and through Scratch. Four such groups
// share a warp and may take different branches; the threads of one group never do.
// Compile with -fmad=false -prec-div=true -prec-sqrt=true -ftz=false: every operation is one rounding, as on the host.
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>
#include <string.h>

#include "../common/blocks.h"

#define BL_INLINE static __device__ __forceinline__
#define BL_ENCODER static __device__
#define BL_UNROLL _Pragma("unroll")
#define BL_TABLE static __device__ const  // tables of ../common/generated/grids.h and of the encoders

namespace bl {
namespace BL_LANES {

BL_INLINE uint32_t lane() { return threadIdx.x & 7; }
BL_INLINE uint32_t group() { return 255u << (threadIdx.x & 24); }  // the eight threads, as a mask of their warp

// Its lane's entry of a vector that is written out.
template <class T>
BL_INLINE T own(T a, T b, T c, T d, T e, T f, T g, T h) {
  const uint32_t l = lane();
  const T low = l & 2 ? (l & 1 ? d : c) : (l & 1 ? b : a), high = l & 2 ? (l & 1 ? h : g) : (l & 1 ? f : e);
  return l & 4 ? high : low;
}

struct U8;

// One lane's value. v[i] is lane i's, for all eight threads to call together.
struct I8 {
  int32_t v;
  I8() = default;
  __device__ __forceinline__ explicit I8(int32_t value) : v(value) {}
  __device__ __forceinline__ explicit I8(const U8 &u);
  __device__ __forceinline__ I8(int32_t a, int32_t b, int32_t c, int32_t d, int32_t e, int32_t f, int32_t g, int32_t h)
      : v(own(a, b, c, d, e, f, g, h)) {}
  __device__ __forceinline__ int32_t operator[](int i) const { return __shfl_sync(group(), v, i, 8); }
};

struct U8 {
  uint32_t v;
  __device__ __forceinline__ explicit U8(uint32_t value) : v(value) {}
  __device__ __forceinline__ explicit U8(const I8 &i) : v(uint32_t(i.v)) {}
};

__device__ __forceinline__ I8::I8(const U8 &u) : v(int32_t(u.v)) {}

struct F8 {
  float v;
  F8() = default;
  __device__ __forceinline__ explicit F8(float value) : v(value) {}
  __device__ __forceinline__ F8(float a, float b, float c, float d, float e, float f, float g, float h)
      : v(own(a, b, c, d, e, f, g, h)) {}
  __device__ __forceinline__ float operator[](int i) const { return __shfl_sync(group(), v, i, 8); }
};

BL_INLINE F8 operator+(F8 a, F8 b) { return F8(a.v + b.v); }
BL_INLINE F8 operator-(F8 a, F8 b) { return F8(a.v - b.v); }
BL_INLINE F8 operator*(F8 a, F8 b) { return F8(a.v * b.v); }
BL_INLINE F8 operator/(F8 a, F8 b) { return F8(a.v / b.v); }
BL_INLINE F8 operator-(F8 a) { return F8(-a.v); }
BL_INLINE F8 &operator+=(F8 &a, F8 b) { return a = a + b; }

// Masks: 0 or -1.
BL_INLINE I8 operator<(F8 a, F8 b) { return I8(-int32_t(a.v < b.v)); }
BL_INLINE I8 operator>(F8 a, F8 b) { return I8(-int32_t(a.v > b.v)); }
BL_INLINE I8 operator>=(F8 a, F8 b) { return I8(-int32_t(a.v >= b.v)); }
BL_INLINE I8 operator==(F8 a, F8 b) { return I8(-int32_t(a.v == b.v)); }
BL_INLINE I8 operator!=(F8 a, F8 b) { return I8(-int32_t(a.v != b.v)); }

BL_INLINE I8 operator<(I8 a, I8 b) { return I8(-int32_t(a.v < b.v)); }
BL_INLINE I8 operator>(I8 a, I8 b) { return I8(-int32_t(a.v > b.v)); }
BL_INLINE I8 operator==(I8 a, I8 b) { return I8(-int32_t(a.v == b.v)); }
BL_INLINE I8 operator!=(I8 a, I8 b) { return I8(-int32_t(a.v != b.v)); }
BL_INLINE I8 operator+(I8 a, I8 b) { return I8(a.v + b.v); }
BL_INLINE I8 operator-(I8 a, I8 b) { return I8(a.v - b.v); }
BL_INLINE I8 operator&(I8 a, I8 b) { return I8(a.v & b.v); }
BL_INLINE I8 operator|(I8 a, I8 b) { return I8(a.v | b.v); }
BL_INLINE I8 operator~(I8 a) { return I8(~a.v); }
BL_INLINE I8 operator>>(I8 a, int n) { return I8(a.v >> n); }
BL_INLINE I8 operator>>(I8 a, I8 n) { return I8(a.v >> n.v); }
BL_INLINE I8 &operator-=(I8 &a, I8 b) { return a = a - b; }
BL_INLINE I8 &operator&=(I8 &a, I8 b) { return a = a & b; }
BL_INLINE I8 &operator|=(I8 &a, I8 b) { return a = a | b; }

BL_INLINE U8 operator+(U8 a, U8 b) { return U8(a.v + b.v); }
BL_INLINE U8 operator<<(U8 a, int n) { return U8(a.v << n); }
BL_INLINE U8 operator>>(U8 a, int n) { return U8(a.v >> n); }

// One superblock at a time: more of them in flight are worth more than full lanes in the second-level search.
constexpr int BATCH = 1;

BL_INLINE F8 splat(float v) { return F8(v); }
BL_INLINE I8 splat_i(int32_t v) { return I8(v); }

BL_INLINE F8 load8(const float *p) { return F8(p[lane()]); }
BL_INLINE void store8(float *p, F8 v) {
  BL_UNROLL
  for (int i = 0; i < 8; i++) p[i] = v[i];
}

// What ../common/lanes_host.h says. The words of the four groups of a warp lie in banks of their own.
constexpr int BLOCK_THREADS = 128;  // of every kernel that encodes
constexpr int SCRATCH_FLOATS = 168;

BL_INLINE float *scratch() {
  __shared__ __align__(16) float memory[BLOCK_THREADS / 8][SCRATCH_FLOATS];
  return memory[threadIdx.x / 8];
}

template <int N, int AT>
struct Scratch {
  static_assert(N % 8 == 0 && AT % 8 == 0 && AT + N <= SCRATCH_FLOATS, "a scratch lies outside its group's memory");
  __device__ __forceinline__ operator const float *() const { return scratch() + AT; }
  __device__ __forceinline__ void store(int i, F8 v) {
    __syncwarp(group());  // what was there has been read
    scratch()[AT + i + lane()] = v.v;
    __syncwarp(group());
  }
};

BL_INLINE I8 bits(F8 v) { return I8(__float_as_int(v.v)); }
BL_INLINE F8 from_bits(I8 v) { return F8(__int_as_float(v.v)); }
BL_INLINE F8 to_f(I8 v) { return F8(float(v.v)); }

BL_INLINE F8 select(I8 mask, F8 yes, F8 no) { return F8(mask.v ? yes.v : no.v); }
BL_INLINE I8 select(I8 mask, I8 yes, I8 no) { return I8(mask.v ? yes.v : no.v); }
BL_INLINE F8 max2(F8 a, F8 b) { return F8(a.v > b.v ? a.v : b.v); }
BL_INLINE F8 min2(F8 a, F8 b) { return F8(a.v < b.v ? a.v : b.v); }
BL_INLINE I8 imin(I8 a, I8 b) { return I8(min(a.v, b.v)); }
BL_INLINE I8 imax(I8 a, I8 b) { return I8(max(a.v, b.v)); }
BL_INLINE F8 abs8(F8 v) { return F8(__int_as_float(__float_as_int(v.v) & 0x7FFFFFFF)); }

BL_INLINE float sqrt1(float v) { return __fsqrt_rn(v); }
BL_INLINE F8 sqrt8(F8 v) { return F8(__fsqrt_rn(v.v)); }

BL_INLINE uint32_t lane_bits(I8 mask) { return (__ballot_sync(group(), mask.v < 0) >> (threadIdx.x & 24)) & 255u; }

BL_INLINE F8 least(F8 v) {
  BL_UNROLL
  for (int o = 4; o > 0; o >>= 1) v = min2(v, F8(__shfl_xor_sync(group(), v.v, o, 8)));
  return v;
}

BL_INLINE int lowest_bit(uint32_t v) { return __ffs(int(v)) - 1; }
BL_INLINE int highest_bit(uint32_t v) { return 31 - __clz(int(v)); }
BL_INLINE int count_bits(uint32_t v) { return __popc(v); }

BL_INLINE F8 lookup(F8 table, I8 index) { return F8(__shfl_sync(group(), table.v, index.v & 7, 8)); }

// A card's NaN has all bits set, the host's only the highest of the significand.
BL_INLINE uint32_t rounded_bits1(float v) {
  const float shifted = v + 12582912.0f;
  return shifted != shifted ? 0x7FC00000u : __float_as_uint(shifted);
}
BL_INLINE I8 rounded_bits(F8 v) { return I8(int32_t(rounded_bits1(v.v))); }

BL_INLINE I8 trunc8(F8 v) { return I8(v.v >= -2147483648.0f && v.v < 2147483648.0f ? __float2int_rz(v.v) : INT32_MIN); }

BL_INLINE uint64_t low_bytes(I8 v) {
  uint32_t word = uint32_t(v.v) & 255u;
  word |= __shfl_xor_sync(group(), word, 1, 8) << 8;   // right in every second lane
  word |= __shfl_xor_sync(group(), word, 2, 8) << 16;  // right in lanes 0 and 4
  return __shfl_sync(group(), word, 0, 8) | uint64_t(__shfl_sync(group(), word, 4, 8)) << 32;
}
BL_INLINE void store_bytes(uint8_t *p, I8 v) {
  const uint64_t bytes = low_bytes(v);
  BL_UNROLL
  for (int i = 0; i < 8; i++) p[i] = uint8_t(bytes >> (8 * i));
}

BL_INLINE I8 load_u16x8(const uint16_t *p) { return I8(int32_t(p[lane()])); }

template <int N>
BL_INLINE void load_groups(const float *x, int n_groups, F8 *out) {
  BL_UNROLL
  for (int i = 0; i < N; i++) out[i] = F8(int(lane()) < n_groups ? x[lane() * N + i] : 0.0f);
}

template <int N>
BL_INLINE void store_groups(uint8_t *p, int n_groups, const I8 *v) {
  BL_UNROLL
  for (int i = 0; i < N; i += 4) {
    const uint32_t word = (uint32_t(v[i].v) & 255u) | (uint32_t(v[i + 1].v) & 255u) << 8 | (uint32_t(v[i + 2].v) & 255u) << 16 |
                          uint32_t(v[i + 3].v) << 24;
    BL_UNROLL
    for (int g = 0; g < 8; g++) {
      const uint32_t other = __shfl_sync(group(), word, g, 8);
      if (g < n_groups)
        for (int k = 0; k < 4; k++) p[g * N + i + k] = uint8_t(other >> (8 * k));
    }
  }
}

}  // namespace BL_LANES
}  // namespace bl
