// step_input.cpp: bloomery.h describes the words under bl_program_step.
#include "step_input.h"

#include <algorithm>

#include "failure.h"

namespace bl {

StepReader::StepReader(const Program &program) : program_(program) {
  words_.reserve(4 + 3 * size_t(program.n_tok) + 2 * size_t(program.n_out) + size_t(program.n_seq) * program.n_page);
}

const StepInput &StepReader::read(const uint8_t *input, uint64_t n_input) {
  const Program &p = program_;
  uint32_t count[4];
  if (n_input < sizeof count) fail(BL_ERR_INPUT, "Cannot run step: its input has %llu bytes, expected at least 16", (unsigned long long)n_input);
  memcpy(count, input, sizeof count);
  const uint32_t low[4] = {1, 0, 1, 0}, high[4] = {p.n_tok, p.n_out, p.n_seq, p.n_page};
  const char *const name[4] = {"n_tok", "n_out", "n_seq", "n_page"};
  for (int i = 0; i < 4; i++)
    if (count[i] < low[i] || count[i] > high[i])
      fail(BL_ERR_INPUT, "Cannot run step: %s is %u, expected %u to %u", name[i], count[i], low[i], high[i]);
  const uint32_t n_tok = count[0], n_out = count[1], n_seq = count[2], n_page = count[3];
  const uint64_t n_words = 3 * uint64_t(n_tok) + 2 * uint64_t(n_out) + uint64_t(n_seq) * n_page;
  if (n_input != 16 + 4 * n_words)
    fail(BL_ERR_INPUT, "Cannot run step: its input has %llu bytes, expected %llu", (unsigned long long)n_input,
         (unsigned long long)(16 + 4 * n_words));
  words_.resize(n_words);
  memcpy(words_.data(), input + 16, 4 * n_words);

  const int32_t *at = words_.data();
  StepInput s{n_tok, n_out, n_seq, n_page, at, nullptr, nullptr, nullptr, nullptr, nullptr, 0};
  s.positions = s.tokens + n_tok;
  s.seqs = s.positions + n_tok;
  s.out_rows = s.seqs + n_tok;
  s.targets = s.out_rows + n_out;
  s.pages = s.targets + n_out;

  for (uint32_t i = 0; i < n_tok; i++) {
    if (p.token_limit != 0 && (s.tokens[i] < 0 || uint64_t(s.tokens[i]) >= p.token_limit))
      fail(BL_ERR_INPUT, "Cannot run step: token %u is %d, expected 0 to %llu", i, s.tokens[i], (unsigned long long)(p.token_limit - 1));
    if (s.seqs[i] < 0 || uint32_t(s.seqs[i]) >= n_seq)
      fail(BL_ERR_INPUT, "Cannot run step: the sequence of row %u is %d, expected 0 to %u", i, s.seqs[i], n_seq - 1);
    if (s.positions[i] < 0 || s.positions[i] == INT32_MAX)
      fail(BL_ERR_INPUT, "Cannot run step: the position of row %u is %d, expected 0 to %d", i, s.positions[i], INT32_MAX - 1);
    s.max_len = std::max(s.max_len, uint32_t(s.positions[i]) + 1);
  }

  // By sequence: positions ascend, and pages hold all of them. slots_: one past the last position seen of each sequence.
  slots_.assign(n_seq, 0);
  for (uint32_t i = 0; i < n_tok; i++) {
    uint64_t &len = slots_[size_t(s.seqs[i])];
    if (uint64_t(s.positions[i]) < len)
      fail(BL_ERR_INPUT, "Cannot run step: the position of row %u is %d, expected %llu or more in sequence %d", i, s.positions[i],
           (unsigned long long)len, s.seqs[i]);
    len = uint64_t(s.positions[i]) + 1;
  }
  if (p.page_size != 0) {
    for (uint32_t q = 0; q < n_seq; q++) {
      if (slots_[q] > uint64_t(n_page) * p.page_size)
        fail(BL_ERR_INPUT, "Cannot run step: sequence %u reaches position %llu, its %u pages hold %llu", q, (unsigned long long)(slots_[q] - 1),
             n_page, (unsigned long long)n_page * p.page_size);
      const uint64_t used = (slots_[q] + p.page_size - 1) / p.page_size;
      for (uint64_t j = 0; j < used; j++) {
        const int32_t page = s.pages[q * uint64_t(n_page) + j];
        if (page < 0 || uint64_t(page) >= p.page_limit)
          fail(BL_ERR_INPUT, "Cannot run step: page %llu of sequence %u is %d, expected 0 to %llu", (unsigned long long)j, q, page,
               (unsigned long long)p.page_limit - 1);
      }
    }
    if (n_seq > 1) {  // two rows must not write one slot
      slots_.clear();
      for (uint32_t i = 0; i < n_tok; i++) {
        const uint32_t pos = uint32_t(s.positions[i]);
        slots_.push_back(uint64_t(s.pages[uint64_t(s.seqs[i]) * n_page + pos / p.page_size]) * p.page_size + pos % p.page_size);
      }
      std::sort(slots_.begin(), slots_.end());
      const auto twice = std::adjacent_find(slots_.begin(), slots_.end());
      if (twice != slots_.end())
        fail(BL_ERR_INPUT, "Cannot run step: two rows write slot %llu of page %llu", (unsigned long long)(*twice % p.page_size),
             (unsigned long long)(*twice / p.page_size));
    }
  }

  for (uint32_t i = 0; i < n_out; i++) {
    if (s.out_rows[i] < 0 || uint32_t(s.out_rows[i]) >= n_tok)
      fail(BL_ERR_INPUT, "Cannot run step: output row %u is token row %d, expected 0 to %u", i, s.out_rows[i], n_tok - 1);
    if (p.target_limit != 0 && (s.targets[i] < -1 || (s.targets[i] >= 0 && uint64_t(s.targets[i]) >= p.target_limit)))
      fail(BL_ERR_INPUT, "Cannot run step: target %u is %d, expected -1 to %llu", i, s.targets[i], (unsigned long long)(p.target_limit - 1));
  }
  return input_ = s;
}

uint64_t StepReader::output_bytes(uint64_t mask) const {
  const Program &p = program_;
  const size_t n = p.outputs.size();
  if (n < 64 && (mask >> n) != 0)
    fail(BL_ERR_ARGUMENT, "Cannot run step: the output mask is 0x%llx, the program has %zu outputs", (unsigned long long)mask, n);
  uint64_t bytes = 0;
  for (size_t i = 0; i < n; i++)
    if ((mask >> i) & 1) bytes += p.step_rows(p.outputs[i], input_.n_tok, input_.n_out) * p.row_bytes(p.outputs[i]);
  return bytes;
}

}  // namespace bl
