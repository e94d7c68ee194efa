// replay.h: op cases as files, made by scripts/dump_op_cases.ts: a program with its weights, caches, step inputs and what the reference
// backend gives for them.
//
// A file is little-endian u32 words; "sized" is a number of bytes, then the bytes, filled up to whole words:
//   0x434F4C42, version 1, sized name, f32 NMSE bound, n_weight, n_cache, n_output, n_step
//   weights  n_weight x: ggml type, ne0 .. ne3, uses, sized bytes
//   caches   n_cache x: page_size, n_pages, n_stream, n_stream x (ggml type, ne, ratio)
//   program  sized words of bloomery.h
//   outputs  n_output x: 1 for i32 (must be equal), 0 for f32 (within the bound, over all steps)
//   steps    n_step x: 1 where outputs are compared, sized input of bl_program_step, n_output x sized values
#pragma once

#include <string>
#include <vector>

#include "../bloomery.h"

namespace bl_test {

struct Case {
  struct Weight {
    uint32_t type, uses;
    uint64_t ne[4];
    std::vector<uint8_t> data;
  };
  struct Cache {
    uint32_t page_size, n_pages;
    std::vector<uint32_t> type, ne, ratio;
  };
  struct Step {
    bool compared;
    std::vector<uint8_t> input;
    std::vector<std::vector<uint8_t>> outputs;

    uint64_t output_bytes() const {
      uint64_t n = 0;
      for (const auto &o : outputs) n += o.size();
      return n;
    }
  };
  std::string name;
  float nmse;
  std::vector<Weight> weights;
  std::vector<Cache> caches;
  std::vector<uint8_t> program;
  std::vector<bool> is_i32;  // by output
  std::vector<Step> steps;
};

// All cases of a folder, in the order of their names; counts a failed check when there is none.
std::vector<Case> read_cases(const char *folder);

// The weights and caches of a case on a device.
class CaseHandles {
 public:
  CaseHandles(bl_runtime *rt, const Case &c, uint32_t device);
  ~CaseHandles();
  CaseHandles(const CaseHandles &) = delete;
  CaseHandles &operator=(const CaseHandles &) = delete;

  // bl_program_create with these words; err has 512 bytes.
  int32_t create(bl_runtime *rt, const std::vector<uint8_t> &program, bl_program **out, uint8_t *err) const;

 private:
  std::vector<bl_tensor *> weights_;
  std::vector<bl_cache *> caches_;
};

// The words of a program for another device.
std::vector<uint8_t> on_device(std::vector<uint8_t> program, uint32_t device);

}  // namespace bl_test
