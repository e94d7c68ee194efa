// dequantize.cpp: decodes any tensor type to f32, and checks encoded data for values no reader could use.
//
// Each formula is evaluated left to right with every operation rounded on its own (-ffp-contract=off), so the values are the same bits
// on every machine. Source of the formulas: the layouts of blocks.h.
#include "generated/grids.h"
#include "quantize.h"

namespace bl {
namespace {

template <class Block, class Fn>
void each_block(const void *src, float *dst, uint64_t n, uint32_t block, Fn decode) {
  const Block *b = static_cast<const Block *>(src);
  for (uint64_t i = 0; i < n / block; i++) decode(b[i], dst + i * block);
}

void decode_q1_0(const BlockQ1_0 &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 128; j++) y[j] = (b.qs[j >> 3] >> (j & 7)) & 1 ? d : -d;
}

void decode_q2_0(const BlockQ2_0 &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 64; j++) y[j] = float(((b.qs[j >> 2] >> (2 * (j & 3))) & 3) - 1) * d;
}

void decode_q4_0(const BlockQ4_0 &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 16; j++) {
    y[j] = float((b.qs[j] & 15) - 8) * d;
    y[j + 16] = float((b.qs[j] >> 4) - 8) * d;
  }
}

void decode_q4_1(const BlockQ4_1 &b, float *y) {
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  for (int j = 0; j < 16; j++) {
    y[j] = float(b.qs[j] & 15) * d + m;
    y[j + 16] = float(b.qs[j] >> 4) * d + m;
  }
}

// The five-bit code of value j.
inline int code5(const uint8_t *qh, const uint8_t *qs, int j) {
  uint32_t high;
  memcpy(&high, qh, 4);
  const int low = j < 16 ? qs[j] & 15 : qs[j - 16] >> 4;
  return low | int((high >> j) & 1) << 4;
}

void decode_q5_0(const BlockQ5_0 &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 32; j++) y[j] = float(code5(b.qh, b.qs, j) - 16) * d;
}

void decode_q5_1(const BlockQ5_1 &b, float *y) {
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  for (int j = 0; j < 32; j++) y[j] = float(code5(b.qh, b.qs, j)) * d + m;
}

void decode_q8_0(const BlockQ8_0 &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 32; j++) y[j] = float(b.qs[j]) * d;
}

void decode_q8_1(const BlockQ8_1 &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 32; j++) y[j] = float(b.qs[j]) * d;
}

void decode_q8_K(const BlockQ8_K &b, float *y) {
  for (int j = 0; j < 256; j++) y[j] = b.d * float(b.qs[j]);
}

// Two-bit code of value i in the plane order of q2_K and q3_K.
inline int code2(const uint8_t *qs, int i) { return (qs[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32))) & 3; }

void decode_q2_K(const BlockQ2_K &b, float *y) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int j = 0; j < 16; j++) {
    const float dl = d * float(b.scales[j] & 15), ml = dmin * float(b.scales[j] >> 4);
    for (int i = 16 * j; i < 16 * j + 16; i++) y[i] = dl * float(code2(b.qs, i)) - ml;
  }
}

void decode_q3_K(const BlockQ3_K &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 16; j++) {
    const float dl = d * float(unpack_k3(b.scales, j) - 32);
    for (int i = 16 * j; i < 16 * j + 16; i++)
      y[i] = dl * float(code2(b.qs, i) - ((b.hmask[i % 32] >> (i / 32)) & 1 ? 0 : 4));
  }
}

void decode_q4_K(const BlockQ4_K &b, float *y) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int j = 0; j < 8; j++) {
    uint8_t ls, lm;
    unpack_k4(b.scales, j, &ls, &lm);
    const float dl = d * float(ls), ml = dmin * float(lm);
    const uint8_t *qs = b.qs + 32 * (j / 2);
    for (int l = 0; l < 32; l++) y[32 * j + l] = dl * float(j % 2 ? qs[l] >> 4 : qs[l] & 15) - ml;
  }
}

void decode_q5_K(const BlockQ5_K &b, float *y) {
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

void decode_q6_K(const BlockQ6_K &b, float *y) {
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

// Trit k of a byte of tq1_0.
inline int trit(uint8_t byte, int k) {
  static const uint8_t pow3[5] = {1, 3, 9, 27, 81};
  const uint8_t u = uint8_t(byte * pow3[k]);
  return (uint32_t(u) * 3) >> 8;
}

void decode_tq1_0(const BlockTQ1_0 &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int k = 0; k < 5; k++) {
    for (int m = 0; m < 32; m++) y[32 * k + m] = float(trit(b.qs[m], k) - 1) * d;
    for (int m = 0; m < 16; m++) y[160 + 16 * k + m] = float(trit(b.qs[32 + m], k) - 1) * d;
  }
  for (int k = 0; k < 4; k++)
    for (int m = 0; m < 4; m++) y[240 + 4 * k + m] = float(trit(b.qh[m], k) - 1) * d;
}

void decode_tq2_0(const BlockTQ2_0 &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 256; i++) y[i] = float(code2(b.qs, i) - 1) * d;
}

