// decode.h: one block of every tensor type to f32. Compiled for the host (dequantize.cpp) and for a card (../cuda/dequantize.cu).
//
// Each formula is evaluated left to right with every operation rounded on its own (-ffp-contract=off, -fmad=false), so the values are
// the same bits on every machine. Source of the formulas: the layouts of blocks.h.
#pragma once

#if defined(__CUDACC__)
#define BL_DECODER __device__ inline
#ifndef BL_TABLE
#define BL_TABLE static __device__ const
#endif
#else
#define BL_DECODER static inline
#endif

#include "blocks.h"
#include "generated/grids.h"

namespace bl {

#pragma pack(push, 1)
template <class T>
struct Unaligned {  // one value of a type whose blocks are single values
  T value;
};
#pragma pack(pop)

BL_DECODER void decode_f32(const Unaligned<float> &b, float *y) { *y = b.value; }
BL_DECODER void decode_f16(const Unaligned<uint16_t> &b, float *y) { *y = f16_to_f32(b.value); }
BL_DECODER void decode_bf16(const Unaligned<uint16_t> &b, float *y) { *y = bf16_to_f32(b.value); }

template <class T>
BL_DECODER void decode_number(const Unaligned<T> &b, float *y) { *y = float(b.value); }

BL_DECODER void decode_q1_0(const BlockQ1_0 &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 128; j++) y[j] = (b.qs[j >> 3] >> (j & 7)) & 1 ? d : -d;
}

BL_DECODER void decode_q2_0(const BlockQ2_0 &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 64; j++) y[j] = float(((b.qs[j >> 2] >> (2 * (j & 3))) & 3) - 1) * d;
}

BL_DECODER void decode_q4_0(const BlockQ4_0 &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 16; j++) {
    y[j] = float((b.qs[j] & 15) - 8) * d;
    y[j + 16] = float((b.qs[j] >> 4) - 8) * d;
  }
}

BL_DECODER void decode_q4_1(const BlockQ4_1 &b, float *y) {
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  for (int j = 0; j < 16; j++) {
    y[j] = float(b.qs[j] & 15) * d + m;
    y[j + 16] = float(b.qs[j] >> 4) * d + m;
  }
}

// The five-bit code of value j.
BL_DECODER int code5(const uint8_t *qh, const uint8_t *qs, int j) {
  uint32_t high;
  memcpy(&high, qh, 4);
  const int low = j < 16 ? qs[j] & 15 : qs[j - 16] >> 4;
  return low | int((high >> j) & 1) << 4;
}

BL_DECODER void decode_q5_0(const BlockQ5_0 &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 32; j++) y[j] = float(code5(b.qh, b.qs, j) - 16) * d;
}

BL_DECODER void decode_q5_1(const BlockQ5_1 &b, float *y) {
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  for (int j = 0; j < 32; j++) y[j] = float(code5(b.qh, b.qs, j)) * d + m;
}

BL_DECODER void decode_q8_0(const BlockQ8_0 &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 32; j++) y[j] = float(b.qs[j]) * d;
}

BL_DECODER void decode_q8_1(const BlockQ8_1 &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 32; j++) y[j] = float(b.qs[j]) * d;
}

BL_DECODER void decode_q8_K(const BlockQ8_K &b, float *y) {
  for (int j = 0; j < 256; j++) y[j] = b.d * float(b.qs[j]);
}

// Two-bit code of value i in the plane order of q2_K and q3_K.
BL_DECODER int code2(const uint8_t *qs, int i) { return (qs[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32))) & 3; }

BL_DECODER void decode_q2_K(const BlockQ2_K &b, float *y) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int j = 0; j < 16; j++) {
    const float dl = d * float(b.scales[j] & 15), ml = dmin * float(b.scales[j] >> 4);
    for (int i = 16 * j; i < 16 * j + 16; i++) y[i] = dl * float(code2(b.qs, i)) - ml;
  }
}

BL_DECODER void decode_q3_K(const BlockQ3_K &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 16; j++) {
    const float dl = d * float(unpack_k3(b.scales, j) - 32);
    for (int i = 16 * j; i < 16 * j + 16; i++)
      y[i] = dl * float(code2(b.qs, i) - ((b.hmask[i % 32] >> (i / 32)) & 1 ? 0 : 4));
  }
}

