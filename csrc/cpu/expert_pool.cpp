// expert_pool.cpp: who is in which slot, and the threads that read and pack.
#include "expert_pool.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace bl {
namespace {

using ull = unsigned long long;

constexpr uint32_t MAX_GROUPS = 1u << 16, MAX_PARTS = 64;
constexpr float FORGETS = 1.0f / 16, RARE = 1.0f / 32;  // of the mean of absent experts: weight of a visit, and what is not worth a guess
constexpr uint64_t PART_ALIGN = 64;  // of a matrix in a slot: a cache line

uint64_t all_parts(size_t n) { return n == MAX_PARTS ? ~0ull : (1ull << n) - 1; }

// BLOOMERY_READ_AHEAD=off in the environment: experts are guessed and counted, and not read (to compare and to find faults).
bool is_off(const char *value) { return value != nullptr && strcmp(value, "off") == 0; }

std::string error_text(int error) { return error == ENODATA ? "the file ends before" : strerror(error); }

}  // namespace

ExpertPool::ExpertPool(uint64_t slot_bytes, uint32_t n_slots)
    : slot_bytes_((slot_bytes + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN),
      slots_(n_slots),
      slots_memory_(slot_bytes_ * n_slots, "slots of experts"),
      test_failures_(getenv("BLOOMERY_TEST_READ_ERRORS")),
      reads_ahead_(!is_off(getenv("BLOOMERY_READ_AHEAD"))) {
  for (uint32_t i = 0; i < POOL_READERS; i++) readers_.emplace_back([this, i] { work(i); });
}

ExpertPool::~ExpertPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  asked_.notify_all();
  for (std::thread &t : readers_) t.join();
}

ExpertPool::Group &ExpertPool::group(uint32_t group) {
  if (group >= groups_.size()) fail(BL_ERR_ARGUMENT, "Cannot use group %u: the pool has %zu", group, groups_.size());
  return groups_[group];
}

void ExpertPool::wait_idle(std::unique_lock<std::mutex> &lock) {
  done_.wait(lock, [&] { return n_reading_ == 0 && reads_[NEEDED].empty() && reads_[SOON].empty() && reads_[GUESSED].empty(); });
}

