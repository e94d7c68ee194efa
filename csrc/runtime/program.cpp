// program.cpp: reads the words of a program, infers what each tensor's rows count, and binds weights and caches. The operand rules of
// the ops are in program_ops.cpp, the memory layout in program_layout.cpp.
#include "program.h"

#include <algorithm>

#include "device.h"
#include "program_internal.h"

namespace bl {

const char *op_name(uint32_t code) {
  static const char *const names[] = {"?",
#define BL_NAME(name, ...) #name,
                                      BL_OPS(BL_NAME)
#undef BL_NAME
  };
  return code < BL_OP_COUNT ? names[code] : "?";
}

namespace {

constexpr uint32_t MAX_ROWS = 1u << 20;      // token or output rows, sequences, pages of a sequence
constexpr uint32_t MAX_CACHES = 1u << 10;
constexpr uint32_t MAX_TENSORS = 1u << 20;   // tensors, ops
constexpr uint32_t MAX_OPERANDS = 1u << 16;  // dst, src or params of an op
constexpr uint32_t MAX_OUTPUTS = 64;         // the bits of a step's mask
constexpr uint64_t MAX_ELEMS = 1ull << 40;

class Words {
 public:
  Words(const uint8_t *code, uint64_t n_code) : code_(code), n_(n_code / 4) {
    if (n_code % 4 != 0)
      fail(BL_ERR_PROGRAM, "Cannot read program: it has %llu bytes, expected a multiple of 4", (unsigned long long)n_code);
  }
  uint32_t next(const char *what) {
    if (at_ == n_) fail(BL_ERR_PROGRAM, "Cannot read program: it ends after %llu words, before %s", (unsigned long long)n_, what);
    uint32_t w;
    memcpy(&w, code_ + 4 * at_++, 4);
    return w;
  }
  void need(uint64_t n, const char *what) const {
    if (n > n_ - at_)
      fail(BL_ERR_PROGRAM, "Cannot read program: it ends after %llu words, %s need %llu more", (unsigned long long)n_, what,
           (unsigned long long)(n - (n_ - at_)));
  }
  void end() const {
    if (at_ != n_) fail(BL_ERR_PROGRAM, "Cannot read program: it has %llu words after its outputs", (unsigned long long)(n_ - at_));
  }

