// ops_states.cpp: CONV, DELTA and SQUARES, which carry a state of each sequence from row to row (kernels in impl/elementwise.h, impl/delta.h
// and here).
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

namespace {

// Adds squares to sums that are kept as hi + lo. The square of an f32 is exact in f64, so a fused addition gives the same bits.
void add_squares(const float *v, float *hi, float *lo, uint64_t n) {
  for (uint64_t i = 0; i < n; i++) {
    const double sum = (double(hi[i]) + double(lo[i])) + double(v[i]) * double(v[i]);
    hi[i] = float(sum);
    lo[i] = float(sum - double(hi[i]));
  }
}

constexpr uint64_t SQUARES_SLICE = 256;  // columns of a piece of work

}  // namespace

// A sum's order is that of the rows and their vectors: threads divide the columns.
void CpuExec::squares(const Op &op) {
  const Lines x = lines(op.src[BL_SRC_SQUARES_X]);
  const bool routed = op.has(BL_SRC_SQUARES_IDS);
  const Lines ids = routed ? lines(op.src[BL_SRC_SQUARES_IDS]) : Lines{};
  const uint32_t c = op.param[BL_PARAM_SQUARES_CACHE], s = op.param[BL_PARAM_SQUARES_STREAM];
  const uint64_t n_mat = op.param[BL_PARAM_SQUARES_N_MAT], n = x.n, n_vector = routed ? ids.n : x.per_row;
  const uint64_t slices = (n + SQUARES_SLICE - 1) / SQUARES_SLICE;
  const float one = 1.0f;
  CpuCache &cache = *caches_[c];
  pool_.run(runs_.size() * slices, in_->n_tok * n * n_vector < 16384 ? runs_.size() * slices : 1, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t i = begin; i < end; i++) {
      const RowBlock &run = runs_[i / slices];
      const uint64_t from = i % slices * SQUARES_SLICE, to = std::min(n, from + SQUARES_SLICE);
      float *state = reinterpret_cast<float *>(cache.row(s, in_->tables[c].of(in_->seqs[run.begin]), 0));
      const auto hi = [&](uint64_t m) { return state + m * 2 * (n + 1); };
      const auto add = [&](const float *v, uint64_t m) {
        add_squares(v + from, hi(m) + from, hi(m) + n + 1 + from, to - from);
        if (from == 0) add_squares(&one, hi(m) + n, hi(m) + 2 * n + 1, 1);  // the first slice counts
      };
      if (in_->positions[run.begin] == 0)
        for (uint64_t m = 0; m < n_mat; m++) {
          for (float *of : {hi(m), hi(m) + n + 1}) {
            memset(of + from, 0, (to - from) * 4);
            if (from == 0) of[n] = 0.0f;
          }
        }
      for (uint64_t t = run.begin; t < run.end; t++)
        for (uint64_t j = 0; j < n_vector; j++) {
          const uint64_t m = routed ? uint64_t(reinterpret_cast<const int32_t *>(ids.of(t))[j]) : n_mat > 1 ? j : 0;
          add(x.of(t, x.per_row == 1 ? 0 : j % x.n1, x.per_row == 1 ? 0 : j / x.n1), m);
        }
    }
  });
}

}  // namespace bl