std::unique_ptr<DeviceTensor> ExpertPool::add(const PooledSource &s) {
  const Layout layout = checked_layout(s.type, BL_USE_MUL_MAT);
  std::unique_lock<std::mutex> lock(mutex_);
  wait_idle(lock);
  if (s.group > groups_.size() || s.group >= MAX_GROUPS)
    fail(BL_ERR_ARGUMENT, "Cannot add to group %u: the pool has %zu, expected one of them or the next", s.group, groups_.size());
  const uint64_t n_expert = s.ne[2], row_bytes = s.ne[0] / type_info(s.type)->block * type_info(s.type)->bytes;
  if (s.ne[3] != 1 || n_expert > INT32_MAX) fail(BL_ERR_ARGUMENT, "Cannot add to a pool: the tensor has %llu x %llu matrices", (ull)s.ne[2], (ull)s.ne[3]);
  const bool is_new = s.group == groups_.size(), is_packed = s.packed.file != nullptr;
  // Packed matrices are read into their place, in whole pages.
  const uint64_t align = is_packed ? DIRECT_ALIGN : PART_ALIGN;
  const auto aligned = [&](uint64_t n) { return (n + align - 1) / align * align; };
  const uint64_t at = is_new ? 0 : aligned(groups_[s.group].bytes), packed = packed_bytes(layout, s.ne[0], s.ne[1], row_bytes);
  const uint64_t bytes = is_packed ? aligned(packed) : packed;
  if (is_packed && slot_bytes_ % DIRECT_ALIGN != 0)
    fail(BL_ERR_ARGUMENT, "Cannot read packed experts into slots of %llu bytes: expected a multiple of %llu", (ull)slot_bytes_, (ull)DIRECT_ALIGN);
  if (bytes > slot_bytes_ || at > slot_bytes_ - bytes)
    fail(BL_ERR_ARGUMENT, "Cannot add to group %u: an expert takes %llu bytes, slots have %llu", s.group, (ull)(at + bytes), (ull)slot_bytes_);
  if (!is_new && groups_[s.group].slot.size() != n_expert)
    fail(BL_ERR_ARGUMENT, "Cannot add to group %u: the tensor has %llu experts, expected %zu", s.group, (ull)n_expert, groups_[s.group].slot.size());
  if (!is_new && groups_[s.group].parts.size() == MAX_PARTS) fail(BL_ERR_ARGUMENT, "Cannot add to group %u: it has %u tensors", s.group, MAX_PARTS);
  const uint64_t file_bytes = is_packed ? packed : row_bytes * s.ne[1];
  const std::shared_ptr<const File> &file = is_packed ? s.packed.file : s.file;
  if (!is_packed && direct_room(file_bytes) > room_bytes_) {
    room_bytes_ = direct_room(file_bytes);
    rooms_ = Buffer(room_bytes_ * POOL_READERS, "readers of experts");
  }
  size_t origin = 0;
  while (origin < origins_.size() && origins_[origin].files[0]->file().path() != file->path()) origin++;
  if (origin == origins_.size()) {
    origins_.emplace_back();
    origins_.back().files.push_back(std::make_unique<DirectFile>(file));
  }
  if (is_new) {
    groups_.emplace_back();
    groups_.back().slot.assign(n_expert, -1);
    groups_.back().seated.assign(n_expert, 0);
    groups_.back().rows.assign(n_expert, 0);
    groups_.back().guessed.assign(n_expert, 0);
  }
  Group &g = groups_[s.group];
  const uint32_t part = uint32_t(g.parts.size());
  const uint64_t offset = is_packed ? s.packed.offset : s.offset, stride = is_packed ? s.packed.stride : file_bytes;
  g.parts.push_back({s, layout, row_bytes, file_bytes, offset, stride, at, origin});
  g.bytes = aligned(at + bytes);
  for (Slot &slot : slots_)  // who is there lacks the new tensor
    if (slot.expert >= 0 && slot.group == s.group) slot.ready &= ~(1ull << part);
  return std::make_unique<PooledTensor>(*this, s, layout, row_bytes, packed, part, at);
}

void ExpertPool::add_copy(const File &of, std::shared_ptr<const File> copy) {
  std::unique_lock<std::mutex> lock(mutex_);
  wait_idle(lock);
  if (of.size() != copy->size())
    fail(BL_ERR_IO, "Cannot use %.250s as a copy of %.250s: it has %llu bytes, expected %llu", copy->path().c_str(), of.path().c_str(),
         (ull)copy->size(), (ull)of.size());
  for (Origin &o : origins_)
    if (o.files[0]->file().path() == of.path() && o.files.size() < 64) return o.files.push_back(std::make_unique<DirectFile>(std::move(copy)));
  fail(BL_ERR_ARGUMENT, "Cannot add a copy of %.300s: no tensor of the pool is in it, or it has 64", of.path().c_str());
}

uint32_t ExpertPool::n_expert(uint32_t group) {
  std::lock_guard<std::mutex> lock(mutex_);
  return group < groups_.size() ? uint32_t(groups_[group].slot.size()) : 0;
}

void ExpertPool::seat(uint32_t group, const uint8_t *seated) {
  std::lock_guard<std::mutex> lock(mutex_);
  Group &g = this->group(group);
  g.seated.assign(seated, seated + g.seated.size());
}

