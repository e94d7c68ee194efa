// host_memory.h: memory of this machine that the process may still take.
#pragma once

#include <cstdint>

namespace bl {

// The number after `key` in /proc/meminfo, in bytes; 0 when there is none.
uint64_t meminfo(const char *key);

// What the system has to give, and no more than the control groups of the process leave. Pages of files that a group can drop count as free.
uint64_t host_free_bytes();

}  // namespace bl
