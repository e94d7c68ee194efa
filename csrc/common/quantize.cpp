// quantize.cpp: chooses the row encoder of a type for this machine.
#include "quantize.h"

#include "encoders.h"

#if defined(__FAST_MATH__)
#error "the encoders need every operation rounded on its own: no fast-math"
#endif

namespace bl {
namespace {

bool use_avx2() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  return has;
#else
  return false;
#endif
}

EncodeRow encoder_for(uint32_t type) {
#if defined(__x86_64__)
  if (use_avx2()) return encoder_avx2(type);
#endif
  return encoder_portable(type);
}

}  // namespace

bool quantize_row_supported(uint32_t type, bool has_weights) {
  if (!has_weights && (type == TYPE_IQ1_S || type == TYPE_IQ2_XXS || type == TYPE_IQ2_XS)) return false;
  return encoder_portable(type) != nullptr;
}

bool quantize_rows(uint32_t type, const float *src, uint64_t n_rows, uint64_t n_per_row, const float *weights, void *dst) {
  const TypeInfo *info = type_info(type);
  const EncodeRow encode = encoder_for(type);
  if (!info || !encode || n_per_row % info->block) return false;
  if (!weights && !quantize_row_supported(type, false)) return false;
  const uint64_t row_bytes = n_per_row / info->block * info->bytes;
  for (uint64_t r = 0; r < n_rows; r++)
    if (!encode(src + r * n_per_row, n_per_row, weights, static_cast<uint8_t *>(dst) + r * row_bytes)) return false;
  return true;
}

}  // namespace bl