BL_DECODER void decode_q4_K(const BlockQ4_K &b, float *y) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int j = 0; j < 8; j++) {
    uint8_t ls, lm;
    unpack_k4(b.scales, j, &ls, &lm);
    const float dl = d * float(ls), ml = dmin * float(lm);
    const uint8_t *qs = b.qs + 32 * (j / 2);
    for (int l = 0; l < 32; l++) y[32 * j + l] = dl * float(j % 2 ? qs[l] >> 4 : qs[l] & 15) - ml;
  }
}

BL_DECODER void decode_q5_K(const BlockQ5_K &b, float *y) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int j = 0; j < 8; j++) {
    uint8_t ls, lm;
    unpack_k4(b.scales, j, &ls, &lm);
    const float dl = d * float(ls), ml = dmin * float(lm);
    const uint8_t *qs = b.qs + 32 * (j / 2);
    for (int l = 0; l < 32; l++) {
      const int low = j % 2 ? qs[l] >> 4 : qs[l] & 15;
      y[32 * j + l] = dl * float(low + 16 * ((b.qh[l] >> j) & 1)) - ml;
    }
  }
}

BL_DECODER void decode_q6_K(const BlockQ6_K &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int h = 0; h < 2; h++) {
    for (int e = 0; e < 128; e++) {
      const int l = e % 32, plane = e / 32;
      const uint8_t ql = b.ql[64 * h + 32 * (plane & 1) + l];
      const int low = plane < 2 ? ql & 15 : ql >> 4;
      const int q = low | ((b.qh[32 * h + l] >> (2 * plane)) & 3) << 4;
      y[128 * h + e] = d * float(b.scales[8 * h + e / 16]) * float(q - 32);
    }
  }
}

BL_TABLE uint8_t powers_of_3[5] = {1, 3, 9, 27, 81};

// Trit k of a byte of tq1_0.
BL_DECODER int trit(uint8_t byte, int k) {
  const uint8_t u = uint8_t(byte * powers_of_3[k]);
  return (uint32_t(u) * 3) >> 8;
}

BL_DECODER void decode_tq1_0(const BlockTQ1_0 &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int k = 0; k < 5; k++) {
    for (int m = 0; m < 32; m++) y[32 * k + m] = float(trit(b.qs[m], k) - 1) * d;
    for (int m = 0; m < 16; m++) y[160 + 16 * k + m] = float(trit(b.qs[32 + m], k) - 1) * d;
  }
  for (int k = 0; k < 4; k++)
    for (int m = 0; m < 4; m++) y[240 + 4 * k + m] = float(trit(b.qh[m], k) - 1) * d;
}

BL_DECODER void decode_tq2_0(const BlockTQ2_0 &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 256; i++) y[i] = float(code2(b.qs, i) - 1) * d;
}

// Writes n values db * level * (+-1) of one packed grid point.
BL_DECODER void put_point(uint64_t point, int n, float db, uint8_t signs, float *y) {
  for (int i = 0; i < n; i++) {
    const float g = float((point >> (8 * i)) & 255);
    y[i] = db * g * ((signs >> i) & 1 ? -1.0f : 1.0f);
  }
}

BL_DECODER void decode_iq2_xxs(const BlockIQ2_XXS &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int g = 0; g < 8; g++) {
    uint8_t index[4];
    uint32_t word;
    memcpy(index, b.qs + 4 * g, 4);
    memcpy(&word, b.qs + 4 * g + 2, 4);
    const float db = d * (0.5f + float(word >> 28)) * 0.25f;
    for (int k = 0; k < 4; k++)
      put_point(points_iq2xxs[index[k]], 8, db, ksigns[(word >> (7 * k)) & 127], y + 32 * g + 8 * k);
  }
}

BL_DECODER float iq2_scale(float d, const uint8_t *scales, int group16) {
  const int u = (scales[group16 / 2] >> (4 * (group16 % 2))) & 15;
  return d * (0.5f + float(u)) * 0.25f;
}

BL_DECODER void decode_iq2_xs(const BlockIQ2_XS &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int g = 0; g < 32; g++)
    put_point(points_iq2xs[b.qs[g] & 511], 8, iq2_scale(d, b.scales, g / 2), ksigns[b.qs[g] >> 9], y + 8 * g);
}