 private:
  const uint8_t *code_;
  uint64_t n_, at_ = 0;
};

uint32_t bounded(uint32_t value, uint32_t low, uint32_t high, const char *what) {
  if (value < low || value > high) fail(BL_ERR_PROGRAM, "Cannot read program: %s is %u, expected %u to %u", what, value, low, high);
  return value;
}

void read_input(Program &p, Tensor &t, uint32_t id) {
  const bool derived = t.ref >= BL_INPUT_DERIVED;
  t.rows = t.ref == BL_INPUT_OUT_ROWS || t.ref == BL_INPUT_TARGETS ? Rows::out : Rows::tok;
  split_rows(t, t.rows == Rows::out ? p.n_out : p.n_tok, id);
  settle_packed(t);
  t.row_stride = t.row_elems;
  if (!derived) {
    if (t.type != TYPE_I32 || t.row_elems != 1 || t.limit != 0)
      fail(BL_ERR_PROGRAM, "Cannot read program: input tensor %u is type %u %s with limit %llu, expected i32, one number a row, limit 0", id, t.type,
           shape_text(t.ne).c_str(), (unsigned long long)t.limit);
    return;
  }
  if ((t.type != TYPE_I32 && t.type != TYPE_F32) || (t.type == TYPE_I32) != (t.limit != 0) || t.limit > uint64_t(INT32_MAX) + 1)
    fail(BL_ERR_PROGRAM, "Cannot read program: input tensor %u is type %u with limit %llu, expected f32 with 0 or i32 with 1 to 2^31", id, t.type,
         (unsigned long long)t.limit);
  t.least = -1;
  const size_t index = t.ref - BL_INPUT_DERIVED;
  if (index > p.derived.size())
    fail(BL_ERR_PROGRAM, "Cannot read program: tensor %u is derived input %zu, expected at most %zu here", id, index, p.derived.size());
  const DerivedInput found{t.type, t.row_elems, t.limit};
  if (index == p.derived.size()) p.derived.push_back(found);
  const DerivedInput &known = p.derived[index];
  if (known.type != found.type || known.n != found.n || known.limit != found.limit)
    fail(BL_ERR_PROGRAM, "Cannot read program: tensor %u declares derived input %zu in another way than an earlier one", id, index);
}

void read_tensor(Words &words, Program &p, uint32_t id, const std::vector<const DeviceTensor *> &weights) {
  Tensor t;
  const uint32_t kind = words.next("a tensor");
  t.type = words.next("a tensor");
  bool zero = false, huge = false;
  uint64_t n = 1;
  for (uint64_t &d : t.ne) {
    d = words.next("a tensor");
    zero |= d == 0;
    huge |= d != 0 && n > MAX_ELEMS / d;
    if (!huge) n *= d;
  }
  t.ref = words.next("a tensor");
  t.device = words.next("a tensor");
  t.start = words.next("a tensor");
  for (uint64_t &d : t.nb) d = words.next("a tensor");
  const uint32_t nb3 = words.next("a tensor");
  t.limit = words.next("a tensor");
  t.root = id;
  if (zero || huge)
    fail(BL_ERR_PROGRAM, "Cannot read program: tensor %u has shape %s, expected 1 to 2^40 elements", id, shape_text(t.ne).c_str());
  if (kind != BL_KIND_VIEW && (t.start != 0 || t.nb[0] != 0 || t.nb[1] != 0 || nb3 != 0))
    fail(BL_ERR_PROGRAM, "Cannot read program: tensor %u has an offset or strides and is not a view", id);
  if (kind != BL_KIND_INPUT && t.limit != 0)
    fail(BL_ERR_PROGRAM, "Cannot read program: tensor %u has limit %llu and is not a step input", id, (unsigned long long)t.limit);
  switch (kind) {
    case BL_KIND_SCRATCH:
      if (t.type != TYPE_F32 && t.type != TYPE_I32)
        fail(BL_ERR_PROGRAM, "Cannot read program: scratch tensor %u has type %u, expected f32 or i32", id, t.type);
      break;
    case BL_KIND_WEIGHT: {
      if (t.ref >= weights.size())
        fail(BL_ERR_PROGRAM, "Cannot read program: tensor %u is weight %u of %zu", id, t.ref, weights.size());
      const DeviceTensor &w = *weights[t.ref];
      if (w.type != t.type || memcmp(w.ne, t.ne, sizeof t.ne) != 0 || w.device != t.device)
        fail(BL_ERR_PROGRAM, "Cannot bind weight %u: it is type %u %s on device %u, expected type %u %s on device %u", t.ref, w.type,
             shape_text(w.ne).c_str(), w.device, t.type, shape_text(t.ne).c_str(), t.device);
      t.row_elems = n;
      memcpy(t.dim, t.ne, sizeof t.dim);
      settle_packed(t);
      if (t.type == TYPE_I32) t.least = w.i32_least, t.limit = w.i32_limit;
      break;
    }
    case BL_KIND_INPUT: read_input(p, t, id); break;
    case BL_KIND_VIEW: {
      if (t.ref >= id) fail(BL_ERR_PROGRAM, "Cannot read program: tensor %u views tensor %u, expected an earlier one", id, t.ref);
      const Tensor &of = p.tensors[t.ref];
      if (of.kind != BL_KIND_SCRATCH && of.kind != BL_KIND_INPUT)
        fail(BL_ERR_PROGRAM, "Cannot read program: tensor %u views tensor %u, expected an activation or a step input that is no view", id, t.ref);
      if (of.type != t.type || of.device != t.device)
        fail(BL_ERR_PROGRAM, "Cannot read program: tensor %u of type %u on device %u views tensor %u of type %u on device %u", id, t.type, t.device,
             t.ref, of.type, of.device);
      t.root = t.ref;
      break;
    }
    default:
      fail(BL_ERR_PROGRAM, "Cannot read program: tensor %u has kind %u, expected 0 to 3", id, kind);
  }
  t.kind = bl_tensor_kind(kind);
  p.tensors.push_back(t);
}

Op read_op(Words &words, uint32_t n_tensor, uint32_t index) {
  Op op;
  const uint32_t code = words.next("an op");
  op.device = words.next("an op");
  const uint32_t n_dst = bounded(words.next("an op"), 0, MAX_OPERANDS, "an op's number of results");
  const uint32_t n_src = bounded(words.next("an op"), 0, MAX_OPERANDS, "an op's number of sources");
  const uint32_t n_param = bounded(words.next("an op"), 0, MAX_OPERANDS, "an op's number of parameters");
  const uint32_t zero = words.next("an op");
  if (code == 0 || code >= BL_OP_COUNT)
    fail(BL_ERR_PROGRAM, "Cannot read program: op %u has opcode %u, expected 1 to %d", index, code, BL_OP_COUNT - 1);
  if (zero != 0) fail(BL_ERR_PROGRAM, "Cannot read program: op %u (%s): its sixth word is %u, expected 0", index, op_name(code), zero);
  words.need(uint64_t(n_dst) + n_src + n_param, "an op's operands");
  for (uint32_t i = 0; i < n_dst; i++) op.dst.push_back(words.next("an op"));
  for (uint32_t i = 0; i < n_src; i++) op.src.push_back(words.next("an op"));
  for (uint32_t i = 0; i < n_param; i++) op.param.push_back(words.next("an op"));
  for (const auto *ids : {&op.dst, &op.src})
    for (uint32_t id : *ids)
      if (id >= n_tensor && (ids == &op.dst || id != BL_NO_OPERAND))
        fail(BL_ERR_PROGRAM, "Cannot read program: op %u (%s) names tensor %u of %u", index, op_name(code), id, n_tensor);
  op.code = bl_op(code);
  return op;
}

}  // namespace

void settle_packed(Tensor &t) {
  t.nb[0] = t.dim[0];
  t.nb[1] = t.dim[0] * t.dim[1];
}

// A value's rows are its last axis that is longer than 1: what they count is as long. A bucket of one row has none to take away.
void split_rows(Tensor &t, uint64_t n_rows, uint32_t id) {
  int axis = 3;
  while (n_rows > 1 && axis > 0 && t.ne[axis] == 1) axis--;
  if (t.ne[axis] != n_rows)
    fail(BL_ERR_PROGRAM, "Cannot read program: tensor %u has shape %s, expected a last axis of %llu rows", id, shape_text(t.ne).c_str(),
         (unsigned long long)n_rows);
  for (int i = 0; i < 3; i++) t.dim[i] = i == axis ? 1 : t.ne[i];
  t.row_elems = t.dim[0] * t.dim[1] * t.dim[2];
}

std::string shape_text(const uint64_t *ne) {
  std::string s = "[";
  for (int i = 0; i < 4; i++) s += (i ? ", " : "") + std::to_string(ne[i]);
  return s + "]";
}

std::vector<uint32_t> Program::devices() const {
  std::vector<uint32_t> all;
  for (const Op &op : ops)
    if (all.empty() || all.back() != op.device) all.push_back(op.device);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

Program parse_program(const uint8_t *code, uint64_t n_code, const std::vector<const DeviceTensor *> &weights,
                      const std::vector<const DeviceCache *> &caches) {
  Words words(code, n_code);
  const uint32_t magic = words.next("the header");
  if (magic != BL_PROGRAM_MAGIC) fail(BL_ERR_PROGRAM, "Cannot read program: its first word is 0x%08X, expected 0x%08X", magic, BL_PROGRAM_MAGIC);
  const uint32_t version = words.next("the header");
  if (version != BL_PROGRAM_VERSION) fail(BL_ERR_PROGRAM, "Cannot read program: its version is %u, expected %u", version, BL_PROGRAM_VERSION);
  Program p;
  p.n_tok = bounded(words.next("the header"), 1, MAX_ROWS, "n_tok");
  p.n_out = bounded(words.next("the header"), 1, MAX_ROWS, "n_out");
  p.n_seq = bounded(words.next("the header"), 1, MAX_ROWS, "n_seq");
  const uint32_t n_cache = bounded(words.next("the header"), 0, MAX_CACHES, "n_cache");
  const uint32_t n_tensor = bounded(words.next("the header"), 1, MAX_TENSORS, "n_tensor");
  const uint32_t n_op = bounded(words.next("the header"), 1, MAX_TENSORS, "n_op");
  const uint32_t n_output = bounded(words.next("the header"), 0, MAX_OUTPUTS, "n_output");
  words.need(n_cache + uint64_t(n_tensor) * 13 + uint64_t(n_op) * 6 + n_output, "its caches, tensors and ops");
  if (n_cache != caches.size())
    fail(BL_ERR_PROGRAM, "Cannot bind the program's caches: it has %u, %zu were given", n_cache, caches.size());
  for (uint32_t i = 0; i < n_cache; i++) {
    CacheUse c;
    c.n_page = bounded(words.next("a cache"), 1, MAX_ROWS, "the pages of a sequence");
    c.page_size = caches[i]->shape.page_size;
    c.n_pages = caches[i]->shape.n_pages;
    p.caches.push_back(c);
  }

  p.tensors.reserve(n_tensor);
  for (uint32_t i = 0; i < n_tensor; i++) read_tensor(words, p, i, weights);
  p.ops.reserve(n_op);
  for (uint32_t i = 0; i < n_op; i++) p.ops.push_back(read_op(words, n_tensor, i));
  for (uint32_t i = 0; i < n_output; i++) p.outputs.push_back(words.next("an output"));
  words.end();

  OpChecker checker(p, weights, caches);
  for (uint32_t i = 0; i < n_op; i++) checker.check(i);
  for (uint32_t i = 0; i < n_output; i++) {
    const uint32_t id = p.outputs[i];
    if (id >= n_tensor) fail(BL_ERR_PROGRAM, "Cannot read program: output %u is tensor %u of %u", i, id, n_tensor);
    checker.check_output(i);
  }
  checker.check_caches();
  p.device = p.ops[0].device;
  lay_out_scratch(p);
  return p;
}

}  // namespace bl
