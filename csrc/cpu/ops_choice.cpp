// ops_choice.cpp: the ops that choose: ROUTER, TOP_K, and TARGET_LOGPROB beside it.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "exec.h"

namespace bl {
namespace {

// Orders candidates best first: the larger value, then the lower id; a NaN is worse than everything.
bool better(const std::pair<float, int32_t> &a, const std::pair<float, int32_t> &b) {
  return a.first > b.first || (a.first == b.first && a.second < b.second);
}

float ordered(float x) { return x == x ? x : -INFINITY; }

using Candidates = std::vector<std::pair<float, int32_t>>;

// Leaves the groups whose best `top` sum up to the most; the others' ranks become -infinity.
void keep_groups(float *ranked, uint64_t n_group, uint64_t per_group, uint64_t n_used, uint64_t top, Candidates &buffer) {
  Candidates groups;
  for (uint64_t g = 0; g < n_group; g++) {
    buffer.clear();
    for (uint64_t i = 0; i < per_group; i++) buffer.emplace_back(ranked[g * per_group + i], int32_t(i));
    std::partial_sort(buffer.begin(), buffer.begin() + int64_t(top), buffer.end(), better);
    float sum = 0.0f;
    for (uint64_t i = 0; i < top; i++) sum += buffer[i].first;
    groups.emplace_back(ordered(sum), int32_t(g));
  }
  std::sort(groups.begin(), groups.end(), better);
  for (uint64_t i = n_used; i < n_group; i++) std::fill_n(ranked + uint64_t(groups[i].second) * per_group, per_group, -INFINITY);
}

}  // namespace

// bits: softmax: e^(x - largest), their sum over all experts in order, each divided by it; sums of the chosen weights in their order.
void CpuExec::router(const Op &op) {
  const Lines x = lines(op.src[BL_SRC_ROUTER_LOGITS]);
  const uint64_t n = x.n, k = p_.tensors[op.dst[BL_DST_ROUTER_IDS]].dim[0];
  const float *bias = vector(op.src[BL_SRC_ROUTER_BIAS]);
  const bool has_given = op.has(BL_SRC_ROUTER_GIVEN);
  const Lines given = has_given ? lines(op.src[BL_SRC_ROUTER_GIVEN]) : x;
  const uint32_t score = op.param[BL_PARAM_ROUTER_SCORE];
  const uint64_t n_group = op.param[BL_PARAM_ROUTER_N_GROUP], per_group = n / n_group, n_used = op.param[BL_PARAM_ROUTER_N_GROUP_USED];
  const uint64_t group_top = std::min<uint64_t>(op.param[BL_PARAM_ROUTER_GROUP_TOP], per_group);
  const bool renorm = op.param[BL_PARAM_ROUTER_RENORM] != 0;
  const float sum_add = op.param_f32(BL_PARAM_ROUTER_SUM_ADD), sum_min = op.param_f32(BL_PARAM_ROUTER_SUM_MIN);
  const float scale = op.param_f32(BL_PARAM_ROUTER_SCALE);
  int32_t *ids = int_result(op.dst[BL_DST_ROUTER_IDS]);
  float *weights = result(op.dst[BL_DST_ROUTER_WEIGHTS]);
  by_rows(rows(op.src[0]), n * k, [&](uint64_t begin, uint64_t end, uint32_t thread) {
    auto &heap = heaps_[thread];
    std::vector<float> &scores = scores_[thread];
    scores.resize(2 * n);
    float *ranked = scores.data() + n;
    for (uint64_t r = begin; r < end; r++) {
      const float *logits = x.of(r);
      if (score == BL_SCORE_SOFTMAX) {
        float top = -INFINITY, divisor = 0.0f;
        for (uint64_t i = 0; i < n; i++) top = std::max(top, ordered(logits[i]));
        k_.exp_row(logits, top, scores.data(), n);
        for (uint64_t i = 0; i < n; i++) divisor += scores[i];
        for (uint64_t i = 0; i < n; i++) scores[i] /= divisor;
      } else {
        k_.unary(score == BL_SCORE_SIGMOID ? BL_UNARY_SIGMOID : BL_UNARY_SOFTPLUS, logits, scores.data(), n, 0, 0);
        if (score == BL_SCORE_SQRT_SOFTPLUS)
          for (uint64_t i = 0; i < n; i++) scores[i] = std::sqrt(scores[i]);
      }
      // Without a bias the logits rank as the scores do, and still do where scores round to the same number.
      const float *ranks = bias == nullptr && n_group == 1 ? logits : scores.data();
      for (uint64_t i = 0; i < n; i++) ranked[i] = ordered(bias == nullptr ? ranks[i] : ranks[i] + bias[i]);
      if (n_group > 1) keep_groups(ranked, n_group, per_group, n_used, group_top, heap);
      int32_t *chosen = ids + r * k;
      if (has_given) {
        memcpy(chosen, given.of(r), k * 4);
      } else {
        heap.clear();
        for (uint64_t i = 0; i < n; i++) heap.emplace_back(ranked[i], int32_t(i));
        std::partial_sort(heap.begin(), heap.begin() + int64_t(k), heap.end(), better);
        for (uint64_t i = 0; i < k; i++) chosen[i] = heap[i].second;
      }
      float sum = 0.0f;
      for (uint64_t i = 0; i < k; i++) sum += scores[size_t(chosen[i])];
      const float divisor = std::max(sum + sum_add, sum_min);
      for (uint64_t i = 0; i < k; i++) {
        const float w = scores[size_t(chosen[i])];
        weights[r * k + i] = (renorm ? w / divisor : w) * scale;
      }
    }
  });
}

void CpuExec::top_k(const Op &op) {
  const Lines x = lines(op.src[0]);
  const uint64_t n = x.n, k = p_.tensors[op.dst[BL_DST_TOP_K_IDS]].dim[0];
  int32_t *ids = int_result(op.dst[BL_DST_TOP_K_IDS]);
  float *top = result(op.dst[BL_DST_TOP_K_VALUES]), *lse = result(op.dst[BL_DST_TOP_K_LSE]);
  by_rows(rows(op.src[0]), n, [&](uint64_t begin, uint64_t end, uint32_t thread) {
    auto &heap = heaps_[thread];  // the worst of the best k at its root
    for (uint64_t r = begin; r < end; r++) {
      const float *logits = x.of(r);
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
  const Lines x = lines(op.src[BL_SRC_TARGET_LOGPROB_X]), lse = lines(op.src[BL_SRC_TARGET_LOGPROB_LSE]);
  float *y = result(op.dst[0]);
  for (uint32_t r = 0; r < in_->n_out; r++) y[r] = in_->targets[r] < 0 ? 0.0f : x.of(r)[in_->targets[r]] - *lse.of(r);
}

}  // namespace bl
