// builder.h: op programs from C++, for the tests and the benchmark of this folder. The product builds them in core/program.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "../../bloomery.h"
#include "../../common/blocks.h"

namespace bl::test {

inline void must(int32_t status, const uint8_t *err, const char *what) {
  if (status == BL_OK) return;
  fprintf(stderr, "%s: %s\n", what, reinterpret_cast<const char *>(err));
  exit(1);
}

// Random numbers by a fixed recurrence, so that a failure can be repeated.
struct Random {
  uint64_t state;
  explicit Random(uint64_t seed) : state(seed * 0x9E3779B97F4A7C15ull + 1) {}
  uint32_t next() {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return uint32_t(state >> 32);
  }
  float uniform() { return float(next() >> 8) / 16777216.0f * 2.0f - 1.0f; }       // [-1, 1)
  float normal() { return (uniform() + uniform() + uniform() + uniform()) * 0.87f; }  // about unit variance
};

// Random encoded rows with scales that keep values near `size`.
inline std::vector<uint8_t> random_blocks(uint32_t type, uint64_t n, float size, Random &r) {
  const TypeInfo &t = *type_info(type);
  std::vector<uint8_t> data(n / t.block * t.bytes);
  for (uint8_t &b : data) b = uint8_t(r.next());
  auto half = [&](uint64_t at, float v) {
    const uint16_t h = f32_to_f16(v);
    memcpy(&data[at], &h, 2);
  };
  for (uint64_t i = 0; i < n / t.block; i++) {
    const uint64_t at = i * t.bytes;
    const float d = size * (0.5f + 0.5f * (r.uniform() + 1.0f) / 2.0f);
    switch (type) {
      case TYPE_F32: { const float v = size * r.normal(); memcpy(&data[at], &v, 4); break; }
      case TYPE_F16: half(at, size * r.normal()); break;
      case TYPE_BF16: { const uint16_t v = f32_to_bf16(size * r.normal()); memcpy(&data[at], &v, 2); break; }
      case TYPE_Q8_0: half(at, d / 73.0f); break;
      case TYPE_Q4_0: half(at, d / 4.6f); break;
      case TYPE_Q4_K:
      case TYPE_Q5_K: half(at, d / (type == TYPE_Q4_K ? 7.0f : 15.0f) / 32.0f); half(at + 2, d / 32.0f); break;
      case TYPE_Q6_K: half(at + 208, d / 18.0f / 73.0f); break;
    }
  }
  return data;
}

struct Bucket {
  uint32_t n_tok, n_out, n_seq, n_page;
};

class Builder {
 public:
  explicit Builder(Bucket b) : bucket(b) {
    tokens = add(BL_KIND_INPUT, TYPE_I32, {b.n_tok}, BL_INPUT_TOKENS);
    positions = add(BL_KIND_INPUT, TYPE_I32, {b.n_tok}, BL_INPUT_POSITIONS);
    seqs = add(BL_KIND_INPUT, TYPE_I32, {b.n_tok}, BL_INPUT_SEQS);
    out_rows = add(BL_KIND_INPUT, TYPE_I32, {b.n_out}, BL_INPUT_OUT_ROWS);
    targets = add(BL_KIND_INPUT, TYPE_I32, {b.n_out}, BL_INPUT_TARGETS);
  }

  Bucket bucket;
  uint32_t device = 1;
  uint32_t tokens, positions, seqs, out_rows, targets;

  struct Ne {
    uint64_t v[4] = {1, 1, 1, 1};
    Ne(std::initializer_list<uint64_t> l) { std::copy(l.begin(), l.end(), v); }
    Ne(const uint64_t *p) { std::copy(p, p + 4, v); }
  };
  const uint64_t *ne(uint32_t id) const { return shapes_[id].v; }

  uint32_t weight(uint32_t type, Ne ne) { return add(BL_KIND_WEIGHT, type, ne, n_weight++); }
  uint32_t view(uint32_t x, Ne ne) { return add(BL_KIND_VIEW, types_[x], ne, x); }
  uint32_t heads(uint32_t x, uint64_t n) { return view(x, {ne(x)[0] / n, n, bucket.n_tok}); }
  uint32_t flat(uint32_t x) { return view(x, {ne(x)[0] * ne(x)[1], ne(x)[2]}); }

