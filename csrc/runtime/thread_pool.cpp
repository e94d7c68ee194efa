// thread_pool.cpp: spin for a short while, then sleep. Between the ops of a step the workers spin, so starting a job costs about a
// microsecond; an idle runtime burns nothing. A worker that wakes late misses a job instead of delaying it.
#include "thread_pool.h"

#include <algorithm>

#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bl {
namespace {

constexpr int N_SPIN = 4000;          // pauses before a worker sleeps: about a tenth of a millisecond
constexpr int N_SPIN_FINISH = 20000;  // pauses before a caller that waits for a descheduled worker yields

// state_: epoch << 32 | OPEN | workers inside
constexpr uint64_t OPEN = 1u << 31;
constexpr uint64_t INSIDE = OPEN - 1;

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

uint32_t available_cores() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return uint32_t(std::max(1, CPU_COUNT(&set)));
#endif
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

ThreadPool::ThreadPool(uint32_t n_threads) {
  if (n_threads == 0) n_threads = available_cores();
  for (uint32_t t = 1; t < n_threads; t++) {
    try {
      workers_.emplace_back([this, t] { work(t); });
    } catch (...) {
      break;  // no more threads to be had: fewer do the same work
    }
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(sleep_);
    stop_.store(true);
  }
  wake_.notify_all();
  for (std::thread &t : workers_) t.join();
}

void ThreadPool::take_chunks(uint32_t thread) {
  for (;;) {
    const uint64_t begin = next_.fetch_add(grain_, std::memory_order_relaxed);
    if (begin >= n_) return;
    call_(body_, begin, std::min(begin + grain_, n_), thread);
  }
}

void ThreadPool::run_job(uint64_t n, uint64_t grain, Call call, const void *body) {
  if (n == 0) return;
  grain = std::max<uint64_t>(1, grain);
  if (workers_.empty() || n <= grain) {
    for (uint64_t b = 0; b < n; b += grain) call(body, b, std::min(b + grain, n), 0);
    return;
  }
  std::lock_guard<std::mutex> lock(callers_);
  call_ = call, body_ = body, n_ = n, grain_ = grain;
  next_.store(0, std::memory_order_relaxed);
  const uint64_t epoch = (state_.load(std::memory_order_relaxed) >> 32) + 1;
  state_.store(epoch << 32 | OPEN);
  if (sleepers_.load() > 0) {
    { std::lock_guard<std::mutex> sleep(sleep_); }  // a worker between its check and its wait has finished falling asleep
    wake_.notify_all();
  }
  take_chunks(0);
  uint64_t state = state_.fetch_and(~OPEN) & ~OPEN;
  for (int i = 0; (state & INSIDE) != 0; i++) {
    if (i < N_SPIN_FINISH) relax();
    else std::this_thread::yield();
    state = state_.load(std::memory_order_acquire);
  }
}

void ThreadPool::work(uint32_t thread) {
  uint64_t done = 0;  // epoch of the last job this worker took part in or missed
  const auto fresh = [&] { return (state_.load() >> 32) != done; };
  for (;;) {
    for (int i = 0; i < N_SPIN && !fresh(); i++) relax();
    if (!fresh()) {
      std::unique_lock<std::mutex> lock(sleep_);
      sleepers_.fetch_add(1);
      wake_.wait(lock, [&] { return stop_.load() || fresh(); });
      sleepers_.fetch_sub(1);
    }
    if (stop_.load()) return;
    uint64_t state = state_.load();
    done = state >> 32;
    while ((state >> 32) == done && (state & OPEN) != 0) {
      if (state_.compare_exchange_weak(state, state + 1)) {
        take_chunks(thread);
        state_.fetch_sub(1, std::memory_order_release);
        break;
      }
    }
  }
}

}  // namespace bl
