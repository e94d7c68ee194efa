// packed.h: how weights and activations lie in card memory for the matrix kernels.
//
// All products run on mma.sync m16n8k16: A is 16 output features of a weight, B is 8 rows of activations. Both operands may permute k
// as long as they agree, so the layouts are chosen for 16-byte loads: within 32 values of k, lane (g, t) = (lane / 4, lane % 4) holds
// k = 8t .. 8t + 7, of weight rows g and g + 8 (A) and of activation row g (B); values 0..3 feed the first product, 4..7 the second.
//
//   weight      [tile of 16 rows][superblock of 256 k] of SB_BYTES: codes in lane order, then scales. Rows are padded to 16 and k to
//               256 with zeros. The same bits are kept per weight as in the file, but for one byte instead of six bits a K-type scale.
//   f16 rows    activations of quantized weights: per superblock a power of two s and halves x / s with |x / s| < 1024 (11 bits
//               for all that is within 2^-24 of the largest), and for each 32 values their sum, as two halves (high, low)
//   bf16 rows   activations of float weights: three planes of bfloat16 whose sum is the f32 value
//
// What a dot product is, in every kernel (so that bits do not depend on how many rows share a launch):
//   for each superblock: one f32 accumulator from zero through its products in ascending k; scaled; added to the row's sum in order.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "../common/blocks.h"
#include "cuda.h"

