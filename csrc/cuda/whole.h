// whole.h: quantized weights on a card: codes of whole numbers, so that their products with rows of 14 bits are exact sums, equal to the
// host's bit for bit (../cpu/coded.h and packing.h have the formulas).
//
// A type is a kind of code and a form of scales. Within 32 values of k a lane has k = 4t .. 4t + 3 (its first half) and 16 + 4t .. (its
// second) of rows g and g + 8: the A operands of m16n8k32, and each half alone those of m16n8k16.
//
//   kind   bits of a code and how they become a signed byte                              superblock of 16 rows
//   U4     0 .. 15 as they are                                                           2048 B
//   S4     -8 .. 7, at the top of the byte: 16 times the code                            2048 B
//   T4     an index into the type's sixteen values                                       2048 B
//   U5     a fifth bit in a plane of its own                                             2560 B
//   S5     the same at the top of the byte: 8 times the code                             2560 B
//   S6     two bits in a plane of their own, at the top: 4 times the code                3072 B
//   S8     a byte                                                                        4096 B
//
//   form          scales of a row's superblock                                                        behind the codes
//   K32_MIN       d, dmin f16; a whole scale and a whole minimum for each 32 values                   320 B
//   K16           d f32; a whole scale for each 16 values                                             320 B
//   K16_MIN       d, dmin f32; a scale and a minimum for each 16 values                               640 B
//   BLOCKS        a half for each 32 values                                                           256 B
//   BLOCKS_E8     a power of two for each 32 values, as its exponent                                  128 B
//   BLOCKS_MIN    a half and an addend, also a half, for each 32 values                               512 B
//   BLOCKS16      a half for each 16 values                                                           512 B
#pragma once

#include "packed.h"

