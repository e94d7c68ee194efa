// op_test.cpp: every kernel of libbloomery_cuda against float64 on the host, with fresh random inputs and poisoned outputs, and
// the promise that a row's bits do not depend on how many rows are computed with it.
//
//   g++ -O2 -std=c++17 csrc/cuda/tests/op_test.cpp csrc/common/dequantize.cpp -Lbuild -l:libbloomery_cuda.so -o build/cuda_op_test
//   LD_LIBRARY_PATH=build build/cuda_op_test [seed] [quick]
#include <algorithm>
#include <cmath>
#include <functional>

#include "../../common/quantize.h"
#include "builder.h"

using namespace bl;
using namespace bl::test;

namespace {

bl_runtime *rt;
int failures = 0;
bool quick = false;

void report(const char *what, bool ok, double error, double bound) {
  printf("%s  %-58s error %.3g (bound %.3g)\n", ok ? "ok  " : "FAIL", what, error, bound);
  failures += !ok;
}
void report_bits(const char *what, bool ok) {
  if (!ok) printf("FAIL  %s: bits differ\n", what);
  failures += !ok;
}

struct Table {
  std::vector<float> values;
  bl_tensor *tensor;
  Table(uint64_t n, uint64_t rows, uint32_t uses, Random &r, float size = 1.0f) : values(n * rows) {
    for (float &v : values) v = size * r.normal();
    tensor = create(rt, TYPE_F32, {n, rows}, uses, reinterpret_cast<const uint8_t *>(values.data()), values.size() * 4);
  }
  ~Table() { bl_tensor_free(tensor); }
};

// A step of one sequence: tokens first .. first + n of `tokens`, all rows wanted up to n_out.
Session::Step span(const std::vector<int32_t> &tokens, uint32_t first, uint32_t n, uint32_t n_out, uint32_t n_page = 0) {
  Session::Step s;
  for (uint32_t i = 0; i < n; i++) s.tokens.push_back(tokens[first + i]), s.positions.push_back(int32_t(first + i)), s.seqs.push_back(0);
  for (uint32_t i = 0; i < n_out; i++) s.out_rows.push_back(int32_t(i)), s.targets.push_back(-1);
  s.pages.emplace_back();
  for (uint32_t i = 0; i < n_page; i++) s.pages[0].push_back(int32_t(n_page - 1 - i));
  return s;
}

// ||a - b|| / ||b||; not a number never passes.
double relative(const std::vector<float> &a, const std::vector<double> &b) {
  double d = 0, n = 0;
  for (size_t i = 0; i < b.size(); i++) d += (a[i] - b[i]) * (a[i] - b[i]), n += b[i] * b[i];
  const double e = std::sqrt(d / n);
  return e == e ? e : INFINITY;
}

void test_mul_mat(uint32_t type, uint64_t n_in, uint64_t n_out, Random &r) {
  constexpr uint32_t V = 600;
  Table x(n_in, V, BL_USE_ROWS, r);
  for (uint64_t i = 0; i < n_in; i += 97) x.values[i] *= 300.0f;  // an outlier column, as real activations have
  bl_tensor_free(x.tensor);
  x.tensor = create(rt, TYPE_F32, {n_in, V}, BL_USE_ROWS, reinterpret_cast<const uint8_t *>(x.values.data()), x.values.size() * 4);
  const std::vector<uint8_t> blocks = random_blocks(type, n_in * n_out, 0.05f, r);
  std::vector<float> w(n_in * n_out);
  dequantize_row(type, blocks.data(), w.data(), w.size());
  bl_tensor *weight = create(rt, type, {n_in, n_out}, BL_USE_MUL_MAT | BL_USE_ROWS, blocks.data(), blocks.size());

  std::vector<int32_t> tokens;
  for (uint32_t i = 0; i < 512; i++) tokens.push_back(int32_t(r.next() % V));
  std::vector<float> all, some;
  char what[128];
  snprintf(what, sizeof what, "mul_mat %s %llu -> %llu", type_info(type)->name, (unsigned long long)n_in, (unsigned long long)n_out);
  for (const uint32_t rows : {512u, 200u, 64u, 17u, 8u, 3u, 1u}) {
    Builder b({rows, 1, 1, 0});
    const uint32_t table = b.weight(TYPE_F32, {n_in, V}), matrix = b.weight(type, {n_in, n_out});
    b.output(b.mul_mat(matrix, b.embed(table)));
    Session s(rt, b, {x.tensor, weight}, nullptr);
    s.run(span(tokens, 0, rows, 0), rows == 512 ? all : some, rows * n_out, 1);
    if (rows != 512) report_bits(what, memcmp(some.data(), all.data(), rows * n_out * 4) == 0);
    if (rows == 512) {  // a bucket that is not full
      s.run(span(tokens, 0, 77, 0), some, 77 * n_out, 1);
      report_bits(what, memcmp(some.data(), all.data(), 77 * n_out * 4) == 0);
    }
  }
  std::vector<double> want;
  std::vector<float> got;
  for (uint32_t row = 0; row < 512; row += 37)
    for (uint64_t o = 0; o < n_out; o++) {
      double sum = 0;
      for (uint64_t i = 0; i < n_in; i++) sum += double(w[o * n_in + i]) * x.values[size_t(tokens[row]) * n_in + i];
      want.push_back(sum), got.push_back(all[row * n_out + o]);
    }
  const bool is_float = type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16;
  const double bound = is_float ? 2e-6 : 5e-4, error = relative(got, want);
  report(what, error < bound, error, bound);

  // The same tensor as an embedding table.
  Builder b({16, 1, 1, 0});
  b.output(b.embed(b.weight(type, {n_in, n_out})));
  Session s(rt, b, {weight}, nullptr);
  std::vector<int32_t> ids;
  for (int i = 0; i < 16; i++) ids.push_back(int32_t(r.next() % n_out));
  s.run(span(ids, 0, 16, 0), some, 16 * n_in, 1);
  bool same = true;
  for (int i = 0; i < 16; i++) same = same && memcmp(&some[i * n_in], &w[size_t(ids[i]) * n_in], n_in * 4) == 0;
  report_bits("embed_rows of that matrix", same);
  bl_tensor_free(weight);
}

// Routed products: gate, up, silu, down and sum of k of n_expert experts chosen by a router.
void test_experts(uint32_t type, uint64_t n, uint64_t n_ff, uint32_t n_expert, uint32_t k, Random &r) {
  constexpr uint32_t V = 300;
  Table x(n, V, BL_USE_ROWS, r), gate(n, n_expert, BL_USE_MUL_MAT, r, 0.05f);
  std::vector<uint8_t> blocks[3];
  std::vector<float> w[3];
  bl_tensor *weights[3];
  for (int i = 0; i < 3; i++) {
    const uint64_t in = i == 2 ? n_ff : n, out = i == 2 ? n : n_ff;
    blocks[i] = random_blocks(type, n * n_ff * n_expert, 0.05f, r);
    w[i].resize(n * n_ff * n_expert);
    dequantize_row(type, blocks[i].data(), w[i].data(), w[i].size());
    weights[i] = create(rt, type, {in, out, n_expert}, BL_USE_MUL_MAT, blocks[i].data(), blocks[i].size());
  }
  std::vector<int32_t> tokens;
  for (uint32_t i = 0; i < 512; i++) tokens.push_back(int32_t(r.next() % V));
  char what[128];
  snprintf(what, sizeof what, "experts %s %llu x %llu, %u of %u", type_info(type)->name, (unsigned long long)n, (unsigned long long)n_ff, k, n_expert);
  std::vector<float> all, some;
  for (const uint32_t rows : {512u, 100u, 9u, 4u, 1u}) {
    Builder b({rows, 1, 1, 0});
    const uint32_t table = b.weight(TYPE_F32, {n, V}), router = b.weight(TYPE_F32, {n, n_expert}), g = b.weight(type, {n, n_ff, n_expert}),
                   u = b.weight(type, {n, n_ff, n_expert}), d = b.weight(type, {n_ff, n, n_expert});
    const uint32_t f = b.embed(table);
    uint32_t ids, probabilities;
    b.router(b.mul_mat(router, f), k, true, ids, probabilities);
    const uint32_t h = b.silu_mul(b.mul_mat_id(g, f, ids), b.mul_mat_id(u, f, ids));
    b.output(b.plus(f, b.expert_sum(b.mul_mat_id(d, h, ids), probabilities)));
    Session s(rt, b, {x.tensor, gate.tensor, weights[0], weights[1], weights[2]}, nullptr);
    s.run(span(tokens, 0, rows, 0), rows == 512 ? all : some, rows * n, 1);
    if (rows != 512) report_bits(what, memcmp(some.data(), all.data(), rows * n * 4) == 0);
  }
  std::vector<double> want;
  std::vector<float> got;
  for (uint32_t row = 0; row < 512; row += 101) {
    const float *v = &x.values[size_t(tokens[row]) * n];
    std::vector<std::pair<double, uint32_t>> scores;
    for (uint32_t e = 0; e < n_expert; e++) {
      double s = 0;
      for (uint64_t i = 0; i < n; i++) s += double(gate.values[e * n + i]) * v[i];
      scores.push_back({-s, e});
    }
    std::sort(scores.begin(), scores.end());
    double total = 0;
    for (uint32_t j = 0; j < k; j++) total += std::exp(scores[0].first - scores[j].first);
    std::vector<double> y(v, v + n);
    for (uint32_t j = 0; j < k; j++) {
      const uint64_t e = scores[j].second;
      const double p = std::exp(scores[0].first - scores[j].first) / total;
      std::vector<double> h(n_ff);
      for (uint64_t o = 0; o < n_ff; o++) {
        double a = 0, c = 0;
        for (uint64_t i = 0; i < n; i++) a += double(w[0][(e * n_ff + o) * n + i]) * v[i], c += double(w[1][(e * n_ff + o) * n + i]) * v[i];
        h[o] = a / (1 + std::exp(-a)) * c;
      }
      for (uint64_t o = 0; o < n; o++) {
        double s = 0;
        for (uint64_t i = 0; i < n_ff; i++) s += w[2][(e * n + o) * n_ff + i] * h[i];
        y[o] += p * s;
      }
    }
    for (uint64_t o = 0; o < n; o++) want.push_back(y[o]), got.push_back(all[row * n + o]);
  }
  const double error = relative(got, want), bound = type == TYPE_BF16 ? 1e-5 : 2e-3;
  report(what, error < bound, error, bound);
  for (bl_tensor *t : weights) bl_tensor_free(t);
}

// Rope, cache writes and attention, a prompt of n tokens in pieces.
void test_attention(uint32_t cache_type, uint64_t hd, uint32_t n_head, uint32_t n_kv, uint32_t window, uint32_t page_size, Random &r) {
  constexpr uint32_t V = 200, N = 300;
  Table q(hd * n_head, V, BL_USE_ROWS, r), k(hd * n_kv, V, BL_USE_ROWS, r), v(hd * n_kv, V, BL_USE_ROWS, r), norm(hd, 1, BL_USE_VECTOR, r);
  std::vector<float> freq(hd / 2);
  for (size_t i = 0; i < freq.size(); i++) freq[i] = float(std::pow(1e4, -2.0 * double(i) / double(hd)));
  bl_tensor *freqs = create(rt, TYPE_F32, {freq.size()}, BL_USE_VECTOR, reinterpret_cast<const uint8_t *>(freq.data()), freq.size() * 4);
  std::vector<int32_t> tokens;
  for (uint32_t i = 0; i < N; i++) tokens.push_back(int32_t(r.next() % V));
  const uint32_t n_page = (N + page_size - 1) / page_size;
  const float scale = 1.0f / std::sqrt(float(hd));
  char what[128];
  snprintf(what, sizeof what, "attention %s head_dim %llu, %u / %u heads, window %u, page %u", type_info(cache_type)->name, (unsigned long long)hd,
           n_head, n_kv, window, page_size);
  std::vector<float> all, out;
  for (const uint32_t piece : {N, 1u, 7u, 64u, 100u}) {
    if (piece == 1 && quick) continue;
    const uint32_t types[2] = {cache_type, cache_type}, ne[2] = {uint32_t(hd * n_kv), uint32_t(hd * n_kv)};
    bl_cache *cache;
    uint8_t err[512];
    must(bl_cache_create(rt, 1, 2, types, ne, page_size, n_page, &cache, err, sizeof err), err, "bl_cache_create");
    std::vector<float> result;
    {
      Builder b({piece, 1, 1, n_page});
      const uint32_t tq = b.weight(TYPE_F32, {hd * n_head, V}), tk = b.weight(TYPE_F32, {hd * n_kv, V}), tv = b.weight(TYPE_F32, {hd * n_kv, V}),
                     wn = b.weight(TYPE_F32, {hd}), wf = b.weight(TYPE_F32, {hd / 2});
      const uint32_t xq = b.heads(b.embed(tq), n_head), xk = b.heads(b.embed(tk), n_kv), xv = b.heads(b.embed(tv), n_kv);
      const uint32_t rq = b.rope(b.rms_norm(xq, wn, 1e-6f), wf, BL_ROPE_HALVES), rk = b.rope(b.rms_norm(xk, wn, 1e-6f), wf, BL_ROPE_PAIRS);
      b.kv_write(rk, xv, 0, 1);
      b.output(b.attention(rq, hd, 0, 1, n_kv, scale, window));
      Session s(rt, b, {q.tensor, k.tensor, v.tensor, norm.tensor, freqs}, cache);
      for (uint32_t at = 0; at < N; at += piece) {
        const uint32_t n = std::min(piece, N - at);
        s.run(span(tokens, at, n, 0, n_page), out, n * hd * n_head, 1);
        result.insert(result.end(), out.begin(), out.end());
      }
    }
    if (piece == N) {  // what lies in the cache: v of position 0, after all streams before it
      std::vector<int32_t> pages = {int32_t(n_page - 1)};
      std::vector<uint8_t> data(bl_cache_page_bytes(cache));
      must(bl_cache_read(cache, pages.data(), 1, data.data(), data.size(), err, sizeof err), err, "bl_cache_read");
      std::vector<float> row(hd * n_kv);
      std::vector<double> expected;
      dequantize_row(cache_type, data.data() + data.size() / 2, row.data(), row.size());
      for (uint64_t i = 0; i < row.size(); i++) expected.push_back(v.values[size_t(tokens[0]) * hd * n_kv + i]);
      const double error = relative(row, expected), bound = cache_type == TYPE_F32 ? 1e-9 : cache_type == TYPE_F16 ? 5e-4 : 1e-2;
      report("its cache row", error < bound, error, bound);
      if (error >= bound)
        for (int i = 0; i < 70; i++) printf("%g:%g ", row[i], expected[i]);
    }
    bl_cache_free(cache);
    if (piece == N) all = result;
    else report_bits(what, memcmp(all.data(), result.data(), all.size() * 4) == 0);
  }
  // float64, from the same f32 tables.
  auto rotated = [&](const Table &t, uint32_t heads, uint32_t token, uint32_t head, uint32_t position, bool halves) {
    std::vector<double> x(hd);
    double ss = 0;
    for (uint64_t i = 0; i < hd; i++) x[i] = t.values[(size_t(tokens[token]) * heads + head) * hd + i], ss += x[i] * x[i];
    for (uint64_t i = 0; i < hd; i++) x[i] *= norm.values[i] / std::sqrt(ss / double(hd) + 1e-6);
    for (uint64_t i = 0; i < hd / 2; i++) {
      double &a = x[halves ? i : 2 * i], &b = x[halves ? i + hd / 2 : 2 * i + 1];
      const double c = std::cos(double(position) * freq[i]), s = std::sin(double(position) * freq[i]), u = a;
      a = u * c - b * s, b = b * c + u * s;
    }
    return x;
  };
  // What a cache of this type keeps of a head.
  auto stored = [&](std::vector<double> x) {
    for (uint64_t b = 0; b < hd; b += 32) {
      double top = 0;
      for (uint64_t i = b; i < std::min(hd, b + 32); i++) top = std::max(top, std::fabs(x[i]));
      const double d = f16_to_f32(f32_to_f16(float(top / 127)));
      for (uint64_t i = b; i < std::min(hd, b + 32); i++) {
        if (cache_type == TYPE_F16) x[i] = f16_to_f32(f32_to_f16(float(x[i])));
        if (cache_type == TYPE_Q8_0) x[i] = d * std::round(x[i] * 127 / top);
      }
    }
    return x;
  };
  std::vector<double> want;
  std::vector<float> got;
  for (uint32_t row : {0u, 1u, 63u, 64u, 130u, 299u})
    for (uint32_t head = 0; head < n_head; head++) {
      const uint32_t g = head / (n_head / n_kv), first = window != 0 && row + 1 > window ? row + 1 - window : 0;
      const std::vector<double> x = rotated(q, n_head, row, head, row, true);
      std::vector<double> s;
      double top = -INFINITY, total = 0;
      for (uint32_t j = first; j <= row; j++) {
        const std::vector<double> y = stored(rotated(k, n_kv, j, g, j, false));
        double dot = 0;
        for (uint64_t i = 0; i < hd; i++) dot += x[i] * y[i];
        s.push_back(dot * scale), top = std::max(top, dot * scale);
      }
      for (double &e : s) e = std::exp(e - top), total += e;
      std::vector<double> o(hd, 0.0);
      for (uint32_t j = first; j <= row; j++) {
        const float *values = &v.values[(size_t(tokens[j]) * n_kv + g) * hd];
        const std::vector<double> kept = stored(std::vector<double>(values, values + hd));
        for (uint64_t d = 0; d < hd; d++) o[d] += s[j - first] / total * kept[d];
      }
      for (uint64_t d = 0; d < hd; d++) want.push_back(o[d]), got.push_back(all[(size_t(row) * n_head + head) * hd + d]);
    }
  const double error = relative(got, want), bound = cache_type == TYPE_F32 ? 2e-6 : cache_type == TYPE_F16 ? 1e-3 : 2e-3;
  report(what, error < bound, error, bound);
  bl_tensor_free(freqs);
}

void test_top_k(uint64_t n, uint32_t k, Random &r) {
  constexpr uint32_t ROWS = 5;
  Table x(n, ROWS, BL_USE_ROWS, r, 3.0f);
  for (uint64_t i = 0; i < n; i += 3) x.values[i] = x.values[(i * 7) % n];  // ties
  bl_tensor_free(x.tensor);
  x.tensor = create(rt, TYPE_F32, {n, ROWS}, BL_USE_ROWS, reinterpret_cast<const uint8_t *>(x.values.data()), x.values.size() * 4);
  Builder b({ROWS, ROWS, 1, 0});
  uint32_t ids, values, lse;
  const uint32_t logits = b.get_rows(b.embed(b.weight(TYPE_F32, {n, ROWS})));
  b.top_k(logits, k, ids, values, lse);
  for (const uint32_t o : {ids, values, lse, b.target_logprob(logits, lse)}) b.output(o);
  Session s(rt, b, {x.tensor}, nullptr);
  Session::Step step = span({0, 1, 2, 3, 4}, 0, ROWS, ROWS);
  step.targets = {int32_t(n - 1), -1, 0, 7, 5};
  step.out_rows = {4, 2, 0, 1, 3};
  std::vector<float> out;
  s.run(step, out, ROWS * (2 * k + 2), 15);
  bool order = true;
  double error = 0;
  for (uint32_t row = 0; row < ROWS; row++) {
    const float *v = &x.values[size_t(step.out_rows[row]) * n];
    std::vector<uint32_t> best(n);
    for (uint32_t i = 0; i < n; i++) best[i] = i;
    std::partial_sort(best.begin(), best.begin() + k, best.end(), [&](uint32_t a, uint32_t c) { return v[a] != v[c] ? v[a] > v[c] : a < c; });
    for (uint32_t i = 0; i < k; i++) {
      int32_t id;
      memcpy(&id, &out[row * k + i], 4);
      order = order && id == int32_t(best[i]) && out[ROWS * k + row * k + i] == v[best[i]];
    }
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) sum += std::exp(double(v[i]) - v[best[0]]);
    const double l = v[best[0]] + std::log(sum);
    error = std::max(error, std::fabs(out[2 * ROWS * k + row] - l));
    const double t = step.targets[row] < 0 ? 0 : v[step.targets[row]] - l;
    error = std::max(error, std::fabs(out[2 * ROWS * k + ROWS + row] - t));
  }
  char what[64];
  snprintf(what, sizeof what, "top_k %u of %llu", k, (unsigned long long)n);
  report_bits(what, order);
  report(what, error < 1e-5, error, 1e-5);
}

}  // namespace

