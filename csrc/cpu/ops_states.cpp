// ops_states.cpp: CONV and DELTA, which carry a state of each sequence from row to row (kernels in impl/elementwise.h and impl/delta.h).
#include <algorithm>
#include <cstring>

#include "exec.h"

namespace bl {

// A row's inputs are other rows of the step, or lie in the state for positions before it; the state changes when all rows are done.
void CpuExec::conv(const Op &op) {
  const uint32_t c = op.param[BL_PARAM_CONV_CACHE], s = op.param[BL_PARAM_CONV_STREAM], dilation = op.param[BL_PARAM_CONV_DILATION];
  const uint32_t w_id = op.src[BL_SRC_CONV_W];
  const uint32_t n_tap = uint32_t(p_.tensors[w_id].ne[0]), kept = (n_tap - 1) * dilation;
  const Lines x = lines(op.src[BL_SRC_CONV_X]);
  const float *w = nullptr, *b = vector(op.src[BL_SRC_CONV_B]);
  for (auto &t : taps_)
    if (t.first == w_id) w = t.second.floats();
  CpuCache &cache = *caches_[c];
  const uint64_t n = x.n;
  const auto state = [&](const RowBlock &run) { return reinterpret_cast<float *>(cache.row(s, in_->tables[c].of(in_->seqs[run.begin]), 0)); };
  float *y = result(op.dst[0]);
  by_rows(in_->n_tok, n * n_tap, [&](uint64_t begin, uint64_t end, uint32_t) {
    std::vector<const float *> taps(n_tap);
    const auto later = std::upper_bound(runs_.begin(), runs_.end(), begin, [](uint64_t t, const RowBlock &r) { return t < r.begin; });
    size_t i = size_t(later - runs_.begin()) - 1;
    for (uint64_t t = begin; t < end; t++) {
      if (t >= runs_[i].end) i++;
      const RowBlock &run = runs_[i];
      const int64_t first = in_->positions[run.begin], p = in_->positions[t];
      for (uint32_t j = 0; j < n_tap; j++) {
        const int64_t from = p - int64_t(n_tap - 1 - j) * dilation;
        taps[j] = from < 0 ? nullptr : from >= first ? x.of(run.begin + uint64_t(from - first)) : state(run) + uint64_t(from % kept) * n;
      }
      k_.conv(taps.data(), w, b, y + t * n, n, n_tap, op.param[BL_PARAM_CONV_SILU] != 0);
    }
  });
  pool_.run(runs_.size(), 1 + 16384 / (n * kept), [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t i = begin; i < end; i++) {
      const RowBlock &run = runs_[i];
      float *to = state(run);
      if (in_->positions[run.begin] == 0) memset(to, 0, kept * n * 4);
      for (uint32_t t = run.end - run.begin > kept ? run.end - kept : run.begin; t < run.end; t++)
        memcpy(to + uint64_t(uint32_t(in_->positions[t]) % kept) * n, x.of(t), n * 4);
    }
  });
}

void CpuExec::delta(const Op &op) {
  const Lines q = lines(op.src[BL_SRC_DELTA_Q]), k = lines(op.src[BL_SRC_DELTA_K]), v = lines(op.src[BL_SRC_DELTA_V]);
  const Lines g = lines(op.src[BL_SRC_DELTA_G]), beta = lines(op.src[BL_SRC_DELTA_BETA]);
  const uint32_t c = op.param[BL_PARAM_DELTA_CACHE], s = op.param[BL_PARAM_DELTA_STREAM];
  const bool tiled = op.param[BL_PARAM_DELTA_TILED] != 0;
  const uint64_t Hk = q.n1, Hv = v.n1, dk = q.n, dv = v.n;
  CpuCache &cache = *caches_[c];
  float *y = result(op.dst[0]);
  pool_.run(runs_.size() * Hv, in_->n_tok * dk * dv * Hv < 16384 ? runs_.size() * Hv : 1, [&](uint64_t begin, uint64_t end, uint32_t thread) {
    for (uint64_t i = begin; i < end; i++) {
      const RowBlock &run = runs_[i / Hv];
      const uint64_t h = i % Hv, hk = tiled ? h % Hk : h / (Hv / Hk), t = run.begin;
      DeltaJob job;
      job.q = q.of(t, hk), job.k = k.of(t, hk), job.v = v.of(t, h), job.g = g.of(t, h), job.beta = beta.of(t, h);
      job.y = y + (t * Hv + h) * dv;
      job.q_row = q.stride, job.k_row = k.stride, job.v_row = v.stride, job.g_row = g.stride, job.beta_row = beta.stride, job.y_row = Hv * dv;
      job.state = reinterpret_cast<float *>(cache.row(s, in_->tables[c].of(in_->seqs[t]), 0)) + h * dv * dk;
      job.dk = uint32_t(dk), job.dv = uint32_t(dv), job.dg = uint32_t(g.n), job.n_row = run.end - run.begin;
      job.plain = op.param[BL_PARAM_DELTA_RULE] == BL_DELTA_PLAIN;
      if (in_->positions[t] == 0) memset(job.state, 0, dk * dv * 4);
      k_.delta(job, buffer_.floats() + thread * buffer_floats_);
    }
  });
}

}  // namespace bl