namespace bl::cuda {

enum class Kind : uint32_t { U4, S4, T4, U5, S5, S6, S8 };
enum class Form : uint32_t { K32_MIN, K16, K16_MIN, BLOCKS, BLOCKS_E8, BLOCKS_MIN, BLOCKS16 };

BL_HD constexpr uint32_t code_bytes(Kind k) {
  return k == Kind::S8 ? 4096 : k == Kind::S6 ? 3072 : k == Kind::U5 || k == Kind::S5 ? 2560 : 2048;
}
BL_HD constexpr uint32_t scale_bytes(Form f) {
  switch (f) {
    case Form::K32_MIN: return 128 + 128 + 64;
    case Form::K16: return 256 + 64;
    case Form::K16_MIN: return 256 + 256 + 128;
    case Form::BLOCKS: return 256;
    case Form::BLOCKS_E8: return 128;
    default: return 512;
  }
}
// A code's byte is the code times 2^this.
BL_HD constexpr int code_shift(Kind k) { return k == Kind::S4 ? 4 : k == Kind::S5 ? 3 : k == Kind::S6 ? 2 : 0; }

constexpr uint32_t HIGH_AT = 2048;  // the plane of higher bits

// How a type lies: kind, form, and the values of a T4 code.
struct WholeType {
  uint32_t type;
  Kind kind;
  Form form;
  int8_t table[16];
};

// nullptr for a type that is none of whole numbers.
const WholeType *whole_type(uint32_t type);

#if defined(__CUDACC__)

__device__ inline void mma_s8(int32_t (&c)[4], const uint32_t *a, uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// The same from zero.
__device__ inline void mma_s8_zero(int32_t (&c)[4], const uint32_t *a, uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
               : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(0));
}
// Of 16 values of k, from zero.
__device__ inline void mma_s8_half(int32_t (&c)[4], const uint32_t *a, uint32_t b0) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"
               : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(b0), "r"(0));
}
__device__ inline void mma_f16(float (&c)[4], const uint32_t *a, uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two exact sums as one number: one rounding.
__device__ inline float joined(int32_t hi, int32_t lo) { return __fmaf_rn(float(hi), 128.0f, float(lo)); }

// --- codes --------------------------------------------------------------------------------------------------------------------------

template <Kind K>
struct Codes {
  uint4 q[K == Kind::S8 ? 2 : 1];
  uint2 two;  // S6: two bits of each code
  __device__ void load(const uint8_t *sb, int step, int lane) {
    if constexpr (K == Kind::S8) {
      q[0] = load16(sb + step * 1024 + lane * 16);
      q[1] = load16(sb + step * 1024 + 512 + lane * 16);
    } else {
      q[0] = load16(sb + step * 512 + lane * 16);
      if constexpr (K == Kind::S6) two = load8(sb + HIGH_AT + step * 256 + lane * 8);
    }
  }
};

// What a lane reads of a superblock once: the plane of fifth bits.
template <Kind K>
struct High {
  uint4 bits;
  __device__ void load(const uint8_t *sb, int lane) {
    if constexpr (K == Kind::U5 || K == Kind::S5) bits = load16(sb + HIGH_AT + lane * 16);
  }
};

// The values of the four indices in the low nibbles of a half word.
__device__ inline uint32_t look_up(uint32_t indices, const uint4 &table) {
  const uint32_t low = __byte_perm(table.x, table.y, indices & 0x7777u), high = __byte_perm(table.z, table.w, indices & 0x7777u);
  return __byte_perm(low, high, 0x3210u | (indices & 0x8888u) >> 1);
}

// A operands of block b of a superblock: row g and g + 8 of its first 16 values, then of its second.
template <Kind K>
__device__ inline void fragment(int b, const Codes<K> &c, const High<K> &h, const uint4 &table, uint32_t (&a)[4]) {
#pragma unroll
  for (int r = 0; r < 2; r++) {
    if constexpr (K == Kind::S8) {
      a[r] = word(c.q[b & 1], r * 2), a[2 + r] = word(c.q[b & 1], r * 2 + 1);
    } else {
      const uint32_t w = word(c.q[0], (b & 1) * 2 + r);
      if constexpr (K == Kind::T4) {
        a[r] = look_up(w & 0xFFFFu, table), a[2 + r] = look_up(w >> 16, table);
      } else if constexpr (K == Kind::S4) {
        a[r] = w << 4 & 0xF0F0F0F0u, a[2 + r] = w & 0xF0F0F0F0u;
      } else {
        a[r] = w & 0x0F0F0F0Fu, a[2 + r] = w >> 4 & 0x0F0F0F0Fu;
        if constexpr (K == Kind::U5 || K == Kind::S5) {
          const int at = (b & 1) * 4 + r * 2;
          const uint32_t bits = word(h.bits, b / 2);
          a[r] |= shift_left(bits, 4 - at) & 0x10101010u, a[2 + r] |= shift_left(bits, 3 - at) & 0x10101010u;
          if constexpr (K == Kind::S5) a[r] <<= 3, a[2 + r] <<= 3;
        } else if constexpr (K == Kind::S6) {
          const uint32_t bits = b & 1 ? c.two.y : c.two.x;
          a[r] = (a[r] | (shift_left(bits, 4 - r * 4) & 0x30303030u)) << 2;
          a[2 + r] = (a[2 + r] | (shift_left(bits, 2 - r * 4) & 0x30303030u)) << 2;
        }
      }
    }
  }
}

// --- scales -------------------------------------------------------------------------------------------------------------------------
//
// What a lane needs of a superblock's scales, of rows g (r = 0) and g + 8 (r = 1).

// Volatile: taken out where they are used, not all of them ahead, which would cost a register each.
__device__ inline uint32_t byte_of(const uint4 &v, int i) {
  uint32_t byte;
  asm volatile("bfe.u32 %0, %1, %2, 8;" : "=r"(byte) : "r"(word(v, i / 4)), "r"(i % 4 * 8));
  return byte;
}
__device__ inline int32_t signed_byte_of(const uint4 &v, int i) {
  int32_t byte;
  asm volatile("bfe.s32 %0, %1, %2, 8;" : "=r"(byte) : "r"(int32_t(word(v, i / 4))), "r"(i % 4 * 8));
  return byte;
}

template <Form F>
struct Scales;

template <>
struct Scales<Form::K32_MIN> {
  uint4 sc;       // 8 of row g, 8 of row g + 8
  uint32_t mins;  // of blocks t and t + 4: row g, row g + 8
  uint2 d;        // d, dmin of row g; of row g + 8
  __device__ void load(const uint8_t *s, int lane) {
    sc = load16(s + lane / 4 * 16), mins = load4(s + 128 + lane * 4), d = load8(s + 256 + lane / 4 * 8);
  }
  __device__ int32_t scale32(int b, int r) const { return int32_t(byte_of(sc, r * 8 + b)); }
  __device__ uint32_t scales4(int q, int r) const { return word(sc, r * 2 + q); }  // of blocks 4q .. 4q + 3
  // A operands of the minimums of 16 groups: groups 2t and 2t + 1 are one block.
  __device__ void min_fragment(uint32_t (&a)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; i++) {  // row g, g + 8 of the first eight groups, then of the second
      const half2 m = __half2half2(__ushort2half_rn(uint16_t(mins >> ((i % 2 * 2 + i / 2) * 8) & 255u)));
      a[i] = *reinterpret_cast<const uint32_t *>(&m);
    }
  }
  __device__ float scaled(float value, int r) const { return __fmul_rn(half_lo(r ? d.y : d.x), value); }
  __device__ float scaled(float value, float min, int r) const {
    const uint32_t both = r ? d.y : d.x;
    return __fmaf_rn(half_lo(both), value, -__fmul_rn(half_hi(both), min));
  }
};

