// segments.h: a program over several devices. Each device has its own part of it, with its own scratch memory; values move between them
// through host memory at the COPYs whose source is elsewhere.
//
// A value leaves as soon as all is there that the same place of the other device waits for, and arrives right before it is read. So a card
// runs what does not depend on the host while the host works, and the other way round. The order is fixed when the program is made.
#pragma once

#include <memory>
#include <vector>

#include "device.h"

namespace bl {

class Segments : public Exec {
 public:
  // Cuts the program for its devices, ascending. Nothing is compiled yet: set_exec() takes what compile() makes of each part.
  Segments(const Program &program, std::vector<uint32_t> devices);
  const Program &part(uint32_t device) const;
  void set_exec(uint32_t device, std::unique_ptr<Exec> exec);

  // Host memory that values pass through.
  uint64_t buffer_bytes() const;
  uint64_t scratch_bytes() const override;
  void step(const StepInput &input, uint8_t *output, uint64_t mask) override;

 private:
  struct Part {
    Program program;
    std::unique_ptr<Exec> exec;
  };
  // A COPY between devices.
  struct Move {
    uint32_t op;         // in the whole program
    uint32_t src, dst;   // tensors
    uint32_t from, to;   // devices
    int64_t leaves, arrives;  // see places()
    uint64_t bytes;
    std::shared_ptr<uint8_t> rows;
  };
  struct Act {
    enum Kind : uint8_t { run, leave, arrive } kind;
    uint32_t part;  // index of its device
    uint32_t at;    // run: ops before this one; else the move
  };
  // What one device does, in order: its ops, and the moves that leave it or arrive.
  struct Item {
    int64_t place;
    Act::Kind kind;
    uint32_t index;  // an op of the whole program, or a move
  };

  void find_moves();
  void add_part(uint32_t device, std::vector<Item> &items);
  void schedule(const std::vector<std::vector<Item>> &items);
  size_t index_of(uint32_t device) const;
  void run(const StepInput &input, uint8_t *output, uint64_t mask);

  const Program &p_;
  std::vector<uint32_t> devices_;
  std::vector<std::unique_ptr<Part>> parts_;  // as devices_
  std::vector<Move> moves_;
  std::vector<Act> acts_;
};

}  // namespace bl
