// thread_pool.h: the worker threads of a runtime. A job is a range of independent items; threads take them in chunks, the caller
// works too. Which thread computes an item is never visible in its result, so results do not depend on the thread count.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace bl {

class ThreadPool {
 public:
  // n_threads in all, the caller of a job included; 0 = one per available core.
  explicit ThreadPool(uint32_t n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;

  uint32_t size() const { return uint32_t(workers_.size()) + 1; }

  // Calls body(begin, end, thread) over disjoint chunks of at most `grain` items that cover [0, n); thread < size(). Returns when
  // all are done. Jobs of different callers take turns. `body` must not throw and must not start a job.
  template <class F>
  void run(uint64_t n, uint64_t grain, const F &body) {
    run_job(n, grain, [](const void *f, uint64_t b, uint64_t e, uint32_t t) { (*static_cast<const F *>(f))(b, e, t); }, &body);
  }

 private:
  using Call = void (*)(const void *, uint64_t, uint64_t, uint32_t);
  void run_job(uint64_t n, uint64_t grain, Call call, const void *body);
  void work(uint32_t thread);
  void take_chunks(uint32_t thread);

  std::vector<std::thread> workers_;
  std::mutex callers_;  // one job at a time

  // The job, written by the caller while no worker is inside.
  Call call_ = nullptr;
  const void *body_ = nullptr;
  uint64_t n_ = 0, grain_ = 1;

  alignas(64) std::atomic<uint64_t> next_{0};     // first item not taken
  alignas(64) std::atomic<uint64_t> state_{0};    // the job's number, whether workers may enter, how many are inside
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::mutex sleep_;
  std::condition_variable wake_;
};

}  // namespace bl
