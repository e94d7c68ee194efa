// kernels.cpp: chooses the kernels of the running CPU, once.
#include "kernels.h"

#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace bl {
namespace {

struct Features {
  bool avx2 = false, avx512 = false, amx = false;
};

#if defined(__x86_64__)
// The system gives a process the tiles' state when it asks for it (arch_prctl ARCH_REQ_XCOMP_PERM of XTILEDATA), for all its threads.
bool ask_for_tiles() {
#if defined(__linux__)
  return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
  return false;
#endif
}
#endif

Features detect() {
  Features f;
#if defined(__x86_64__)
  __builtin_cpu_init();
  unsigned a, b, c = 0, d;
  const bool fma_f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_FMA) != 0 && (c & bit_F16C) != 0;
  f.avx2 = fma_f16c && __builtin_cpu_supports("avx2");
  f.avx512 = f.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
  const bool tiles = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & (1u << 24)) != 0 && (d & (1u << 25)) != 0;  // AMX-TILE, AMX-INT8
  f.amx = f.avx512 && tiles && ask_for_tiles();
#endif
  return f;
}

const Features &features() {
  static const Features f = detect();
  return f;
}

const Kernels &choose() {
#if defined(__x86_64__)
  const char *wish = getenv("BLOOMERY_CPU");
  const bool any = wish == nullptr || *wish == 0;
  if (features().amx && (any || strcmp(wish, "amx") == 0)) return kernels_amx;
  if (features().avx512 && (any || strcmp(wish, "avx512") == 0 || strcmp(wish, "amx") == 0)) return kernels_avx512;
  if (features().avx2 && (any || strcmp(wish, "portable") != 0)) return kernels_avx2;
#endif
  return kernels_portable;
}

}  // namespace

const Kernels &kernels() {
  static const Kernels &k = choose();
  return k;
}

const char *cpu_features_json() {
  if (features().amx) return "[\"avx2\",\"avx512vnni\",\"amx_int8\"]";
  return features().avx512 ? "[\"avx2\",\"avx512vnni\"]" : features().avx2 ? "[\"avx2\"]" : "[]";
}

uint32_t attention_heads(uint32_t n_rep) { return n_rep <= 16 ? n_rep : 16; }

uint32_t attention_rows(uint32_t n_rep) {
  const uint32_t n_head = attention_heads(n_rep);
  return n_head >= 2 ? 64 / n_head : 32;
}

uint64_t attention_buffer_floats(uint32_t n_rep, uint32_t dim_k, uint32_t dim_v) {
  const uint64_t n_head = attention_heads(n_rep), n = attention_rows(n_rep);
  const uint64_t k = (uint64_t(dim_k) + 7) / 8 * 8, v = (uint64_t(dim_v) + 7) / 8 * 8;
  return n * n_head * (v + 2 + 40) + n_head * k + 32 * (k + v) + 64;
}

uint64_t index_buffer_floats(uint32_t n_head, uint32_t dim) {
  const uint64_t k = (uint64_t(dim) + 7) / 8 * 8;
  return INDEX_ROWS * k + n_head * (k + INDEX_ROWS + 8) + 64;
}

}  // namespace bl