template <>
struct Scales<Form::K16> {
  uint4 sc[2];  // 16 of row g; of row g + 8
  float d[2];
  __device__ void load(const uint8_t *s, int lane) {
    sc[0] = load16(s + lane / 4 * 32), sc[1] = load16(s + lane / 4 * 32 + 16);
    const uint2 both = load8(s + 256 + lane / 4 * 8);
    d[0] = __uint_as_float(both.x), d[1] = __uint_as_float(both.y);
  }
  __device__ int32_t scale16(int j, int r) const { return signed_byte_of(sc[r], j); }
  __device__ float scaled(float value, int r) const { return __fmul_rn(d[r], value); }
};

template <>
struct Scales<Form::K16_MIN> {
  uint4 sc[2];
  uint2 mins;  // of groups 2t, 2t + 1, 2t + 8, 2t + 9: row g, row g + 8
  uint4 d;     // d, dmin of row g; of row g + 8
  __device__ void load(const uint8_t *s, int lane) {
    sc[0] = load16(s + lane / 4 * 32), sc[1] = load16(s + lane / 4 * 32 + 16);
    mins = load8(s + 256 + lane * 8), d = load16(s + 512 + lane / 4 * 16);
  }
  __device__ int32_t scale16(int j, int r) const { return signed_byte_of(sc[r], j); }
  __device__ void min_fragment(uint32_t (&a)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint32_t w = i % 2 ? mins.y : mins.x, at = i / 2 * 16;
      const half2 m = __halves2half2(__ushort2half_rn(uint16_t(w >> at & 255u)), __ushort2half_rn(uint16_t(w >> (at + 8) & 255u)));
      a[i] = *reinterpret_cast<const uint32_t *>(&m);
    }
  }
  __device__ float scaled(float value, float min, int r) const {
    return __fmaf_rn(__uint_as_float(word(d, r * 2)), value, -__fmul_rn(__uint_as_float(word(d, r * 2 + 1)), min));
  }
};

template <>
struct Scales<Form::BLOCKS> {
  uint4 d[2];  // 8 halves of row g; of row g + 8
  __device__ void load(const uint8_t *s, int lane) { d[0] = load16(s + lane / 4 * 32), d[1] = load16(s + lane / 4 * 32 + 16); }
  __device__ float block(int b, int r) const { return half_at(d[r], b); }
};

