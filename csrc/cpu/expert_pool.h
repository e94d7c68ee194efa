// expert_pool.h: a pool of slots that experts of routed weights are read into when a step needs them. A slot holds one expert of one
// layer (group): its matrices of all the layer's tensors, packed as resident weights are, so that where an expert came from changes no bit.
//
// A step asks for the experts of a layer with a Visit: reads of all that are missing are put in flight at once, on threads of the pool's
// own, and the visit hands experts out as they are there, those that were from the start first. An expert is released when it is
// computed; its slot can then take another one, so that a layer may need more experts than there are slots.
//
// Who leaves: experts that are not seated before those that are, then the one that was not used for longest. A pass (a step of many rows)
// touches every expert of a layer once and says nothing of what the next tokens need: experts that it reads are the first to leave.
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
    uint64_t row_bytes, file_bytes;  // of a matrix's row and of a matrix, in the file
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
    std::string error;
  };
  struct Read {
    uint32_t slot, part;
  };
  // A file and its copies.
  struct Origin {
    std::vector<std::unique_ptr<DirectFile>> files;
  };

  uint8_t *memory(uint32_t slot) { return slots_memory_.data() + slot * slot_bytes_; }
  Group &group(uint32_t group);
  int32_t free_slot(bool seated);
  void give(uint32_t slot, uint32_t group, uint32_t expert, uint64_t used);
  void ask(uint32_t slot, uint64_t parts, bool urgent);
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
  std::deque<Read> reads_[2];  // those that an op waits for, and others
  uint32_t n_reading_ = 0;
  std::vector<Origin> origins_;
  std::vector<std::pair<uint64_t, uint64_t>> busy_;  // drive, bytes in flight
  std::vector<std::thread> readers_;
  bool stop_ = false;
  Buffer slots_memory_, rooms_;
  uint64_t room_bytes_ = 0;
  uint64_t now_ = 1, n_entered_ = 0;
  uint64_t read_bytes_ = 0, n_reads_ = 0, wait_ns_ = 0;
  const char *test_failures_;
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
