// replay.cpp: every op case against the reference's results, and by bits with other numbers of threads.
#include "replay.h"

#include <dirent.h>

#include <algorithm>

#include "check.h"

namespace bl_test {
namespace {

class Words {
 public:
  explicit Words(const std::vector<uint8_t> &bytes) : bytes_(bytes) {}
  uint32_t next() {
    uint32_t w = 0;
    if (at_ + 4 <= bytes_.size()) memcpy(&w, bytes_.data() + at_, 4);
    at_ += 4;
    return w;
  }
  std::vector<uint8_t> sized() {
    const uint64_t n = next();
    std::vector<uint8_t> out;
    if (at_ + n <= bytes_.size()) out.assign(bytes_.begin() + int64_t(at_), bytes_.begin() + int64_t(at_ + n));
    at_ += (n + 3) / 4 * 4;
    return out;
  }
  bool at_end() const { return at_ == bytes_.size(); }

 private:
  const std::vector<uint8_t> &bytes_;
  uint64_t at_ = 0;
};

std::vector<uint8_t> read_file(const std::string &path) {
  std::vector<uint8_t> bytes;
  FILE *f = fopen(path.c_str(), "rb");
  if (f == nullptr) return bytes;
  uint8_t part[1 << 16];
  for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;) bytes.insert(bytes.end(), part, part + n);
  fclose(f);
  return bytes;
}

Case parse(const std::vector<uint8_t> &bytes, const std::string &path) {
  Words w(bytes);
  Case c;
  check(w.next() == 0x434F4C42u && w.next() == 1, "a case of version 1", path.c_str());
  const std::vector<uint8_t> name = w.sized();
  c.name.assign(name.begin(), name.end());
  const uint32_t nmse = w.next();
  memcpy(&c.nmse, &nmse, 4);
  c.weights.resize(w.next());
  c.caches.resize(w.next());
  c.is_i32.resize(w.next());
  c.steps.resize(w.next());
  for (Case::Weight &t : c.weights) {
    t.type = w.next();
    for (uint64_t &n : t.ne) n = w.next();
    t.uses = w.next();
    t.data = w.sized();
  }
  for (Case::Cache &t : c.caches) {
    t.page_size = w.next(), t.n_pages = w.next();
    for (uint32_t n = w.next(); n > 0; n--) t.type.push_back(w.next()), t.ne.push_back(w.next()), t.ratio.push_back(w.next());
  }
  c.program = w.sized();
  for (size_t i = 0; i < c.is_i32.size(); i++) c.is_i32[i] = w.next() != 0;
  for (Case::Step &s : c.steps) {
    s.compared = w.next() != 0;
    s.input = w.sized();
    for (size_t i = 0; i < c.is_i32.size(); i++) s.outputs.push_back(w.sized());
  }
  check(w.at_end(), "a case ends with its file", path.c_str());
  return c;
}

// Outputs of all steps, one after the other.
std::vector<std::vector<uint8_t>> run(const Case &c, uint32_t device, uint32_t n_threads) {
  std::vector<std::vector<uint8_t>> all;
  uint8_t err[512] = {};
  bl_runtime *rt = nullptr;
  check(bl_runtime_open(n_threads, &rt, err, sizeof err) == BL_OK, "bl_runtime_open", reinterpret_cast<char *>(err));
  {
    const CaseHandles handles(rt, c, device);
    bl_program *p = nullptr;
    if (handles.create(rt, on_device(c.program, device), &p, err) != BL_OK) {
      check(false, (c.name + ":").c_str(), reinterpret_cast<char *>(err));
    } else {
      for (const Case::Step &s : c.steps) {
        std::vector<uint8_t> out(s.output_bytes(), 0xFF);
        const uint64_t mask = (uint64_t(1) << c.is_i32.size()) - 1;
        err[0] = 0;
        check(bl_program_step(p, s.input.data(), s.input.size(), out.data(), out.size(), mask, err, sizeof err) == BL_OK, (c.name + ":").c_str(),
              reinterpret_cast<char *>(err));
        all.push_back(out);
      }
      bl_program_free(p);
    }
  }
  bl_runtime_close(rt);
  return all;
}

// A card's tensor cores take the probabilities of attention over f16 and q8_0 caches as halves: 11 bits of each.
double bound_of(const Case &c, uint32_t device) {
  const bool halves = c.name.rfind("ATTENTION f16", 0) == 0 || c.name.rfind("ATTENTION q8_0", 0) == 0;
  return device != 0 && halves ? std::max(double(c.nmse), 1e-6) : double(c.nmse);
}

void compare(const Case &c, uint32_t device, const std::vector<std::vector<uint8_t>> &got) {
  for (size_t o = 0; o < c.is_i32.size(); o++) {
    double error = 0, norm = 0;
    bool equal = true, finite = true;
    for (size_t i = 0; i < got.size(); i++) {
      const Case::Step &s = c.steps[i];
      if (!s.compared) continue;
      uint64_t at = 0;
      for (size_t before = 0; before < o; before++) at += s.outputs[before].size();
      const std::vector<uint8_t> &want = s.outputs[o];
      equal = equal && memcmp(got[i].data() + at, want.data(), want.size()) == 0;
      for (size_t j = 0; j < want.size(); j += 4) {
        float a, b;
        memcpy(&a, got[i].data() + at + j, 4), memcpy(&b, want.data() + j, 4);
        if (!c.is_i32[o] && !std::isfinite(a)) finite = false;
        error += (double(a) - b) * (double(a) - b), norm += double(b) * b;
      }
    }
    char text[64];
    snprintf(text, sizeof text, "output %zu: NMSE %.3g", o, norm == 0 ? error : error / norm);
    check(c.is_i32[o] ? equal : finite && error <= bound_of(c, device) * norm, (c.name + ":").c_str(), text);
  }
}

}  // namespace

