// quantize.h: encoders and decoders of every tensor type.
//
// Encoders give the same bytes on every machine: each f32 operation is rounded on its own (compile with -ffp-contract=off and without
// fast-math), sums run first to last, and nothing depends on threads or on the instruction set. Rows are independent, so a caller may
// split them over threads as it likes.
#pragma once

#include <stdint.h>

#include "blocks.h"

namespace bl {

// Whether `type` can be written; with has_weights false, whether it can be written without importance weights
// (iq1_s, iq2_xxs and iq2_xs cannot).
bool quantize_row_supported(uint32_t type, bool has_weights);

// Encodes n_rows rows of n_per_row f32 on the calling thread.   src [n_rows, n_per_row] · dst n_rows x encoded row, overwritten
//   weights  importance [n_per_row] of the columns, the same for every row, or nullptr
//   needs    quantize_row_supported(type, weights), n_per_row a multiple of the type's block, finite src and weights
//   returns  false when some block has no encoding (products that overflow, negative weights in the lattice types); dst is then
//            unspecified
bool quantize_rows(uint32_t type, const float *src, uint64_t n_rows, uint64_t n_per_row, const float *weights, void *dst);

// Decodes n values (a multiple of the type's block) of any type; integers become floats.   returns false for an unknown type
bool dequantize_row(uint32_t type, const void *src, float *dst, uint64_t n);

// Counts blocks whose stored scale is infinite or NaN (for f32, f16, bf16: values; mxfp4: exponent byte 255; integers, nvfp4: none).
//   first_bad  element index of the first bad block or value when the count is not 0
uint64_t check_rows(uint32_t type, const void *data, uint64_t n_elements, uint64_t *first_bad);

}  // namespace bl
