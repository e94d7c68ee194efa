// segments.cpp: cuts a program into the parts of its devices, orders what they do, and runs a step over all of them.
#include "segments.h"

#include <algorithm>
#include <map>

#include "program_internal.h"

namespace bl {
namespace {

// Places in a device's order: op i of the whole program is at 4 i + 2, what arrives for it right before, what leaves after it right behind.
constexpr int64_t at_op(uint32_t op) { return 4 * int64_t(op) + 2; }
constexpr int64_t before_op(uint32_t op) { return at_op(op) - 1; }
constexpr int64_t after_op(int64_t op) { return 4 * op + 3; }

}  // namespace

Segments::Segments(const Program &program, std::vector<uint32_t> devices) : p_(program), devices_(std::move(devices)) {
  find_moves();
  std::vector<std::vector<Item>> items(devices_.size());
  for (size_t d = 0; d < devices_.size(); d++) add_part(devices_[d], items[d]);
  schedule(items);
}

size_t Segments::index_of(uint32_t device) const {
  return size_t(std::lower_bound(devices_.begin(), devices_.end(), device) - devices_.begin());
}

const Program &Segments::part(uint32_t device) const { return parts_[index_of(device)]->program; }

void Segments::set_exec(uint32_t device, std::unique_ptr<Exec> exec) {
  for (Move &m : moves_)
    if (std::max(m.from, m.to) == device) m.rows = exec->host_memory(m.bytes);  // the host can use any
  parts_[index_of(device)]->exec = std::move(exec);
}

// When each move leaves and arrives. Those that one op waits for leave together: each time that a card is read from, it is waited for.
void Segments::find_moves() {
  std::map<uint32_t, uint32_t> arriving;  // by root of a move's result: its index
  std::vector<uint32_t> reader(p_.tensors.size(), UINT32_MAX);
  for (uint32_t i = 0; i < p_.ops.size(); i++)
    for (const uint32_t id : p_.ops[i].src)
      if (id != BL_NO_OPERAND) reader[p_.tensors[id].root] = std::min(reader[p_.tensors[id].root], i);
  for (uint32_t i = 0; i < p_.ops.size(); i++) {
    const Op &op = p_.ops[i];
    if (!p_.crosses(op)) continue;
    const uint32_t src = op.src[0], dst = op.dst[0];
    const uint32_t first = reader[dst] == UINT32_MAX ? uint32_t(p_.ops.size()) : reader[dst];  // at the end where an output alone reads it
    Move m{i, src, dst, p_.tensors[src].device, op.device, 0, before_op(first), p_.bucket_rows(dst) * p_.row_bytes(dst), nullptr};
    // An op's number where the value is there: that which made it, or for which it arrived.
    const uint32_t root = p_.tensors[src].root;
    const auto known = arriving.find(root);
    m.leaves = known != arriving.end() ? after_op((moves_[known->second].arrives - 1) / 4) : after_op(p_.tensors[root].first);
    arriving[dst] = uint32_t(moves_.size());
    moves_.push_back(std::move(m));
  }
  for (Move &m : moves_)
    for (const Move &o : moves_)
      if (o.from == m.from && o.to == m.to && o.arrives == m.arrives) m.leaves = std::max(m.leaves, o.leaves);
}

// The ops of a device with the COPYs that leave it and that arrive, and the scratch memory of what it holds.
void Segments::add_part(uint32_t device, std::vector<Item> &items) {
  for (uint32_t i = 0; i < p_.ops.size(); i++)
    if (p_.ops[i].device == device && !p_.crosses(p_.ops[i])) items.push_back({at_op(i), Act::run, i});
  for (uint32_t m = 0; m < moves_.size(); m++) {
    if (moves_[m].from == device) items.push_back({moves_[m].leaves, Act::leave, m});
    if (moves_[m].to == device) items.push_back({moves_[m].arrives, Act::arrive, m});
  }
  std::stable_sort(items.begin(), items.end(), [](const Item &a, const Item &b) { return a.place < b.place; });

  auto part = std::make_unique<Part>();
  Program &p = part->program;
  p = p_;
  p.device = device;
  p.ops.clear();
  p.outputs.clear();
  for (const Item &item : items) p.ops.push_back(p_.ops[item.kind == Act::run ? item.index : moves_[item.index].op]);
  for (const uint32_t id : p_.outputs)
    if (p_.tensors[id].device == device) p.outputs.push_back(id);
  for (Tensor &t : p.tensors) t.first = t.last = -1;
  const auto touch = [&](uint32_t id, int32_t op) {
    if (id == BL_NO_OPERAND) return;
    Tensor &root = p.tensors[p.tensors[id].root];
    if (root.kind != BL_KIND_SCRATCH || root.device != device) return;
    if (root.first < 0) root.first = op;
    root.last = op;
  };
  for (size_t i = 0; i < p.ops.size(); i++) {
    for (const uint32_t id : p.ops[i].src) touch(id, int32_t(i));
    for (const uint32_t id : p.ops[i].dst) touch(id, int32_t(i));
  }
  for (const uint32_t id : p.outputs) touch(id, int32_t(p.ops.size()));
  lay_out_scratch(p);
  parts_.push_back(std::move(part));
}

// Each device goes as far as it can, the later ones first: a card returns at once from what it is given, the host does not.
void Segments::schedule(const std::vector<std::vector<Item>> &items) {
  const size_t n = items.size();
  std::vector<size_t> at(n, 0), given(n, 0);
  std::vector<bool> left(moves_.size(), false);
  const auto run = [&](size_t d) {
    if (given[d] == at[d]) return;
    acts_.push_back({Act::run, uint32_t(d), uint32_t(at[d])});
    given[d] = at[d];
  };
  // True where something left: others may go on.
  const auto advance = [&](size_t d) {
    while (at[d] < items[d].size()) {
      const Item &item = items[d][at[d]];
      if (item.kind == Act::arrive && !left[item.index]) break;
      if (item.kind != Act::run) {
        run(d);
        acts_.push_back({item.kind, uint32_t(d), item.index});
      }
      at[d]++;
      if (item.kind == Act::leave) {
        left[item.index] = true;
        return true;
      }
    }
    run(d);
    return false;
  };
  for (size_t d = n; d-- > 0;)
    if (advance(d)) d = n;
}

uint64_t Segments::buffer_bytes() const {
  uint64_t bytes = 0;
  for (const Move &m : moves_) bytes += m.bytes;
  return bytes;
}

uint64_t Segments::scratch_bytes() const {
  uint64_t bytes = buffer_bytes();
  for (const auto &part : parts_) bytes += part->exec->scratch_bytes();
  return bytes;
}

void Segments::step(const StepInput &input, uint8_t *output, uint64_t mask) {
  try {
    run(input, output, mask);
  } catch (...) {
    // Nothing of a failed step may be under way when the next one begins.
    for (const auto &part : parts_) {
      try {
        part->exec->finish();
      } catch (const Failure &) {
      }
    }
    throw;
  }
}

void Segments::run(const StepInput &input, uint8_t *output, uint64_t mask) {
  for (const auto &part : parts_) part->exec->begin(input);
  for (const Act &act : acts_) {
    Exec &exec = *parts_[act.part]->exec;
    if (act.kind == Act::run) exec.run_to(act.at);
    else if (act.kind == Act::leave) exec.take(moves_[act.at].src, moves_[act.at].rows.get());
    else exec.give(moves_[act.at].dst, moves_[act.at].rows.get());
  }
  for (size_t i = 0; i < p_.outputs.size(); i++) {
    if (((mask >> i) & 1) == 0) continue;
    const uint32_t id = p_.outputs[i];
    parts_[index_of(p_.tensors[id].device)]->exec->take(id, output);
    output += p_.step_rows(id, input.n_tok, input.n_out) * p_.row_bytes(id);
  }
  for (const auto &part : parts_) part->exec->finish();
}

}  // namespace bl