namespace bl::cuda {

constexpr uint32_t TILE_ROWS = 16;
constexpr uint32_t SB = 256;    // values of k whose products share an accumulator
constexpr uint32_t STEP = 64;   // k per pipeline step
constexpr uint32_t SB_STEPS = SB / STEP;

// Types without a layout of their own are multiplied as halves: each row of a superblock decoded, by a power of two in [1, 2), and
// rounded to 11 bits. That costs two bytes a weight; devices name such types among their features ("as_f16:q2_K").
constexpr uint32_t PACKED_HALF = 0x1000, NOT_PACKED = 0x1001;

// The layout of a type's products: the type itself, PACKED_HALF, or NOT_PACKED when it has none.
uint32_t packed_type(uint32_t type);

// Activation rows as the matrix kernels read them.
struct Encoded {
  uint16_t *values = nullptr;  // f16 [rows, k_stride], or three planes of bf16
  uint64_t plane = 0;          // elements from one bf16 plane to the next
  uint16_t *sums = nullptr;    // f16 [rows, n_sb, 16]: high halves of 8 sums, then low halves
  float *scale = nullptr;      // [rows, n_sb]
  uint32_t k_stride = 0;       // k rounded up to SB; the padding is zero
  uint32_t n_sb = 0;
};

// Whether weights of this type multiply f16 rows (else bf16 planes).
BL_HD constexpr bool reads_f16_rows(uint32_t type) { return type != TYPE_F32 && type != TYPE_F16 && type != TYPE_BF16; }

// Bytes of a packed superblock of 16 rows; 0: the type has no kernels.
BL_HD constexpr uint32_t packed_sb_bytes(uint32_t type) {
  switch (type) {
    case TYPE_F32: return 16 * 256 * 4;
    case TYPE_F16:
    case TYPE_BF16: return 16 * 256 * 2;
    case TYPE_Q8_0: return 16 * 256 + 16 * 8 * 2;
    case TYPE_Q4_0: return 16 * 128 + 16 * 8 * 2;
    case TYPE_Q4_K: return 16 * 128 + 16 * (8 + 8 + 4);
    case TYPE_Q5_K: return 16 * 128 + 16 * 32 + 16 * (8 + 8 + 4);
    case TYPE_Q6_K: return 16 * 128 + 16 * 64 + 16 * (16 + 2);
    case TYPE_MXFP4: return 16 * 128 + 16 * 8;
    case PACKED_HALF: return 16 * 256 * 2 + 16 * 4;
    default: return 0;
  }
}

// Offsets within a superblock. K-types: scales of row g then of row g + 8 (8 bytes each) by g; minimums of blocks 2t, 2t + 1 by lane.
constexpr uint32_t Q4K_SCALES = 2048, Q4K_MINS = Q4K_SCALES + 128, Q4K_D = Q4K_MINS + 128;
constexpr uint32_t Q5K_HIGH = 2048, Q5K_SCALES = Q5K_HIGH + 512, Q5K_MINS = Q5K_SCALES + 128, Q5K_D = Q5K_MINS + 128;
constexpr uint32_t Q6K_HIGH = 2048, Q6K_SCALES = Q6K_HIGH + 1024, Q6K_D = Q6K_SCALES + 256;
constexpr uint32_t Q80_D = 4096, Q40_D = 2048, MXFP4_SCALES = 2048, HALF_D = 8192;

#if defined(__CUDACC__)

// --- products -------------------------------------------------------------------------------------------------------------------

__device__ inline void mma_f16(float (&c)[4], const uint32_t *a, uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void mma_bf16(float (&c)[4], const uint32_t *a, uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// --- half arithmetic on raw words ---------------------------------------------------------------------------------------------------

__device__ inline uint32_t h2_bits(half2 v) { return *reinterpret_cast<uint32_t *>(&v); }
__device__ inline half2 h2(uint32_t v) { return *reinterpret_cast<half2 *>(&v); }
__device__ inline uint32_t h2_fma(uint32_t a, uint32_t b, uint32_t c) { return h2_bits(__hfma2(h2(a), h2(b), h2(c))); }
__device__ inline uint32_t h2_add(uint32_t a, uint32_t b) { return h2_bits(__hadd2_rn(h2(a), h2(b))); }
__device__ inline uint32_t h2_mul(uint32_t a, uint32_t b) { return h2_bits(__hmul2_rn(h2(a), h2(b))); }

// 1024 + n for small n is the half 0x6400 | n, which makes integers halves without a conversion.
constexpr uint32_t H2_1024 = 0x64006400u;
constexpr uint32_t H2_64 = 0x54005400u;  // 64 + n for n << 4: the nibble above
constexpr uint32_t H2_NEG_1024 = 0xE400E400u;
constexpr uint32_t H2_NEG_1032 = 0xE408E408u;
constexpr uint32_t H2_NEG_1056 = 0xE420E420u;
constexpr uint32_t H2_NEG_1152 = 0xE480E480u;
constexpr uint32_t H2_NEG_64 = 0xD400D400u;
constexpr uint32_t H2_NEG_72 = 0xD480D480u;
constexpr uint32_t H2_NEG_96 = 0xD600D600u;
constexpr uint32_t H2_16384 = 0x74007400u;

// (w & mask) | bits in one instruction (the compiler makes two of it when both are constants).
__device__ inline uint32_t and_or(uint32_t w, uint32_t mask, uint32_t bits) {
  uint32_t v;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(v) : "r"(w), "r"(mask), "r"(bits));
  return v;
}
constexpr uint32_t LOW = 0x000F000Fu, HIGH = 0x00F000F0u;  // nibbles that make a pair of halves

// Byte `i` of w, twice, as 1024 + byte.
__device__ inline uint32_t byte_h2(uint32_t w, int i) { return __byte_perm(w, 0x64646464u, 0x4040u + uint32_t(i) * 0x0101u); }
// Bytes 2i and 2i + 1 of w as 1024 + byte.
__device__ inline uint32_t bytes_h2(uint32_t w, int i) { return __byte_perm(w, 0x64646464u, i == 0 ? 0x4140u : 0x4342u); }
__device__ inline uint32_t word(const uint4 &v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }
__device__ inline float half_lo(uint32_t v) { return __low2float(h2(v)); }
__device__ inline float half_hi(uint32_t v) { return __high2float(h2(v)); }
__device__ inline float half_at(const uint4 &v, int i) { return i & 1 ? half_hi(word(v, i / 2)) : half_lo(word(v, i / 2)); }
// `w` shifted left by a compile-time amount that may be negative.
__device__ inline uint32_t shift_left(uint32_t w, int n) { return n >= 0 ? w << n : w >> -n; }

__device__ inline uint4 load16(const uint8_t *p) { return __ldcs(reinterpret_cast<const uint4 *>(p)); }
__device__ inline uint2 load8(const uint8_t *p) { return __ldcs(reinterpret_cast<const uint2 *>(p)); }
__device__ inline uint32_t load4(const uint8_t *p) { return __ldcs(reinterpret_cast<const uint32_t *>(p)); }

// --- formats ----------------------------------------------------------------------------------------------------------------------
//
// Each format has: Scales (what a lane needs once per superblock), Codes (per STEP of k), and
//   fragment<b>(codes, scales, a)  A operands of block b of the superblock: a[term][0..3] first product, a[term][4..7] second
//   NA, NB                         terms of the weight, planes of the activation
//   PER_BLOCK                      the scale is per 32 values (`block_scale`), else per superblock (`d`)
//   MINS                           minimums are subtracted (`min_fragment`, `dmin`)

struct FormatQ4K {
  static constexpr uint32_t TYPE = TYPE_Q4_K, NA = 1, NB = 1;
  static constexpr bool PER_BLOCK = false, MINS = true;
  struct Scales { uint4 sc; uint32_t mins; uint2 d; };
  struct Codes { uint4 q; };
  static __device__ void load(Scales &s, const uint8_t *sb, int lane) {
    s.sc = load16(sb + Q4K_SCALES + lane / 4 * 16);
    s.mins = load4(sb + Q4K_MINS + lane * 4);
    s.d = load8(sb + Q4K_D + lane / 4 * 8);
  }
  static __device__ void load(Codes &c, const uint8_t *sb, int step, int lane) { c.q = load16(sb + step * 512 + lane * 16); }
  // Codes times scales are integers below 2048: exact halves.
  static __device__ void fragment(int b, const Codes &c, const Scales &s, uint32_t (&a)[1][8]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const uint32_t w = word(c.q, (b & 1) * 2 + r), w8 = w >> 8;
      const uint32_t sc = h2_add(byte_h2(word(s.sc, r * 2 + b / 4), b & 3), H2_NEG_1024);
      const uint32_t off = h2_mul(sc, H2_NEG_1024), off64 = h2_mul(sc, H2_NEG_64);
      a[0][0 + r] = h2_fma(and_or(w, LOW, H2_1024), sc, off);
      a[0][2 + r] = h2_fma(and_or(w, HIGH, H2_64), sc, off64);
      a[0][4 + r] = h2_fma(and_or(w8, LOW, H2_1024), sc, off);
      a[0][6 + r] = h2_fma(and_or(w8, HIGH, H2_64), sc, off64);
    }
  }
  static __device__ void min_fragment(const Scales &s, uint32_t (&a)[4]) {
    a[0] = a[2] = h2_add(bytes_h2(s.mins, 0), H2_NEG_1024);
    a[1] = a[3] = h2_add(bytes_h2(s.mins, 1), H2_NEG_1024);
  }
  static __device__ float d(const Scales &s, int r) { return half_lo(r ? s.d.y : s.d.x); }
  static __device__ float dmin(const Scales &s, int r) { return half_hi(r ? s.d.y : s.d.x); }
};

struct FormatQ5K {
  static constexpr uint32_t TYPE = TYPE_Q5_K, NA = 1, NB = 1;
  static constexpr bool PER_BLOCK = false, MINS = true;
  struct Scales { uint4 sc, high; uint32_t mins; uint2 d; };
  struct Codes { uint4 q; };
  static __device__ void load(Scales &s, const uint8_t *sb, int lane) {
    s.high = load16(sb + Q5K_HIGH + lane * 16);
    s.sc = load16(sb + Q5K_SCALES + lane / 4 * 16);
    s.mins = load4(sb + Q5K_MINS + lane * 4);
    s.d = load8(sb + Q5K_D + lane / 4 * 8);
  }
  static __device__ void load(Codes &c, const uint8_t *sb, int step, int lane) { c.q = load16(sb + step * 512 + lane * 16); }
  // Bit 8 (b & 1) + 4 r + i of the block pair's word is the fifth bit of the first value of pair i, 16 above it that of the second.
  static __device__ void fragment(int b, const Codes &c, const Scales &s, uint32_t (&a)[1][8]) {
    const uint32_t high = word(s.high, b / 2);
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const uint32_t w = word(c.q, (b & 1) * 2 + r), w8 = w >> 8;
      const int at = 8 * (b & 1) + 4 * r;
      const uint32_t sc = h2_add(byte_h2(word(s.sc, r * 2 + b / 4), b & 3), H2_NEG_1024);
      const uint32_t off = h2_mul(sc, H2_NEG_1024), off64 = h2_mul(sc, H2_NEG_64);
      a[0][0 + r] = h2_fma(and_or(w, LOW, and_or(shift_left(high, 4 - at), 0x00100010u, H2_1024)), sc, off);
      a[0][2 + r] = h2_fma(and_or(w, HIGH, and_or(shift_left(high, 7 - at), 0x01000100u, H2_64)), sc, off64);
      a[0][4 + r] = h2_fma(and_or(w8, LOW, and_or(shift_left(high, 2 - at), 0x00100010u, H2_1024)), sc, off);
      a[0][6 + r] = h2_fma(and_or(w8, HIGH, and_or(shift_left(high, 5 - at), 0x01000100u, H2_64)), sc, off64);
    }
  }
  static __device__ void min_fragment(const Scales &s, uint32_t (&a)[4]) {
    a[0] = a[2] = h2_add(bytes_h2(s.mins, 0), H2_NEG_1024);
    a[1] = a[3] = h2_add(bytes_h2(s.mins, 1), H2_NEG_1024);
  }
  static __device__ float d(const Scales &s, int r) { return half_lo(r ? s.d.y : s.d.x); }
  static __device__ float dmin(const Scales &s, int r) { return half_hi(r ? s.d.y : s.d.x); }
};

