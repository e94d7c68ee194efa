// kernels_test.cpp: every kernel of every instruction set that this CPU has against the portable one, bit for bit, and packed matmuls
// against float64.
#include "../cpu/kernels.h"

#include "check.h"

namespace bl_test {
namespace {

using namespace bl;

std::vector<const Kernels *> usable() {
  std::vector<const Kernels *> all;
#if defined(__x86_64__)
  const char *features = cpu_features_json();
  if (strstr(features, "avx2") != nullptr) all.push_back(&kernels_avx2);
  if (strstr(features, "avx512") != nullptr) all.push_back(&kernels_avx512);
#endif
  return all;
}

bool same(const std::vector<float> &a, const std::vector<float> &b) { return memcmp(a.data(), b.data(), a.size() * 4) == 0; }

// NMSE of packed matmuls against float64 over the decoded weights: what rounding activations to int8 gives is 2.5e-5; at most 5e-5 for a
// type, 1e-3 for the few sums of one case.
void packed_matmuls() {
  Random rnd(1);
  for (const uint32_t type : {TYPE_Q4_0, TYPE_Q8_0, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K}) {
    const TypeInfo &t = *type_info(type);
    const Layout layout = layout_of(type);
    const LayoutInfo info = layout_info(layout);
    double all_error = 0, all_norm = 0;
    for (uint64_t n_in : {uint64_t(t.block), uint64_t(t.block) * 5})
      for (uint32_t n_rows = 1; n_rows <= GROUP; n_rows += 7)
        for (uint32_t R = 1; R <= TILE; R++) {
          const uint64_t row_bytes = n_in / t.block * t.bytes;
          const std::vector<uint8_t> w = random_rows(rnd, type, n_rows, n_in, 0.05f);
          const std::vector<float> x = rnd.floats(R * n_in);
          const float *rows[TILE];
          for (uint32_t r = 0; r < R; r++) rows[r] = x.data() + r * n_in;
          std::vector<uint8_t> group(n_in / info.block * info.bytes, 0xAA), act(R * act_row_bytes(n_in), 0x55);
          pack_group(layout, w.data(), row_bytes, n_rows, n_in, group.data());
          kernels_portable.quantize_tile(rows, R, n_in, act.data());
          std::vector<float> y(R * GROUP, NAN), decoded(n_in);
          kernels_portable.packed[uint32_t(layout) - 1][R - 1](group.data(), n_in / info.block, act.data(), y.data());
          double error = 0, norm = 0;
          for (uint32_t o = 0; o < n_rows; o++) {
            dequantize_row(type, w.data() + o * row_bytes, decoded.data(), n_in);
            for (uint32_t r = 0; r < R; r++) {
              double want = 0;
              for (uint64_t i = 0; i < n_in; i++) {
                const double product = double(decoded[i]) * rows[r][i];
                want += product;
                norm += product * product;  // what want * want is for random signs, without its luck
              }
              error += (want - y[r * GROUP + o]) * (want - y[r * GROUP + o]);
            }
          }
          all_error += error, all_norm += norm;
          check(error <= 1e-3 * norm, "packed matmul against float64", t.name);
          for (uint32_t r = 0; r < R; r++) {  // a row alone gives the same bits
            std::vector<uint8_t> one(act_row_bytes(n_in));
            kernels_portable.quantize_tile(rows + r, 1, n_in, one.data());
            std::vector<float> alone(GROUP, NAN);
            kernels_portable.packed[uint32_t(layout) - 1][0](group.data(), n_in / info.block, one.data(), alone.data());
            check(memcmp(alone.data(), y.data() + r * GROUP, GROUP * 4) == 0, "packed matmul of a row alone", t.name);
          }
          for (const Kernels *k : usable()) {
            std::vector<uint8_t> act2(act.size(), 0x77);
            k->quantize_tile(rows, R, n_in, act2.data());
            check(act == act2, "quantize_tile", k->name);
            std::vector<float> y2(R * GROUP, NAN);
            k->packed[uint32_t(layout) - 1][R - 1](group.data(), n_in / info.block, act2.data(), y2.data());
            check(same(y, y2), t.name, k->name);
            const WideDot &wide = k->wide[uint32_t(layout) - 1];
            if (wide.expand == nullptr || R != TILE) continue;
            std::vector<uint8_t> codes(n_in / 32 * WIDE_BYTES);
            wide.expand(group.data(), n_in / info.block, codes.data());
            std::vector<float> y3(R * GROUP, NAN);
            wide.wide(group.data(), codes.data(), n_in / info.block, act2.data(), y3.data());
            check(same(y, y3), "expanded codes", t.name);
          }
        }
    check(all_error <= 5e-5 * all_norm, "packed matmuls against float64", t.name);
  }
}

void hostile_activations() {
  Random rnd(2);
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> x = rnd.floats(64);
    x[40] = bad;
    const float *row = x.data();
    std::vector<uint8_t> act(act_row_bytes(64));
    kernels_portable.quantize_tile(&row, 1, 64, act.data());
    float d[2];
    memcpy(&d[0], act.data() + 32, 4);
    memcpy(&d[1], act.data() + ACT_BYTES + 32, 4);
    check(std::isfinite(d[0]) && std::isnan(d[1]), "a bad activation makes its block's scale NaN");
    for (const Kernels *k : usable()) {
      std::vector<uint8_t> act2(act.size());
      k->quantize_tile(&row, 1, 64, act2.data());
      check(act == act2, "quantize_tile of a bad activation", k->name);
    }
  }
}

void float_dots() {
  Random rnd(3);
  const uint32_t types[N_FLOAT] = {TYPE_F32, TYPE_F16, TYPE_BF16};
  for (int type = 0; type < N_FLOAT; type++)
    for (const uint64_t n : {1, 7, 8, 9, 16, 23, 24, 31, 100})
      for (uint32_t R = 1; R <= TILE; R++) {
        const std::vector<uint8_t> w = random_rows(rnd, types[type], 1, n, 0.1f);
        const std::vector<float> x = rnd.floats(R * n);
        const float *rows[TILE];
        for (uint32_t r = 0; r < R; r++) rows[r] = x.data() + r * n;
        std::vector<float> y(R, NAN), decoded(n);
        kernels_portable.floats[type][R - 1](w.data(), rows, n, y.data());
        dequantize_row(types[type], w.data(), decoded.data(), n);
        for (uint32_t r = 0; r < R; r++) {
          double want = 0, size = 0;
          for (uint64_t i = 0; i < n; i++) want += double(decoded[i]) * rows[r][i], size += std::fabs(double(decoded[i]) * rows[r][i]);
          check(std::fabs(want - y[r]) <= 1e-6 * size, "float dot against float64");
        }
        for (const Kernels *k : usable()) {
          std::vector<float> y2(R, NAN);
          k->floats[type][R - 1](w.data(), rows, n, y2.data());
          check(same(y, y2), "float dot", k->name);
        }
      }
}

// Panels give the bits of the dots of single rows.
void float_panels() {
  Random rnd(8);
  const uint32_t types[N_FLOAT] = {TYPE_F32, TYPE_F16, TYPE_BF16};
  for (int type = 0; type < N_FLOAT; type++)
    for (const uint64_t n : {16, 48, 512, 528, 1040})
      for (const uint32_t n_rows : {1u, 2u, 3u, 7u, PANEL_ROWS})
        for (const uint64_t n_out : {1, 5, 8}) {
          const std::vector<uint8_t> w = random_rows(rnd, types[type], n_out, n, 0.1f);
          const std::vector<float> x = rnd.floats(n_rows * n);
          const uint64_t o = 2, stride = o + n_out + 1;
          std::vector<float> want(n_rows * stride, 7.0f);
          std::vector<const float *> rows(n_rows);
          for (uint32_t r = 0; r < n_rows; r++) {
            rows[r] = x.data() + r * n;
            for (uint64_t i = 0; i < n_out; i++)
              kernels_portable.floats[type][0](w.data() + i * (w.size() / n_out), &rows[r], n, &want[r * stride + o + i]);
          }
          for (const Kernels *k : usable()) {
            std::vector<float> buffer(PANEL_FLOATS, NAN), got(n_rows * stride, 7.0f);
            std::vector<float *> y(n_rows);
            for (uint32_t r = 0; r < n_rows; r++) y[r] = got.data() + r * stride;
            const uint8_t *group[GROUP];
            for (uint32_t i = 0; i < n_out; i++) group[i] = w.data() + i * (w.size() / n_out);
            k->panels[type](group, uint32_t(n_out), n, rows.data(), n_rows, buffer.data(), y.data(), o);
            check(same(want, got), "float panel", k->name);
          }
        }
}

void elementwise() {
  Random rnd(4);
  for (const uint64_t n : {1, 5, 8, 64, 77}) {
    const std::vector<float> a = rnd.floats(n, 4), b = rnd.floats(n), w = rnd.floats(n);
    const auto run = [&](const Kernels &k) {
      std::vector<float> out;
      std::vector<float> y(n, NAN);
      const auto keep = [&] { out.insert(out.end(), y.begin(), y.end()); };
      k.rms_norm(a.data(), w.data(), y.data(), n, 1e-6f), keep();
      k.add(a.data(), b.data(), y.data(), n), keep();
      k.silu_mul(a.data(), b.data(), y.data(), n), keep();
      for (uint64_t i = 0; i < n; i++) {
        const double want = a[i] / (1 + std::exp(-double(a[i]))) * b[i];
        check(std::fabs(y[i] - want) <= 1e-6 * std::fabs(want) + 1e-30, "silu_mul against float64");
      }
      k.exp_row(a.data(), 1.5f, y.data(), n), keep();
      k.axpy(0.3f, a.data(), y.data(), n), keep();
      float largest;
      out.push_back(k.log_sum_exp(a.data(), n, &largest));
      out.push_back(largest);
      double sum = 0;
      for (uint64_t i = 0; i < n; i++) sum += std::exp(double(a[i]));
      check(std::fabs(out[out.size() - 2] - std::log(sum)) <= 1e-5, "log_sum_exp against float64");
      out.push_back(float(k.find_above(a.data(), 0, n, 0.5f)));
      return out;
    };
    const std::vector<float> base = run(kernels_portable);
    for (const Kernels *k : usable()) check(same(base, run(*k)), "elementwise kernels", k->name);
  }
  for (const uint32_t n_rot : {2u, 16u, 20u, 32u})
    for (const bool halves : {false, true}) {
      const uint32_t dim = 32, n_head = 3;
      const std::vector<float> x = rnd.floats(dim * n_head), c = rnd.floats(n_rot / 2), s = rnd.floats(n_rot / 2);
      std::vector<float> y(x.size(), NAN);
      kernels_portable.rope(x.data(), y.data(), c.data(), s.data(), n_head, dim, n_rot, halves);
      for (const Kernels *k : usable()) {
        std::vector<float> y2(x.size(), NAN);
        k->rope(x.data(), y2.data(), c.data(), s.data(), n_head, dim, n_rot, halves);
        check(same(y, y2), "rope", k->name);
      }
    }
}

// One sequence in shuffled pages: each set against float64, block of rows = row alone, all sets the same bits.
void attention() {
  Random rnd(5);
  for (const uint32_t type : {TYPE_F32, TYPE_F16, TYPE_Q8_0})
    for (const uint32_t n_rep : {1u, 2u, 3u, 4u})
      for (const uint32_t window : {0u, 20u}) {
        const uint32_t n_kv = 2, dim_k = type == TYPE_Q8_0 ? 64 : 40, dim_v = type == TYPE_Q8_0 ? 32 : 20, n = 75, page_size = 8, n_page = 10;
        const uint32_t n_head = n_kv * n_rep;
        AttentionJob job{};
        const auto bytes = [&](uint32_t dim) { return uint64_t(n_kv) * dim / type_info(type)->block * type_info(type)->bytes; };
        job.row_k = bytes(dim_k), job.row_v = bytes(dim_v);
        std::vector<uint8_t> k(n_page * page_size * job.row_k), v(n_page * page_size * job.row_v);
        std::vector<int32_t> pages(n_page), positions(n), seqs(n, 0);
        for (uint32_t i = 0; i < n_page; i++) pages[i] = int32_t((i * 7 + 3) % n_page);
        for (uint32_t t = 0; t < n; t++) {
          positions[t] = int32_t(t);
          const uint64_t slot = uint64_t(pages[t / page_size]) * page_size + t % page_size;
          const std::vector<float> kr = rnd.floats(n_kv * dim_k), vr = rnd.floats(n_kv * dim_v);
          kernels_portable.encode_cache(kr.data(), type, kr.size(), k.data() + slot * job.row_k);
          kernels_portable.encode_cache(vr.data(), type, vr.size(), v.data() + slot * job.row_v);
          for (const Kernels *other : usable()) {
            std::vector<uint8_t> row(job.row_k);
            other->encode_cache(kr.data(), type, kr.size(), row.data());
            check(memcmp(row.data(), k.data() + slot * job.row_k, row.size()) == 0, "encode_cache", other->name);
          }
        }
        const std::vector<float> q = rnd.floats(uint64_t(n) * n_head * dim_k);
        job.q = q.data(), job.positions = positions.data(), job.seqs = seqs.data(), job.pages = pages.data();
        job.n_page = n_page, job.page_size = page_size, job.n_head = n_head, job.n_head_kv = n_kv, job.dim_k = dim_k, job.dim_v = dim_v;
        job.scale = 0.2f, job.window = window, job.type_k = job.type_v = type, job.k = k.data(), job.v = v.data();
        std::vector<float> buffer(attention_buffer_floats(n_head, n_kv, dim_k, dim_v), NAN);
        const auto run = [&](const Kernels &kernel, uint32_t rows) {
          std::vector<float> y(uint64_t(n) * n_head * dim_v, NAN);
          job.y = y.data();
          for (uint32_t h = 0; h < n_kv; h++)
            for (uint32_t t = 0; t < n; t += rows) kernel.attend(job, h, {t, t + rows < n ? t + rows : n}, buffer.data());
          return y;
        };
        const std::vector<float> y = run(kernels_portable, attention_rows(n_head, n_kv));
        check(same(y, run(kernels_portable, 1)), "attention of rows alone");
        for (const Kernels *other : usable()) {
          check(same(y, run(*other, attention_rows(n_head, n_kv))), "attention", other->name);
          check(same(y, run(*other, 1)), "attention of rows alone", other->name);
        }
        std::vector<float> kf(n_kv * dim_k), vf(n_kv * dim_v);
        double error = 0, norm = 0;
        for (uint32_t t = 0; t < n; t += 11)
          for (uint32_t h = 0; h < n_head; h++) {
            std::vector<double> sum(dim_v, 0.0);
            double total = 0;
            for (uint32_t j = window != 0 && t + 1 > window ? t + 1 - window : 0; j <= t; j++) {
              const uint64_t slot = uint64_t(pages[j / page_size]) * page_size + j % page_size;
              dequantize_row(type, k.data() + slot * job.row_k, kf.data(), kf.size());
              dequantize_row(type, v.data() + slot * job.row_v, vf.data(), vf.size());
              double s = 0;
              for (uint32_t d = 0; d < dim_k; d++) s += double(q[(uint64_t(t) * n_head + h) * dim_k + d]) * kf[h / n_rep * dim_k + d];
              const double p = std::exp(s * 0.2);
              total += p;
              for (uint32_t d = 0; d < dim_v; d++) sum[d] += p * vf[h / n_rep * dim_v + d];
            }
            for (uint32_t d = 0; d < dim_v; d++) {
              const double want = sum[d] / total, got = y[(uint64_t(t) * n_head + h) * dim_v + d];
              error += (want - got) * (want - got), norm += want * want;
            }
          }
        check(error <= 1e-10 * norm, "attention against float64");
      }
}

}  // namespace

void kernel_tests() {
  packed_matmuls();
  hostile_activations();
  float_dots();
  float_panels();
  elementwise();
  attention();
}

}  // namespace bl_test