template <>
struct Scales<Form::BLOCKS_E8> {
  uint4 e;  // exponents + 127 of 8 blocks of row g, of row g + 8
  __device__ void load(const uint8_t *s, int lane) { e = load16(s + lane / 4 * 16); }
  __device__ float block(int b, int r) const { return e8m0_half(uint8_t(byte_of(e, r * 8 + b))); }
};

template <>
struct Scales<Form::BLOCKS_MIN> {
  uint4 d[2], m[2];
  __device__ void load(const uint8_t *s, int lane) {
    d[0] = load16(s + lane / 4 * 32), d[1] = load16(s + lane / 4 * 32 + 16);
    m[0] = load16(s + 256 + lane / 4 * 32), m[1] = load16(s + 256 + lane / 4 * 32 + 16);
  }
  __device__ float block(int b, int r) const { return half_at(d[r], b); }
  __device__ float addend(int b, int r) const { return half_at(m[r], b); }
};

template <>
struct Scales<Form::BLOCKS16> {
  uint4 d[2][2];  // 16 halves of row g; of row g + 8
  __device__ void load(const uint8_t *s, int lane) {
#pragma unroll
    for (int i = 0; i < 4; i++) d[i / 2][i % 2] = load16(s + lane / 4 * 64 + i * 16);
  }
  __device__ float group(int j, int r) const { return half_at(d[r][j / 8], j % 8); }
};

// --- formats ------------------------------------------------------------------------------------------------------------------------

template <Kind K, Form F>
struct Whole {
  static constexpr Kind KIND = K;
  static constexpr Form FORM = F;
  static constexpr uint32_t SB_BYTES = code_bytes(K) + scale_bytes(F);
  static constexpr bool MINS = F == Form::K32_MIN || F == Form::K16_MIN;
  static constexpr bool BY16 = F == Form::K16 || F == Form::K16_MIN || F == Form::BLOCKS16;
  static constexpr bool BLOCKS = F == Form::BLOCKS || F == Form::BLOCKS_E8 || F == Form::BLOCKS_MIN || F == Form::BLOCKS16;
  // 128 H + L of a superblock stays below 2^31 and H and L below 2^24: the joined sum is one whole number, rounded once.
  static constexpr bool JOINS = K == Kind::U4 && (F == Form::K32_MIN || F == Form::K16_MIN);
  static constexpr int SHIFT = code_shift(K);
};

// f(Whole<..>()) for the format of a type.
#pragma nv_exec_check_disable
template <class Do>
BL_HD void with_whole(Kind kind, Form form, const Do &f) {
  switch (form) {
    case Form::K32_MIN: return kind == Kind::U4 ? f(Whole<Kind::U4, Form::K32_MIN>()) : f(Whole<Kind::U5, Form::K32_MIN>());
    case Form::K16:
      return kind == Kind::S6   ? f(Whole<Kind::S6, Form::K16>())
             : kind == Kind::S4 ? f(Whole<Kind::S4, Form::K16>())
                                : f(Whole<Kind::T4, Form::K16>());
    case Form::K16_MIN: return f(Whole<Kind::U4, Form::K16_MIN>());
    case Form::BLOCKS:
      return kind == Kind::S8   ? f(Whole<Kind::S8, Form::BLOCKS>())
             : kind == Kind::S4 ? f(Whole<Kind::S4, Form::BLOCKS>())
             : kind == Kind::S5 ? f(Whole<Kind::S5, Form::BLOCKS>())
                                : f(Whole<Kind::T4, Form::BLOCKS>());
    case Form::BLOCKS_E8: return f(Whole<Kind::T4, Form::BLOCKS_E8>());
    case Form::BLOCKS_MIN: return kind == Kind::U4 ? f(Whole<Kind::U4, Form::BLOCKS_MIN>()) : f(Whole<Kind::U5, Form::BLOCKS_MIN>());
    case Form::BLOCKS16: return f(Whole<Kind::T4, Form::BLOCKS16>());
  }
}