struct FormatQ6K {
  static constexpr uint32_t TYPE = TYPE_Q6_K, NA = 1, NB = 1;
  static constexpr bool PER_BLOCK = false, MINS = false;
  struct Scales { uint4 sc; uint32_t d; };
  struct Codes { uint4 q; uint2 high; };
  static __device__ void load(Scales &s, const uint8_t *sb, int lane) {
    s.sc = load16(sb + Q6K_SCALES + lane / 2 * 16);  // of (g, t / 2): row g's 8 blocks, row g + 8's 8 blocks, each + 128
    s.d = load4(sb + Q6K_D + lane / 4 * 4);
  }
  static __device__ void load(Codes &c, const uint8_t *sb, int step, int lane) {
    c.q = load16(sb + step * 512 + lane * 16);
    c.high = load8(sb + Q6K_HIGH + step * 256 + lane * 8);
  }
  // Bits 2 (4 r + i) of the block's word are the high bits of the first value of pair i, 16 above them those of the second. Scale
  // times code has up to 13 bits: rounded to a half.
  static __device__ void fragment(int b, const Codes &c, const Scales &s, uint32_t (&a)[1][8]) {
    const uint32_t high = b & 1 ? c.high.y : c.high.x;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const uint32_t w = word(c.q, (b & 1) * 2 + r), w8 = w >> 8;
      const int at = 8 * r;
      const uint32_t sc = h2_add(byte_h2(word(s.sc, r * 2 + b / 4), b & 3), H2_NEG_1152);
      a[0][0 + r] = h2_mul(h2_add(and_or(w, LOW, and_or(shift_left(high, 4 - at), 0x00300030u, H2_1024)), H2_NEG_1056), sc);
      a[0][2 + r] = h2_mul(h2_add(and_or(w, HIGH, and_or(shift_left(high, 6 - at), 0x03000300u, H2_64)), H2_NEG_96), sc);
      a[0][4 + r] = h2_mul(h2_add(and_or(w8, LOW, and_or(shift_left(high, 0 - at), 0x00300030u, H2_1024)), H2_NEG_1056), sc);
      a[0][6 + r] = h2_mul(h2_add(and_or(w8, HIGH, and_or(shift_left(high, 2 - at), 0x03000300u, H2_64)), H2_NEG_96), sc);
    }
  }
  static __device__ float d(const Scales &s, int r) { return r ? half_hi(s.d) : half_lo(s.d); }
};

