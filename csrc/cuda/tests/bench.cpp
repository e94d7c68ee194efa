// bench.cpp: rates of whole models of real shapes with random weights, made in memory: what the card reaches without files.
//
//   g++ -O2 -std=c++17 csrc/cuda/tests/bench.cpp -Lbuild -l:libbloomery_cuda.so -o build/cuda_bench
//   LD_LIBRARY_PATH=build build/cuda_bench 8b|30b|0.6b
#include <algorithm>
#include <chrono>
#include <cmath>

#include "builder.h"

using namespace bl;
using namespace bl::test;

namespace {

struct Shape {
  const char *name;
  uint64_t n_embd, n_layer, n_head, n_kv, n_ff, n_vocab, n_expert, n_used;
  double peer_prompt_512, peer_prompt_4096, peer_decode;
};
const Shape SHAPES[] = {
    {"0.6b", 1024, 28, 16, 8, 3072, 151936, 0, 0, 0, 0, 313},
    {"8b", 4096, 36, 32, 8, 12288, 151936, 0, 0, 9058, 9979, 228},
    {"30b", 2048, 48, 32, 4, 768, 151936, 128, 8, 9274, 9649, 156},
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class Model {
 public:
  Model(bl_runtime *rt, const Shape &s) : rt_(rt), s_(s) {
    Random r(7);
    for (const uint32_t type : {TYPE_Q4_K, TYPE_Q6_K, TYPE_F32}) blocks_[type == TYPE_Q4_K ? 0 : type == TYPE_Q6_K ? 1 : 2] = random_blocks(type, 1 << 20, 0.02f, r);
    build({1, 1, 1, 1}, true);
  }
  ~Model() {
    for (bl_tensor *t : weights_) bl_tensor_free(t);
  }
  uint64_t bytes() const {
    uint64_t n = 0;
    for (bl_tensor *t : weights_) n += bl_tensor_device_bytes(t);
    return n;
  }
  std::vector<bl_tensor *> weights_;

  Builder build(Bucket bucket, bool load = false) {
    Builder b(bucket);
    const uint64_t hd = s_.n_embd / s_.n_head;
    auto w = [&](uint32_t type, Builder::Ne ne, uint32_t uses) {
      if (load) weights_.push_back(make(type, ne, uses));
      return b.weight(type, ne);
    };
    const uint32_t freq = w(TYPE_F32, {hd / 2}, BL_USE_VECTOR);
    uint32_t x = b.embed(w(TYPE_Q6_K, {s_.n_embd, s_.n_vocab}, BL_USE_ROWS));
    for (uint64_t il = 0; il < s_.n_layer; il++) {
      const uint32_t a = b.rms_norm(x, w(TYPE_F32, {s_.n_embd}, BL_USE_VECTOR), 1e-6f);
      const uint32_t q = b.rope(b.heads(b.mul_mat(w(TYPE_Q4_K, {s_.n_embd, s_.n_head * hd}, BL_USE_MUL_MAT), a), s_.n_head), freq, BL_ROPE_PAIRS);
      const uint32_t k = b.rope(b.heads(b.mul_mat(w(TYPE_Q4_K, {s_.n_embd, s_.n_kv * hd}, BL_USE_MUL_MAT), a), s_.n_kv), freq, BL_ROPE_PAIRS);
      const uint32_t v = b.heads(b.mul_mat(w(TYPE_Q4_K, {s_.n_embd, s_.n_kv * hd}, BL_USE_MUL_MAT), a), s_.n_kv);
      b.kv_write(k, v, uint32_t(2 * il), uint32_t(2 * il + 1));
      const uint32_t o = b.attention(q, hd, uint32_t(2 * il), uint32_t(2 * il + 1), uint32_t(s_.n_kv), 1.0f / std::sqrt(float(hd)));
      x = b.plus(x, b.mul_mat(w(TYPE_Q4_K, {s_.n_head * hd, s_.n_embd}, BL_USE_MUL_MAT), b.flat(o)));
      const uint32_t f = b.rms_norm(x, w(TYPE_F32, {s_.n_embd}, BL_USE_VECTOR), 1e-6f);
      if (s_.n_expert == 0) {
        const uint32_t gate = b.mul_mat(w(TYPE_Q4_K, {s_.n_embd, s_.n_ff}, BL_USE_MUL_MAT), f);
        const uint32_t up = b.mul_mat(w(TYPE_Q4_K, {s_.n_embd, s_.n_ff}, BL_USE_MUL_MAT), f);
        x = b.plus(x, b.mul_mat(w(TYPE_Q4_K, {s_.n_ff, s_.n_embd}, BL_USE_MUL_MAT), b.silu_mul(gate, up)));
      } else {
        uint32_t ids, p;
        b.router(b.mul_mat(w(TYPE_F32, {s_.n_embd, s_.n_expert}, BL_USE_MUL_MAT), f), uint32_t(s_.n_used), true, ids, p);
        const uint32_t gate = b.mul_mat_id(w(TYPE_Q4_K, {s_.n_embd, s_.n_ff, s_.n_expert}, BL_USE_MUL_MAT), f, ids);
        const uint32_t up = b.mul_mat_id(w(TYPE_Q4_K, {s_.n_embd, s_.n_ff, s_.n_expert}, BL_USE_MUL_MAT), f, ids);
        const uint32_t down = b.mul_mat_id(w(TYPE_Q4_K, {s_.n_ff, s_.n_embd, s_.n_expert}, BL_USE_MUL_MAT), b.silu_mul(gate, up), ids);
        x = b.plus(x, b.expert_sum(down, p));
      }
    }
    const uint32_t last = b.rms_norm(b.get_rows(x), w(TYPE_F32, {s_.n_embd}, BL_USE_VECTOR), 1e-6f);
    uint32_t ids, values, lse;
    b.top_k(b.mul_mat(w(TYPE_Q6_K, {s_.n_embd, s_.n_vocab}, BL_USE_MUL_MAT), last), 40, ids, values, lse);
    for (const uint32_t out : {ids, values, lse}) b.output(out);
    return b;
  }

 private:
  bl_tensor *make(uint32_t type, Builder::Ne ne, uint32_t uses) {
    const TypeInfo &t = *type_info(type);
    const uint64_t bytes = ne.v[0] * ne.v[1] * ne.v[2] / t.block * t.bytes;
    const std::vector<uint8_t> &source = blocks_[type == TYPE_Q4_K ? 0 : type == TYPE_Q6_K ? 1 : 2];
    std::vector<uint8_t> &all = long_[type == TYPE_Q4_K ? 0 : type == TYPE_Q6_K ? 1 : 2];
    while (all.size() < bytes) all.insert(all.end(), source.begin(), source.end());
    return create(rt_, type, ne, uses, all.data(), bytes);
  }
  bl_runtime *rt_;
  const Shape &s_;
  std::vector<uint8_t> blocks_[3], long_[3];
};

constexpr uint32_t PAGE = 64;

// Seconds of a step of n tokens a sequence at position `at` of each of n_seq sequences: median of `rounds`.
struct Timing {
  double median, best;
};
Timing time_steps(Session &s, uint32_t n_seq, uint32_t n, uint32_t at, uint32_t n_page, int rounds, bool advance) {
  std::vector<double> times;
  std::vector<float> out;
  for (int i = -2; i < rounds; i++) {
    Session::Step step;
    for (uint32_t q = 0; q < n_seq; q++) {
      for (uint32_t j = 0; j < n; j++) {
        step.tokens.push_back(int32_t((i + 5) * 977 + q * 131 + j * 31));
        step.positions.push_back(int32_t(at + (advance ? uint32_t(i + 2) : 0) + j)), step.seqs.push_back(int32_t(q));
      }
      step.out_rows.push_back(int32_t(step.tokens.size() - 1)), step.targets.push_back(-1);
      step.pages.emplace_back();
      for (uint32_t p = 0; p < n_page; p++) step.pages[q].push_back(int32_t(q * n_page + p));
    }
    const double t = now();
    s.run(step, out, n_seq * 81, 7);
    if (i >= 0) times.push_back(now() - t);
    for (uint32_t q = 0; q < n_seq; q++)
      if (!(std::fabs(out[n_seq * 80 + q]) < 1e6)) printf("lse %g is no number\n", out[n_seq * 80 + q]), exit(1);
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times[0]};
}

}  // namespace

int main(int argc, char **argv) {
  const Shape *shape = nullptr;
  for (const Shape &s : SHAPES)
    if (argc > 1 && std::string(s.name) == argv[1]) shape = &s;
  if (shape == nullptr) return fprintf(stderr, "usage: cuda_bench 0.6b|8b|30b\n"), 2;
  const bool trace = argc > 2;  // one decode and one prompt step, for a profiler
  uint8_t err[512];
  bl_runtime *rt;
  must(bl_runtime_open(0, &rt, err, sizeof err), err, "bl_runtime_open");
  {
    double t = now();
    Model model(rt, *shape);
    printf("%s: %.2f GB on the card in %.1f s\n", shape->name, double(model.bytes()) / 1e9, now() - t);
    const uint64_t hd = shape->n_embd / shape->n_head;
    std::vector<uint32_t> types(2 * shape->n_layer, TYPE_F16), ne(2 * shape->n_layer, uint32_t(shape->n_kv * hd));
    bl_cache *cache;
    must(bl_cache_create(rt, 1, uint32_t(types.size()), types.data(), ne.data(), PAGE, 32 * 72, &cache, err, sizeof err), err, "bl_cache_create");
    auto session = [&](uint32_t n_tok, uint32_t n_seq, uint32_t n_page) {
      return Session(rt, model.build({n_tok, n_seq, n_seq, n_page}), model.weights_, cache);
    };
    auto line = [&](const char *what, Timing s, double tokens, double peer) {
      printf("%-28s %9.1f tok/s   median %8.3f ms, best %8.3f ms", what, tokens / s.median, s.median * 1e3, s.best * 1e3);
      if (peer > 0) printf("   %.2f x peer", tokens / s.median / peer);
      printf("\n");
      fflush(stdout);
    };
    {
      Session s = session(1, 1, 4);
      line("decode, empty cache", time_steps(s, 1, 1, 0, 4, trace ? 1 : 128, true), 1, shape->peer_decode);
    }
    if (trace) {
      Session s = session(512, 1, 8);
      line("prompt 512", time_steps(s, 1, 512, 0, 8, 1, false), 512, shape->peer_prompt_512);
    } else {
      {
        Session s = session(1, 1, 72);
        line("decode at 4096", time_steps(s, 1, 1, 4096, 72, 64, true), 1, 0);
      }
      for (const uint32_t n : {8u, 32u}) {
        Session s = session(n, n, 4);
        line(n == 8 ? "decode, 8 sequences" : "decode, 32 sequences", time_steps(s, n, 1, 128, 4, 64, true), n, 0);
      }
      {
        Session s = session(512, 1, 8);
        line("prompt 512", time_steps(s, 1, 512, 0, 8, 10, false), 512, shape->peer_prompt_512);
      }
      {
        t = now();
        Session s = session(512, 1, 64);
        std::vector<double> totals;
        for (int round = 0; round < 2; round++) {
          double total = 0;
          for (uint32_t at = 0; at < 4096; at += 512) total += time_steps(s, 1, 512, at, 64, 1, false).median;
          totals.push_back(total);
        }
        std::sort(totals.begin(), totals.end());
        line("prompt 4096 in 8 x 512", {totals[0], totals[0]}, 4096, shape->peer_prompt_4096);
      }
      {
        Session s = session(2048, 1, 64);
        line("prompt 2048 in one", time_steps(s, 1, 2048, 0, 64, 3, false), 2048, 0);
        printf("scratch of 2048 rows: %.2f GB\n", double(s.scratch()) / 1e9);
      }
    }
    bl_cache_free(cache);
  }
  bl_runtime_close(rt);
  return 0;
}