// The sum of a superblock for the columns of a C fragment, as it grows.
template <class F>
struct SuperSums {
  int32_t hi[4], lo[4];  // hi: 128 H + L where F::JOINS
  float blocks[4];

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < 4; i++) hi[i] = lo[i] = 0, blocks[i] = 0.0f;
  }
  // Block b: its A operands, and of B the lane's 16 bytes.   block_sum(column): joined sum of the column's row over the block
  template <class BlockSum>
  __device__ void add(int b, const uint32_t (&a)[4], const uint4 &x, const Scales<F::FORM> &s, const BlockSum &block_sum) {
    if constexpr (F::BY16) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        int32_t h[4], l[4];
        mma_s8_half(h, a + 2 * half, half ? x.y : x.x);
        mma_s8_half(l, a + 2 * half, half ? x.w : x.z);
#pragma unroll
        for (int i = 0; i < 4; i++) {
          if constexpr (F::BLOCKS) blocks[i] = __fmaf_rn(s.group(2 * b + half, i / 2), joined(h[i], l[i]), blocks[i]);
          else weigh(i, s.scale16(2 * b + half, i / 2), h[i], l[i]);
        }
      }
    } else {
      int32_t h[4], l[4];
      mma_s8_zero(h, a, x.x, x.y);
      mma_s8_zero(l, a, x.z, x.w);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if constexpr (F::BLOCKS) {
          blocks[i] = __fmaf_rn(block_scale(s, b, i / 2), joined(h[i], l[i]), blocks[i]);
          if constexpr (F::FORM == Form::BLOCKS_MIN) blocks[i] = __fmaf_rn(s.addend(b, i / 2), block_sum(i % 2), blocks[i]);
        } else {
          weigh(i, s.scale32(b, i / 2), h[i], l[i]);
        }
      }
    }
  }
  __device__ void weigh(int i, int32_t scale, int32_t h, int32_t l) {
    if constexpr (F::JOINS) hi[i] += scale * (h * 128 + l);
    else hi[i] += scale * h, lo[i] += scale * l;
  }
  // mins: products of minimums with the sums of hi, of lo
  __device__ float value(int i, const Scales<F::FORM> &s, const float (&mins)[2][4], float x_scale) const {
    if constexpr (F::BLOCKS) return __fmul_rn(blocks[i], x_scale);
    else {
      const float sum = F::JOINS ? float(hi[i]) : joined(hi[i] >> F::SHIFT, lo[i] >> F::SHIFT);
      if constexpr (F::MINS) return __fmul_rn(s.scaled(sum, __fmaf_rn(mins[0][i], 128.0f, mins[1][i]), i / 2), x_scale);
      else return __fmul_rn(s.scaled(sum, i / 2), x_scale);
    }
  }
  // What a block's sum is multiplied by; a power of two away from the file's scale.
  static __device__ float block_scale(const Scales<F::FORM> &s, int b, int r) {
    return F::SHIFT == 0 ? s.block(b, r) : __fmul_rn(s.block(b, r), 1.0f / float(1 << F::SHIFT));
  }
};

// The sum of the two halves of a word of sums: over the 32 values of a block.
__device__ inline float both_halves(uint32_t w) { return __fadd_rn(half_lo(w), half_hi(w)); }
// `sums`: a row's superblock, words of hi, then of lo.
__device__ inline float joined_block_sum(const uint32_t *sums, int b) {
  return __fmaf_rn(both_halves(sums[b]), 128.0f, both_halves(sums[8 + b]));
}

// Superblock values of a row are added in four spans (../cpu/packing.h).
__device__ inline uint32_t span_of(uint32_t n_sb) { return (n_sb + 3) / 4; }

#endif  // __CUDACC__

}  // namespace bl::cuda