struct FormatQ80 {
  static constexpr uint32_t TYPE = TYPE_Q8_0, NA = 1, NB = 1;
  static constexpr bool PER_BLOCK = true, MINS = false;
  struct Scales { uint4 d[2]; };  // 8 blocks of row g, of row g + 8
  struct Codes { uint4 q[2]; };   // codes + 128; block: row g k 0-3, 4-7, row g + 8 k 0-3, 4-7
  static __device__ void load(Scales &s, const uint8_t *sb, int lane) {
    s.d[0] = load16(sb + Q80_D + lane / 4 * 32);
    s.d[1] = load16(sb + Q80_D + lane / 4 * 32 + 16);
  }
  static __device__ void load(Codes &c, const uint8_t *sb, int step, int lane) {
    c.q[0] = load16(sb + step * 1024 + lane * 16);
    c.q[1] = load16(sb + step * 1024 + 512 + lane * 16);
  }
  static __device__ void fragment(int b, const Codes &c, const Scales &, uint32_t (&a)[1][8]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const uint32_t lo = word(c.q[b & 1], r * 2), hi = word(c.q[b & 1], r * 2 + 1);
      a[0][0 + r] = h2_add(bytes_h2(lo, 0), H2_NEG_1152);
      a[0][2 + r] = h2_add(bytes_h2(lo, 1), H2_NEG_1152);
      a[0][4 + r] = h2_add(bytes_h2(hi, 0), H2_NEG_1152);
      a[0][6 + r] = h2_add(bytes_h2(hi, 1), H2_NEG_1152);
    }
  }
  static __device__ float block_scale(const Scales &s, int b, int r) { return half_at(s.d[r], b); }
};

