// host_math.h: tensor arithmetic outside programs, over the thread pool of the host. Results do not depend on the thread count.
#pragma once

#include <cstdint>

#include "thread_pool.h"

namespace bl {

// Decodes n elements (whole blocks).   fails with BL_ERR_UNSUPPORTED
void host_dequantize(ThreadPool &pool, uint32_t type, const uint8_t *src, float *dst, uint64_t n);

// Counts bad blocks or values of n elements; *first is the element index of the first of them.
uint64_t host_check_data(ThreadPool &pool, uint32_t type, const uint8_t *src, uint64_t n, uint64_t *first);

// bl_compare_logits.
void host_compare_logits(ThreadPool &pool, const float *p, const float *q, uint64_t n_rows, uint64_t n_vocab, double *kl, uint8_t *same_top);

}  // namespace bl
