// step_input.cpp: bloomery.h describes the words under bl_program_step.
#include "step_input.h"

#include <algorithm>

#include "failure.h"

namespace bl {

using ull = unsigned long long;

const StepInput &StepReader::read(const uint8_t *input, uint64_t n_input) {
  const Program &p = program_;
  const size_t n_count = 3 + p.caches.size();
  if (n_input < 4 * n_count)
    fail(BL_ERR_INPUT, "Cannot run step: its input has %llu bytes, expected at least %zu", (ull)n_input, 4 * n_count);
  const auto count = [&](size_t i, const char *name, uint32_t low, uint32_t high) {
    uint32_t n;
    memcpy(&n, input + 4 * i, 4);
    if (n < low || n > high) fail(BL_ERR_INPUT, "Cannot run step: %s is %u, expected %u to %u", name, n, low, high);
    return n;
  };
  StepInput &s = input_;
  s.n_tok = count(0, "n_tok", 1, p.n_tok);
  s.n_out = count(1, "n_out", 0, p.n_out);
  s.n_seq = count(2, "n_seq", 1, p.n_seq);
  s.tables.resize(p.caches.size());
  s.derived.resize(p.derived.size());
  uint64_t n_words = 3 * uint64_t(s.n_tok) + 2 * uint64_t(s.n_out);
  for (size_t c = 0; c < p.caches.size(); c++) {
    s.tables[c].n_page = count(3 + c, "n_page", 0, p.caches[c].n_page);
    n_words += uint64_t(s.n_seq) * s.tables[c].n_page;
  }
  for (const DerivedInput &d : p.derived) n_words += s.n_tok * d.n;
  if (n_input != 4 * (n_count + n_words))
    fail(BL_ERR_INPUT, "Cannot run step: its input has %llu bytes, expected %llu", (ull)n_input, (ull)(4 * (n_count + n_words)));
  words_.resize(n_words);
  memcpy(words_.data(), input + 4 * n_count, 4 * n_words);

  const int32_t *at = words_.data();
  const auto take = [&](uint64_t n) {
    const int32_t *here = at;
    at += n;
    return here;
  };
  s.tokens = take(s.n_tok), s.positions = take(s.n_tok), s.seqs = take(s.n_tok);
  s.out_rows = take(s.n_out), s.targets = take(s.n_out);
  for (PageTable &t : s.tables) t.pages = take(uint64_t(s.n_seq) * t.n_page);
  for (size_t i = 0; i < p.derived.size(); i++) s.derived[i] = take(s.n_tok * p.derived[i].n);

  check_rows();
  for (size_t c = 0; c < p.caches.size(); c++) check_pages(c);
  check_derived();
  for (uint32_t i = 0; i < s.n_out; i++) {
    if (s.out_rows[i] < 0 || uint32_t(s.out_rows[i]) >= s.n_tok)
      fail(BL_ERR_INPUT, "Cannot run step: output row %u is token row %d, expected 0 to %u", i, s.out_rows[i], s.n_tok - 1);
    if (p.target_limit != 0 && (s.targets[i] < -1 || (s.targets[i] >= 0 && uint64_t(s.targets[i]) >= p.target_limit)))
      fail(BL_ERR_INPUT, "Cannot run step: target %u is %d, expected -1 to %llu", i, s.targets[i], (ull)(p.target_limit - 1));
  }
  return s;
}

// Tokens, sequences and positions; notes the runs of rows of one sequence.
void StepReader::check_rows() {
  const Program &p = program_;
  StepInput &s = input_;
  s.max_len = 0;
  runs_.clear();
  seen_.assign(s.n_seq, false);
  const uint64_t position_limit = p.position_limit == 0 ? INT32_MAX : std::min<uint64_t>(p.position_limit, INT32_MAX);
  for (uint32_t i = 0; i < s.n_tok; i++) {
    const int32_t token = s.tokens[i], seq = s.seqs[i], position = s.positions[i];
    if (p.token_limit != 0 && (token < 0 || uint64_t(token) >= p.token_limit))
      fail(BL_ERR_INPUT, "Cannot run step: token %u is %d, expected 0 to %llu", i, token, (ull)(p.token_limit - 1));
    if (seq < 0 || uint32_t(seq) >= s.n_seq)
      fail(BL_ERR_INPUT, "Cannot run step: the sequence of row %u is %d, expected 0 to %u", i, seq, s.n_seq - 1);
    if (position < 0 || uint64_t(position) >= position_limit)
      fail(BL_ERR_INPUT, "Cannot run step: the position of row %u is %d, expected 0 to %llu", i, position, (ull)(position_limit - 1));
    s.max_len = std::max(s.max_len, uint32_t(position) + 1);
    if (i > 0 && seq == s.seqs[i - 1]) {
      const int32_t before = s.positions[i - 1];
      if (position <= before || (p.has_state && position != before + 1))
        fail(BL_ERR_INPUT, "Cannot run step: the position of row %u is %d, expected %lld%s in sequence %d", i, position, (long long)before + 1,
             p.has_state ? "" : " or more", seq);
      runs_.back().end = i + 1;
      continue;
    }
    if (seen_[uint32_t(seq)])
      fail(BL_ERR_INPUT, "Cannot run step: row %u is of sequence %d, expected its rows to be neighbours", i, seq);
    seen_[uint32_t(seq)] = true;
    runs_.push_back({i, i + 1});
  }
}

// Every page that a row reads or writes is there, and no page is written twice.
void StepReader::check_pages(size_t cache) {
  const CacheUse &use = program_.caches[cache];
  const StepInput &s = input_;
  const PageTable &table = s.tables[cache];
  if (use.reach == 0) return;
  written_.clear();
  for (const Run &run : runs_) {
    const int32_t seq = s.seqs[run.begin];
    const uint32_t first = uint32_t(s.positions[run.begin]), last = uint32_t(s.positions[run.end - 1]);
    const uint32_t reached = use.state || first < use.reach ? 0 : first + 1 - use.reach;
    const uint64_t page_of_last = use.state ? 0 : last / use.page_size, page_of_first = use.state ? 0 : first / use.page_size;
    if (page_of_last >= table.n_page)
      fail(BL_ERR_INPUT, "Cannot run step: sequence %d reaches position %u, its %u pages in cache %zu hold %llu", seq, last, table.n_page, cache,
           (ull)table.n_page * use.page_size);
    for (uint64_t j = use.state ? 0 : reached / use.page_size; j <= page_of_last; j++) {
      const int32_t page = table.of(seq)[j];
      if (page < 0 || uint32_t(page) >= use.n_pages)
        fail(BL_ERR_INPUT, "Cannot run step: page %llu of sequence %d in cache %zu is %d, expected 0 to %u", (ull)j, seq, cache, page,
             use.n_pages - 1);
      if (use.written && j >= page_of_first) written_.push_back(uint64_t(page));
    }
  }
  if (written_.size() < 2) return;
  std::sort(written_.begin(), written_.end());
  const auto twice = std::adjacent_find(written_.begin(), written_.end());
  if (twice != written_.end())
    fail(BL_ERR_INPUT, "Cannot run step: page %llu of cache %zu is written for two sequences, or for two places of one", (ull)*twice, cache);
}

void StepReader::check_derived() const {
  for (size_t i = 0; i < program_.derived.size(); i++) {
    const DerivedInput &d = program_.derived[i];
    if (d.type != TYPE_I32) continue;
    const int32_t *values = input_.derived[i];
    for (uint64_t j = 0; j < input_.n_tok * d.n; j++)
      if (values[j] < -1 || (values[j] >= 0 && uint64_t(values[j]) >= d.limit))
        fail(BL_ERR_INPUT, "Cannot run step: number %llu of row %llu of derived input %zu is %d, expected -1 to %lld", (ull)(j % d.n),
             (ull)(j / d.n), i, values[j], (long long)d.limit - 1);
  }
}

uint64_t StepReader::output_bytes(uint64_t mask) const {
  const Program &p = program_;
  const size_t n = p.outputs.size();
  if (n < 64 && (mask >> n) != 0)
    fail(BL_ERR_ARGUMENT, "Cannot run step: the output mask is 0x%llx, the program has %zu outputs", (ull)mask, n);
  uint64_t bytes = 0;
  for (size_t i = 0; i < n; i++)
    if ((mask >> i) & 1) bytes += p.step_rows(p.outputs[i], input_.n_tok, input_.n_out) * p.row_bytes(p.outputs[i]);
  return bytes;
}

}  // namespace bl
