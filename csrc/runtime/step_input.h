// step_input.h: the small inputs of one step, parsed and range-checked in one place for every backend.
#pragma once

#include <cstdint>
#include <vector>

#include "program.h"

namespace bl {

// Pointers into the words of the StepReader that made it; valid until its next read().
struct StepInput {
  uint32_t n_tok, n_out, n_seq, n_page;
  const int32_t *tokens;     // [n_tok]
  const int32_t *positions;  // [n_tok], strictly ascending within a sequence
  const int32_t *seqs;       // [n_tok] rows of `pages`
  const int32_t *out_rows;   // [n_out] < n_tok
  const int32_t *targets;    // [n_out] -1 or a token
  const int32_t *pages;      // [n_seq, n_page]; every page up to that of a sequence's last position is present
  uint32_t max_len;          // largest position + 1
};

class StepReader {
 public:
  explicit StepReader(const Program &program);

  // Copies and checks the words of bl_program_step's `input`.   fails with BL_ERR_INPUT, naming the row, found and wanted
  const StepInput &read(const uint8_t *input, uint64_t n_input);

  // Bytes of the outputs in `mask` for the last read().   fails with BL_ERR_ARGUMENT when a bit has no output
  uint64_t output_bytes(uint64_t mask) const;

 private:
  const Program &program_;
  std::vector<int32_t> words_;
  std::vector<uint64_t> slots_;
  StepInput input_{};
};

}  // namespace bl