std::vector<Case> read_cases(const char *folder) {
  std::vector<std::string> paths;
  if (DIR *d = opendir(folder)) {
    while (const dirent *e = readdir(d)) {
      const std::string name = e->d_name;
      if (name.size() > 5 && name.compare(name.size() - 5, 5, ".case") == 0) paths.push_back(std::string(folder) + "/" + name);
    }
    closedir(d);
  }
  check(!paths.empty(), "there are op cases (scripts/dump_op_cases.ts writes them) in", folder);
  std::sort(paths.begin(), paths.end());
  std::vector<Case> cases;
  for (const std::string &path : paths) cases.push_back(parse(read_file(path), path));
  return cases;
}

CaseHandles::CaseHandles(bl_runtime *rt, const Case &c, uint32_t device) {
  uint8_t err[512] = {};
  for (const Case::Weight &t : c.weights) {
    bl_tensor *w = nullptr;
    check(bl_tensor_create(rt, device, t.type, t.ne, t.uses, t.data.data(), t.data.size(), &w, err, sizeof err) == BL_OK, "bl_tensor_create",
          reinterpret_cast<char *>(err));
    weights_.push_back(w);
  }
  for (const Case::Cache &t : c.caches) {
    bl_cache *cache = nullptr;
    check(bl_cache_create(rt, device, uint32_t(t.type.size()), t.type.data(), t.ne.data(), t.ratio.data(), t.page_size, t.n_pages, &cache, err,
                          sizeof err) == BL_OK,
          "bl_cache_create", reinterpret_cast<char *>(err));
    caches_.push_back(cache);
  }
}

CaseHandles::~CaseHandles() {
  for (bl_tensor *w : weights_) bl_tensor_free(w);
  for (bl_cache *c : caches_) bl_cache_free(c);
}

int32_t CaseHandles::create(bl_runtime *rt, const std::vector<uint8_t> &program, bl_program **out, uint8_t *err) const {
  return bl_program_create(rt, program.data(), program.size(), weights_.data(), weights_.size(), caches_.data(), caches_.size(), out, err, 512);
}

std::vector<uint8_t> on_device(std::vector<uint8_t> program, uint32_t device) {
  const auto word = [&](size_t i) {
    uint32_t w;
    memcpy(&w, program.data() + 4 * i, 4);
    return w;
  };
  const auto set = [&](size_t i) { memcpy(program.data() + 4 * i, &device, 4); };
  size_t at = 9 + word(5);
  for (uint32_t i = 0; i < word(6); i++, at += 13) set(at + 7);
  for (uint32_t i = 0; i < word(7); i++) {
    set(at + 1);
    at += 6 + word(at + 2) + word(at + 3) + word(at + 4);
  }
  return program;
}

void replay_tests(const std::vector<Case> &cases, uint32_t device) {
  for (const Case &c : cases) {
    const auto got = run(c, device, 1);
    compare(c, device, got);
    if (device == 0) check(got == run(c, device, 3), (c.name + ":").c_str(), "the same bits for any number of threads");
  }
}

}  // namespace bl_test
