// ops_lookahead.cpp: makes the guesses of lookahead.h while a step runs.
#include <algorithm>
#include <cstring>

#include "exec.h"
#include "expert_pool.h"

namespace bl {

// Small programs only: a pass over a prompt needs most experts of each layer anyway.
void CpuExec::prepare_guesses() {
  if (p_.n_tok >= PASS_ROWS) return;
  auto memory = std::make_shared<HostScratch>();  // they run between the ops of this program
  for (Lookahead &l : find_lookaheads(p_, weights_)) {
    guesses_.push_back(std::make_unique<Guess>());
    guesses_.back()->what = std::move(l);
    guesses_.back()->exec.reset(new CpuExec(pool_, memory, guesses_.back()->what.slice.program, weights_));
  }
}

// After ops [begin, end).
void CpuExec::guess(size_t begin, size_t end) {
  for (; next_guess_ < guesses_.size() && guesses_[next_guess_]->what.after < end; next_guess_++) {
    Guess &g = *guesses_[next_guess_];
    const auto &w = static_cast<const PooledTensor &>(*g.what.weight);
    if (g.what.after < begin || !w.pool.wants_guess(w.group)) continue;
    const RouterSlice &slice = g.what.slice;
    CpuExec &e = *g.exec;
    e.scratch_.memory()->need(e.scratch_.bytes());
    e.in_ = in_;
    const Lines from = lines(g.what.from);
    const bool chosen = p_.tensors[g.what.from].rows == Rows::tok && slice.program.tensors[slice.source].rows == Rows::out;
    const uint64_t n_rows = e.rows(slice.source);
    float *to = e.result(slice.source);
    for (uint64_t r = 0; r < n_rows; r++) {
      const uint64_t row = chosen ? uint64_t(in_->out_rows[r]) : r;
      for (uint64_t i = 0; i < from.per_row; i++, to += from.n) memcpy(to, from.at(row * from.per_row + i), from.n * 4);
    }
    for (size_t i = 0; i < e.p_.ops.size();) i = e.run(i);
    // The best of each row before the second best of any.
    const Lines ids = e.lines(slice.ids);
    guessed_.clear();
    for (uint64_t k = 0; k < ids.n; k++)
      for (uint64_t r = 0; r < n_rows; r++) {
        const uint32_t expert = uint32_t(reinterpret_cast<const int32_t *>(ids.of(r))[k]);
        if (std::find(guessed_.begin(), guessed_.end(), expert) == guessed_.end()) guessed_.push_back(expert);
      }
    w.pool.ahead(w.group, guessed_, g.what.more);
  }
}

}  // namespace bl
