// functions.cuh: the functions of UNARY and GATE, one rounding an operation, so that fused and general kernels give the same bits.
#pragma once

#include "../bloomery_ops.h"
#include "cuda.h"

namespace bl::cuda {

__device__ inline float sigmoid(float x) { return __fdiv_rn(1.0f, __fadd_rn(1.0f, expf(-x))); }
__device__ inline float silu(float x) { return __fdiv_rn(x, __fadd_rn(1.0f, expf(-x))); }
__device__ inline float gelu_tanh(float x) {
  const float cube = __fmul_rn(__fmul_rn(x, x), x);
  const float inner = __fmul_rn(0.7978845608028654f, __fmaf_rn(0.044715f, cube, x));
  return __fmul_rn(__fmul_rn(0.5f, x), __fadd_rn(1.0f, tanhf(inner)));
}
__device__ inline float gelu_erf(float x) {
  return __fmul_rn(__fmul_rn(0.5f, x), __fadd_rn(1.0f, erff(__fmul_rn(x, 0.7071067811865476f))));
}
__device__ inline float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }
__device__ inline float clamp(float x, float low, float high) { return fminf(fmaxf(x, low), high); }

__device__ inline float unary(uint32_t kind, float x, float a, float b) {
  switch (kind) {
    case BL_UNARY_SCALE: return __fmaf_rn(a, x, b);
    case BL_UNARY_SILU: return silu(x);
    case BL_UNARY_GELU_TANH: return gelu_tanh(x);
    case BL_UNARY_GELU_ERF: return gelu_erf(x);
    case BL_UNARY_RELU: return fmaxf(x, 0.0f);
    case BL_UNARY_RELU2: return __fmul_rn(fmaxf(x, 0.0f), fmaxf(x, 0.0f));
    case BL_UNARY_SIGMOID: return sigmoid(x);
    case BL_UNARY_TANH: return tanhf(x);
    case BL_UNARY_SOFTPLUS: return softplus(x);
    case BL_UNARY_SOFTCAP: return __fmul_rn(a, tanhf(__fdiv_rn(x, a)));
    case BL_UNARY_CLAMP: return clamp(x, a, b);
    case BL_UNARY_SIGNED_SQRT: return copysignf(__fsqrt_rn(fmaxf(fabsf(x), a)), x);
    default: return expf(x);  // BL_UNARY_EXP
  }
}

__device__ inline float gate(uint32_t kind, float x, float y, float a, float b) {
  switch (kind) {
    case BL_GATE_SILU: return __fmul_rn(silu(x), y);
    case BL_GATE_GELU_TANH: return __fmul_rn(gelu_tanh(x), y);
    case BL_GATE_GELU_ERF: return __fmul_rn(gelu_erf(x), y);
    case BL_GATE_SIGMOID: return __fmul_rn(sigmoid(x), y);
    case BL_GATE_SILU_CLAMP: return __fmul_rn(silu(fminf(x, a)), clamp(y, -a, a));
    case BL_GATE_SITU: {
      const float up = b > 0.0f ? __fmul_rn(b, tanhf(__fdiv_rn(y, b))) : y;
      return __fmul_rn(__fmul_rn(__fmul_rn(a, tanhf(__fdiv_rn(x, a))), sigmoid(x)), up);
    }
    case BL_GATE_OAI: {
      const float g = fminf(x, a);
      return __fmul_rn(__fmul_rn(g, sigmoid(__fmul_rn(b, g))), __fadd_rn(clamp(y, -a, a), 1.0f));
    }
    default: {  // BL_GATE_RELU2
      const float r = fmaxf(x, 0.0f);
      return __fmul_rn(__fmul_rn(r, r), y);
    }
  }
}

}  // namespace bl::cuda
