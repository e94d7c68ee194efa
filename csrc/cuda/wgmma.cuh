// wgmma.cuh: products of a warpgroup's 64 features with 128 columns over 32 values of k, whole numbers of a byte (sm_90a).
#pragma once

#include <cstdint>

namespace bl::cuda {

// Whether this code may use the instructions that sm_90 alone has.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define BL_SM90A 1
#else
#define BL_SM90A 0
#endif

// What lies at a shared address as groups of 8 columns x 16 values (128 bytes): `along_k` bytes to the next 16 values, `along_n` to the
// next 8 columns.
__device__ inline uint64_t wgmma_columns(uint32_t shared, uint32_t along_k, uint32_t along_n) {
  return uint64_t((shared & 0x3FFFFu) >> 4) | uint64_t(along_k >> 4) << 16 | uint64_t(along_n >> 4) << 32;
}

#if BL_SM90A
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ inline void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
// Ordinary writes of shared memory become visible to the tensor cores.
__device__ inline void shared_to_tensor_cores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Gives registers to this warpgroup, or takes them from it: all its warps at once.
template <int N>
__device__ inline void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N>
__device__ inline void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }

// Barriers in shared memory that count arrivals; a phase ends with the last of them.
__device__ inline void barrier_init(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ inline void barrier_arrive(uint32_t barrier) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory"); }
// Returns when the phase of this parity has ended.
__device__ inline void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n@p bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(barrier), "r"(parity)
      : "memory");
}

#define BL_4(x, i) "+r"(x[i]), "+r"(x[i + 1]), "+r"(x[i + 2]), "+r"(x[i + 3])
#define BL_16(x, i) BL_4(x, i), BL_4(x, i + 4), BL_4(x, i + 8), BL_4(x, i + 12)
#define BL_64(x) BL_16(x, 0), BL_16(x, 16), BL_16(x, 32), BL_16(x, 48)
// c = A B, or c += A B where `add`: A bytes without a sign, B bytes with one; c[4 j + i] is element i of the fragment of columns 8 j ..
__device__ inline void wgmma_u8_s8(int (&c)[64], const uint32_t (&a)[4], uint64_t columns, int add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.s32.u8.s8 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
      "{%64,%65,%66,%67}, %68, p;\n}"
      : BL_64(c)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(columns), "r"(add));
}
// Keeps what reads or writes c on its side of a fence or a wait.
__device__ inline void wgmma_hold(int (&c)[64]) { asm volatile("" : BL_64(c)::"memory"); }
__device__ inline void wgmma_hold(uint32_t (&a)[4]) { asm volatile("" : BL_4(a, 0)::"memory"); }
#undef BL_4
#undef BL_16
#undef BL_64
#endif

}  // namespace bl::cuda
