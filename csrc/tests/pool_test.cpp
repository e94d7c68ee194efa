// pool_test.cpp: pools of experts: every visit gives the file's bytes whatever was guessed before it, and guesses keep to their share.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <unistd.h>

#include "../cpu/expert_pool.h"
#include "check.h"

namespace bl_test {
namespace {

using namespace bl;

constexpr uint32_t N_GROUP = 3, N_EXPERT = 16, N_PART = 2, N_IN = 96, N_OUT = 40;
constexpr uint64_t MATRIX = 4 * N_IN * N_OUT;  // f32: packed as in the file

uint32_t pattern(uint32_t group, uint32_t part, uint32_t expert, uint64_t i) { return ((group * N_PART + part) * N_EXPERT + expert) * 10000 + uint32_t(i); }

// A file of all matrices, which is gone when the test ends.
class Experts {
 public:
  Experts() {
    const char *dir = getenv("TMPDIR");
    path_ = std::string(dir == nullptr ? "/tmp" : dir) + "/bloomery-pool-XXXXXX";
    const int fd = mkstemp(path_.data());
    std::vector<uint32_t> words;
    for (uint32_t g = 0; g < N_GROUP; g++)
      for (uint32_t p = 0; p < N_PART; p++)
        for (uint32_t e = 0; e < N_EXPERT; e++)
          for (uint64_t i = 0; i < MATRIX / 4; i++) words.push_back(pattern(g, p, e, i));
    const uint8_t *bytes = reinterpret_cast<const uint8_t *>(words.data());
    for (size_t done = 0; done < 4 * words.size();) done += size_t(write(fd, bytes + done, 4 * words.size() - done));
    close(fd);
    file = File::open(path_.c_str());
  }
  ~Experts() { unlink(path_.c_str()); }

  void add_to(ExpertPool &pool) {
    for (uint32_t g = 0; g < N_GROUP; g++)
      for (uint32_t p = 0; p < N_PART; p++)
        tensors_.push_back(pool.add({TYPE_F32, {N_IN, N_OUT, N_EXPERT, 1}, g, file, (g * N_PART + p) * N_EXPERT * MATRIX, N_EXPERT * MATRIX}));
  }

  std::shared_ptr<const File> file;

 private:
  std::string path_;
  std::vector<std::unique_ptr<DeviceTensor>> tensors_;
};

struct Counts {
  uint64_t read, ahead, unused, hits, misses, needed, guessed, right;
};

Counts counts(ExpertPool &pool, uint32_t group) {
  const std::vector<uint64_t> all = pool.counts();
  const uint64_t *g = all.data() + 7 + group * (5 + N_EXPERT);
  return {all[0], all[5], all[6], g[0], g[1], g[2], g[3], g[4]};
}

// All parts of the experts, one op after the other, as a layer visits them.
void visit(ExpertPool &pool, uint32_t group, const std::vector<uint32_t> &experts, bool pass = false) {
  const std::vector<uint32_t> rows(N_EXPERT, 1);
  for (uint32_t part = 0; part < N_PART; part++) {
    ExpertPool::Visit v(pool, group, 1ull << part, experts, rows, pass);
    std::vector<ExpertPool::Ready> ready;
    std::vector<uint32_t> given;
    while (v.next(ready))
      for (const auto &[expert, slot] : ready) {
        given.push_back(expert);
        const uint32_t *words = reinterpret_cast<const uint32_t *>(slot + part * MATRIX);
        bool same = true;
        for (uint64_t i = 0; i < MATRIX / 4; i++) same = same && words[i] == pattern(group, part, expert, i);
        check(same, "an expert's bytes in its slot");
      }
    std::sort(given.begin(), given.end());
    check(given == experts, "a visit gives each expert once");
  }
}

void wait_for(ExpertPool &pool, uint64_t bytes) {
  for (int i = 0; i < 2000 && counts(pool, 0).read < bytes; i++) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  check(counts(pool, 0).read >= bytes, "reads end");
}

void guesses() {
  Experts experts;
  ExpertPool pool(N_PART * MATRIX, 8);
  experts.add_to(pool);
  const uint64_t expert = N_PART * MATRIX;
  std::vector<uint8_t> seated(N_EXPERT, 0);
  for (uint32_t e = 0; e < 5; e++) seated[e] = 1;
  pool.seat(0, seated.data());
  pool.fill();
  check(counts(pool, 0).read == 5 * expert, "fill() reads the seated");

  pool.ahead(1, {5, 6, 7, 8}, false);
  wait_for(pool, 7 * expert);
  Counts c = counts(pool, 1);
  check(c.ahead == 2 * expert && c.needed == 0, "guesses take a quarter of the slots, the likeliest first");
  pool.ahead(1, {6, 9}, true);
  visit(pool, 1, {5, 9});
  c = counts(pool, 1);
  check(c.hits == 1 && c.misses == 1, "what was read ahead is there");
  check(c.needed == 2 && c.guessed == 5 && c.right == 2, "a visit judges the guess");
  check(c.unused == 0, "a wrong guess stays until another expert needs its slot");
  visit(pool, 2, {1});  // the last free slot has gone to 9: the wrong guess leaves
  c = counts(pool, 1);
  check(c.unused == expert, "a wrong guess leaves first");
  visit(pool, 1, {5, 9});
  check(counts(pool, 1).hits == 3, "those that were right stay");
  visit(pool, 0, {0, 1, 2, 3, 4});
  check(counts(pool, 0).hits == 5, "guesses take no seats");

  check(pool.wants_guess(1), "where experts are missed, guesses are worth it");
  for (int i = 0; i < 200; i++) visit(pool, 0, {0, 1, 2});
  check(!pool.wants_guess(0), "where none was missed for long, they are not");

  // A visit that needs every slot gets those of guesses, too.
  pool.ahead(2, {8, 9}, false);
  visit(pool, 1, {0, 1, 2, 3, 4, 10, 11, 12});
  visit(pool, 2, {8, 9});
  check(counts(pool, 2).right == 2, "a guess whose slots were taken was a guess");
}

// Visits, passes and guesses in any order, in pools that are too small for them.
void any_order() {
  Experts experts;
  Random rnd(3);
  for (const uint32_t n_slots : {1u, 3u, 9u, 30u}) {
    ExpertPool pool(N_PART * MATRIX, n_slots);
    experts.add_to(pool);
    const auto some = [&](uint32_t n) {
      std::vector<uint32_t> list;
      for (uint32_t e = 0; e < N_EXPERT; e++)
        if (rnd.below(N_EXPERT) < n) list.push_back(e);
      return list;
    };
    for (int i = 0; i < 150; i++) {
      const uint32_t group = rnd.below(N_GROUP);
      switch (rnd.below(5)) {
        case 0:
        case 1: pool.ahead(rnd.below(N_GROUP), some(6), rnd.below(2) == 0); break;
        case 2: {
          std::vector<uint8_t> seated(N_EXPERT, 0);
          for (const uint32_t e : some(3)) seated[e] = 1;
          pool.seat(group, seated.data());
          break;
        }
        default: visit(pool, group, some(rnd.below(10)), rnd.below(4) == 0);
      }
    }
    const Counts c = counts(pool, 0);
    check(c.unused <= c.ahead && c.ahead <= c.read && c.right <= c.guessed, "counts fit together");
  }
}

}  // namespace

void pool_tests() {
  guesses();
  any_order();
}

}  // namespace bl_test