// Writes n values db * level * (+-1) of one packed grid point.
inline void put_point(uint64_t point, int n, float db, uint8_t signs, float *y) {
  for (int i = 0; i < n; i++) {
    const float g = float((point >> (8 * i)) & 255);
    y[i] = db * g * ((signs >> i) & 1 ? -1.0f : 1.0f);
  }
}

void decode_iq2_xxs(const BlockIQ2_XXS &b, float *y) {
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

inline float iq2_scale(float d, const uint8_t *scales, int group16) {
  const int u = (scales[group16 / 2] >> (4 * (group16 % 2))) & 15;
  return d * (0.5f + float(u)) * 0.25f;
}

void decode_iq2_xs(const BlockIQ2_XS &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int g = 0; g < 32; g++)
    put_point(points_iq2xs[b.qs[g] & 511], 8, iq2_scale(d, b.scales, g / 2), ksigns[b.qs[g] >> 9], y + 8 * g);
}

void decode_iq2_s(const BlockIQ2_S &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int g = 0; g < 32; g++) {
    const int index = b.qs[g] | ((b.qh[g / 4] >> (2 * (g % 4))) & 3) << 8;
    put_point(points_iq2s[index], 8, iq2_scale(d, b.scales, g / 2), b.signs[g], y + 8 * g);
  }
}

void decode_iq3_xxs(const BlockIQ3_XXS &b, float *y) {
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

void decode_iq3_s(const BlockIQ3_S &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int k = 0; k < 64; k++) {
    const int u = (b.scales[k / 16] >> (4 * (k / 8 % 2))) & 15;
    const float db = d * float(1 + 2 * u);
    const int index = b.qs[k] | ((b.qh[k / 8] >> (k % 8)) & 1) << 8;
    put_point(points_iq3s[index], 4, db, uint8_t(b.signs[k / 2] >> (4 * (k % 2))), y + 4 * k);
  }
}

inline void put_shifted(uint64_t point, float dl, float delta, float *y) {
  for (int i = 0; i < 8; i++) y[i] = dl * (float(int8_t(point >> (8 * i))) + delta);
}

void decode_iq1_s(const BlockIQ1_S &b, float *y) {
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

inline uint16_t iq1_m_scale(const BlockIQ1_M &b, uint16_t *sc) {
  memcpy(sc, b.scales, 8);
  return uint16_t((sc[0] >> 12) | ((sc[1] >> 8) & 0x00F0) | ((sc[2] >> 4) & 0x0F00) | (sc[3] & 0xF000));
}

void decode_iq1_m(const BlockIQ1_M &b, float *y) {
  uint16_t sc[4];
  const float d = f16_to_f32(iq1_m_scale(b, sc));
  for (int g = 0; g < 32; g++) {
    const int sub = g / 2;
    const int qh = (b.qh[sub] >> (4 * (g % 2))) & 15;
    const float dl = d * float(2 * ((sc[sub / 4] >> (3 * (sub % 4))) & 7) + 1);
    put_shifted(points_iq1s[b.qs[g] | (qh & 7) << 8], dl, qh & 8 ? -0.125f : 0.125f, y + 8 * g);
  }
}

void decode_iq4_nl(const BlockIQ4_NL &b, float *y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 16; j++) {
    y[j] = d * float(kvalues_iq4nl[b.qs[j] & 15]);
    y[j + 16] = d * float(kvalues_iq4nl[b.qs[j] >> 4]);
  }
}

