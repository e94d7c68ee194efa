// blocks.h: the byte layout of every ggml tensor type, and the scalar conversions all of them share.
//
// The one source of truth for native code; core/gguf/types.ts is its twin for sizes. Plain C++17 that nvcc compiles too: no
// intrinsics, no state. Fields stand in byte order; scales named d, m, dmin are IEEE halves by their bits unless said otherwise.
// Multi-byte fields are little-endian, as is every machine this is built for.
// Sources: GGUF specification (tensor types); the layouts were checked against encoded vectors of every type.
#pragma once

#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#define BL_HD __host__ __device__
#else
#define BL_HD
#endif

namespace bl {

// --- type ids -------------------------------------------------------------------------------------------------------------------

enum Type : uint32_t {
  TYPE_F32 = 0,
  TYPE_F16 = 1,
  TYPE_Q4_0 = 2,
  TYPE_Q4_1 = 3,
  TYPE_Q5_0 = 6,
  TYPE_Q5_1 = 7,
  TYPE_Q8_0 = 8,
  TYPE_Q8_1 = 9,
  TYPE_Q2_K = 10,
  TYPE_Q3_K = 11,
  TYPE_Q4_K = 12,
  TYPE_Q5_K = 13,
  TYPE_Q6_K = 14,
  TYPE_Q8_K = 15,
  TYPE_IQ2_XXS = 16,
  TYPE_IQ2_XS = 17,
  TYPE_IQ3_XXS = 18,
  TYPE_IQ1_S = 19,
  TYPE_IQ4_NL = 20,
  TYPE_IQ3_S = 21,
  TYPE_IQ2_S = 22,
  TYPE_IQ4_XS = 23,
  TYPE_I8 = 24,
  TYPE_I16 = 25,
  TYPE_I32 = 26,
  TYPE_I64 = 27,
  TYPE_F64 = 28,
  TYPE_IQ1_M = 29,
  TYPE_BF16 = 30,
  TYPE_TQ1_0 = 34,
  TYPE_TQ2_0 = 35,
  TYPE_MXFP4 = 39,
  TYPE_NVFP4 = 40,
  TYPE_Q1_0 = 41,
  TYPE_Q2_0 = 42,
};

constexpr uint32_t QK = 32;     // values of a small block
constexpr uint32_t QK_K = 256;  // values of a superblock

// --- layouts --------------------------------------------------------------------------------------------------------------------

#pragma pack(push, 1)

struct BlockQ1_0 {  // 128 values: bit j & 7 of qs[j >> 3]; bit ? d : -d
  uint16_t d;
  uint8_t qs[16];
};

struct BlockQ2_0 {  // 64 values: bits 2 (j & 3) of qs[j >> 2]; (q - 1) d
  uint16_t d;
  uint8_t qs[16];
};

struct BlockQ4_0 {  // value j in the low nibble of qs[j], value j + 16 in the high one; (q - 8) d
  uint16_t d;
  uint8_t qs[16];
};

struct BlockQ4_1 {  // nibbles as q4_0; q d + m
  uint16_t d, m;
  uint8_t qs[16];
};

struct BlockQ5_0 {  // nibbles as q4_0, bit j of qh is the fifth bit of value j; (q - 16) d
  uint16_t d;
  uint8_t qh[4];
  uint8_t qs[16];
};

struct BlockQ5_1 {  // q d + m
  uint16_t d, m;
  uint8_t qh[4];
  uint8_t qs[16];
};

struct BlockQ8_0 {  // q d
  uint16_t d;
  int8_t qs[32];
};

struct BlockQ8_1 {  // activations only: q d, s = d sum(q)
  uint16_t d, s;
  int8_t qs[32];
};

struct BlockQ2_K {  // 16 groups of 16: d (scales & 15) q - dmin (scales >> 4)
  uint8_t scales[16];
  uint8_t qs[64];  // byte 32h + l: values 128h + l, +32, +64, +96 from the low bits up
  uint16_t d, dmin;
};

struct BlockQ3_K {  // 16 groups of 16: d (scale - 32) (low2 - (high bit ? 0 : 4))
  uint8_t hmask[32];   // value i: bit i / 32 of hmask[i % 32]
  uint8_t qs[64];      // as q2_K
  uint8_t scales[12];  // sixteen 6-bit values
  uint16_t d;
};

struct BlockQ4_K {  // 8 groups of 32: d ls q - dmin lm
  uint16_t d, dmin;
  uint8_t scales[12];  // eight 6-bit scales and eight 6-bit minimums
  uint8_t qs[128];     // byte 32p + l: value 64p + l low, 64p + 32 + l high
};

struct BlockQ5_K {  // as q4_K with a fifth bit: value 64p + 32b + l has bit 2p + b of qh[l]
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};

struct BlockQ6_K {  // 16 groups of 16: d scales (q - 32)
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;
};

struct BlockQ8_K {  // activations only: q d, bsums = sums of 16
  float d;
  int8_t qs[256];
  int16_t bsums[16];
};

struct BlockTQ1_0 {  // five trits a byte; (t - 1) d
  uint8_t qs[48];
  uint8_t qh[4];
  uint16_t d;
};

struct BlockTQ2_0 {  // byte 32h + m: values 128h + m, +32, +64, +96; (t - 1) d
  uint8_t qs[64];
  uint16_t d;
};

struct BlockIQ2_XXS {  // 8 x { u32 four grid indices, u32 four 7-bit signs and a 4-bit scale on top }
  uint16_t d;
  uint16_t qs[32];
};

struct BlockIQ2_XS {  // qs: grid index | 7-bit signs << 9, one per 8 values; scales: a nibble per 16
  uint16_t d;
  uint16_t qs[32];
  uint8_t scales[8];
};

struct BlockIQ2_S {
  uint16_t d;
  uint8_t qs[32];     // low 8 index bits per 8 values
  uint8_t signs[32];  // a sign byte per 8 values
  uint8_t qh[8];      // index bits 8-9 of group g at 2 (g % 4) of qh[g / 4]
  uint8_t scales[8];  // a nibble per 16 values
};

struct BlockIQ3_XXS {
  uint16_t d;
  uint8_t qs[64];  // a grid index per 4 values
  uint8_t sas[32];  // eight u32: four 7-bit signs, 4-bit scale on top
};

struct BlockIQ3_S {
  uint16_t d;
  uint8_t qs[64];     // low 8 index bits per 4 values
  uint8_t qh[8];      // bit 8 of the index of group g at bit g % 8 of qh[g / 8]
  uint8_t signs[32];  // a sign byte per 8 values
  uint8_t scales[4];  // a nibble per 32 values
};

struct BlockIQ1_S {
  uint16_t d;
  uint8_t qs[32];   // low 8 index bits per 8 values
  uint16_t qh[8];   // per 32 values: 3 index bits x 4, scale at 12-14, bit 15 = shift negative
};

struct BlockIQ1_M {  // no d: its half lies in the top nibbles of the four u16 of scales
  uint8_t qs[32];
  uint8_t qh[16];
  uint8_t scales[8];
};

struct BlockIQ4_NL {  // nibbles as q4_0; d K[q]
  uint16_t d;
  uint8_t qs[16];
};

struct BlockIQ4_XS {  // 8 groups of 32: d (u - 32) K[q], u 6-bit
  uint16_t d;
  uint16_t scales_h;
  uint8_t scales_l[4];
  uint8_t qs[128];
};

struct BlockMXFP4 {  // nibbles as q4_0; F[q] 2^(e - 128)
  uint8_t e;
  uint8_t qs[16];
};

struct BlockNVFP4 {  // 4 groups of 16: F[q] u(d[s]), group s in qs[8s ..], value j low, j + 8 high
  uint8_t d[4];      // UE4M3
  uint8_t qs[32];
};

#pragma pack(pop)

static_assert(sizeof(BlockQ1_0) == 18, "q1_0: 18 bytes per 128 values");
static_assert(sizeof(BlockQ2_0) == 18, "q2_0: 18 bytes per 64 values");
static_assert(sizeof(BlockQ4_0) == 18, "q4_0: 18 bytes per 32 values");
static_assert(sizeof(BlockQ4_1) == 20, "q4_1: 20 bytes per 32 values");
static_assert(sizeof(BlockQ5_0) == 22, "q5_0: 22 bytes per 32 values");
static_assert(sizeof(BlockQ5_1) == 24, "q5_1: 24 bytes per 32 values");
static_assert(sizeof(BlockQ8_0) == 34, "q8_0: 34 bytes per 32 values");
static_assert(sizeof(BlockQ8_1) == 36, "q8_1: 36 bytes per 32 values");
static_assert(sizeof(BlockQ2_K) == 84, "q2_K: 84 bytes per 256 values");
static_assert(sizeof(BlockQ3_K) == 110, "q3_K: 110 bytes per 256 values");
static_assert(sizeof(BlockQ4_K) == 144, "q4_K: 144 bytes per 256 values");
static_assert(sizeof(BlockQ5_K) == 176, "q5_K: 176 bytes per 256 values");
static_assert(sizeof(BlockQ6_K) == 210, "q6_K: 210 bytes per 256 values");
static_assert(sizeof(BlockQ8_K) == 292, "q8_K: 292 bytes per 256 values");
static_assert(sizeof(BlockTQ1_0) == 54, "tq1_0: 54 bytes per 256 values");
static_assert(sizeof(BlockTQ2_0) == 66, "tq2_0: 66 bytes per 256 values");
static_assert(sizeof(BlockIQ2_XXS) == 66, "iq2_xxs: 66 bytes per 256 values");
static_assert(sizeof(BlockIQ2_XS) == 74, "iq2_xs: 74 bytes per 256 values");
static_assert(sizeof(BlockIQ2_S) == 82, "iq2_s: 82 bytes per 256 values");
static_assert(sizeof(BlockIQ3_XXS) == 98, "iq3_xxs: 98 bytes per 256 values");
static_assert(sizeof(BlockIQ3_S) == 110, "iq3_s: 110 bytes per 256 values");
static_assert(sizeof(BlockIQ1_S) == 50, "iq1_s: 50 bytes per 256 values");
static_assert(sizeof(BlockIQ1_M) == 56, "iq1_m: 56 bytes per 256 values");
static_assert(sizeof(BlockIQ4_NL) == 18, "iq4_nl: 18 bytes per 32 values");
static_assert(sizeof(BlockIQ4_XS) == 136, "iq4_xs: 136 bytes per 256 values");
static_assert(sizeof(BlockMXFP4) == 17, "mxfp4: 17 bytes per 32 values");
static_assert(sizeof(BlockNVFP4) == 36, "nvfp4: 36 bytes per 64 values");

// --- the table ------------------------------------------------------------------------------------------------------------------

struct TypeInfo {
  uint32_t id;
  const char *name;
  uint32_t block;  // values in a block
  uint32_t bytes;  // bytes of a block
};

// The type with this id; nullptr when there is none (retired ids included).
inline const TypeInfo *type_info(uint32_t id) {
  static const TypeInfo table[] = {
      {TYPE_F32, "f32", 1, 4},          {TYPE_F16, "f16", 1, 2},          {TYPE_Q4_0, "q4_0", 32, 18},
      {TYPE_Q4_1, "q4_1", 32, 20},      {TYPE_Q5_0, "q5_0", 32, 22},      {TYPE_Q5_1, "q5_1", 32, 24},
      {TYPE_Q8_0, "q8_0", 32, 34},      {TYPE_Q8_1, "q8_1", 32, 36},      {TYPE_Q2_K, "q2_K", 256, 84},
      {TYPE_Q3_K, "q3_K", 256, 110},    {TYPE_Q4_K, "q4_K", 256, 144},    {TYPE_Q5_K, "q5_K", 256, 176},
      {TYPE_Q6_K, "q6_K", 256, 210},    {TYPE_Q8_K, "q8_K", 256, 292},    {TYPE_IQ2_XXS, "iq2_xxs", 256, 66},
      {TYPE_IQ2_XS, "iq2_xs", 256, 74}, {TYPE_IQ3_XXS, "iq3_xxs", 256, 98}, {TYPE_IQ1_S, "iq1_s", 256, 50},
      {TYPE_IQ4_NL, "iq4_nl", 32, 18},  {TYPE_IQ3_S, "iq3_s", 256, 110},  {TYPE_IQ2_S, "iq2_s", 256, 82},
      {TYPE_IQ4_XS, "iq4_xs", 256, 136}, {TYPE_I8, "i8", 1, 1},           {TYPE_I16, "i16", 1, 2},
      {TYPE_I32, "i32", 1, 4},          {TYPE_I64, "i64", 1, 8},          {TYPE_F64, "f64", 1, 8},
      {TYPE_IQ1_M, "iq1_m", 256, 56},   {TYPE_BF16, "bf16", 1, 2},        {TYPE_TQ1_0, "tq1_0", 256, 54},
      {TYPE_TQ2_0, "tq2_0", 256, 66},   {TYPE_MXFP4, "mxfp4", 32, 17},    {TYPE_NVFP4, "nvfp4", 64, 36},
      {TYPE_Q1_0, "q1_0", 128, 18},     {TYPE_Q2_0, "q2_0", 64, 18},
  };
  for (const TypeInfo &t : table)
    if (t.id == id) return &t;
  return nullptr;
}

// --- scalar conversions ---------------------------------------------------------------------------------------------------------

BL_HD inline uint32_t f32_bits(float v) {
  uint32_t b;
  memcpy(&b, &v, 4);
  return b;
}

BL_HD inline float f32_from_bits(uint32_t b) {
  float v;
  memcpy(&v, &b, 4);
  return v;
}

// Half to float, exact. Subnormals: the significand is an integer times 2^-24.
BL_HD inline float f16_to_f32(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000u) << 16;
  const uint32_t exp = (h >> 10) & 31u;
  const uint32_t man = h & 1023u;
  if (exp == 0) {
    const float v = float(man) * f32_from_bits(0x33800000u);  // 2^-24
    return f32_from_bits(f32_bits(v) | sign);
  }
  if (exp == 31) return f32_from_bits(sign | 0x7F800000u | (man << 13));
  return f32_from_bits(sign | ((exp + 112) << 23) | (man << 13));
}

