// programs_test.cpp: a program of all fourteen ops through the C ABI: the same bits for any thread count, mutated words and inputs
// refused by name (or run) without harm, sizes and handles checked.
#include "check.h"

namespace bl_test {
namespace {

using namespace bl;

constexpr uint32_t N_TOK = 6, N_OUT = 4, N_SEQ = 2, N_PAGE = 3, PAGE = 4, N_PAGES = 8;
constexpr uint32_t N_EMBD = 256, N_VOCAB = 50, N_HEAD = 4, N_KV = 2, DIM = 64, N_FF = 256, N_EXPERT = 5, N_USED = 2, TOP = 7;

struct Model {
  bl_runtime *rt = nullptr;
  std::vector<bl_tensor *> weights;
  bl_cache *cache = nullptr;
  std::vector<uint32_t> words;

  ~Model() {
    for (bl_tensor *w : weights) bl_tensor_free(w);
    bl_cache_free(cache);
    bl_runtime_close(rt);
  }
};

#if defined(__SANITIZE_THREAD__)
constexpr int N_MUTATION = 1000;
#elif defined(__SANITIZE_ADDRESS__)
constexpr int N_MUTATION = 10000;
#else
constexpr int N_MUTATION = 30000;
#endif

uint32_t add_weight(Model &m, Builder &b, Random &rnd, uint32_t type, std::vector<uint32_t> ne, uint32_t uses, float scale) {
  ne.resize(4, 1);
  const std::vector<uint8_t> data = random_rows(rnd, type, uint64_t(ne[1]) * ne[2], ne[0], scale);
  const uint64_t shape[4] = {ne[0], ne[1], ne[2], ne[3]};
  bl_tensor *w = nullptr;
  uint8_t err[512] = {};
  check(bl_tensor_create(m.rt, 0, type, shape, uses, data.data(), data.size(), &w, err, sizeof err) == BL_OK, "bl_tensor_create",
        reinterpret_cast<char *>(err));
  m.weights.push_back(w);
  return b.tensor(BL_KIND_WEIGHT, type, ne, uint32_t(m.weights.size() - 1));
}

// One layer of attention and one of experts, an output head. `type`: of the matrices.
void build(Model &m, uint32_t n_threads, uint32_t type, uint32_t cache_type) {
  uint8_t err[512] = {};
  check(bl_runtime_open(n_threads, &m.rt, err, sizeof err) == BL_OK, "bl_runtime_open");
  const uint32_t types[2] = {cache_type, cache_type}, ne[2] = {N_KV * DIM, N_KV * DIM};
  check(bl_cache_create(m.rt, 0, 2, types, ne, PAGE, N_PAGES, &m.cache, err, sizeof err) == BL_OK, "bl_cache_create");
  Random rnd(7);
  Builder b(N_TOK, N_OUT, N_SEQ, N_PAGE);
  const uint32_t tokens = b.input(BL_INPUT_TOKENS), positions = b.input(BL_INPUT_POSITIONS), seqs = b.input(BL_INPUT_SEQS);
  const uint32_t out_rows = b.input(BL_INPUT_OUT_ROWS), targets = b.input(BL_INPUT_TARGETS);
  const uint32_t table = add_weight(m, b, rnd, type, {N_EMBD, N_VOCAB}, BL_USE_ROWS | BL_USE_MUL_MAT, 1.0f);
  const uint32_t norm = add_weight(m, b, rnd, TYPE_F32, {N_EMBD}, BL_USE_VECTOR, 1.0f);
  const uint32_t bias = add_weight(m, b, rnd, TYPE_F32, {N_EMBD}, BL_USE_VECTOR, 0.1f);
  const uint32_t freq = add_weight(m, b, rnd, TYPE_F32, {DIM / 2}, BL_USE_VECTOR, 0.5f);
  const uint32_t wq = add_weight(m, b, rnd, type, {N_EMBD, N_HEAD * DIM}, BL_USE_MUL_MAT, 0.1f);
  const uint32_t wk = add_weight(m, b, rnd, type, {N_EMBD, N_KV * DIM}, BL_USE_MUL_MAT, 0.1f);
  const uint32_t wv = add_weight(m, b, rnd, TYPE_BF16, {N_EMBD, N_KV * DIM}, BL_USE_MUL_MAT, 0.1f);
  const uint32_t gate_inp = add_weight(m, b, rnd, TYPE_F32, {N_EMBD, N_EXPERT}, BL_USE_MUL_MAT, 0.1f);
  const uint32_t gate = add_weight(m, b, rnd, type, {N_EMBD, N_FF, N_EXPERT}, BL_USE_MUL_MAT, 0.1f);
  const uint32_t up = add_weight(m, b, rnd, type, {N_EMBD, N_FF, N_EXPERT}, BL_USE_MUL_MAT, 0.1f);
  const uint32_t down = add_weight(m, b, rnd, TYPE_F16, {N_FF, N_EMBD, N_EXPERT}, BL_USE_MUL_MAT, 0.1f);

  const uint32_t x = b.scratch({N_EMBD, N_TOK}), a = b.scratch({N_EMBD, N_TOK}), a2 = b.scratch({N_EMBD, N_TOK});
  b.op(BL_OP_EMBED_ROWS, {x}, {table, tokens});
  b.op(BL_OP_RMS_NORM, {a}, {x, norm}, {bits(1e-6f)});
  b.op(BL_OP_ADD, {a2}, {a, bias});
  const uint32_t q = b.scratch({N_HEAD * DIM, N_TOK}), k = b.scratch({N_KV * DIM, N_TOK}), v = b.scratch({N_KV * DIM, N_TOK});
  b.op(BL_OP_MUL_MAT, {q}, {wq, a2});
  b.op(BL_OP_MUL_MAT, {k}, {wk, a2});
  b.op(BL_OP_MUL_MAT, {v}, {wv, a2});
  const uint32_t qr = b.scratch({DIM, N_HEAD, N_TOK}), kr = b.scratch({DIM, N_KV, N_TOK}), y = b.scratch({DIM, N_HEAD, N_TOK});
  b.op(BL_OP_ROPE, {qr}, {b.view(q, {DIM, N_HEAD, N_TOK}), positions, freq}, {BL_ROPE_HALVES, DIM, bits(1.0f)});
  b.op(BL_OP_ROPE, {kr}, {b.view(k, {DIM, N_KV, N_TOK}), positions, freq}, {BL_ROPE_PAIRS, DIM, bits(1.0f)});
  b.op(BL_OP_KV_WRITE, {}, {kr, b.view(v, {DIM, N_KV, N_TOK}), positions, seqs}, {0, 0, 1});
  b.op(BL_OP_ATTENTION, {y}, {qr, positions, seqs}, {0, 0, 1, N_KV, bits(0.125f), 0});
  const uint32_t h = b.scratch({N_EMBD, N_TOK}), logits_e = b.scratch({N_EXPERT, N_TOK});
  b.op(BL_OP_ADD, {h}, {x, b.view(y, {N_EMBD, N_TOK})});
  b.op(BL_OP_MUL_MAT, {logits_e}, {gate_inp, h});
  const uint32_t ids = b.scratch({N_USED, N_TOK}, TYPE_I32), share = b.scratch({N_USED, N_TOK});
  b.op(BL_OP_ROUTER, {ids, share}, {logits_e}, {BL_SCORE_SOFTMAX, 1, bits(1.0f)});
  const uint32_t g = b.scratch({N_FF, N_USED, N_TOK}), u = b.scratch({N_FF, N_USED, N_TOK}), f = b.scratch({N_FF, N_USED, N_TOK});
  const uint32_t d = b.scratch({N_EMBD, N_USED, N_TOK}), e = b.scratch({N_EMBD, N_TOK}), z = b.scratch({N_EMBD, N_OUT});
  const uint32_t h3 = b.view(h, {N_EMBD, 1, N_TOK});
  b.op(BL_OP_MUL_MAT_ID, {g}, {gate, h3, ids});
  b.op(BL_OP_MUL_MAT_ID, {u}, {up, h3, ids});
  b.op(BL_OP_SILU_MUL, {f}, {g, u});
  b.op(BL_OP_MUL_MAT_ID, {d}, {down, f, ids});
  b.op(BL_OP_EXPERT_SUM, {e}, {d, share});
  b.op(BL_OP_GET_ROWS, {z}, {e, out_rows});
  const uint32_t logits = b.scratch({N_VOCAB, N_OUT}), top_ids = b.scratch({TOP, N_OUT}, TYPE_I32), top = b.scratch({TOP, N_OUT});
  const uint32_t lse = b.scratch({1, N_OUT}), score = b.scratch({1, N_OUT});
  b.op(BL_OP_MUL_MAT, {logits}, {table, z});
  b.op(BL_OP_TOP_K, {top_ids, top, lse}, {logits});
  b.op(BL_OP_TARGET_LOGPROB, {score}, {logits, lse, targets});
  for (const uint32_t o : {logits, top_ids, top, lse, score, h}) b.output(o);
  m.words = b.words();
}

int32_t create(const Model &m, const std::vector<uint32_t> &words, bl_program **out, uint8_t *err) {
  // A copy of exactly the words' size, so that a read past the end is seen.
  std::vector<uint8_t> code(words.size() * 4);
  memcpy(code.data(), words.data(), code.size());
  return bl_program_create(m.rt, code.data(), code.size(), m.weights.data(), m.weights.size(), &m.cache, 1, out, err, 512);
}

std::vector<int32_t> step_words() {
  return {5, 3, 2, 3,                                        // n_tok, n_out, n_seq, n_page
          3, 49, 0, 7, 7, 0, 1, 2, 0, 1, 0, 0, 0, 1, 1,      // tokens, positions, seqs
          4, 0, 2, 1, -1, 49,                                // out rows, targets
          5, 2, -1, 0, -1, -1};                              // pages
}

uint64_t output_bytes(uint64_t n_tok, uint64_t n_out) { return 4 * (n_out * (N_VOCAB + 2 * TOP + 2) + n_tok * N_EMBD); }

int32_t step(bl_program *p, const std::vector<int32_t> &words, std::vector<uint8_t> &out, uint8_t *err) {
  std::vector<uint8_t> input(words.size() * 4);
  memcpy(input.data(), words.data(), input.size());
  return bl_program_step(p, input.data(), input.size(), out.data(), out.size(), 63, err, 512);
}

void threads_and_rows() {
  for (const uint32_t type : {TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K, TYPE_Q8_0, TYPE_Q4_0, TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_IQ4_XS, TYPE_Q3_K})
    for (const uint32_t cache : {TYPE_F16, TYPE_Q8_0}) {
      std::vector<uint8_t> first;
      for (const uint32_t n_threads : {1u, 2u, 3u}) {
        Model m;
        build(m, n_threads, type, cache);
        uint8_t err[512] = {};
        bl_program *p = nullptr;
        check(create(m, m.words, &p, err) == BL_OK, "bl_program_create", reinterpret_cast<char *>(err));
        if (p == nullptr) continue;
        std::vector<uint8_t> out(output_bytes(5, 3), 0xFF);
        check(step(p, step_words(), out, err) == BL_OK, "bl_program_step", reinterpret_cast<char *>(err));
        if (first.empty()) first = out;
        check(first == out, "the same bits for any thread count", type_info(type)->name);
        float value;
        for (size_t i = 0; i < out.size(); i += 4) {
          memcpy(&value, out.data() + i, 4);
          if (!std::isfinite(value) && !(i >= 4 * 3 * N_VOCAB && i < 4 * 3 * (N_VOCAB + TOP))) check(false, "a finite output");
        }
        // The second sequence alone, one token a step, with other pages: the same hidden rows.
        const uint64_t hidden = output_bytes(0, 3);
        for (int32_t pos = 0; pos < 2; pos++) {
          std::vector<uint8_t> one(output_bytes(1, 0));
          check(step(p, {1, 0, 1, 1, 7, pos, 0, 6}, one, err) == BL_OK, "a step of one token", reinterpret_cast<char *>(err));
          check(memcmp(one.data(), first.data() + hidden + 4 * N_EMBD * uint64_t(3 + pos), 4 * N_EMBD) == 0, "a row alone",
                type_info(type)->name);
        }
        bl_program_free(p);
      }
    }
}

void mutations() {
  Model m;
  build(m, 2, TYPE_Q4_K, TYPE_F16);
  Random rnd(11);
  int n_ok = 0;
  for (int i = 0; i < N_MUTATION; i++) {
    std::vector<uint32_t> words = m.words;
    const uint32_t n = 1 + rnd.below(2);
    for (uint32_t j = 0; j < n; j++) {
      uint32_t &w = words[rnd.below(uint32_t(words.size()))];
      switch (rnd.below(4)) {
        case 0: w = uint32_t(rnd.next()); break;
        case 1: w = rnd.below(60); break;
        case 2: w += 1 - 2 * rnd.below(2); break;
        default: w ^= 1u << rnd.below(32);
      }
    }
    if (rnd.below(8) == 0) words.resize(1 + rnd.below(uint32_t(words.size()) - 1));
    uint8_t err[512] = {};
    bl_program *p = nullptr;
    const int32_t status = create(m, words, &p, err);
    if (status != BL_OK) {
      check(err[0] != 0, "a refusal has a text");
      continue;
    }
    n_ok++;
    std::vector<uint8_t> out(output_bytes(5, 3));
    step(p, step_words(), out, err);
    bl_program_free(p);
  }
  check(n_ok > 0, "some mutations are still programs");

  bl_program *p = nullptr;
  uint8_t err[512] = {};
  check(create(m, m.words, &p, err) == BL_OK, "bl_program_create");
  for (int i = 0; i < N_MUTATION; i++) {
    std::vector<int32_t> words = step_words();
    int32_t &w = words[rnd.below(uint32_t(words.size()))];
    switch (rnd.below(3)) {
      case 0: w = int32_t(rnd.next()); break;
      case 1: w += 1 - 2 * int32_t(rnd.below(2)); break;
      default: w = int32_t(rnd.below(60)) - 2;
    }
    if (rnd.below(8) == 0) words.resize(1 + rnd.below(uint32_t(words.size()) + 2));
    std::vector<uint8_t> out(output_bytes(5, 3));
    err[0] = 0;
    if (step(p, words, out, err) != BL_OK) check(err[0] != 0, "a refusal has a text");
  }
  bl_program_free(p);
}

void refusals() {
  Model m;
  build(m, 1, TYPE_Q8_0, TYPE_F16);
  uint8_t err[8] = {};
  bl_tensor *t = nullptr;
  const uint64_t ne[4] = {32, 1, 1, 1}, huge[4] = {1ull << 40, 1ull << 40, 1, 1}, odd[4] = {33, 1, 1, 1}, none[4] = {0, 1, 1, 1};
  const uint8_t data[64] = {};
  check(bl_tensor_create(m.rt, 0, TYPE_Q8_0, ne, 1, data, 33, &t, err, sizeof err) == BL_ERR_ARGUMENT, "a short tensor");
  check(err[7] == 0, "an error text is cut and ended");
  check(bl_tensor_create(m.rt, 0, TYPE_Q8_0, huge, 1, data, 34, &t, err, sizeof err) == BL_ERR_ARGUMENT, "a tensor of 2^80");
  check(bl_tensor_create(m.rt, 0, TYPE_Q8_0, odd, 1, data, 34, &t, err, sizeof err) == BL_ERR_ARGUMENT, "a row of 33");
  check(bl_tensor_create(m.rt, 0, TYPE_Q8_0, none, 1, data, 0, &t, err, sizeof err) == BL_ERR_ARGUMENT, "a row of 0");
  check(bl_tensor_create(m.rt, 0, 4, ne, 1, data, 34, &t, nullptr, 0) == BL_ERR_ARGUMENT, "a retired type");
  check(bl_tensor_create(m.rt, 9, TYPE_Q8_0, ne, 1, data, 34, &t, err, sizeof err) == BL_ERR_ARGUMENT, "a device that is not there");
  check(t == nullptr, "no handle");
  bl_file *f = nullptr;
  check(bl_file_open(m.rt, reinterpret_cast<const uint8_t *>("/nonexistent"), &f, err, sizeof err) == BL_ERR_IO, "a missing file");
  check(bl_file_open(m.rt, reinterpret_cast<const uint8_t *>("/"), &f, err, sizeof err) == BL_ERR_IO, "a folder");
  int32_t page = int32_t(N_PAGES);
  std::vector<uint8_t> bytes(bl_cache_page_bytes(m.cache));
  check(bl_cache_read(m.cache, &page, 1, bytes.data(), bytes.size(), err, sizeof err) == BL_ERR_ARGUMENT, "a page that is not there");
  page = 0;
  check(bl_cache_read(m.cache, &page, 1, bytes.data(), bytes.size() - 1, err, sizeof err) == BL_ERR_ARGUMENT, "a short buffer");
  // A page survives read, write and copy.
  for (size_t i = 0; i < bytes.size(); i++) bytes[i] = uint8_t(i * 7);
  const int32_t other = 3;
  std::vector<uint8_t> back(bytes.size());
  check(bl_cache_write(m.cache, &page, 1, bytes.data(), bytes.size(), err, sizeof err) == BL_OK, "bl_cache_write");
  check(bl_cache_copy(m.cache, &page, &other, 1, err, sizeof err) == BL_OK, "bl_cache_copy");
  check(bl_cache_read(m.cache, &other, 1, back.data(), back.size(), err, sizeof err) == BL_OK && back == bytes, "bl_cache_read");
  uint64_t bad[2];
  const float values[3] = {1.0f, NAN, INFINITY};
  check(bl_check_data(m.rt, TYPE_F32, reinterpret_cast<const uint8_t *>(values), 12, bad, err, sizeof err) == BL_ERR_DATA && bad[0] == 1 &&
            bad[1] == 2,
        "bl_check_data");
  const float p[4] = {0, 1, 2, 3}, q[4] = {0, 1, 3, 2};
  double kl[2];
  uint8_t same[2];
  check(bl_compare_logits(m.rt, p, q, 2, 2, kl, same, err, sizeof err) == BL_OK && kl[0] == 0 && same[0] == 1 && same[1] == 0 &&
            std::fabs(kl[1] - (0.7310585786300049 - 0.2689414213699951)) < 1e-12,
        "bl_compare_logits");
}

}  // namespace

void program_tests() {
  threads_and_rows();
  refusals();
  mutations();
}

}  // namespace bl_test