void decode_iq4_xs(const BlockIQ4_XS &b, float *y) {
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

void decode_mxfp4(const BlockMXFP4 &b, float *y) {
  const float d = e8m0_half(b.e);
  for (int j = 0; j < 16; j++) {
    y[j] = float(kvalues_mxfp4[b.qs[j] & 15]) * d;
    y[j + 16] = float(kvalues_mxfp4[b.qs[j] >> 4]) * d;
  }
}

void decode_nvfp4(const BlockNVFP4 &b, float *y) {
  for (int s = 0; s < 4; s++) {
    const float d = ue4m3_half(b.d[s]);
    for (int j = 0; j < 8; j++) {
      y[16 * s + j] = float(kvalues_mxfp4[b.qs[8 * s + j] & 15]) * d;
      y[16 * s + j + 8] = float(kvalues_mxfp4[b.qs[8 * s + j] >> 4]) * d;
    }
  }
}

template <class Int>
void decode_int(const void *src, float *dst, uint64_t n) {
  for (uint64_t i = 0; i < n; i++) {
    Int v;
    memcpy(&v, static_cast<const uint8_t *>(src) + i * sizeof(Int), sizeof(Int));
    dst[i] = float(v);
  }
}

inline bool bad_half(uint16_t h) { return (h & 0x7C00) == 0x7C00; }

// Counts the items for which bad(item) holds; *first = index of the first one, times `block`.
template <class Item, class Fn>
uint64_t count_bad(const void *data, uint64_t n_items, uint32_t block, uint64_t *first, Fn bad) {
  const Item *items = static_cast<const Item *>(data);
  constexpr uint64_t CHUNK = 4096;  // counted without branches; only a chunk with a hit is searched
  uint64_t total = 0;
  for (uint64_t at = 0; at < n_items; at += CHUNK) {
    const uint64_t end = at + CHUNK < n_items ? at + CHUNK : n_items;
    uint32_t count = 0;
    for (uint64_t i = at; i < end; i++) count += bad(items[i]) ? 1 : 0;
    if (count && total == 0) {
      uint64_t i = at;
      while (!bad(items[i])) i++;
      *first = i * block;
    }
    total += count;
  }
  return total;
}

template <class Block>
uint64_t check_d(const void *data, uint64_t n, uint32_t block, uint64_t *first) {
  return count_bad<Block>(data, n / block, block, first, [](const Block &b) { return bad_half(b.d); });
}

}  // namespace

bool dequantize_row(uint32_t type, const void *src, float *dst, uint64_t n) {
  switch (type) {
    case TYPE_F32: memcpy(dst, src, n * 4); return true;
    case TYPE_F16: {
      const uint16_t *h = static_cast<const uint16_t *>(src);
      for (uint64_t i = 0; i < n; i++) dst[i] = f16_to_f32(h[i]);
      return true;
    }
    case TYPE_BF16: {
      const uint16_t *h = static_cast<const uint16_t *>(src);
      for (uint64_t i = 0; i < n; i++) dst[i] = bf16_to_f32(h[i]);
      return true;
    }
    case TYPE_I8: decode_int<int8_t>(src, dst, n); return true;
    case TYPE_I16: decode_int<int16_t>(src, dst, n); return true;
    case TYPE_I32: decode_int<int32_t>(src, dst, n); return true;
    case TYPE_I64: decode_int<int64_t>(src, dst, n); return true;
    case TYPE_F64: decode_int<double>(src, dst, n); return true;
    case TYPE_Q1_0: each_block<BlockQ1_0>(src, dst, n, 128, decode_q1_0); return true;
    case TYPE_Q2_0: each_block<BlockQ2_0>(src, dst, n, 64, decode_q2_0); return true;
    case TYPE_Q4_0: each_block<BlockQ4_0>(src, dst, n, 32, decode_q4_0); return true;
    case TYPE_Q4_1: each_block<BlockQ4_1>(src, dst, n, 32, decode_q4_1); return true;
    case TYPE_Q5_0: each_block<BlockQ5_0>(src, dst, n, 32, decode_q5_0); return true;
    case TYPE_Q5_1: each_block<BlockQ5_1>(src, dst, n, 32, decode_q5_1); return true;
    case TYPE_Q8_0: each_block<BlockQ8_0>(src, dst, n, 32, decode_q8_0); return true;
    case TYPE_Q8_1: each_block<BlockQ8_1>(src, dst, n, 32, decode_q8_1); return true;
    case TYPE_Q2_K: each_block<BlockQ2_K>(src, dst, n, 256, decode_q2_K); return true;
    case TYPE_Q3_K: each_block<BlockQ3_K>(src, dst, n, 256, decode_q3_K); return true;
    case TYPE_Q4_K: each_block<BlockQ4_K>(src, dst, n, 256, decode_q4_K); return true;
    case TYPE_Q5_K: each_block<BlockQ5_K>(src, dst, n, 256, decode_q5_K); return true;
    case TYPE_Q6_K: each_block<BlockQ6_K>(src, dst, n, 256, decode_q6_K); return true;
    case TYPE_Q8_K: each_block<BlockQ8_K>(src, dst, n, 256, decode_q8_K); return true;
    case TYPE_TQ1_0: each_block<BlockTQ1_0>(src, dst, n, 256, decode_tq1_0); return true;
    case TYPE_TQ2_0: each_block<BlockTQ2_0>(src, dst, n, 256, decode_tq2_0); return true;
    case TYPE_IQ2_XXS: each_block<BlockIQ2_XXS>(src, dst, n, 256, decode_iq2_xxs); return true;
    case TYPE_IQ2_XS: each_block<BlockIQ2_XS>(src, dst, n, 256, decode_iq2_xs); return true;
    case TYPE_IQ2_S: each_block<BlockIQ2_S>(src, dst, n, 256, decode_iq2_s); return true;
    case TYPE_IQ3_XXS: each_block<BlockIQ3_XXS>(src, dst, n, 256, decode_iq3_xxs); return true;
    case TYPE_IQ3_S: each_block<BlockIQ3_S>(src, dst, n, 256, decode_iq3_s); return true;
    case TYPE_IQ1_S: each_block<BlockIQ1_S>(src, dst, n, 256, decode_iq1_s); return true;
    case TYPE_IQ1_M: each_block<BlockIQ1_M>(src, dst, n, 256, decode_iq1_m); return true;
    case TYPE_IQ4_NL: each_block<BlockIQ4_NL>(src, dst, n, 32, decode_iq4_nl); return true;
    case TYPE_IQ4_XS: each_block<BlockIQ4_XS>(src, dst, n, 256, decode_iq4_xs); return true;
    case TYPE_MXFP4: each_block<BlockMXFP4>(src, dst, n, 32, decode_mxfp4); return true;
    case TYPE_NVFP4: each_block<BlockNVFP4>(src, dst, n, 64, decode_nvfp4); return true;
    default: return false;
  }
}

