// step_input.h: the small inputs of one step, parsed and range-checked in one place for every backend.
#pragma once

#include <cstdint>
#include <vector>

#include "program.h"

namespace bl {

// The page table of one cache.
struct PageTable {
  const int32_t *pages;  // [n_seq, n_page]; those that the rows of the step reach (CacheUse::reach) are present
  uint32_t n_page;

  const int32_t *of(int32_t seq) const { return pages + uint64_t(uint32_t(seq)) * n_page; }
};

// Pointers into the words of the StepReader that made it; valid until its next read().
struct StepInput {
  uint32_t n_tok, n_out, n_seq;
  const int32_t *tokens;     // [n_tok]
  const int32_t *positions;  // [n_tok], strictly ascending within a sequence, by one where the program has states
  const int32_t *seqs;       // [n_tok] rows of the page tables; rows of one sequence are neighbours
  const int32_t *out_rows;   // [n_out] < n_tok
  const int32_t *targets;    // [n_out] -1 or a token
  std::vector<PageTable> tables;         // by cache
  std::vector<const int32_t *> derived;  // by derived input, [n_tok, n]; f32 by their bits
  uint32_t max_len;                      // largest position + 1

  // The words of step input `which`.
  const int32_t *words(uint32_t which) const {
    switch (which) {
      case BL_INPUT_TOKENS: return tokens;
      case BL_INPUT_POSITIONS: return positions;
      case BL_INPUT_SEQS: return seqs;
      case BL_INPUT_OUT_ROWS: return out_rows;
      case BL_INPUT_TARGETS: return targets;
      default: return derived[which - BL_INPUT_DERIVED];
    }
  }
};

class StepReader {
 public:
  explicit StepReader(const Program &program) : program_(program) {}

  // Copies and checks the words of bl_program_step's `input`.   fails with BL_ERR_INPUT, naming the row, found and wanted
  const StepInput &read(const uint8_t *input, uint64_t n_input);

  // Bytes of the outputs in `mask` for the last read().   fails with BL_ERR_ARGUMENT when a bit has no output
  uint64_t output_bytes(uint64_t mask) const;

 private:
  void check_rows();
  void check_pages(size_t cache);
  void check_derived() const;

  const Program &program_;
  std::vector<int32_t> words_;
  struct Run {
    uint32_t begin, end;  // token rows of one sequence
  };
  std::vector<Run> runs_;
  std::vector<bool> seen_;  // by sequence
  std::vector<uint64_t> written_;
  StepInput input_{};
};

}  // namespace bl