// A slot that nobody has, else the one whose expert leaves first; -1 when none may.   seated: may a seated expert leave
int32_t ExpertPool::free_slot(bool seated) {
  int32_t best = -1;
  const auto before = [&](const Slot &a, const Slot &b) {
    const bool sa = groups_[a.group].seated[uint32_t(a.expert)] != 0, sb = groups_[b.group].seated[uint32_t(b.expert)] != 0;
    if (sa != sb) return sb;
    return a.used != b.used ? a.used < b.used : a.entered < b.entered;
  };
  for (uint32_t i = 0; i < slots_.size(); i++) {
    const Slot &s = slots_[i];
    if (s.pinned || s.guess || s.reading != 0) continue;
    if (s.expert < 0) return int32_t(i);
    if (!seated && groups_[s.group].seated[uint32_t(s.expert)] != 0) continue;
    if (best < 0 || before(s, slots_[uint32_t(best)])) best = int32_t(i);
  }
  return best;
}

void ExpertPool::give(uint32_t i, uint32_t group, uint32_t expert, uint64_t used) {
  Slot &s = slots_[i];
  if (s.expert >= 0) groups_[s.group].slot[uint32_t(s.expert)] = -1;
  unused_bytes_ += s.unused;
  if (s.guess) n_guess_--;
  s = Slot();
  s.expert = int32_t(expert), s.group = group, s.used = used, s.entered = ++n_entered_;
  groups_[group].slot[expert] = int32_t(i);
}

// A part that is asked for again is read as soon as the more urgent of the two.
void ExpertPool::ask(uint32_t i, uint64_t parts, Urgency urgency) {
  Slot &s = slots_[i];
  parts &= ~s.ready;
  for (uint32_t part = 0; part < MAX_PARTS && parts >> part != 0; part++) {
    if (((parts >> part) & 1) == 0) continue;
    const uint64_t bit = 1ull << part;
    if ((s.reading & bit) != 0) {
      bool queued = false;
      for (int later = GUESSED; later > urgency && !queued; later--) {
        auto &queue = reads_[later];
        const auto same = std::find_if(queue.begin(), queue.end(), [&](const Read &r) { return r.slot == i && r.part == part; });
        if (same == queue.end()) continue;
        queue.erase(same);
        queued = true;
      }
      if (!queued) continue;
    }
    s.reading |= bit;
    s.failed &= ~bit;
    reads_[urgency].push_back({i, part});
    asked_.notify_one();
  }
}

void ExpertPool::fill() {
  std::unique_lock<std::mutex> lock(mutex_);
  std::vector<uint32_t> filled;
  for (uint32_t g = 0; g < groups_.size(); g++)
    for (uint32_t e = 0; e < groups_[g].slot.size(); e++) {
      if (groups_[g].seated[e] == 0) continue;
      int32_t slot = groups_[g].slot[e];
      if (slot < 0) {
        slot = free_slot(false);
        if (slot < 0) continue;  // all slots are seated or busy
        give(uint32_t(slot), g, e, now_);
      }
      filled.push_back(uint32_t(slot));
      ask(uint32_t(slot), all_parts(groups_[g].parts.size()), SOON);
    }
  done_.wait(lock, [&] { return std::all_of(filled.begin(), filled.end(), [&](uint32_t i) { return slots_[i].reading == 0; }); });
  for (const uint32_t i : filled)
    if (slots_[i].failed != 0) throw Failure{BL_ERR_IO, slots_[i].error};
}

std::vector<uint64_t> ExpertPool::counts() {
  std::lock_guard<std::mutex> lock(mutex_);
  uint64_t n_held = 0, direct = 1;
  for (const Slot &s : slots_) n_held += s.expert >= 0 ? 1 : 0;
  for (const Origin &o : origins_)
    for (const auto &f : o.files) direct &= f->direct() ? 1 : 0;
  std::vector<uint64_t> out{read_bytes_, n_reads_, wait_ns_, n_held, direct, ahead_bytes_, unused_bytes_};
  for (const Group &g : groups_) {
    out.insert(out.end(), {g.hits, g.misses, g.n_needed, g.n_guessed, g.n_right});
    out.insert(out.end(), g.rows.begin(), g.rows.end());
  }
  return out;
}

// --- reading ------------------------------------------------------------------------------------------------------------------------

uint64_t &ExpertPool::busy(uint64_t drive) {
  for (auto &b : busy_)
    if (b.first == drive) return b.second;
  busy_.push_back({drive, 0});
  return busy_.back().second;
}