int main(int argc, char **argv) {
  Random r(argc > 1 ? strtoull(argv[1], nullptr, 10) : 1);
  quick = argc > 2;
  uint8_t err[512];
  must(bl_runtime_open(0, &rt, err, sizeof err), err, "bl_runtime_open");
  for (const uint32_t type : {TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_Q8_0, TYPE_Q4_0, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K}) {
    const bool k_type = type_info(type)->block == 256;
    test_mul_mat(type, 256, 100, r);
    if (quick) continue;
    test_mul_mat(type, 2048, 272, r);
    test_mul_mat(type, k_type ? 4864 : 896 + 32, 136, r);
  }
  for (const uint32_t type : {TYPE_BF16, TYPE_Q4_K, TYPE_Q6_K, TYPE_Q8_0}) test_experts(type, 512, 256, 16, 4, r);
  if (!quick) test_experts(TYPE_Q4_K, 512, 768, 4, 2, r);
  for (const uint32_t type : {TYPE_F32, TYPE_F16, TYPE_Q8_0}) {
    test_attention(type, 64, 4, 2, 0, 16, r);
    test_attention(type, 128, 8, 1, 0, 64, r);
    if (quick) continue;
    test_attention(type, 128, 4, 4, 100, 32, r);
    test_attention(type, 256, 10, 2, 0, 256, r);
    test_attention(type, 96, 40, 2, 0, 48, r);
  }
  test_top_k(151936, 40, r);
  test_top_k(8192, 1, r);
  if (!quick) test_top_k(151936, 1000, r);
  bl_runtime_close(rt);
  printf("%d failures\n", failures);
  return failures != 0;
}
