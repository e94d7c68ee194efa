// packed_dot_portable.h: R quantized activation rows against 8 packed output rows, in plain C++: the definition that
// packed_dot_simd.h is equal to bit for bit, and the path of CPUs without AVX2.
#pragma once

#include "../kernels.h"
#include "../simd.h"

namespace bl {
namespace BL_ISA {

template <int R>
struct Record {
  const uint8_t *p;
  const int8_t *q(int r) const { return reinterpret_cast<const int8_t *>(p) + 32 * r; }
  float f32(int at) const {
    float v;
    memcpy(&v, p + at, 4);
    return v;
  }
  float d(int r) const { return f32(32 * R + 4 * r); }
  float s(int r) const { return f32(36 * R + 4 * r); }
};

// sum of code(v, row, c) * q[at(v) + c] over vectors v of 4 codes, for one output row
template <class Code>
static inline int dot32(const int8_t *q, const Code &code) {
  int sum = 0;
  for (int v = 0; v < 8; v++)
    for (int c = 0; c < 4; c++) sum += code(v, c) * q[4 * v + c];
  return sum;
}

template <int R>
static void dot_q4_0(const uint8_t *group, uint64_t n_block, const uint8_t *act, float *out) {
  const PackedQ4_0 *w = reinterpret_cast<const PackedQ4_0 *>(group);
  for (int i = 0; i < 8 * R; i++) out[i] = 0.0f;
  for (uint64_t b = 0; b < n_block; b++, w++, act += ACT_BYTES * R) {
    const Record<R> rec{act};
    for (int r = 0; r < R; r++)
      for (int row = 0; row < 8; row++) {
        const int sum = dot32(rec.q(r), [&](int v, int c) {
          const uint8_t byte = w->qs[v % 4][4 * row + c];
          return (v < 4 ? byte & 15 : byte >> 4) - 8;
        });
        out[8 * r + row] = fma1(float(sum), f16_to_f32(w->d[row]) * rec.d(r), out[8 * r + row]);
      }
  }
}

template <int R>
static void dot_q8_0(const uint8_t *group, uint64_t n_block, const uint8_t *act, float *out) {
  const PackedQ8_0 *w = reinterpret_cast<const PackedQ8_0 *>(group);
  for (int i = 0; i < 8 * R; i++) out[i] = 0.0f;
  for (uint64_t b = 0; b < n_block; b++, w++, act += ACT_BYTES * R) {
    const Record<R> rec{act};
    for (int r = 0; r < R; r++)
      for (int row = 0; row < 8; row++) {
        const int sum = dot32(rec.q(r), [&](int v, int c) { return int(w->qs[v][4 * row + c]); });
        out[8 * r + row] = fma1(float(sum), f16_to_f32(w->d[row]) * rec.d(r), out[8 * r + row]);
      }
  }
}

// Q4_K and Q5_K: code(block, v, row, c)
template <int R, class Packed, class Code>
static inline void dot_k45(const Packed *w, uint64_t n_block, const uint8_t *act, float *out, const Code &code) {
  for (int i = 0; i < 8 * R; i++) out[i] = 0.0f;
  for (uint64_t sb = 0; sb < n_block; sb++, w++, act += 8 * ACT_BYTES * R)
    for (int r = 0; r < R; r++)
      for (int row = 0; row < 8; row++) {
        float a = 0.0f, m = 0.0f;
        for (int b = 0; b < 8; b++) {
          const Record<R> rec{act + b * ACT_BYTES * R};
          const int sum = dot32(rec.q(r), [&](int v, int c) { return code(*w, b, v, 4 * row + c); });
          a = fma1(float(sum * w->scales[b][row]), rec.d(r), a);
          m = fma1(float(w->mins[b][row]), rec.s(r), m);
        }
        float &y = out[8 * r + row];
        y = fma1(f16_to_f32(w->d[row]), a, y);
        y = fma1(-f16_to_f32(w->dmin[row]), m, y);
      }
}

template <int R>
static void dot_q4_K(const uint8_t *group, uint64_t n_block, const uint8_t *act, float *out) {
  dot_k45<R>(reinterpret_cast<const PackedQ4_K *>(group), n_block, act, out, [](const PackedQ4_K &w, int b, int v, int i) {
    const uint8_t byte = w.qs[8 * (b / 2) + v][i];
    return b % 2 == 0 ? byte & 15 : byte >> 4;
  });
}

template <int R>
static void dot_q5_K(const uint8_t *group, uint64_t n_block, const uint8_t *act, float *out) {
  dot_k45<R>(reinterpret_cast<const PackedQ5_K *>(group), n_block, act, out, [](const PackedQ5_K &w, int b, int v, int i) {
    const uint8_t byte = w.qs[8 * (b / 2) + v][i];
    return (b % 2 == 0 ? byte & 15 : byte >> 4) | (((w.qh[v][i] >> b) & 1) << 4);
  });
}

template <int R>
static void dot_q6_K(const uint8_t *group, uint64_t n_block, const uint8_t *act, float *out) {
  static const int order[8] = {0, 2, 1, 3, 4, 6, 5, 7};
  const PackedQ6_K *w = reinterpret_cast<const PackedQ6_K *>(group);
  for (int i = 0; i < 8 * R; i++) out[i] = 0.0f;
  for (uint64_t sb = 0; sb < n_block; sb++, w++, act += 8 * ACT_BYTES * R)
    for (int r = 0; r < R; r++)
      for (int row = 0; row < 8; row++) {
        float a = 0.0f;
        for (const int b : order) {
          const Record<R> rec{act + b * ACT_BYTES * R};
          const int half = b / 4, j = b % 2, high = (b % 4) / 2;
          int sum[2] = {0, 0};
          for (int v = 0; v < 8; v++)
            for (int c = 0; c < 4; c++) {
              const int i = 4 * row + c;
              const uint8_t byte = w->ql[16 * half + 8 * j + v][i];
              const int code = (high == 0 ? byte & 15 : byte >> 4) | (((w->qh[8 * half + v][i] >> (2 * j + 4 * high)) & 3) << 4);
              sum[v / 4] += (code - 32) * rec.q(r)[4 * v + c];
            }
          a = fma1(float(sum[0] * w->scales[2 * b][row] + sum[1] * w->scales[2 * b + 1][row]), rec.d(r), a);
        }
        out[8 * r + row] = fma1(f16_to_f32(w->d[row]), a, out[8 * r + row]);
      }
}

}  // namespace BL_ISA
}  // namespace bl
