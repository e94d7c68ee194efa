// table.h: fills a Kernels table from the kernels of the instruction set that the including file is compiled for.
#pragma once

#include "attention.h"
#include "delta.h"
#include "elementwise.h"
#include "float_panel.h"
#if defined(__AVX2__)
#include "coded_simd.h"
#include "packed_dot_simd.h"
#else
#include "packed_dot_portable.h"
#include "coded_portable.h"
#endif
#include "coded_grids.h"
#if defined(__AMX_INT8__)
#include "packed_many_amx.h"
#elif defined(__AVX512VNNI__)
#include "packed_many_vnni.h"
#endif
#if defined(__AVX512VNNI__)
#define BL_MANY \
  { {expand_many<ManyQ4_0>, many<ManyQ4_0>}, {expand_many<ManyQ8_0>, many<ManyQ8_0>}, {expand_many<ManyQ4_K>, many<ManyQ4_K>}, \
    {expand_many<ManyQ5_K>, many<ManyQ5_K>}, {expand_many<ManyQ6_K>, many<ManyQ6_K>} }
#define BL_MANY_scaled ManyScaled<false>
#define BL_MANY_scaled_min ManyScaled<true>
#define BL_MANY_blocks ManyBlocks<32, false>
#define BL_MANY_blocks_min ManyBlocks<32, true>
#define BL_MANY_blocks16 ManyBlocks<16, false>
#define BL_MANY_CODED(form) \
  coded_group<CodedForm::form>, { expand_many<BL_MANY_##form>, many<BL_MANY_##form> }
#else
#define BL_MANY \
  { {nullptr, nullptr}, {nullptr, nullptr}, {nullptr, nullptr}, {nullptr, nullptr}, {nullptr, nullptr} }
#define BL_MANY_CODED(form) \
  nullptr, { nullptr, nullptr }
#endif
#include "index.h"
#include "quantize_row.h"

#define BL_TILES(kernel) \
  { kernel<1>, kernel<2>, kernel<3>, kernel<4> }
#define BL_CODED(type, name, Block, n, form) \
  {CodedForm::form, coded_row<Block, n>, {coded_dot<CodedForm::form, 1>, coded_dot<CodedForm::form, 2>, coded_dot<CodedForm::form, 3>, coded_dot<CodedForm::form, 4>}, BL_MANY_CODED(form)},
#define BL_FLOAT_TILES(type) \
  { float_dot<type, 1>, float_dot<type, 2>, float_dot<type, 3>, float_dot<type, 4> }

#define BL_KERNEL_TABLE(isa)                                                                                                   \
  {                                                                                                                            \
    isa, encode_row, {BL_TILES(dot_q4_0), BL_TILES(dot_q8_0), BL_TILES(dot_q4_K), BL_TILES(dot_q5_K), BL_TILES(dot_q6_K)},   \
        BL_MANY, {BL_CODED_TYPES(BL_CODED)}, {BL_FLOAT_TILES(FLOAT_F32), BL_FLOAT_TILES(FLOAT_F16), BL_FLOAT_TILES(FLOAT_BF16)},                            \
        {float_panel<FLOAT_F32>, float_panel<FLOAT_F16>, float_panel<FLOAT_BF16>}, norm, add, mul, add_one, mul_one, unary, gate, dot,   \
        axpy, rope, softmax, conv, pool, log_sum_exp, find_above, exp_row, encode_cache, decode_cache, attend, index_keys, delta       \
  }
