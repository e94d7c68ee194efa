// coding_test.cpp: what instruction sets do differently gives the same bytes: row encoders of each, and all halves.
#include "../common/encoders.h"
#include "check.h"

namespace bl_test {
namespace {

using namespace bl;

void all_halves() {
  std::vector<uint16_t> halves(1 << 16);
  for (size_t i = 0; i < halves.size(); i++) halves[i] = uint16_t(i);
  std::vector<float> many(halves.size());
  dequantize_row(TYPE_F16, halves.data(), many.data(), many.size());
  size_t n_wrong = 0;
  for (size_t i = 0; i < halves.size(); i++) n_wrong += f32_bits(many[i]) != f32_bits(f16_to_f32(halves[i]));
  check(n_wrong == 0, "dequantize_row f16");
}

// Values lie where a file has them, at any byte; sanitizers see a read that expects otherwise.
void odd_addresses() {
  constexpr size_t n = 9000;
  for (uint32_t type : {TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_F64}) {
    const size_t bytes = type_info(type)->bytes;
    std::vector<uint8_t> data(1 + n * bytes);
    uint64_t first = 0;
    check(check_rows(type, data.data() + 1, n, &first) == 0, "check_rows of zeros", type_info(type)->name);
    for (size_t at : {size_t(5000), n - 1}) memset(data.data() + 1 + at * bytes, 0xFF, bytes);  // NaN in each of them
    check(check_rows(type, data.data() + 1, n, &first) == 2 && first == 5000, "check_rows at odd addresses", type_info(type)->name);
  }
}

void skipped() { fprintf(stderr, "skipped: encoders of two instruction sets, this processor lacks AVX2 or F16C\n"); }

#if defined(__x86_64__)
// Rows with what is special about weights: zeros of both signs, equal values, one large value, values whose scale is no normal half.
std::vector<float> row_of(Random &rnd, int kind, uint64_t n) {
  std::vector<float> x = rnd.floats(n, 0.05f);
  for (uint64_t i = 0; i < n; i++) {
    switch (kind) {
      case 1: x[i] = rnd.below(2) ? 0.0f : -0.0f; break;
      case 2: x[i] = rnd.below(2) ? 0.5f : -0.5f; break;
      case 3: x[i] *= rnd.below(40) ? 1.0f : 500.0f; break;
      case 4: x[i] *= 1e-6f; break;
      case 5: x[i] *= 1e-38f; break;
      case 6: x[i] = float(int(rnd.below(9)) - 4) / 8; break;
      case 7: x[i] = rnd.below(3) ? x[i] < 0 ? -x[i] : x[i] : rnd.below(2) ? 0.0f : -0.0f; break;
      case 8: x[i] *= 1e5f; break;
    }
  }
  return x;
}

void encoders_agree() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("f16c")) return skipped();
  constexpr uint64_t n = 512;
  Random rnd(11);
  for (uint32_t type = 0; type < 64; type++) {
    const TypeInfo *info = type_info(type);
    if (info == nullptr || encoder_portable(type) == nullptr) continue;
    const size_t bytes = n / info->block * info->bytes;
    for (int kind = 0; kind < 9; kind++)
      for (int round = 0; round < 8; round++) {
        const std::vector<float> x = row_of(rnd, kind, n);
        std::vector<float> weights = rnd.floats(n);
        for (float &w : weights) w = w * w;
        for (const float *qw : {static_cast<const float *>(nullptr), static_cast<const float *>(weights.data())}) {
          if (!quantize_row_supported(type, qw != nullptr)) continue;
          std::vector<uint8_t> a(bytes), b(bytes);
          const bool has_a = encoder_portable(type)(x.data(), n, qw, a.data()), has_b = encoder_avx2(type)(x.data(), n, qw, b.data());
          check(has_a == has_b && (!has_a || a == b), "encoders of two instruction sets", info->name);
        }
      }
  }
}
#else
void encoders_agree() { skipped(); }
#endif

}  // namespace

void coding_tests() {
  all_halves();
  odd_addresses();
  encoders_agree();
}

}  // namespace bl_test