// The copy on the drive with the least in flight; n bytes are in flight there then.
size_t ExpertPool::take_drive(const Origin &origin, uint64_t tried, uint64_t n) {
  size_t best = SIZE_MAX;
  for (size_t i = 0; i < origin.files.size(); i++)
    if (((tried >> i) & 1) == 0 && (best == SIZE_MAX || busy(origin.files[i]->drive()) < busy(origin.files[best]->drive()))) best = i;
  busy(origin.files[best]->drive()) += n;
  return best;
}

// Tests let reads fail: while the file that the variable names is there, reads of files whose path has its text in it.
bool ExpertPool::fails_for_test(const std::string &path) const {
  if (test_failures_ == nullptr) return false;
  FILE *f = fopen(test_failures_, "r");
  if (f == nullptr) return false;
  char text[512];
  const size_t n = fread(text, 1, sizeof text - 1, f);
  fclose(f);
  text[n] = 0;
  return path.find(text) != std::string::npos;
}

bool ExpertPool::read(const Part &part, uint32_t expert, uint8_t *to, uint8_t *room, std::string &error) {
  const bool is_packed = part.source.packed.file != nullptr;
  const uint64_t offset = part.offset + expert * part.stride, n = part.file_bytes;
  if (is_packed) room = to;
  const Origin &origin = origins_[part.origin];
  for (uint64_t tried = 0, left = origin.files.size(); left > 0; left--) {
    size_t which;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      which = take_drive(origin, tried, n);
    }
    const DirectFile &file = *origin.files[which];
    const uint8_t *rows = nullptr;
    const int status = fails_for_test(file.file().path()) ? EIO : file.read(offset, n, room, &rows);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      busy(file.drive()) -= n;
      n_reads_++;
      if (status == 0) read_bytes_ += n;
    }
    if (status == 0 && is_packed) return true;
    if (status == 0) {
      const uint64_t n_in = part.source.ne[0], n_out = part.source.ne[1];
      if (part.layout == Layout::rows) memcpy(to, rows, n);
      else pack_groups(part.layout, rows, part.row_bytes, n_in, n_out, 0, (n_out + GROUP - 1) / GROUP, to);
      return true;
    }
    tried |= 1ull << which;
    char text[700];
    snprintf(text, sizeof text, "%s bytes %llu to %llu of %.300s on drive %.60s: %s", error.empty() ? "Cannot read" : "; nor", (ull)offset,
             (ull)(offset + n), file.file().path().c_str(), file.drive_name().c_str(), error_text(status).c_str());
    error += text;
  }
  return false;
}

void ExpertPool::work(uint32_t reader) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    asked_.wait(lock, [&] { return stop_ || !reads_[NEEDED].empty() || !reads_[SOON].empty() || may_guess(); });
    if (stop_) return;
    const Urgency urgency = !reads_[NEEDED].empty() ? NEEDED : !reads_[SOON].empty() ? SOON : GUESSED;
    const Read r = reads_[urgency].front();
    reads_[urgency].pop_front();
    n_reading_++;
    if (urgency != GUESSED) n_asked_++;
    if (may_guess()) asked_.notify_one();
    const Slot &asked = slots_[r.slot];
    const Part part = groups_[asked.group].parts[r.part];
    const uint32_t expert = uint32_t(asked.expert);
    uint8_t *room = rooms_.data() + reader * room_bytes_, *to = memory(r.slot) + part.at;
    lock.unlock();
    std::string error;
    bool ok = false;
    try {
      ok = read(part, expert, to, room, error);
    } catch (const std::bad_alloc &) {
      error = "Cannot allocate host memory";
    }
    lock.lock();
    n_reading_--;
    if (urgency != GUESSED) n_asked_--;
    Slot &slot = slots_[r.slot];
    if (ok && urgency == GUESSED) {
      ahead_bytes_ += part.file_bytes;
      if (slot.guess) slot.unused += part.file_bytes;
      else if (!slot.pinned) unused_bytes_ += part.file_bytes;
    }
    const uint64_t bit = 1ull << r.part;
    slot.reading &= ~bit;
    if (ok) slot.ready |= bit;
    else slot.failed |= bit, slot.error = error;
    done_.notify_all();
  }
}

