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
  if (strstr(features, "amx_int8") != nullptr) all.push_back(&kernels_amx);
#endif
  return all;
}

bool same(const std::vector<float> &a, const std::vector<float> &b) { return memcmp(a.data(), b.data(), a.size() * 4) == 0; }

// The packed products of R rows of records against one group, by the portable kernel row by row: what every other way must equal.
std::vector<float> rows_alone(uint32_t layout, const std::vector<uint8_t> &group, uint64_t n_block, const std::vector<ActRow> &act, uint64_t stride,
                              uint32_t R) {
  std::vector<float> y(R * GROUP, NAN);
  for (uint32_t r = 0; r < R; r++)
    kernels_portable.packed[layout - 1][0](group.data(), n_block, act.data() + r * stride, stride, y.data() + r * GROUP);
  return y;
}

// NMSE of packed matmuls against float64 over the decoded weights: what rounding rows to 14 bits gives is 1e-8; at most 3e-8 for a
// type, 1e-6 for the few sums of one case.
void packed_matmuls() {
  Random rnd(1);
  for (const uint32_t type : {TYPE_Q4_0, TYPE_Q8_0, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K}) {
    const TypeInfo &t = *type_info(type);
    const Layout layout = layout_of(type);
    const uint32_t l = uint32_t(layout);
    const LayoutInfo info = layout_info(layout);
    double all_error = 0, all_norm = 0;
    for (uint64_t n_in : {uint64_t(t.block), uint64_t(t.block) * 5, uint64_t(t.block) * 19})
      for (uint32_t n_rows = 1; n_rows <= GROUP; n_rows += 7)
        for (uint32_t R : {1u, 2u, 3u, 4u, 7u, MANY_ROWS}) {
          const uint64_t row_bytes = n_in / t.block * t.bytes, stride = act_records(n_in), n_block = n_in / info.block;
          const std::vector<uint8_t> w = random_rows(rnd, type, 2 * n_rows, n_in, 0.05f);
          const std::vector<float> x = rnd.floats(R * n_in);
          std::vector<uint8_t> groups[2];
          std::vector<ActRow> act(R * stride);
          memset(static_cast<void *>(act.data()), 0x55, act.size() * sizeof(ActRow));
          for (int i = 0; i < 2; i++) {
            groups[i].assign(n_block * info.bytes, 0xAA);
            pack_group(layout, w.data() + uint64_t(i) * n_rows * row_bytes, row_bytes, n_rows, n_in, groups[i].data());
          }
          for (uint32_t r = 0; r < R; r++) kernels_portable.encode_row(x.data() + r * n_in, n_in, act.data() + r * stride);
          const std::vector<float> y[2] = {rows_alone(l, groups[0], n_block, act, stride, R), rows_alone(l, groups[1], n_block, act, stride, R)};
          std::vector<float> decoded(n_in);
          double error = 0, norm = 0;
          for (uint32_t o = 0; o < n_rows; o++) {
            dequantize_row(type, w.data() + o * row_bytes, decoded.data(), n_in);
            for (uint32_t r = 0; r < R; r++) {
              double want = 0;
              for (uint64_t i = 0; i < n_in; i++) {
                const double product = double(decoded[i]) * x[r * n_in + i];
                want += product;
                norm += product * product;  // what want * want is for random signs, without its luck
              }
              error += (want - y[0][r * GROUP + o]) * (want - y[0][r * GROUP + o]);
            }
          }
          all_error += error, all_norm += norm;
          check(error <= 1e-6 * norm, "packed matmul against float64", t.name);
          for (const Kernels *k : usable()) {
            std::vector<ActRow> act2(act.size());
            memset(static_cast<void *>(act2.data()), 0x77, act2.size() * sizeof(ActRow));
            for (uint32_t r = 0; r < R; r++) k->encode_row(x.data() + r * n_in, n_in, act2.data() + r * stride);
            check(memcmp(act.data(), act2.data(), act.size() * sizeof(ActRow)) == 0, "encode_row", k->name);
            if (R <= TILE) {
              std::vector<float> y2(R * GROUP, NAN);
              k->packed[l - 1][R - 1](groups[0].data(), n_block, act2.data(), stride, y2.data());
              check(same(y[0], y2), t.name, k->name);
            }
            const ManyDot &many = k->many[l - 1];
            if (many.expand == nullptr) continue;
            std::vector<uint8_t> wide(stride * MANY_BYTES, 0x33);
            for (uint32_t i = 0; i < 2; i++) many.expand(groups[i].data(), n_block, i, wide.data());
            std::vector<float> y3(R * 2 * GROUP, NAN);
            const uint8_t *const both[2] = {groups[0].data(), groups[1].data()};
            many.run(both, wide.data(), n_block, act2.data(), stride, R, y3.data());
            for (uint32_t r = 0; r < R; r++)
              for (uint32_t i = 0; i < 2; i++)
                check(memcmp(y3.data() + (2 * r + i) * GROUP, y[i].data() + r * GROUP, GROUP * 4) == 0, "many rows", t.name);
          }
        }
    check(all_error <= 3e-8 * all_norm, "packed matmuls against float64", t.name);
  }
}