// Float to half, round to nearest even, subnormals exact, overflow to infinity, NaN to sign | 0x7E00.
BL_HD inline uint16_t f32_to_f16(float v) {
  const uint32_t b = f32_bits(v);
  const uint16_t sign = uint16_t((b >> 16) & 0x8000u);
  const uint32_t a = b & 0x7FFFFFFFu;
  if (a > 0x7F800000u) return uint16_t(sign | 0x7E00u);
  if (a >= 0x477FF000u) return uint16_t(sign | 0x7C00u);  // 65520 and above
  if (a < 0x38800000u) {                                  // below 2^-14: round to a multiple of 2^-24
    if (a < 0x33000000u) return sign;                     // below 2^-25
    const uint32_t shift = 126u - (a >> 23);              // 14 .. 24
    const uint32_t man = (a & 0x7FFFFFu) | 0x800000u;
    const uint32_t half = 1u << (shift - 1);
    uint32_t q = man >> shift;
    const uint32_t rest = man & ((1u << shift) - 1);
    if (rest > half || (rest == half && (q & 1))) q++;
    return uint16_t(sign | q);
  }
  return uint16_t(sign | ((a - 0x38000000u + 0xFFFu + ((a >> 13) & 1)) >> 13));
}

BL_HD inline float bf16_to_f32(uint16_t h) { return f32_from_bits(uint32_t(h) << 16); }