struct FormatQ40 {
  static constexpr uint32_t TYPE = TYPE_Q4_0, NA = 1, NB = 1;
  static constexpr bool PER_BLOCK = true, MINS = false;
  struct Scales { uint4 d[2]; };
  struct Codes { uint4 q; };
  static __device__ void load(Scales &s, const uint8_t *sb, int lane) {
    s.d[0] = load16(sb + Q40_D + lane / 4 * 32);
    s.d[1] = load16(sb + Q40_D + lane / 4 * 32 + 16);
  }
  static __device__ void load(Codes &c, const uint8_t *sb, int step, int lane) { c.q = load16(sb + step * 512 + lane * 16); }
  static __device__ void fragment(int b, const Codes &c, const Scales &, uint32_t (&a)[1][8]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const uint32_t w = word(c.q, (b & 1) * 2 + r), w8 = w >> 8;
      a[0][0 + r] = h2_add(and_or(w, LOW, H2_1024), H2_NEG_1032);
      a[0][2 + r] = h2_add(and_or(w, HIGH, H2_64), H2_NEG_72);
      a[0][4 + r] = h2_add(and_or(w8, LOW, H2_1024), H2_NEG_1032);
      a[0][6 + r] = h2_add(and_or(w8, HIGH, H2_64), H2_NEG_72);
    }
  }
  static __device__ float block_scale(const Scales &s, int b, int r) { return half_at(s.d[r], b); }
};