// --- guesses ------------------------------------------------------------------------------------------------------------------------

// Takes the reads of a guess back that have not begun. False when others are under way.
bool ExpertPool::take_back(uint32_t i) {
  auto &queue = reads_[GUESSED];
  for (size_t k = 0; k < queue.size();) {
    if (queue[k].slot != i) {
      k++;
      continue;
    }
    slots_[i].reading &= ~(1ull << queue[k].part);
    queue.erase(queue.begin() + ptrdiff_t(k));
  }
  return slots_[i].reading == 0;
}

// A slot that waits for its layer, for an expert that is needed now; the last guess first. -1 when there is none.
int32_t ExpertPool::slot_of_guess() {
  int32_t best = -1;
  for (uint32_t i = 0; i < slots_.size() && n_guess_ > 0; i++)
    if (slots_[i].guess && !slots_[i].pinned && take_back(i) && (best < 0 || slots_[i].entered > slots_[uint32_t(best)].entered)) best = int32_t(i);
  return best;
}

bool ExpertPool::wants_guess(uint32_t group) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Group &g = this->group(group);
  return g.absent >= RARE && std::find(g.slot.begin(), g.slot.end(), -1) != g.slot.end();
}

void ExpertPool::ahead(uint32_t group, const std::vector<uint32_t> &experts, bool more) {
  std::lock_guard<std::mutex> lock(mutex_);
  Group &g = this->group(group);
  if (!more) end_guess(group, {});
  g.has_guess = true;
  for (const uint32_t e : experts) {
    if (g.guessed[e] != 0) continue;
    g.guessed[e] = 1;
    if (!reads_ahead_) continue;
    int32_t slot = g.slot[e];
    if (slot >= 0 && (slots_[uint32_t(slot)].guess || slots_[uint32_t(slot)].pinned)) continue;
    if ((n_guess_ + 1) * GUESS_SHARE > slots_.size()) continue;
    if (slot < 0) {
      slot = free_slot(false);
      if (slot < 0) continue;  // seated, or busy
      give(uint32_t(slot), group, e, 0);
      slots_[uint32_t(slot)].ahead = true;
    }
    slots_[uint32_t(slot)].guess = true;
    n_guess_++;
    ask(uint32_t(slot), all_parts(g.parts.size()), GUESSED);
  }
}

// The group's visit has come. needed: ascending
void ExpertPool::end_guess(uint32_t group, const std::vector<uint32_t> &needed) {
  Group &g = groups_[group];
  if (!g.has_guess) return;
  g.has_guess = false;
  g.n_needed += needed.size();
  for (uint32_t e = 0; e < g.guessed.size(); e++) {
    if (g.guessed[e] == 0) continue;
    g.guessed[e] = 0;
    const bool right = std::binary_search(needed.begin(), needed.end(), e);
    g.n_guessed++;
    g.n_right += right ? 1 : 0;
    if (g.slot[e] < 0 || !slots_[uint32_t(g.slot[e])].guess) continue;
    Slot &s = slots_[uint32_t(g.slot[e])];
    s.guess = s.ahead = false;
    n_guess_--;
    if (right) s.unused = 0;
    else if (take_back(uint32_t(g.slot[e])) && s.ready == 0) {
      g.slot[e] = -1;
      s = Slot();
    }
  }
}

// --- visits -------------------------------------------------------------------------------------------------------------------------

