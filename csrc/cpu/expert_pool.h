// expert_pool.h: a pool of slots that experts of routed weights are read into when a step needs them. A slot holds one expert of one
// layer (group): its matrices of all the layer's tensors, packed as resident weights are, so that where an expert came from changes no bit.
//
// A step asks for the experts of a layer with a Visit: reads of all that are missing are put in flight at once, on threads of the pool's
// own, and the visit hands experts out as they are there, those that were from the start first. An expert is released when it is
// computed; its slot can then take another one, so that a layer may need more experts than there are slots.
//
// Who leaves: experts that are not seated before those that are, then the one that was not used for longest. A pass (a step of many rows)
// touches every expert of a layer once and says nothing of what the next tokens need: experts that it reads are the first to leave.
//
// Experts that a layer is likely to need can be read before its visit (ahead). Such reads begin only while no other read is queued or
// under way, few at a time; they take slots of experts without a seat, a share of all slots at most, and give them back when a miss
// finds no other. An expert that was guessed keeps its slot until its layer's visit; if it was not needed then, it leaves first.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "direct_file.h"
#include "tensor.h"

namespace bl {

constexpr uint32_t POOL_READERS = 8;  // threads that read and pack: reads in flight
constexpr uint32_t GUESS_READS = 4;   // of them, for experts that nobody has asked for yet
constexpr uint32_t GUESS_SHARE = 4;   // one of so many slots waits for its layer at most

class ExpertPool : public DevicePool {
 public:
  ExpertPool(uint64_t slot_bytes, uint32_t n_slots);
  ~ExpertPool() override;

  std::unique_ptr<DeviceTensor> add(const PooledSource &source) override;
  void add_copy(const File &of, std::shared_ptr<const File> copy) override;
  uint32_t n_expert(uint32_t group) override;
  void seat(uint32_t group, const uint8_t *seated) override;
  void fill() override;
  std::vector<uint64_t> counts() override;
  uint64_t bytes() const override { return slots_memory_.size() + rooms_.size(); }
  // Whether a guess of the group's next visit can be worth its price: an expert is absent, and lately some were missed.
  bool wants_guess(uint32_t group);
  // The group's next visit is likely to need these experts, the likeliest first: those that are there stay, the others are read.
  // `more`: beside those that were guessed for this visit already.
  void ahead(uint32_t group, const std::vector<uint32_t> &experts, bool more);

  struct Ready {
    uint32_t expert;
    const uint8_t *slot;
  };

  // One op's experts of one layer.
  class Visit {
   public:
    // experts: those with rows, ascending · rows[e] of each expert of the layer · parts: bits of the tensors that the op reads
    Visit(ExpertPool &pool, uint32_t group, uint64_t parts, const std::vector<uint32_t> &experts, const std::vector<uint32_t> &rows,
          bool pass);
    ~Visit();
    // Waits until experts are there and gives all that are; false when all were given. The last ones' slots are free for others then.
    //   fails with BL_ERR_IO
    bool next(std::vector<Ready> &ready);

   private:
    void start_reads();
    ExpertPool &pool_;
    const uint32_t group_;
    const uint64_t parts_;   // read by the op
    uint64_t wanted_ = 0;    // read now
    const bool pass_;
    std::vector<uint32_t> waiting_;  // experts with a slot, not given yet
    std::deque<uint32_t> missing_;   // experts without one
    std::vector<uint32_t> given_;
  };

