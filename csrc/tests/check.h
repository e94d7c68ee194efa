// check.h: what the native tests share: a generator of fresh numbers, checks that count failures, and a program builder over the C ABI.
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

// Words of a program; see bloomery.h.
class Builder {
 public:
  Builder(uint32_t n_tok, uint32_t n_out, uint32_t n_seq, uint32_t n_page) : n_tok(n_tok), n_out(n_out), n_seq(n_seq), n_page(n_page) {}
  uint32_t tensor(uint32_t kind, uint32_t type, std::vector<uint32_t> ne, uint32_t ref = 0) {
    ne.resize(4, 1);
    tensors_.insert(tensors_.end(), {kind, type, ne[0], ne[1], ne[2], ne[3], ref, 0});
    return uint32_t(tensors_.size() / 8 - 1);
  }
  uint32_t scratch(std::vector<uint32_t> ne, uint32_t type = bl::TYPE_F32) { return tensor(BL_KIND_SCRATCH, type, ne); }
  uint32_t input(uint32_t which) { return tensor(BL_KIND_INPUT, bl::TYPE_I32, {which >= BL_INPUT_OUT_ROWS ? n_out : n_tok}, which); }
  uint32_t view(uint32_t of, std::vector<uint32_t> ne, uint32_t type = bl::TYPE_F32) { return tensor(BL_KIND_VIEW, type, ne, of); }
  void op(uint32_t code, const std::vector<uint32_t> &dst, const std::vector<uint32_t> &src, const std::vector<uint32_t> &params = {}) {
    ops_.insert(ops_.end(), {code, 0, uint32_t(dst.size()), uint32_t(src.size()), uint32_t(params.size()), 0});
    for (const auto *part : {&dst, &src, &params}) ops_.insert(ops_.end(), part->begin(), part->end());
    n_op_++;
  }
  void output(uint32_t id) { outputs_.push_back(id); }
  std::vector<uint32_t> words() const {
    std::vector<uint32_t> w = {BL_PROGRAM_MAGIC, BL_PROGRAM_VERSION, n_tok, n_out, n_seq, n_page, uint32_t(tensors_.size() / 8), n_op_,
                               uint32_t(outputs_.size())};
    for (const auto *part : {&tensors_, &ops_, &outputs_}) w.insert(w.end(), part->begin(), part->end());
    return w;
  }
  const uint32_t n_tok, n_out, n_seq, n_page;

 private:
  std::vector<uint32_t> tensors_, ops_, outputs_;
  uint32_t n_op_ = 0;
};

inline uint32_t bits(float v) {
  uint32_t b;
  memcpy(&b, &v, 4);
  return b;
}

void coding_tests();
void kernel_tests();
void lattice_tests();
void program_tests();

}  // namespace bl_test