  uint32_t embed(uint32_t table) { return op1(BL_OP_EMBED_ROWS, {table, tokens}, {ne(table)[0], bucket.n_tok}); }
  uint32_t rms_norm(uint32_t x, uint32_t w, float eps) { return op1(BL_OP_RMS_NORM, {x, w}, ne(x), {bits(eps)}); }
  uint32_t plus(uint32_t a, uint32_t b) { return op1(BL_OP_ADD, {a, b}, ne(a)); }
  uint32_t mul_mat(uint32_t w, uint32_t x) { return op1(BL_OP_MUL_MAT, {w, x}, {ne(w)[1], ne(x)[1], ne(x)[2]}); }
  uint32_t silu_mul(uint32_t a, uint32_t b) { return op1(BL_OP_SILU_MUL, {a, b}, ne(a)); }
  uint32_t rope(uint32_t x, uint32_t freq, uint32_t kind, float mscale = 1.0f) {
    return op1(BL_OP_ROPE, {x, positions, freq}, ne(x), {kind, uint32_t(2 * ne(freq)[0]), bits(mscale)});
  }
  void kv_write(uint32_t k, uint32_t v, uint32_t k_stream, uint32_t v_stream) {
    op(BL_OP_KV_WRITE, {}, {k, v, positions, seqs}, {0, k_stream, v_stream});
  }
  uint32_t attention(uint32_t q, uint64_t head_dim_v, uint32_t k_stream, uint32_t v_stream, uint32_t n_head_kv, float scale, uint32_t window = 0) {
    return op1(BL_OP_ATTENTION, {q, positions, seqs}, {head_dim_v, ne(q)[1], ne(q)[2]}, {0, k_stream, v_stream, n_head_kv, bits(scale), window});
  }
  void router(uint32_t logits, uint32_t k, bool renorm, uint32_t &ids, uint32_t &weights) {
    ids = add(BL_KIND_SCRATCH, TYPE_I32, {k, ne(logits)[1]}, 0);
    weights = add(BL_KIND_SCRATCH, TYPE_F32, {k, ne(logits)[1]}, 0);
    op(BL_OP_ROUTER, {ids, weights}, {logits}, {BL_SCORE_SOFTMAX, renorm, bits(1.0f)});
  }
  uint32_t mul_mat_id(uint32_t w, uint32_t x, uint32_t ids) {
    const uint64_t k = ne(ids)[0], n_tok = ne(ids)[1];
    if (!(ne(x)[2] == n_tok && ne(x)[1] == k)) x = view(x, {ne(x)[0], 1, n_tok});
    return op1(BL_OP_MUL_MAT_ID, {w, x, ids}, {ne(w)[1], k, n_tok});
  }
  uint32_t expert_sum(uint32_t x, uint32_t weights) { return op1(BL_OP_EXPERT_SUM, {x, weights}, {ne(x)[0], ne(x)[2]}); }
  uint32_t get_rows(uint32_t x) { return op1(BL_OP_GET_ROWS, {x, out_rows}, {ne(x)[0], bucket.n_out}); }
  void top_k(uint32_t logits, uint32_t k, uint32_t &ids, uint32_t &values, uint32_t &lse) {
    ids = add(BL_KIND_SCRATCH, TYPE_I32, {k, ne(logits)[1]}, 0);
    values = add(BL_KIND_SCRATCH, TYPE_F32, {k, ne(logits)[1]}, 0);
    lse = add(BL_KIND_SCRATCH, TYPE_F32, {1, ne(logits)[1]}, 0);
    op(BL_OP_TOP_K, {ids, values, lse}, {logits}, {});
  }
  uint32_t target_logprob(uint32_t logits, uint32_t lse) { return op1(BL_OP_TARGET_LOGPROB, {logits, lse, targets}, {1, ne(logits)[1]}); }
  void output(uint32_t id) { outputs_.push_back(id); }

  std::vector<uint32_t> words() const {
    std::vector<uint32_t> w = {BL_PROGRAM_MAGIC, BL_PROGRAM_VERSION, bucket.n_tok, bucket.n_out, bucket.n_seq, bucket.n_page,
                               uint32_t(shapes_.size()), n_op_, uint32_t(outputs_.size())};
    w.insert(w.end(), tensors_.begin(), tensors_.end());
    w.insert(w.end(), ops_.begin(), ops_.end());
    w.insert(w.end(), outputs_.begin(), outputs_.end());
    return w;
  }

