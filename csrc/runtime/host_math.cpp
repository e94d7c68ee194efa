// host_math.cpp: dequantize, check and compare, in chunks of rows over the threads.
#include "host_math.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "../common/quantize.h"
#include "failure.h"
#include "pieces.h"

namespace bl {
namespace {

// KL(softmax(p) || softmax(q)) in nats, and whether the largest entries are the same.
double kl_row(const float *p, const float *q, uint64_t n, uint8_t *same_top) {
  uint64_t top_p = 0, top_q = 0;
  for (uint64_t i = 1; i < n; i++) {
    if (p[i] > p[top_p]) top_p = i;
    if (q[i] > q[top_q]) top_q = i;
  }
  *same_top = top_p == top_q ? 1 : 0;
  const double max_p = p[top_p], max_q = q[top_q];
  double sum_p = 0, sum_q = 0, cross = 0;  // cross: sum of exp(p - max_p) ((p - max_p) - (q - max_q))
  for (uint64_t i = 0; i < n; i++) {
    const double dp = double(p[i]) - max_p, dq = double(q[i]) - max_q;
    const double e = std::exp(dp);
    sum_p += e;
    sum_q += std::exp(dq);
    if (e != 0) cross += e * (dp - dq);
  }
  return cross / sum_p - std::log(sum_p) + std::log(sum_q);
}

}  // namespace

void host_dequantize(ThreadPool &pool, uint32_t type, const uint8_t *src, float *dst, uint64_t n) {
  const TypeInfo &t = *type_info(type);
  std::atomic<bool> ok{true};
  const uint64_t grain = PIECE / t.block;
  pool.run(n / t.block, grain, [&](uint64_t begin, uint64_t end, uint32_t) {
    if (!dequantize_row(type, src + begin * t.bytes, dst + begin * t.block, (end - begin) * t.block)) ok.store(false);
  });
  if (!ok.load()) fail(BL_ERR_UNSUPPORTED, "Cannot read type %s", t.name);
}

uint64_t host_check_data(ThreadPool &pool, uint32_t type, const uint8_t *src, uint64_t n, uint64_t *first) {
  const TypeInfo &t = *type_info(type);
  std::atomic<uint64_t> count{0}, least{UINT64_MAX};
  pool.run(n / t.block, PIECE / t.block, [&](uint64_t begin, uint64_t end, uint32_t) {
    uint64_t at = 0;
    const uint64_t bad = check_rows(type, src + begin * t.bytes, (end - begin) * t.block, &at);
    if (bad == 0) return;
    count.fetch_add(bad);
    keep_min(least, begin * t.block + at);
  });
  *first = least.load();
  return count.load();
}

void host_compare_logits(ThreadPool &pool, const float *p, const float *q, uint64_t n_rows, uint64_t n_vocab, double *kl, uint8_t *same_top) {
  pool.run(n_rows, 1, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t r = begin; r < end; r++) kl[r] = kl_row(p + r * n_vocab, q + r * n_vocab, n_vocab, same_top + r);
  });
}

}  // namespace bl
