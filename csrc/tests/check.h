// check.h: what the native tests share: a generator of fresh numbers, checks that count failures.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "../bloomery.h"
#include "../common/blocks.h"
#include "../common/quantize.h"

namespace bl_test {

extern int n_failed, n_checked;

inline void check(bool ok, const char *what, const char *detail = "") {
  n_checked++;
  if (ok) return;
  if (n_failed++ < 40) fprintf(stderr, "FAILED: %s %s\n", what, detail);
}

// xorshift64*
class Random {
 public:
  explicit Random(uint64_t seed) : s_(seed * 0x9E3779B97F4A7C15ull + 1) {}
  uint64_t next() {
    s_ ^= s_ >> 12, s_ ^= s_ << 25, s_ ^= s_ >> 27;
    return s_ * 0x2545F4914F6CDD1Dull;
  }
  uint32_t below(uint32_t n) { return uint32_t((next() >> 32) * n >> 32); }
  float uniform() { return float(int64_t(next() >> 40)) / float(1 << 23) - 1.0f; }  // [-1, 1)
  std::vector<float> floats(size_t n, float scale = 1.0f) {
    std::vector<float> v(n);
    for (float &x : v) x = scale * (uniform() + uniform() + uniform());
    return v;
  }

 private:
  uint64_t s_;
};

// n values of a type, encoded from random floats.
inline std::vector<uint8_t> random_rows(Random &rnd, uint32_t type, uint64_t n_rows, uint64_t n_in, float scale) {
  const bl::TypeInfo &t = *bl::type_info(type);
  std::vector<uint8_t> out(n_rows * n_in / t.block * t.bytes);
  const std::vector<float> values = rnd.floats(n_rows * n_in, scale);
  std::vector<float> weights(n_in, 1.0f);
  if (!bl::quantize_rows(type, values.data(), n_rows, n_in, bl::quantize_row_supported(type, false) ? nullptr : weights.data(), out.data()))
    check(false, "quantize_rows", t.name);
  return out;
}

void coding_tests();
void kernel_tests();
void lattice_tests();
void pool_tests();
struct Case;
void program_tests(const std::vector<Case> &cases);
void replay_tests(const std::vector<Case> &cases, uint32_t device);

}  // namespace bl_test
