// matmul_wide.h: prompts' products with quantized weights on the warpgroup instructions of sm_90.
#pragma once

#include "matmul.h"

namespace bl::cuda {

// Rows of a dense product from which it pays.
constexpr uint32_t WIDE_FROM = 65;

// Whether the current card has those instructions and this library code for them; asks the card once, so not while a graph is captured.
bool has_wgmma();

// Whether a weight lies as it takes them.
bool takes_wide(const MatmulPart &part);

// All parts have one type.
void matmul_wide(const MatmulArgs &args, Stream &s);

}  // namespace bl::cuda