// The largest codes, scales and rows: no sum may leave its range on any path.
void extreme_sums() {
  for (const uint32_t type : {TYPE_Q4_0, TYPE_Q8_0, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K}) {
    const TypeInfo &t = *type_info(type);
    const Layout layout = layout_of(type);
    const uint32_t l = uint32_t(layout);
    const LayoutInfo info = layout_info(layout);
    for (const uint8_t fill : {uint8_t(0xFF), uint8_t(0x80), uint8_t(0x7F), uint8_t(0x00)})
      for (const float value : {1.0f, -1.0f}) {
        const uint64_t n_in = 512, row_bytes = n_in / t.block * t.bytes, stride = act_records(n_in), n_block = n_in / info.block;
        std::vector<uint8_t> w(GROUP * row_bytes, fill), group(n_block * info.bytes);
        pack_group(layout, w.data(), row_bytes, GROUP, n_in, group.data());
        for (uint64_t b = 0; b < n_block; b++)  // scales of 1: only the codes and integer scales are extreme
          for (int i = 0; i < 8; i++) {
            const uint16_t one = 0x3C00;
            memcpy(group.data() + b * info.bytes + 2 * i, &one, 2);
            if (type == TYPE_Q4_K || type == TYPE_Q5_K) memcpy(group.data() + b * info.bytes + 16 + 2 * i, &one, 2);
          }
        std::vector<float> x(MANY_ROWS * n_in, value);
        for (uint32_t r = 0; r < MANY_ROWS; r++)  // bytes of -64 and 64, of 63 and -64
          for (uint64_t i = r; i < n_in && r > 0; i += r) x[r * n_in + i] = -value;
        std::vector<ActRow> act(MANY_ROWS * stride);
        for (uint32_t r = 0; r < MANY_ROWS; r++) kernels_portable.encode_row(x.data() + r * n_in, n_in, act.data() + r * stride);
        const std::vector<float> y = rows_alone(l, group, n_block, act, stride, MANY_ROWS);
        for (const Kernels *k : usable()) {
          for (uint32_t r = 0; r + TILE <= MANY_ROWS; r += TILE) {
            float y2[TILE * GROUP];
            k->packed[l - 1][TILE - 1](group.data(), n_block, act.data() + r * stride, stride, y2);
            check(memcmp(y2, y.data() + r * GROUP, sizeof y2) == 0, "extreme sums", k->name);
          }
          const ManyDot &many = k->many[l - 1];
          if (many.expand == nullptr) continue;
          std::vector<uint8_t> wide(stride * MANY_BYTES);
          for (uint32_t i = 0; i < 2; i++) many.expand(group.data(), n_block, i, wide.data());
          std::vector<float> y3(MANY_ROWS * 2 * GROUP, NAN);
          const uint8_t *const both[2] = {group.data(), group.data()};
          many.run(both, wide.data(), n_block, act.data(), stride, MANY_ROWS, y3.data());
          for (uint32_t r = 0; r < MANY_ROWS; r++)
            check(memcmp(y3.data() + 2 * r * GROUP, y.data() + r * GROUP, GROUP * 4) == 0, "extreme sums of many rows", t.name);
        }
      }
  }
}

void hostile_activations() {
  Random rnd(2);
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> x = rnd.floats(512);
    x[300] = bad;
    std::vector<ActRow> act(2);
    kernels_portable.encode_row(x.data(), 512, act.data());
    check(std::isfinite(act[0].d) && std::isnan(act[1].d), "a bad activation makes its superblock's scale NaN");
    for (const Kernels *k : usable()) {
      std::vector<ActRow> act2(2);
      k->encode_row(x.data(), 512, act2.data());
      check(memcmp(act.data(), act2.data(), 2 * sizeof(ActRow)) == 0, "encode_row of a bad activation", k->name);
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
  extreme_sums();
  hostile_activations();
  float_dots();
  float_panels();
  elementwise();
  attention();
}

}  // namespace bl_test
