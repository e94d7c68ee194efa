// kernels_test.cpp: every kernel of every instruction set that this CPU has against the portable one, bit for bit, and packed matmuls
// against float64.
#include "../cpu/kernels.h"

#include <algorithm>

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

// Random scales may be infinite: which NaN comes out then is free.
bool same_number(float a, float b) { return memcmp(&a, &b, 4) == 0 || (std::isnan(a) && std::isnan(b)); }

// Every type without a packed layout against float64 and, codes and products, bit for bit on all instruction sets.
void coded_matmuls() {
  Random rnd(4);
  const uint32_t types[N_CODED] = {
#define BL_TYPE(type, name, Block, n, form) type,
      BL_CODED_TYPES(BL_TYPE)
#undef BL_TYPE
  };
  for (uint32_t at = 0; at < N_CODED; at++) {
    const uint32_t type = types[at];
    const TypeInfo &t = *type_info(type);
    check(coded_type(type) == at, "coded_type", t.name);
    double all_error = 0, all_norm = 0;
    for (uint64_t n_in : {uint64_t(t.block), uint64_t(t.block) * 5, uint64_t(t.block) * 19, uint64_t(2048)})
      for (int extreme = 0; extreme < 2; extreme++) {
        const uint64_t n_super = act_records(n_in), n_rows = 5, n_many = 11;
        std::vector<uint8_t> w = random_rows(rnd, type, n_rows, n_in, 0.05f);
        if (extreme) {  // any bytes are codes: scales of all sizes, codes at their ends
          for (uint8_t &b : w) b = uint8_t(rnd.next());
          std::fill(w.begin(), w.begin() + int64_t(w.size() / n_rows), 0xFF);
        }
        const std::vector<float> x = rnd.floats(n_many * n_in);
        std::vector<ActRow> act(n_many * n_super);
        for (uint32_t r = 0; r < n_many; r++) kernels_portable.encode_row(x.data() + r * n_in, n_in, act.data() + r * n_super);
        std::vector<Coded> all(n_rows * n_super);
        for (uint64_t o = 0; o < n_rows; o++) {
          const uint8_t *row = w.data() + o * (w.size() / n_rows);
          std::vector<Coded> coded(n_super);
          memset(static_cast<void *>(coded.data()), 0x55, n_super * sizeof(Coded));
          kernels_portable.coded[at].row(row, n_in, coded.data());
          memcpy(static_cast<void *>(all.data() + o * n_super), coded.data(), n_super * sizeof(Coded));
          float y[TILE];
          for (uint32_t r = 0; r < TILE; r++) kernels_portable.coded[at].dot[0](coded.data(), n_super, act.data() + r * n_super, n_super, y + r);
          if (!extreme) {
            std::vector<float> decoded(n_in);
            dequantize_row(type, row, decoded.data(), n_in);
            double error = 0, norm = 0;
            for (uint32_t r = 0; r < TILE; r++) {
              double want = 0;
              for (uint64_t i = 0; i < n_in; i++) {
                const double product = double(decoded[i]) * x[r * n_in + i];
                want += product;
                norm += product * product;
              }
              error += (want - y[r]) * (want - y[r]);
            }
            check(error <= 1e-6 * norm, "coded matmul against float64", t.name);
            all_error += error, all_norm += norm;
          }
          for (const Kernels *k : usable()) {
            std::vector<Coded> coded2(n_super);
            memset(static_cast<void *>(coded2.data()), 0x77, n_super * sizeof(Coded));
            k->coded[at].row(row, n_in, coded2.data());
            for (uint64_t i = 0; i < n_super; i++) check(memcmp(coded[i].code, coded2[i].code, SUPER) == 0, t.name, k->name);
            for (uint32_t R = 1; R <= TILE; R++) {
              std::vector<float> y2(R, NAN);
              k->coded[at].dot[R - 1](coded2.data(), n_super, act.data(), n_super, y2.data());
              for (uint32_t r = 0; r < R; r++)
                check(same_number(y[r], y2[r]), "coded matmul", t.name);
            }
          }
        }
        for (const Kernels *k : usable()) {  // rows side by side: 5 of them, and 3 of the second group
          const CodedKernels &c = k->coded[at];
          if (c.group == nullptr) continue;
          std::vector<uint8_t> groups[2], wide(n_super * MANY_BYTES, 0x33);
          const uint64_t n_block = c.form == CodedForm::scaled || c.form == CodedForm::scaled_min ? n_super : 8 * n_super;
          for (uint32_t i = 0; i < 2; i++) {
            groups[i].assign(n_super * GROUP_BYTES, 0x44);
            c.group(all.data() + 2 * i * n_super, n_super, i == 0 ? 5 : 3, n_super, groups[i].data());
            c.many.expand(groups[i].data(), n_block, i, wide.data());
          }
          const uint8_t *const both[2] = {groups[0].data(), groups[1].data()};
          std::vector<float> y3(n_many * 2 * GROUP, NAN);
          c.many.run(both, wide.data(), n_block, act.data(), n_super, n_many, y3.data());
          for (uint32_t r = 0; r < n_many; r++)
            for (uint64_t o = 0; o < n_rows; o++) {
              float want;
              kernels_portable.coded[at].dot[0](all.data() + o * n_super, n_super, act.data() + r * n_super, n_super, &want);
              check(same_number(want, y3[r * 2 * GROUP + o]), "many coded rows", t.name);
              if (o >= 2) check(same_number(want, y3[r * 2 * GROUP + GROUP + o - 2]), "many coded rows, second group", t.name);
            }
        }
      }
    check(all_error <= 3e-8 * all_norm, "coded matmuls against float64", t.name);
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

// Runs a kernel of every set on the same inputs: the bits of all are those of the portable one, which are returned.
template <class F>
std::vector<float> all_sets(const char *what, size_t n, const F &run) {
  const auto of = [&](const Kernels &k) {
    std::vector<float> out(n, NAN);
    run(k, out.data());
    return out;
  };
  const std::vector<float> base = of(kernels_portable);
  for (const Kernels *k : usable()) check(same(base, of(*k)), what, k->name);
  return base;
}

// The functions of UNARY and GATE in float64, written as ops.def writes them.
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
// (1 + tanh(u)) / 2 = 1 / (1 + e^-2u), without a difference
double gelu_tanh(double x) { return x * sigmoid(2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)); }
double gelu_erf(double x) { return x / 2 * std::erfc(-x / std::sqrt(2.0)); }
double clamp(double x, double a, double b) { return std::min(std::max(x, a), b); }

double unary64(uint32_t kind, double x, double a, double b) {
  switch (kind) {
    case BL_UNARY_SCALE: return a * x + b;
    case BL_UNARY_SILU: return x * sigmoid(x);
    case BL_UNARY_GELU_TANH: return gelu_tanh(x);
    case BL_UNARY_GELU_ERF: return gelu_erf(x);
    case BL_UNARY_RELU: return std::max(x, 0.0);
    case BL_UNARY_RELU2: return std::max(x, 0.0) * std::max(x, 0.0);
    case BL_UNARY_SIGMOID: return sigmoid(x);
    case BL_UNARY_TANH: return std::tanh(x);
    case BL_UNARY_SOFTPLUS: return x > 20 ? x : std::log1p(std::exp(x));
    case BL_UNARY_SOFTCAP: return a * std::tanh(x / a);
    case BL_UNARY_CLAMP: return clamp(x, a, b);
    case BL_UNARY_SIGNED_SQRT: return std::copysign(std::sqrt(std::max(std::fabs(x), a)), x);
    default: return std::exp(x);
  }
}

double gate64(uint32_t kind, double x, double y, double a, double b) {
  switch (kind) {
    case BL_GATE_SILU: return x * sigmoid(x) * y;
    case BL_GATE_GELU_TANH: return gelu_tanh(x) * y;
    case BL_GATE_GELU_ERF: return gelu_erf(x) * y;
    case BL_GATE_SIGMOID: return sigmoid(x) * y;
    case BL_GATE_SILU_CLAMP: return unary64(BL_UNARY_SILU, std::min(x, a), 0, 0) * clamp(y, -a, a);
    case BL_GATE_SITU: return a * std::tanh(x / a) * sigmoid(x) * (b > 0 ? b * std::tanh(y / b) : y);
    case BL_GATE_OAI: {
      const double g = std::min(x, a);
      return g * sigmoid(b * g) * (clamp(y, -a, a) + 1);
    }
    default: return std::max(x, 0.0) * std::max(x, 0.0) * y;
  }
}

// Within a few units in the last place wherever the function is not the small difference of large numbers.
void functions() {
  Random rnd(4);
  for (const float scale : {0.1f, 1.0f, 6.0f, 30.0f})
    for (const uint64_t n : {1, 7, 8, 77}) {
      const std::vector<float> x = rnd.floats(n, scale), y = rnd.floats(n, scale);
      const auto close = [&](const char *what, uint32_t kind, const std::vector<float> &got, const auto &want) {
        for (uint64_t i = 0; i < n; i++) {
          const double w = want(i);
          // The arguments of exponentials are rounded, which counts where they are large.
          if (!(std::fabs(got[i] - w) <= 1e-6 * (1 + std::fabs(x[i])) * std::fabs(w) + 1e-33)) {
            char text[160];
            snprintf(text, sizeof text, "kind %u of %g: %g, expected %g", kind, double(x[i]), double(got[i]), w);
            check(false, what, text);
          }
        }
        check(true, what);
      };
      for (uint32_t kind = 0; kind < BL_UNARY_KIND_COUNT; kind++) {
        const float a = 1.5f, b = 2.25f;
        const auto got = all_sets("unary", n, [&](const Kernels &k, float *out) { k.unary(kind, x.data(), out, n, a, b); });
        if (kind == BL_UNARY_SCALE) continue;  // a difference
        close("unary against float64", kind, got, [&](uint64_t i) { return unary64(kind, x[i], a, b); });
      }
      for (uint32_t kind = 0; kind < BL_GATE_KIND_COUNT; kind++)
        for (const float b : {1.7f, -1.0f}) {
          const auto got = all_sets("gate", n, [&](const Kernels &k, float *out) { k.gate(kind, x.data(), y.data(), out, n, 7.0f, b); });
          if (kind == BL_GATE_OAI) continue;  // u + 1 is a difference
          close("gate against float64", kind, got, [&](uint64_t i) { return gate64(kind, x[i], y[i], 7.0f, b); });
        }
    }
  const float odd[4] = {NAN, INFINITY, -INFINITY, -0.0f};
  for (uint32_t kind = 0; kind < BL_UNARY_KIND_COUNT; kind++) {
    const auto got = all_sets("unary of what is not finite", 4, [&](const Kernels &k, float *out) { k.unary(kind, odd, out, 4, 1.0f, 2.0f); });
    check(std::isnan(got[0]), "a NaN stays");
  }
}

void elementwise() {
  Random rnd(14);
  for (const uint64_t n : {1, 5, 8, 64, 77}) {
    const std::vector<float> a = rnd.floats(n, 4), b = rnd.floats(n), w = rnd.floats(n);
    for (uint32_t kind = 0; kind < BL_NORM_KIND_COUNT; kind++)
      for (const bool has_w : {false, true})
        for (const bool has_b : {false, true}) {
          const auto got = all_sets("norm", n, [&](const Kernels &k, float *out) {
            k.norm(kind, a.data(), has_w ? w.data() : nullptr, has_b ? b.data() : nullptr, out, n, 1e-5f);
          });
          double mean = 0, squares = 0;
          for (const float v : a) mean += kind == BL_NORM_LAYER ? v / double(n) : 0;
          for (const float v : a) squares += (v - mean) * (v - mean);
          for (uint64_t i = 0; i < n; i++) {
            const double term = (a[i] - mean) / std::sqrt((kind == BL_NORM_L2 ? squares : squares / double(n)) + double(1e-5f));
            const double want = term * (has_w ? w[i] : 1) + (has_b ? b[i] : 0);
            check(std::fabs(got[i] - want) <= 2e-6 * (1 + std::fabs(term)), "norm against float64");
          }
        }
    const auto sums = all_sets("sums and products", 5 * n + 4, [&](const Kernels &k, float *out) {
      k.add(a.data(), b.data(), out, n);
      k.mul(a.data(), b.data(), out + n, n);
      k.add_one(a.data(), 0.3f, out + 2 * n, n);
      k.mul_one(a.data(), 0.3f, out + 3 * n, n);
      memcpy(out + 4 * n, b.data(), n * 4);
      k.axpy(0.3f, a.data(), out + 4 * n, n);
      out[5 * n] = k.dot(a.data(), b.data(), n);
      out[5 * n + 1] = k.log_sum_exp(a.data(), n, out + 5 * n + 2);
      out[5 * n + 3] = float(k.find_above(a.data(), 0, n, 0.5f));
    });
    double product = 0, size = 0, sum = 0;
    for (uint64_t i = 0; i < n; i++) {
      product += double(a[i]) * b[i], size += std::fabs(double(a[i]) * b[i]), sum += std::exp(double(a[i]));
      check(sums[i] == a[i] + b[i] && sums[n + i] == a[i] * b[i] && sums[2 * n + i] == a[i] + 0.3f && sums[3 * n + i] == a[i] * 0.3f,
            "sums and products");
    }
    check(std::fabs(sums[5 * n] - product) <= 1e-6 * size, "dot against float64");
    check(std::fabs(sums[5 * n + 1] - std::log(sum)) <= 1e-5, "log_sum_exp against float64");
    const auto shares = all_sets("softmax", 2 * n, [&](const Kernels &k, float *out) {
      k.softmax(a.data(), out, n);
      k.exp_row(a.data(), 1.5f, out + n, n);
    });
    for (uint64_t i = 0; i < n; i++) {
      const double want = std::exp(double(a[i])) / sum;
      check(std::fabs(shares[i] - want) <= 1e-5 * want, "softmax against float64");
    }
  }
  for (const uint32_t n_rot : {2u, 16u, 20u, 32u})
    for (const bool halves : {false, true}) {
      const uint32_t dim = 40, n_head = 3, offset = 6, apart = 45;
      const std::vector<float> x = rnd.floats(apart * n_head), c = rnd.floats(n_rot / 2), s = rnd.floats(n_rot / 2);
      const auto got = all_sets("rope", dim * n_head, [&](const Kernels &k, float *out) {
        k.rope(x.data(), apart, out, c.data(), s.data(), n_head, dim, offset, n_rot, halves);
      });
      for (uint32_t h = 0; h < n_head; h++)
        for (uint32_t i = 0; i < dim; i++)
          if (i < offset || i >= offset + n_rot) check(got[h * dim + i] == x[h * apart + i], "rope copies the rest");
    }
}

// CONV, POOL and DELTA: one row of each against float64, all sets the same bits.
void recurrences() {
  Random rnd(15);
  for (const uint64_t n : {1, 8, 21}) {
    const std::vector<float> rows = rnd.floats(5 * n), w = rnd.floats(5 * n), b = rnd.floats(n), ape = rnd.floats(5 * n);
    const float *taps[5], *offsets[5];
    for (uint32_t j = 0; j < 5; j++) taps[j] = j == 1 ? nullptr : rows.data() + j * n, offsets[j] = ape.data() + j * n;
    const auto conv = all_sets("conv", n, [&](const Kernels &k, float *out) { k.conv(taps, w.data(), b.data(), out, n, 5, false); });
    for (uint32_t j = 0; j < 5; j++) taps[j] = rows.data() + j * n;
    const float *z[5];
    for (uint32_t j = 0; j < 5; j++) z[j] = w.data() + j * n;
    const auto pool = all_sets("pool", n, [&](const Kernels &k, float *out) { k.pool(taps, z, offsets, 5, out, n); });
    const auto mean = all_sets("pool", n, [&](const Kernels &k, float *out) { k.pool(taps, nullptr, nullptr, 5, out, n); });
    for (uint64_t c = 0; c < n; c++) {
      double sum = b[c], total = 0, weighed = 0, all = 0;
      for (uint32_t j = 0; j < 5; j++) {
        const double e = std::exp(double(w[j * n + c]) + ape[j * n + c]);
        if (j != 1) sum += double(w[j * n + c]) * rows[j * n + c];
        total += e, weighed += e * rows[j * n + c], all += rows[j * n + c];
      }
      check(std::fabs(conv[c] - sum) <= 1e-5 && std::fabs(pool[c] - weighed / total) <= 1e-5 && std::fabs(mean[c] - all / 5) <= 1e-5,
            "conv and pool against float64");
    }
  }
  for (const uint32_t dk : {8u, 20u, 64u})
    for (const uint32_t dv : {1u, 8u, 19u})
      for (const uint32_t dg : {1u, dk})
        for (const bool plain : {false, true}) {
          const uint32_t n_row = 37;
          const std::vector<float> q = rnd.floats(n_row * dk, 0.3f), k = rnd.floats(n_row * dk, 0.3f), v = rnd.floats(n_row * dv);
          std::vector<float> g = rnd.floats(n_row * dg), beta = rnd.floats(n_row);
          for (float &x : g) x = -std::fabs(x);
          for (float &x : beta) x = 1 / (1 + std::exp(-x));
          const std::vector<float> start = rnd.floats(dk * dv);
          const auto run = [&](uint32_t piece) {
            return all_sets("delta", n_row * dv + dk * dv, [&](const Kernels &kernel, float *out) {
              std::vector<float> buffer(DELTA_ROWS * ((dk + 7) / 8 * 8), NAN);
              float *state = out + n_row * dv;
              memcpy(state, start.data(), start.size() * 4);
              for (uint32_t t = 0; t < n_row; t += piece)
                kernel.delta({q.data() + t * dk, k.data() + t * dk, v.data() + t * dv, g.data() + t * dg, beta.data() + t, out + t * dv, dk, dk, dv,
                              dg, 1, dv, state, dk, dv, dg, std::min(piece, n_row - t), plain},
                             buffer.data());
            });
          };
          const auto got = run(n_row);
          check(same(got, run(1)) && same(got, run(5)), "delta of pieces");
          std::vector<double> S(start.begin(), start.end());
          double error = 0, norm = 0;
          for (uint32_t t = 0; t < n_row; t++)
            for (uint32_t j = 0; j < dv; j++) {
              double seen = 0, y = 0, *column = &S[j * dk];
              for (uint32_t i = 0; i < dk; i++) seen += (column[i] *= std::exp(double(g[t * dg + (dg == 1 ? 0 : i)]))) * k[t * dk + i];
              const double u = beta[t] * (plain ? v[t * dv + j] : v[t * dv + j] - seen);
              for (uint32_t i = 0; i < dk; i++) y += (column[i] += k[t * dk + i] * u) * q[t * dk + i];
              error += (y - got[t * dv + j]) * (y - got[t * dv + j]), norm += y * y;
            }
          check(error <= 1e-10 * norm, "delta against float64");
        }
}

// One sequence in shuffled pages: blocks of rows, rows alone and lists of all visible rows give float64's results; all sets the same bits.
void attention() {
  Random rnd(5);
  struct Case {
    uint32_t n_rep, window, ratio;
    bool part, sinks;
    float softcap;
  };
  for (const uint32_t type : {TYPE_F32, TYPE_F16, TYPE_Q8_0})
    for (const Case &c : {Case{1, 0, 1, false, false, 0}, {2, 20, 1, false, false, 0}, {3, 0, 1, true, true, 0}, {4, 20, 1, false, true, 5},
                          {20, 33, 1, true, false, 0}, {2, 0, 4, false, false, 0}, {9, 40, 4, true, true, 3}}) {
      const uint32_t dim_k = type == TYPE_Q8_0 ? c.n_rep == 4 ? 48 : 64 : 40, dim_v = type == TYPE_Q8_0 ? 32 : 20;
      const uint32_t n_kv = 2, n = 75, page_size = 8, n_page = 10;
      const uint32_t n_head = n_kv * c.n_rep, page_rows = page_size / c.ratio;
      AttentionJob job{};
      AttentionSegment &g = job.segment[0];
      const auto bytes = [&](uint32_t dim) { return uint64_t(n_kv) * dim / type_info(type)->block * type_info(type)->bytes; };
      g.row_k = bytes(dim_k), g.row_v = c.part ? g.row_k : bytes(dim_v);
      std::vector<uint8_t> k(n_page * page_rows * g.row_k), v(n_page * page_rows * g.row_v);
      std::vector<int32_t> pages(n_page), positions(n), seqs(n, 0);
      for (uint32_t i = 0; i < n_page; i++) pages[i] = int32_t((i * 7 + 3) % n_page);
      const auto slot = [&](uint32_t w) {
        const uint32_t last = (w + 1) * c.ratio - 1;
        return uint64_t(pages[last / page_size]) * page_rows + last % page_size / c.ratio;
      };
      for (uint32_t t = 0; t < n; t++) positions[t] = int32_t(t);
      for (uint32_t w = 0; w < n / c.ratio; w++) {
        const std::vector<float> kr = rnd.floats(n_kv * dim_k), vr = rnd.floats(n_kv * dim_v);
        kernels_portable.encode_cache(kr.data(), type, kr.size(), k.data() + slot(w) * g.row_k);
        if (!c.part) kernels_portable.encode_cache(vr.data(), type, vr.size(), v.data() + slot(w) * g.row_v);
        for (const Kernels *other : usable()) {
          std::vector<uint8_t> row(g.row_k);
          other->encode_cache(kr.data(), type, kr.size(), row.data());
          check(memcmp(row.data(), k.data() + slot(w) * g.row_k, row.size()) == 0, "encode_cache", other->name);
        }
      }
      const std::vector<float> q = rnd.floats(uint64_t(n) * n_head * dim_k), sinks = rnd.floats(n_head);
      job.q = q.data(), job.q_head = dim_k, job.q_row = n_head * dim_k, job.positions = job.sees = positions.data(), job.seqs = seqs.data();
      job.n_head = n_head, job.n_head_kv = n_kv, job.dim_k = dim_k, job.dim_v = dim_v;
      job.scale = 0.2f, job.softcap = c.softcap, job.sinks = c.sinks ? sinks.data() : nullptr, job.n_segment = 1;
      g.pages = pages.data(), g.n_page = n_page, g.page_size = page_size, g.ratio = c.ratio, g.window = c.window;
      g.type_k = g.type_v = type, g.k = k.data(), g.v = c.part ? g.k : v.data();
      std::vector<float> buffer(attention_buffer_floats(c.n_rep, dim_k, dim_v), NAN);
      const auto run = [&](uint32_t rows) {
        return all_sets("attention", uint64_t(n) * n_head * dim_v, [&](const Kernels &kernel, float *y) {
          job.y = y;
          const uint32_t most = attention_heads(c.n_rep);
          for (uint32_t h = 0; h < n_kv; h++)
            for (uint32_t head = 0; head < c.n_rep; head += most)
              for (uint32_t t = 0; t < n; t += rows)
                kernel.attend(job, h, head, std::min(most, c.n_rep - head), {t, t + rows < n ? t + rows : n}, buffer.data());
        });
      };
      const std::vector<float> y = run(attention_rows(c.n_rep));
      check(same(y, run(1)), "attention of rows alone");
      std::vector<uint32_t> list(n * n), n_list(n);
      for (uint32_t t = 0; t < n; t++)
        for (uint32_t w = first_visible(t, c.window, c.ratio); w < end_visible(t, c.ratio); w++) list[t * n + n_list[t]++] = w;
      g.list = list.data(), g.n_list = n_list.data(), g.list_stride = n;
      const std::vector<float> listed = run(1);
      check(c.window != 0 || same(y, listed), "a list of all rows");
      g.list = nullptr;

      std::vector<float> kf(n_kv * dim_k), vf(n_kv * (c.part ? dim_k : dim_v));
      double error = 0, norm = 0;
      for (uint32_t t = 0; t < n; t += 7)
        for (uint32_t h = 0; h < n_head; h++) {
          std::vector<double> sum(dim_v, 0.0);
          double total = c.sinks ? std::exp(double(sinks[h])) : 0;
          for (uint32_t w = 0; (w + 1) * c.ratio <= t + 1; w++) {
            if (c.window != 0 && (w + 1) * c.ratio - 1 + c.window <= t) continue;
            dequantize_row(type, k.data() + slot(w) * g.row_k, kf.data(), kf.size());
            dequantize_row(type, g.v + slot(w) * g.row_v, vf.data(), vf.size());
            double s = 0;
            for (uint32_t d = 0; d < dim_k; d++) s += double(q[(uint64_t(t) * n_head + h) * dim_k + d]) * kf[h / c.n_rep * dim_k + d];
            s *= double(0.2f);
            const double p = std::exp(c.softcap == 0 ? s : c.softcap * std::tanh(s / c.softcap));
            total += p;
            for (uint32_t d = 0; d < dim_v; d++) sum[d] += p * vf[h / c.n_rep * (c.part ? dim_k : dim_v) + d];
          }
          for (uint32_t d = 0; d < dim_v; d++) {
            const uint64_t at = (uint64_t(t) * n_head + h) * dim_v + d;
            const double want = total == 0 ? 0 : sum[d] / total;
            error += (want - y[at]) * (want - y[at]) + (want - listed[at]) * (want - listed[at]), norm += want * want;
          }
        }
      check(error <= 2e-10 * norm, "attention against float64", type_info(type)->name);

      // Scores of INDEX over the same keys.
      const std::vector<float> w = rnd.floats(n_head);
      if (dim_k == 48) continue;  // a key of INDEX is whole blocks
      const IndexJob index{q.data(), dim_k, w.data(), n_head, dim_k, 0.2f, type};
      const uint32_t n_key = std::min(INDEX_ROWS, n / c.ratio);
      const uint8_t *keys[INDEX_ROWS];
      for (uint32_t j = 0; j < n_key; j++) keys[j] = k.data() + slot(j) * g.row_k;
      std::vector<float> room(index_buffer_floats(n_head, dim_k), NAN);
      const auto scores = all_sets("index", n_key, [&](const Kernels &kernel, float *out) { kernel.index(index, keys, n_key, out, room.data()); });
      for (uint32_t j = 0; j < n_key; j++) {
        dequantize_row(type, keys[j], kf.data(), dim_k);
        double want = 0, size = 0;
        for (uint32_t h = 0; h < n_head; h++) {
          double s = 0;
          for (uint32_t d = 0; d < dim_k; d++) s += double(q[h * dim_k + d]) * kf[d];
          want += w[h] * std::max(0.2 * s, 0.0), size += std::fabs(w[h] * 0.2 * s);
        }
        check(std::fabs(scores[j] - want) <= 1e-5 * size, "index against float64");
      }
    }
}

}  // namespace

void kernel_tests() {
  packed_matmuls();
  coded_matmuls();
  extreme_sums();
  hostile_activations();
  float_dots();
  float_panels();
  functions();
  elementwise();
  recurrences();
  attention();
}

}  // namespace bl_test