 private:
  struct Part {
    PooledSource source;
    Layout layout;
    uint64_t row_bytes, file_bytes;  // of a matrix's row and of a matrix, as they are read
    uint64_t offset, stride;         // of the first matrix in the file, and of neighbours
    uint64_t at;                     // in a slot
    size_t origin;                   // index of origins_
  };
  struct Group {
    std::vector<Part> parts;
    uint64_t bytes = 0;  // of a slot
    std::vector<int32_t> slot;      // by expert, -1: none
    std::vector<uint8_t> seated;
    std::vector<uint64_t> rows;     // computed by each expert
    uint64_t hits = 0, misses = 0;  // experts that ops found, or did not find
    std::vector<uint8_t> guessed;   // for the next visit
    bool has_guess = false;
    float absent = 1;               // experts of a visit that were not there, or not without a guess: a mean that forgets
    uint64_t n_needed = 0, n_guessed = 0, n_right = 0;  // experts of visits that had a guess: needed, guessed, and both
  };
  struct Slot {
    int32_t expert = -1;
    uint32_t group = 0;
    uint64_t used = 0;       // when, 0: by a pass
    uint64_t entered = 0;
    uint64_t ready = 0;      // parts that are there
    uint64_t reading = 0;    // parts that are asked for
    uint64_t failed = 0;     // parts whose last read failed
    bool pinned = false;     // in a visit
    bool guess = false;      // waits for its layer's visit
    bool ahead = false;      // read, or to be read, for a guess that was not judged
    uint64_t unused = 0;     // bytes that were read ahead for it, until it is used
    std::string error;
  };
  struct Read {
    uint32_t slot, part;
  };
  enum Urgency { NEEDED, SOON, GUESSED };  // an op waits for it; the next op of a visit will, or a seated expert; nobody may
  // A file and its copies.
  struct Origin {
    std::vector<std::unique_ptr<DirectFile>> files;
  };

  uint8_t *memory(uint32_t slot) { return slots_memory_.data() + slot * slot_bytes_; }
  Group &group(uint32_t group);
  int32_t free_slot(bool seated);
  void give(uint32_t slot, uint32_t group, uint32_t expert, uint64_t used);
  void ask(uint32_t slot, uint64_t parts, Urgency urgency);
  bool take_back(uint32_t slot);
  int32_t slot_of_guess();
  void end_guess(uint32_t group, const std::vector<uint32_t> &needed);
  bool may_guess() const { return !reads_[GUESSED].empty() && n_asked_ == 0 && n_reading_ < GUESS_READS; }
  void work(uint32_t reader);
  bool read(const Part &part, uint32_t expert, uint8_t *to, uint8_t *room, std::string &error);
  size_t take_drive(const Origin &origin, uint64_t tried, uint64_t n);
  uint64_t &busy(uint64_t drive);
  bool fails_for_test(const std::string &path) const;
  void wait_idle(std::unique_lock<std::mutex> &lock);

  const uint64_t slot_bytes_;
  std::mutex mutex_;
  std::condition_variable asked_, done_;
  std::vector<Group> groups_;
  std::vector<Slot> slots_;
  std::deque<Read> reads_[3];             // by urgency
  uint32_t n_reading_ = 0, n_asked_ = 0;  // reads under way; of them, those that are no guesses
  uint32_t n_guess_ = 0;                  // slots that wait for their layer
  std::vector<Origin> origins_;
  std::vector<std::pair<uint64_t, uint64_t>> busy_;  // drive, bytes in flight
  std::vector<std::thread> readers_;
  bool stop_ = false;
  Buffer slots_memory_, rooms_;
  uint64_t room_bytes_ = 0;
  uint64_t now_ = 1, n_entered_ = 0;
  uint64_t read_bytes_ = 0, n_reads_ = 0, wait_ns_ = 0, ahead_bytes_ = 0, unused_bytes_ = 0;
  const char *test_failures_;
  const bool reads_ahead_;
};

// A routed weight in a pool: no bytes of its own.
class PooledTensor : public CpuTensor {
 public:
  PooledTensor(ExpertPool &pool, const PooledSource &source, Layout layout, uint64_t row_bytes, uint64_t matrix_bytes, uint32_t part,
               uint64_t at);
  ExpertPool &pool;
  const uint32_t group, part;
  const uint64_t at;  // in a slot
};

}  // namespace bl