BL_DECODER void decode_iq2_s(const BlockIQ2_S &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int g = 0; g < 32; g++) {
    const int index = b.qs[g] | ((b.qh[g / 4] >> (2 * (g % 4))) & 3) << 8;
    put_point(points_iq2s[index], 8, iq2_scale(d, b.scales, g / 2), b.signs[g], y + 8 * g);
  }
}

BL_DECODER void decode_iq3_xxs(const BlockIQ3_XXS &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int g = 0; g < 8; g++) {
    uint32_t word;
    memcpy(&word, b.sas + 4 * g, 4);
    const float db = d * (0.5f + float(word >> 28)) * 0.5f;
    for (int k = 0; k < 8; k++) {
      const uint8_t signs = ksigns[(word >> (7 * (k / 2))) & 127];
      put_point(points_iq3xxs[b.qs[8 * g + k]], 4, db, uint8_t(signs >> (4 * (k % 2))), y + 32 * g + 4 * k);
    }
  }
}

BL_DECODER void decode_iq3_s(const BlockIQ3_S &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int k = 0; k < 64; k++) {
    const int u = (b.scales[k / 16] >> (4 * (k / 8 % 2))) & 15;
    const float db = d * float(1 + 2 * u);
    const int index = b.qs[k] | ((b.qh[k / 8] >> (k % 8)) & 1) << 8;
    put_point(points_iq3s[index], 4, db, uint8_t(b.signs[k / 2] >> (4 * (k % 2))), y + 4 * k);
  }
}

BL_DECODER void put_shifted(uint64_t point, float dl, float delta, float *y) {
  for (int i = 0; i < 8; i++) y[i] = dl * (float(int8_t(point >> (8 * i))) + delta);
}

BL_DECODER void decode_iq1_s(const BlockIQ1_S &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int g = 0; g < 8; g++) {
    const uint16_t qh = b.qh[g];
    const float dl = d * float(2 * ((qh >> 12) & 7) + 1);
    const float delta = qh & 0x8000 ? -0.125f : 0.125f;
    for (int k = 0; k < 4; k++) {
      const int index = b.qs[4 * g + k] | ((qh >> (3 * k)) & 7) << 8;
      put_shifted(points_iq1s[index], dl, delta, y + 32 * g + 8 * k);
    }
  }
}

BL_DECODER uint16_t iq1_m_scale(const BlockIQ1_M &b, uint16_t *sc) {
  memcpy(sc, b.scales, 8);
  return uint16_t((sc[0] >> 12) | ((sc[1] >> 8) & 0x00F0) | ((sc[2] >> 4) & 0x0F00) | (sc[3] & 0xF000));
}

BL_DECODER void decode_iq1_m(const BlockIQ1_M &b, float *y) {
  uint16_t sc[4];
  const float d = f16_to_f32(iq1_m_scale(b, sc));
  for (int g = 0; g < 32; g++) {
    const int sub = g / 2;
    const int qh = (b.qh[sub] >> (4 * (g % 2))) & 15;
    const float dl = d * float(2 * ((sc[sub / 4] >> (3 * (sub % 4))) & 7) + 1);
    put_shifted(points_iq1s[b.qs[g] | (qh & 7) << 8], dl, qh & 8 ? -0.125f : 0.125f, y + 8 * g);
  }
}

BL_DECODER void decode_iq4_nl(const BlockIQ4_NL &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 16; j++) {
    y[j] = d * float(kvalues_iq4nl[b.qs[j] & 15]);
    y[j + 16] = d * float(kvalues_iq4nl[b.qs[j] >> 4]);
  }
}

BL_DECODER void decode_iq4_xs(const BlockIQ4_XS &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int g = 0; g < 8; g++) {
    const int u = ((b.scales_l[g / 2] >> (4 * (g % 2))) & 15) | ((b.scales_h >> (2 * g)) & 3) << 4;
    const float dl = d * float(u - 32);
    for (int j = 0; j < 16; j++) {
      y[32 * g + j] = dl * float(kvalues_iq4nl[b.qs[16 * g + j] & 15]);
      y[32 * g + j + 16] = dl * float(kvalues_iq4nl[b.qs[16 * g + j] >> 4]);
    }
  }
}

BL_DECODER void decode_mxfp4(const BlockMXFP4 &b, float *y) {
  const float d = e8m0_half(b.e);
  for (int j = 0; j < 16; j++) {
    y[j] = float(kvalues_mxfp4[b.qs[j] & 15]) * d;
    y[j + 16] = float(kvalues_mxfp4[b.qs[j] >> 4]) * d;
  }
}