  uint32_t n_weight = 0;

 private:
  static uint32_t bits(float v) { return f32_bits(v); }
  uint32_t add(uint32_t kind, uint32_t type, Ne ne, uint32_t ref) {
    tensors_.insert(tensors_.end(), {kind, type, uint32_t(ne.v[0]), uint32_t(ne.v[1]), uint32_t(ne.v[2]), uint32_t(ne.v[3]), ref, device});
    shapes_.push_back(ne), types_.push_back(type);
    return uint32_t(shapes_.size() - 1);
  }
  void op(uint32_t code, std::vector<uint32_t> dst, std::vector<uint32_t> src, std::vector<uint32_t> param) {
    ops_.insert(ops_.end(), {code, device, uint32_t(dst.size()), uint32_t(src.size()), uint32_t(param.size()), 0});
    ops_.insert(ops_.end(), dst.begin(), dst.end());
    ops_.insert(ops_.end(), src.begin(), src.end());
    ops_.insert(ops_.end(), param.begin(), param.end());
    n_op_++;
  }
  uint32_t op1(uint32_t code, std::vector<uint32_t> src, Ne ne, std::vector<uint32_t> param = {}) {
    const uint32_t dst = add(BL_KIND_SCRATCH, TYPE_F32, ne, 0);
    op(code, {dst}, std::move(src), std::move(param));
    return dst;
  }

  std::vector<uint32_t> tensors_, ops_, outputs_, types_;
  std::vector<Ne> shapes_;
  uint32_t n_op_ = 0;
};

// A program bound to weights and a cache, and its steps.
class Session {
 public:
  Session(bl_runtime *rt, const Builder &b, const std::vector<bl_tensor *> &weights, bl_cache *cache) : bucket_(b.bucket) {
    uint8_t err[512];
    const std::vector<uint32_t> words = b.words();
    must(bl_program_create(rt, reinterpret_cast<const uint8_t *>(words.data()), words.size() * 4, weights.data(), weights.size(), &cache,
                           cache != nullptr, &program_, err, sizeof err),
         err, "bl_program_create");
  }
  ~Session() { bl_program_free(program_); }
  uint64_t scratch() const { return bl_program_scratch_bytes(program_); }

  struct Step {
    std::vector<int32_t> tokens, positions, seqs, out_rows, targets;
    std::vector<std::vector<int32_t>> pages;
  };
  void run(const Step &s, std::vector<float> &output, uint64_t n_output, uint64_t mask) {
    const uint32_t n_page = s.pages.empty() ? 0 : uint32_t(s.pages[0].size());
    words_ = {int32_t(s.tokens.size()), int32_t(s.out_rows.size()), int32_t(s.pages.size()), int32_t(n_page)};
    for (const auto *v : {&s.tokens, &s.positions, &s.seqs, &s.out_rows, &s.targets}) words_.insert(words_.end(), v->begin(), v->end());
    for (const auto &p : s.pages) words_.insert(words_.end(), p.begin(), p.end());
    output.assign(n_output, NAN_POISON());
    uint8_t err[512];
    must(bl_program_step(program_, reinterpret_cast<const uint8_t *>(words_.data()), words_.size() * 4, reinterpret_cast<uint8_t *>(output.data()),
                         n_output * 4, mask, err, sizeof err),
         err, "bl_program_step");
  }

 private:
  static float NAN_POISON() { return f32_from_bits(0x7FC0DEADu); }
  Bucket bucket_;
  bl_program *program_ = nullptr;
  std::vector<int32_t> words_;
};

inline bl_tensor *create(bl_runtime *rt, uint32_t type, Builder::Ne ne, uint32_t uses, const uint8_t *data, uint64_t n_bytes, uint32_t device = 1) {
  uint8_t err[512];
  bl_tensor *t = nullptr;
  must(bl_tensor_create(rt, device, type, ne.v, uses, data, n_bytes, &t, err, sizeof err), err, "bl_tensor_create");
  return t;
}

}  // namespace bl::test