// Codes are E2M1: moved to the top of a half's exponent and mantissa they mean 2^-14 of their value.
struct FormatMXFP4 {
  static constexpr uint32_t TYPE = TYPE_MXFP4, NA = 1, NB = 1;
  static constexpr bool PER_BLOCK = true, MINS = false;
  struct Scales { uint4 e; };  // exponents + 127 of 8 blocks of row g, then of row g + 8
  struct Codes { uint4 q; };
  static __device__ void load(Scales &s, const uint8_t *sb, int lane) { s.e = load16(sb + MXFP4_SCALES + lane / 4 * 16); }
  static __device__ void load(Codes &c, const uint8_t *sb, int step, int lane) { c.q = load16(sb + step * 512 + lane * 16); }
  // The pair of codes at bit `at` of both halves of w.
  static __device__ uint32_t pair(uint32_t w, int at) {
    const uint32_t top = shift_left(w, 12 - at);
    return h2_mul(and_or(shift_left(w, 9 - at), 0x0E000E00u, top & 0x80008000u), H2_16384);
  }
  static __device__ void fragment(int b, const Codes &c, const Scales &, uint32_t (&a)[1][8]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const uint32_t w = word(c.q, (b & 1) * 2 + r);
#pragma unroll
      for (int i = 0; i < 4; i++) a[0][2 * i + r] = pair(w, 4 * i);
    }
  }
  static __device__ float block_scale(const Scales &s, int b, int r) {
    const uint32_t e = word(s.e, r * 2 + b / 4) >> (8 * (b % 4)) & 255;
    return __uint_as_float(e == 0 ? 0x00400000u : e << 23);
  }
};

struct FormatHalf {
  static constexpr uint32_t TYPE = PACKED_HALF, NA = 1, NB = 1;
  static constexpr bool PER_BLOCK = false, MINS = false;
  struct Scales { uint2 d; };
  struct Codes { uint4 w[2][2]; };  // [block][row g, row g + 8]
  static __device__ void load(Scales &s, const uint8_t *sb, int lane) { s.d = load8(sb + HALF_D + lane / 4 * 8); }
  static __device__ void load(Codes &c, const uint8_t *sb, int step, int lane) {
#pragma unroll
    for (int i = 0; i < 4; i++) c.w[i / 2][i % 2] = load16(sb + (step * 4 + i) * 512 + lane * 16);
  }
  static __device__ void fragment(int b, const Codes &c, const Scales &, uint32_t (&a)[1][8]) {
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
      for (int i = 0; i < 4; i++) a[0][2 * i + r] = word(c.w[b & 1][r], i);
  }
  static __device__ float d(const Scales &s, int r) { return __uint_as_float(r ? s.d.y : s.d.x); }
};

// Floats: sums of bfloat16 terms, so that products with three-term activations carry f32's 24 bits.
struct FormatBF16 {
  static constexpr uint32_t TYPE = TYPE_BF16, NA = 1, NB = 3;
  static constexpr bool PER_BLOCK = false, MINS = false;
  struct Scales {};
  struct Codes { uint4 w[2][2]; };  // [block][row g, row g + 8]
  static __device__ void load(Scales &, const uint8_t *, int) {}
  static __device__ void load(Codes &c, const uint8_t *sb, int step, int lane) {
#pragma unroll
    for (int i = 0; i < 4; i++) c.w[i / 2][i % 2] = load16(sb + (step * 4 + i) * 512 + lane * 16);
  }
  static __device__ void fragment(int b, const Codes &c, const Scales &, uint32_t (&a)[1][8]) {
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
      for (int i = 0; i < 4; i++) a[0][2 * i + r] = word(c.w[b & 1][r], i);
  }
  static __device__ float d(const Scales &, int) { return 1.0f; }
};

__device__ inline uint32_t bf2_bits(float x, float y) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(x, y);
  return *reinterpret_cast<const uint32_t *>(&v);
}
__device__ inline float bf_lo(uint32_t v) { return __uint_as_float(v << 16); }
__device__ inline float bf_hi(uint32_t v) { return __uint_as_float(v & 0xFFFF0000u); }