BL_DECODER void decode_nvfp4(const BlockNVFP4 &b, float *y) {
  for (int s = 0; s < 4; s++) {
    const float d = ue4m3_half(b.d[s]);
    for (int j = 0; j < 8; j++) {
      y[16 * s + j] = float(kvalues_mxfp4[b.qs[8 * s + j] & 15]) * d;
      y[16 * s + j + 8] = float(kvalues_mxfp4[b.qs[8 * s + j] >> 4]) * d;
    }
  }
}

// X(type, block struct, values of a block, decoder), for every type that can be read.
#define BL_DECODERS(X)                                                                                        \
  X(TYPE_F32, Unaligned<float>, 1, decode_f32)                                                                \
  X(TYPE_F16, Unaligned<uint16_t>, 1, decode_f16)                                                             \
  X(TYPE_BF16, Unaligned<uint16_t>, 1, decode_bf16)                                                           \
  X(TYPE_I8, Unaligned<int8_t>, 1, decode_number)                                                             \
  X(TYPE_I16, Unaligned<int16_t>, 1, decode_number)                                                           \
  X(TYPE_I32, Unaligned<int32_t>, 1, decode_number)                                                           \
  X(TYPE_I64, Unaligned<int64_t>, 1, decode_number)                                                           \
  X(TYPE_F64, Unaligned<double>, 1, decode_number)                                                            \
  X(TYPE_Q1_0, BlockQ1_0, 128, decode_q1_0)                                                                   \
  X(TYPE_Q2_0, BlockQ2_0, 64, decode_q2_0)                                                                    \
  X(TYPE_Q4_0, BlockQ4_0, 32, decode_q4_0)                                                                    \
  X(TYPE_Q4_1, BlockQ4_1, 32, decode_q4_1)                                                                    \
  X(TYPE_Q5_0, BlockQ5_0, 32, decode_q5_0)                                                                    \
  X(TYPE_Q5_1, BlockQ5_1, 32, decode_q5_1)                                                                    \
  X(TYPE_Q8_0, BlockQ8_0, 32, decode_q8_0)                                                                    \
  X(TYPE_Q8_1, BlockQ8_1, 32, decode_q8_1)                                                                    \
  X(TYPE_Q2_K, BlockQ2_K, 256, decode_q2_K)                                                                   \
  X(TYPE_Q3_K, BlockQ3_K, 256, decode_q3_K)                                                                   \
  X(TYPE_Q4_K, BlockQ4_K, 256, decode_q4_K)                                                                   \
  X(TYPE_Q5_K, BlockQ5_K, 256, decode_q5_K)                                                                   \
  X(TYPE_Q6_K, BlockQ6_K, 256, decode_q6_K)                                                                   \
  X(TYPE_Q8_K, BlockQ8_K, 256, decode_q8_K)                                                                   \
  X(TYPE_TQ1_0, BlockTQ1_0, 256, decode_tq1_0)                                                                \
  X(TYPE_TQ2_0, BlockTQ2_0, 256, decode_tq2_0)                                                                \
  X(TYPE_IQ2_XXS, BlockIQ2_XXS, 256, decode_iq2_xxs)                                                          \
  X(TYPE_IQ2_XS, BlockIQ2_XS, 256, decode_iq2_xs)                                                             \
  X(TYPE_IQ2_S, BlockIQ2_S, 256, decode_iq2_s)                                                                \
  X(TYPE_IQ3_XXS, BlockIQ3_XXS, 256, decode_iq3_xxs)                                                          \
  X(TYPE_IQ3_S, BlockIQ3_S, 256, decode_iq3_s)                                                                \
  X(TYPE_IQ1_S, BlockIQ1_S, 256, decode_iq1_s)                                                                \
  X(TYPE_IQ1_M, BlockIQ1_M, 256, decode_iq1_m)                                                                \
  X(TYPE_IQ4_NL, BlockIQ4_NL, 32, decode_iq4_nl)                                                              \
  X(TYPE_IQ4_XS, BlockIQ4_XS, 256, decode_iq4_xs)                                                             \
  X(TYPE_MXFP4, BlockMXFP4, 32, decode_mxfp4)                                                                 \
  X(TYPE_NVFP4, BlockNVFP4, 64, decode_nvfp4)

}  // namespace bl