uint64_t check_rows(uint32_t type, const void *data, uint64_t n, uint64_t *first) {
  const auto bad_m = [](const auto &b) { return bad_half(b.d) || bad_half(b.m); };
  const auto bad_dmin = [](const auto &b) { return bad_half(b.d) || bad_half(b.dmin); };
  switch (type) {
    case TYPE_F32: return count_bad<uint32_t>(data, n, 1, first, [](uint32_t b) { return (b & 0x7F800000u) == 0x7F800000u; });
    case TYPE_F16: return count_bad<uint16_t>(data, n, 1, first, bad_half);
    case TYPE_BF16: return count_bad<uint16_t>(data, n, 1, first, [](uint16_t h) { return (h & 0x7F80) == 0x7F80; });
    case TYPE_F64:
      return count_bad<uint64_t>(data, n, 1, first, [](uint64_t b) { return ((b >> 52) & 0x7FF) == 0x7FF; });
    case TYPE_Q1_0: return check_d<BlockQ1_0>(data, n, 128, first);
    case TYPE_Q2_0: return check_d<BlockQ2_0>(data, n, 64, first);
    case TYPE_Q4_0: return check_d<BlockQ4_0>(data, n, 32, first);
    case TYPE_Q4_1: return count_bad<BlockQ4_1>(data, n / 32, 32, first, bad_m);
    case TYPE_Q5_0: return check_d<BlockQ5_0>(data, n, 32, first);
    case TYPE_Q5_1: return count_bad<BlockQ5_1>(data, n / 32, 32, first, bad_m);
    case TYPE_Q8_0: return check_d<BlockQ8_0>(data, n, 32, first);
    case TYPE_Q2_K: return count_bad<BlockQ2_K>(data, n / 256, 256, first, bad_dmin);
    case TYPE_Q3_K: return check_d<BlockQ3_K>(data, n, 256, first);
    case TYPE_Q4_K: return count_bad<BlockQ4_K>(data, n / 256, 256, first, bad_dmin);
    case TYPE_Q5_K: return count_bad<BlockQ5_K>(data, n / 256, 256, first, bad_dmin);
    case TYPE_Q6_K: return check_d<BlockQ6_K>(data, n, 256, first);
    case TYPE_TQ1_0: return check_d<BlockTQ1_0>(data, n, 256, first);
    case TYPE_TQ2_0: return check_d<BlockTQ2_0>(data, n, 256, first);
    case TYPE_IQ2_XXS: return check_d<BlockIQ2_XXS>(data, n, 256, first);
    case TYPE_IQ2_XS: return check_d<BlockIQ2_XS>(data, n, 256, first);
    case TYPE_IQ2_S: return check_d<BlockIQ2_S>(data, n, 256, first);
    case TYPE_IQ3_XXS: return check_d<BlockIQ3_XXS>(data, n, 256, first);
    case TYPE_IQ3_S: return check_d<BlockIQ3_S>(data, n, 256, first);
    case TYPE_IQ1_S: return check_d<BlockIQ1_S>(data, n, 256, first);
    case TYPE_IQ1_M:
      return count_bad<BlockIQ1_M>(data, n / 256, 256, first, [](const BlockIQ1_M &b) {
        uint16_t sc[4];
        return bad_half(iq1_m_scale(b, sc));
      });
    case TYPE_IQ4_NL: return check_d<BlockIQ4_NL>(data, n, 32, first);
    case TYPE_IQ4_XS: return check_d<BlockIQ4_XS>(data, n, 256, first);
    case TYPE_MXFP4: return count_bad<BlockMXFP4>(data, n / 32, 32, first, [](const BlockMXFP4 &b) { return b.e == 255; });
    case TYPE_Q8_1:
    case TYPE_Q8_K:
    default: return 0;
  }
}

}  // namespace bl