struct FormatF16 {
  static constexpr uint32_t TYPE = TYPE_F16, NA = 2, NB = 3;
  static constexpr bool PER_BLOCK = false, MINS = false;
  struct Scales {};
  struct Codes { uint4 w[2][2]; };
  static __device__ void load(Scales &, const uint8_t *, int) {}
  static __device__ void load(Codes &c, const uint8_t *sb, int step, int lane) {
#pragma unroll
    for (int i = 0; i < 4; i++) c.w[i / 2][i % 2] = load16(sb + (step * 4 + i) * 512 + lane * 16);
  }
  // 11 bits are the sum of two bfloat16, exactly.
  static __device__ void fragment(int b, const Codes &c, const Scales &, uint32_t (&a)[2][8]) {
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const uint32_t w = word(c.w[b & 1][r], i);
        const float x = half_lo(w), y = half_hi(w);
        const uint32_t top = bf2_bits(x, y);
        a[0][2 * i + r] = top;
        a[1][2 * i + r] = bf2_bits(x - bf_lo(top), y - bf_hi(top));
      }
  }
  static __device__ float d(const Scales &, int) { return 1.0f; }
};

struct FormatF32 {
  static constexpr uint32_t TYPE = TYPE_F32, NA = 3, NB = 3;
  static constexpr bool PER_BLOCK = false, MINS = false;
  struct Scales {};
  struct Codes { uint4 w[2][4]; };  // [block][row g k 0-3, 4-7, row g + 8 k 0-3, 4-7]
  static __device__ void load(Scales &, const uint8_t *, int) {}
  static __device__ void load(Codes &c, const uint8_t *sb, int step, int lane) {
#pragma unroll
    for (int i = 0; i < 8; i++) c.w[i / 4][i % 4] = load16(sb + (step * 8 + i) * 512 + lane * 16);
  }
  static __device__ void fragment(int b, const Codes &c, const Scales &, uint32_t (&a)[3][8]) {
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float x = __uint_as_float(word(c.w[b & 1][r * 2 + i / 2], i % 2 * 2));
        float y = __uint_as_float(word(c.w[b & 1][r * 2 + i / 2], i % 2 * 2 + 1));
#pragma unroll
        for (int term = 0; term < 3; term++) {
          const uint32_t top = bf2_bits(x, y);
          a[term][2 * i + r] = top;
          x -= bf_lo(top), y -= bf_hi(top);
        }
      }
  }
  static __device__ float d(const Scales &, int) { return 1.0f; }
};

// c += the products of one block of 32: in this order, everywhere. x[plane] are the B operands of the block.
template <class F>
__device__ inline void accumulate(float (&c)[4], const uint32_t (&a)[F::NA][8], const uint4 (&x)[F::NB]) {
  if constexpr (F::NB == 1) {
    mma_f16(c, a[0], x[0].x, x[0].y);
    mma_f16(c, a[0] + 4, x[0].z, x[0].w);
  } else {
#pragma unroll
    for (int k = 0; k < 2; k++)
#pragma unroll
      for (int i = 0; i < int(F::NA); i++)
#pragma unroll
        for (int j = 0; j < 3 - i; j++) mma_bf16(c, a[i] + 4 * k, k ? x[j].z : x[j].x, k ? x[j].w : x[j].y);
  }
}

// The superblock's share of a row's sum: element i of a C fragment, from its accumulator, minimums' product and activation scale.
template <class F>
__device__ inline float superblock_value(const typename F::Scales &s, int i, float c, float m, float x_scale) {
  const int r = i / 2;
  if constexpr (F::NB == 3) return c;
  else if constexpr (F::PER_BLOCK) return __fmul_rn(c, x_scale);
  else if constexpr (F::MINS) return __fmul_rn(__fmaf_rn(F::d(s, r), c, -__fmul_rn(F::dmin(s, r), m)), x_scale);
  else return __fmul_rn(__fmul_rn(F::d(s, r), c), x_scale);
}

#endif  // __CUDACC__

}  // namespace bl::cuda