ExpertPool::Visit::Visit(ExpertPool &pool, uint32_t group, uint64_t parts, const std::vector<uint32_t> &experts,
                         const std::vector<uint32_t> &rows, bool pass)
    : pool_(pool), group_(group), parts_(parts), pass_(pass) {
  std::lock_guard<std::mutex> lock(pool.mutex_);
  Group &g = pool.group(group);
  pool.now_++;
  if ((parts & 1) != 0) {
    uint32_t n_absent = 0;
    for (const uint32_t e : experts) n_absent += g.slot[e] < 0 || pool.slots_[uint32_t(g.slot[e])].ahead ? 1 : 0;
    if (!pass) g.absent += FORGETS * (float(n_absent) - g.absent);
    pool.end_guess(group, experts);
  }
  // Where the layer's experts fit, the matrices that its next op reads come with them; elsewhere they would be gone by then.
  wanted_ = experts.size() <= pool.slots_.size() ? all_parts(g.parts.size()) : parts;
  for (const uint32_t e : experts) {
    const int32_t slot = g.slot[e];
    const bool hit = slot >= 0 && (pool.slots_[uint32_t(slot)].ready & parts) == parts;
    if ((parts & 1) != 0) {
      (hit ? g.hits : g.misses)++;
      g.rows[e] += rows[e];
    }
    if (slot < 0) {
      missing_.push_back(e);
      continue;
    }
    Slot &s = pool.slots_[uint32_t(slot)];
    s.pinned = true;
    if (!pass) s.used = pool.now_;
    s.unused = 0;
    pool.ask(uint32_t(slot), parts, NEEDED);
    pool.ask(uint32_t(slot), wanted_, SOON);
    waiting_.push_back(e);
  }
  start_reads();
}

ExpertPool::Visit::~Visit() {
  std::lock_guard<std::mutex> lock(pool_.mutex_);
  for (const auto *list : {&waiting_, &given_})
    for (const uint32_t e : *list) pool_.slots_[uint32_t(pool_.groups_[group_].slot[e])].pinned = false;
}

void ExpertPool::Visit::start_reads() {
  while (!missing_.empty()) {
    int32_t slot = pool_.free_slot(true);
    if (slot < 0) slot = pool_.slot_of_guess();
    if (slot < 0) break;
    const uint32_t e = missing_.front();
    missing_.pop_front();
    pool_.give(uint32_t(slot), group_, e, pass_ ? 0 : pool_.now_);
    pool_.slots_[uint32_t(slot)].pinned = true;
    pool_.ask(uint32_t(slot), parts_, NEEDED);
    pool_.ask(uint32_t(slot), wanted_, SOON);
    waiting_.push_back(e);
  }
}

bool ExpertPool::Visit::next(std::vector<Ready> &ready) {
  ready.clear();
  std::unique_lock<std::mutex> lock(pool_.mutex_);
  Group &g = pool_.groups_[group_];
  for (const uint32_t e : given_) pool_.slots_[uint32_t(g.slot[e])].pinned = false;
  given_.clear();
  for (;;) {
    start_reads();
    for (const uint32_t e : waiting_) {
      const Slot &s = pool_.slots_[uint32_t(g.slot[e])];
      if ((s.failed & parts_) != 0) throw Failure{BL_ERR_IO, s.error};
    }
    size_t kept = 0;
    for (const uint32_t e : waiting_) {
      const uint32_t i = uint32_t(g.slot[e]);
      const Slot &s = pool_.slots_[i];
      if ((s.ready & parts_) == parts_) {
        given_.push_back(e);
        ready.push_back({e, pool_.memory(i)});
      } else {
        waiting_[kept++] = e;
      }
    }
    waiting_.resize(kept);
    if (!ready.empty()) return true;
    if (waiting_.empty() && missing_.empty()) return false;
    const auto start = std::chrono::steady_clock::now();
    pool_.done_.wait(lock);
    pool_.wait_ns_ += uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count());
  }
}

PooledTensor::PooledTensor(ExpertPool &pool, const PooledSource &source, Layout layout, uint64_t row_bytes, uint64_t matrix_bytes,
                           uint32_t part, uint64_t at)
    : pool(pool), group(source.group), part(part), at(at) {
  this->layout = layout;
  this->row_bytes = row_bytes;
  this->matrix_bytes = matrix_bytes;
}

}  // namespace bl
