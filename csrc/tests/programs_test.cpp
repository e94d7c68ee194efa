// programs_test.cpp: what the C ABI refuses. Programs and step inputs of all op cases are cut and mutated: each is refused with a text, or
// runs without harm; sizes and handles are checked.
#include "check.h"
#include "replay.h"

namespace bl_test {
namespace {

using namespace bl;

#if defined(__SANITIZE_THREAD__)
constexpr int N_MUTATION = 20;  // of each case's program, and of each step's input
#elif defined(__SANITIZE_ADDRESS__)
constexpr int N_MUTATION = 100;
#else
constexpr int N_MUTATION = 300;
#endif

// One to three words become others, and at times the end is missing or there is more.
std::vector<uint8_t> mutated(std::vector<uint8_t> bytes, Random &rnd) {
  for (uint32_t n = 1 + rnd.below(3); n > 0 && bytes.size() >= 4; n--) {
    uint8_t *at = bytes.data() + 4 * rnd.below(uint32_t(bytes.size() / 4));
    uint32_t w;
    memcpy(&w, at, 4);
    switch (rnd.below(5)) {
      case 0: w = uint32_t(rnd.next()); break;
      case 1: w = rnd.below(70); break;
      case 2: w += 1 - 2 * rnd.below(2); break;
      case 3: w = 0xFFFFFFFFu; break;
      default: w ^= 1u << rnd.below(32);
    }
    memcpy(at, &w, 4);
  }
  if (rnd.below(10) == 0) bytes.resize(rnd.below(uint32_t(bytes.size()) + 9));
  bytes.shrink_to_fit();  // so that a read past the end is seen
  return bytes;
}

void mutations(const std::vector<Case> &cases) {
  uint8_t err[512] = {};
  bl_runtime *rt = nullptr;
  check(bl_runtime_open(2, &rt, err, sizeof err) == BL_OK, "bl_runtime_open");
  Random rnd(11);
  int n_program = 0, n_step = 0;
  for (const Case &c : cases) {
    const CaseHandles handles(rt, c, 0);
    const Case::Step &first = c.steps.front();
    const uint64_t mask = (uint64_t(1) << c.is_i32.size()) - 1;
    for (int i = 0; i < N_MUTATION; i++) {
      bl_program *p = nullptr;
      err[0] = 0;
      if (handles.create(rt, mutated(c.program, rnd), &p, err) != BL_OK) {
        check(err[0] != 0, "a refusal has a text");
        continue;
      }
      n_program++;
      // What fits as well as it does: outputs may have become larger or smaller.
      std::vector<uint8_t> out(first.output_bytes());
      if (bl_program_scratch_bytes(p) < (64u << 20))
        bl_program_step(p, first.input.data(), first.input.size(), out.data(), out.size(), mask, err, sizeof err);
      bl_program_free(p);
    }
    bl_program *p = nullptr;
    check(handles.create(rt, c.program, &p, err) == BL_OK, "bl_program_create", reinterpret_cast<char *>(err));
    for (int i = 0; p != nullptr && i < N_MUTATION; i++) {
      const Case::Step &s = c.steps[rnd.below(uint32_t(c.steps.size()))];
      const std::vector<uint8_t> input = mutated(s.input, rnd);
      std::vector<uint8_t> out(s.output_bytes());
      err[0] = 0;
      if (bl_program_step(p, input.data(), input.size(), out.data(), out.size(), mask, err, sizeof err) == BL_OK) n_step++;
      else check(err[0] != 0, "a refusal has a text");
    }
    bl_program_free(p);
  }
  bl_runtime_close(rt);
  check(n_program > 0 && n_step > 0, "some mutations are still programs and inputs");
}

void refusals() {
  uint8_t err[8] = {};
  bl_runtime *rt = nullptr;
  check(bl_runtime_open(1, &rt, err, sizeof err) == BL_OK, "bl_runtime_open");
  bl_tensor *t = nullptr;
  const uint64_t ne[4] = {32, 1, 1, 1}, huge[4] = {1ull << 40, 1ull << 40, 1, 1}, odd[4] = {33, 1, 1, 1}, none[4] = {0, 1, 1, 1};
  const uint8_t data[64] = {};
  check(bl_tensor_create(rt, 0, TYPE_Q8_0, ne, 1, data, 33, &t, err, sizeof err) == BL_ERR_ARGUMENT, "a short tensor");
  check(err[7] == 0, "an error text is cut and ended");
  check(bl_tensor_create(rt, 0, TYPE_Q8_0, huge, 1, data, 34, &t, err, sizeof err) == BL_ERR_ARGUMENT, "a tensor of 2^80");
  check(bl_tensor_create(rt, 0, TYPE_Q8_0, odd, 1, data, 34, &t, err, sizeof err) == BL_ERR_ARGUMENT, "a row of 33");
  check(bl_tensor_create(rt, 0, TYPE_Q8_0, none, 1, data, 0, &t, err, sizeof err) == BL_ERR_ARGUMENT, "a row of 0");
  check(bl_tensor_create(rt, 0, 4, ne, 1, data, 34, &t, nullptr, 0) == BL_ERR_ARGUMENT, "a retired type");
  check(bl_tensor_create(rt, 9999, TYPE_Q8_0, ne, 1, data, 34, &t, err, sizeof err) == BL_ERR_ARGUMENT, "a device that is not there");
  check(t == nullptr, "no handle");
  bl_file *f = nullptr;
  check(bl_file_open(rt, reinterpret_cast<const uint8_t *>("/nonexistent"), &f, err, sizeof err) == BL_ERR_IO, "a missing file");
  check(bl_file_open(rt, reinterpret_cast<const uint8_t *>("/"), &f, err, sizeof err) == BL_ERR_IO, "a folder");

  bl_cache *cache = nullptr;
  const uint32_t types[3] = {TYPE_F16, TYPE_Q8_0, TYPE_F32}, sizes[3] = {24, 64, 5};
  const uint32_t ratios[3] = {1, 4, 16}, odd_ratios[3] = {1, 3, 16}, zeros[3] = {1, 0, 1};
  check(bl_cache_create(rt, 0, 3, types, sizes, odd_ratios, 8, 5, &cache, err, sizeof err) == BL_ERR_ARGUMENT, "a ratio that cuts pages");
  check(bl_cache_create(rt, 0, 3, types, sizes, zeros, 8, 5, &cache, err, sizeof err) == BL_ERR_ARGUMENT, "a ratio of 0");
  check(bl_cache_create(rt, 0, 3, types, ratios, ratios, 8, 5, &cache, err, sizeof err) == BL_ERR_ARGUMENT, "a q8_0 row of 4");
  check(bl_cache_create(rt, 0, 3, types, sizes, nullptr, 8, 5, &cache, err, sizeof err) == BL_ERR_ARGUMENT, "no ratios");
  check(cache == nullptr, "no handle");
  check(bl_cache_create(rt, 0, 3, types, sizes, ratios, 8, 5, &cache, err, sizeof err) == BL_OK, "bl_cache_create");
  check(bl_cache_page_bytes(cache) == 8 * 48 + 2 * 68 + 20, "rows of a page");
  int32_t page = 5;
  std::vector<uint8_t> bytes(bl_cache_page_bytes(cache));
  check(bl_cache_read(cache, &page, 1, bytes.data(), bytes.size(), err, sizeof err) == BL_ERR_ARGUMENT, "a page that is not there");
  page = 0;
  check(bl_cache_read(cache, &page, 1, bytes.data(), bytes.size() - 1, err, sizeof err) == BL_ERR_ARGUMENT, "a short buffer");
  // A page survives read, write and copy.
  for (size_t i = 0; i < bytes.size(); i++) bytes[i] = uint8_t(i * 7);
  const int32_t other = 3;
  std::vector<uint8_t> back(bytes.size());
  check(bl_cache_write(cache, &page, 1, bytes.data(), bytes.size(), err, sizeof err) == BL_OK, "bl_cache_write");
  check(bl_cache_copy(cache, &page, &other, 1, err, sizeof err) == BL_OK, "bl_cache_copy");
  check(bl_cache_read(cache, &other, 1, back.data(), back.size(), err, sizeof err) == BL_OK && back == bytes, "bl_cache_read");
  bl_cache_free(cache);

  uint64_t bad[2];
  const float values[3] = {1.0f, NAN, INFINITY};
  check(bl_check_data(rt, TYPE_F32, reinterpret_cast<const uint8_t *>(values), 12, bad, err, sizeof err) == BL_ERR_DATA && bad[0] == 1 && bad[1] == 2,
        "bl_check_data");
  const float p[4] = {0, 1, 2, 3}, q[4] = {0, 1, 3, 2};
  double kl[2];
  uint8_t same[2];
  check(bl_compare_logits(rt, p, q, 2, 2, kl, same, err, sizeof err) == BL_OK && kl[0] == 0 && same[0] == 1 && same[1] == 0 &&
            std::fabs(kl[1] - (0.7310585786300049 - 0.2689414213699951)) < 1e-12,
        "bl_compare_logits");
  bl_runtime_close(rt);
}

}  // namespace

void program_tests(const std::vector<Case> &cases) {
  refusals();
  mutations(cases);
}

}  // namespace bl_test
