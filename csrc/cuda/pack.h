// pack.h: weights into the layout of packed.h and back.
#pragma once

#include "../cpu/coded.h"
#include "whole.h"

namespace bl::cuda {

// Bytes of `n_matrix` packed matrices of n_row x n_in.
uint64_t packed_bytes(uint32_t type, uint64_t n_in, uint64_t n_row, uint64_t n_matrix);

// Packs n_row rows (raw file bytes in card memory) as tiles from the matrix's first row or a multiple of 16 on.
//   raw [n_row, n_in] in the type's blocks · packed: where the first of these tiles goes
void pack_rows(uint32_t type, const uint8_t *raw, uint8_t *packed, uint64_t n_in, uint64_t n_row, cudaStream_t stream);

// Whether the host first puts a type's rows together as codes and scales (../cpu/coded.h); then pack_coded() packs them, and tables of
// rows stay as the file has them.
bool packs_coded(uint32_t type);
void pack_coded(uint32_t type, const Coded *rows, uint8_t *packed, uint64_t n_in, uint64_t n_row, cudaStream_t stream);

// The architecture this library's code for the current card was compiled for, as 10 major + minor: of the machine code, or of the
// PTX that the driver compiled.
int code_version();

struct EmbedArgs {
  const uint8_t *table;  // packed [n_vocab, n]; raw: as the file has it
  uint32_t type, n;
  bool raw;
  uint64_t row_bytes;    // raw
  const int32_t *ids;    // [rows] below n_vocab; -1 gives zeros
  float *y;              // [rows, n]
  RowCount rows;
};

// y[i] = table[ids[i]], decoded with the same f32 operations as csrc/common/dequantize.cpp: the same bits. Raw i32 tables give i32.
void embed_rows(const EmbedArgs &args, Stream &s);
void embed_raw_rows(const EmbedArgs &args, Stream &s);  // its half for raw tables (dequantize_rows.cu)

}  // namespace bl::cuda