// Float to bfloat16, round to nearest even; a NaN keeps its top bits and becomes quiet.
BL_HD inline uint16_t f32_to_bf16(float v) {
  const uint32_t b = f32_bits(v);
  if ((b & 0x7FFFFFFFu) > 0x7F800000u) return uint16_t((b >> 16) | 0x40u);
  return uint16_t((b + 0x7FFFu + ((b >> 16) & 1)) >> 16);
}

// The block scale of mxfp4: 2^(e - 128).
BL_HD inline float e8m0_half(uint8_t e) { return f32_from_bits(e < 2 ? 0x00200000u << e : uint32_t(e - 1) << 23); }

// The group scale of nvfp4: half the UE4M3 value; 0x7F reads as zero.
BL_HD inline float ue4m3_half(uint8_t b) {
  if (b == 0 || b == 0x7F) return 0.0f;
  const uint32_t e = (b >> 3) & 15u, m = b & 7u;
  const float v = e == 0 ? float(m) * f32_from_bits(0x3B000000u)                                  // m 2^-9
                         : (1.0f + float(m) / 8.0f) * f32_from_bits((e + 120u) << 23);            // 2^(e - 7)
  return v * 0.5f;
}

// Six-bit scale and minimum of group j of q4_K and q5_K.
BL_HD inline void unpack_k4(const uint8_t *s, int j, uint8_t *scale, uint8_t *min) {
  if (j < 4) {
    *scale = s[j] & 63;
    *min = s[j + 4] & 63;
  } else {
    *scale = uint8_t((s[j + 4] & 15) | ((s[j - 4] >> 6) << 4));
    *min = uint8_t((s[j + 4] >> 4) | ((s[j] >> 6) << 4));
  }
}

// Six-bit scale (0..63, minus 32 when used) of group k of q3_K.
BL_HD inline uint8_t unpack_k3(const uint8_t *s, int k) {
  const uint8_t low = k < 8 ? (s[k] & 15) : (s[k - 8] >> 4);
  return uint8_t(low | (((s[8 + k % 4] >> (2 * (k / 4))) & 3) << 4));
}

}  // namespace bl
