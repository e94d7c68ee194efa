// ops_choice.cpp: the ops that choose: ROUTER, TOP_K, and TARGET_LOGPROB beside it.
#include <algorithm>
#include <cmath>

#include "exec.h"

namespace bl {
namespace {

constexpr float ROUTER_MIN_SUM = 6.103515625e-5f;  // the smallest divisor of a renormalisation: the half-precision minimum

// Orders candidates best first: the larger value, then the lower id; a NaN is worse than everything.
bool better(const std::pair<float, int32_t> &a, const std::pair<float, int32_t> &b) {
  return a.first > b.first || (a.first == b.first && a.second < b.second);
}

float ordered(float x) { return x == x ? x : -INFINITY; }

}  // namespace

void CpuExec::router(const Op &op) {
  const uint64_t n = p_.tensors[op.src[0]].ne[0], k = p_.tensors[op.dst[0]].ne[0];
  float *x = f32(op.src[0]), *weights = f32(op.dst[1]);
  int32_t *ids = i32(op.dst[0]);
  const bool sigmoid = op.param[ROUTER_SCORE] == BL_SCORE_SIGMOID, renorm = op.param[ROUTER_RENORM] != 0;
  const float scale = op.param_f32(ROUTER_SCALE);
  by_rows(rows(op.src[0]), n * k, [&](uint64_t begin, uint64_t end, uint32_t thread) {
    auto &heap = heaps_[thread];
    for (uint64_t r = begin; r < end; r++) {
      const float *logits = x + r * n;
      heap.clear();
      for (uint64_t i = 0; i < n; i++) heap.emplace_back(ordered(logits[i]), int32_t(i));
      std::partial_sort(heap.begin(), heap.begin() + int64_t(k), heap.end(), better);
      float divisor = 1.0f;
      if (!sigmoid) {
        const float top = heap[0].first;
        divisor = 0.0f;
        for (uint64_t i = 0; i < n; i++) {
          float e;
          k_.exp_row(logits + i, top, &e, 1);
          divisor += e;
        }
      }
      float sum = 0.0f;
      for (uint64_t i = 0; i < k; i++) {
        const float logit = logits[heap[i].second];
        float e;
        if (sigmoid) {
          const float minus = -logit;
          k_.exp_row(&minus, 0.0f, &e, 1);
          e = 1.0f / (1.0f + e);
        } else {
          k_.exp_row(&logit, heap[0].first, &e, 1);
          e /= divisor;
        }
        ids[r * k + i] = heap[i].second;
        weights[r * k + i] = e;
        sum += e;
      }
      if (renorm) sum = std::max(sum, ROUTER_MIN_SUM);
      for (uint64_t i = 0; i < k; i++) weights[r * k + i] = (renorm ? weights[r * k + i] / sum : weights[r * k + i]) * scale;
    }
  });
}

void CpuExec::top_k(const Op &op) {
  const uint64_t n = p_.tensors[op.src[0]].ne[0], k = p_.tensors[op.dst[0]].ne[0];
  const float *x = f32(op.src[0]);
  int32_t *ids = i32(op.dst[0]);
  float *top = f32(op.dst[1]), *lse = f32(op.dst[2]);
  by_rows(rows(op.src[0]), n, [&](uint64_t begin, uint64_t end, uint32_t thread) {
    auto &heap = heaps_[thread];  // the worst of the best k at its root
    for (uint64_t r = begin; r < end; r++) {
      const float *logits = x + r * n;
      float largest;
      lse[r] = k_.log_sum_exp(logits, n, &largest);
      heap.clear();
      for (uint64_t i = 0; i < k; i++) heap.emplace_back(ordered(logits[i]), int32_t(i));
      std::make_heap(heap.begin(), heap.end(), better);
      for (uint64_t i = k_.find_above(logits, k, n, heap[0].first); i < n; i = k_.find_above(logits, i + 1, n, heap[0].first)) {
        std::pop_heap(heap.begin(), heap.end(), better);
        heap.back() = {logits[i], int32_t(i)};
        std::push_heap(heap.begin(), heap.end(), better);
      }
      std::sort(heap.begin(), heap.end(), better);
      for (uint64_t i = 0; i < k; i++) {
        ids[r * k + i] = heap[i].second;
        top[r * k + i] = logits[heap[i].second];
      }
    }
  });
}

void CpuExec::target_logprob(const Op &op) {
  const uint64_t n = p_.tensors[op.src[0]].ne[0];
  const float *x = f32(op.src[0]), *lse = f32(op.src[1]);
  float *y = f32(op.dst[0]);
  for (uint32_t r = 0; r < in_->n_out; r++) y[r] = in_->targets[r] < 0 ? 0.0f : x[r * n + uint32_t(in_->targets[r])] - lse[r];
}

}  // namespace bl
