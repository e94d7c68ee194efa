// program.cpp: reads the words of a program, infers what each tensor's rows count, and binds weights and caches. The operand rules of
// the ops are in program_ops.cpp, the memory layout in program_layout.cpp.
#include "program.h"

#include "device.h"
#include "program_internal.h"

namespace bl {

const char *op_name(uint32_t code) {
  static const char *const names[] = {"?",      "EMBED_ROWS", "RMS_NORM",    "ADD",        "MUL_MAT",  "SILU_MUL", "ROPE",          "KV_WRITE",
                                      "ATTENTION", "ROUTER",  "MUL_MAT_ID", "EXPERT_SUM", "GET_ROWS", "TOP_K",    "TARGET_LOGPROB"};
  return code < sizeof names / sizeof *names ? names[code] : "?";
}

namespace {

constexpr uint32_t MAX_ROWS = 1u << 20;      // token or output rows, sequences, pages of a sequence
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
  t.root = id;
  if (zero || huge)
    fail(BL_ERR_PROGRAM, "Cannot read program: tensor %u has shape %s, expected 1 to 2^40 elements", id, shape_text(t.ne).c_str());
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
      break;
    }
    case BL_KIND_INPUT: {
      if (t.ref > BL_INPUT_TARGETS) fail(BL_ERR_PROGRAM, "Cannot read program: tensor %u is input %u, expected 0 to 4", id, t.ref);
      t.rows = t.ref == BL_INPUT_OUT_ROWS || t.ref == BL_INPUT_TARGETS ? Rows::out : Rows::tok;
      const uint64_t rows = t.rows == Rows::out ? p.n_out : p.n_tok;
      if (t.type != TYPE_I32 || t.ne[0] != rows || n != rows)
        fail(BL_ERR_PROGRAM, "Cannot read program: input tensor %u is type %u %s, expected i32 [%llu, 1, 1, 1]", id, t.type,
             shape_text(t.ne).c_str(), (unsigned long long)rows);
      t.row_elems = 1;
      break;
    }
    case BL_KIND_VIEW: {
      if (t.ref >= id) fail(BL_ERR_PROGRAM, "Cannot read program: tensor %u views tensor %u, expected an earlier one", id, t.ref);
      const Tensor &of = p.tensors[t.ref];
      if (of.kind == BL_KIND_WEIGHT || of.kind == BL_KIND_INPUT)
        fail(BL_ERR_PROGRAM, "Cannot read program: tensor %u views tensor %u, which is not scratch", id, t.ref);
      if (of.type != t.type || of.elems() != n || of.device != t.device)
        fail(BL_ERR_PROGRAM, "Cannot read program: tensor %u %s of type %u views tensor %u %s of type %u", id, shape_text(t.ne).c_str(), t.type,
             t.ref, shape_text(of.ne).c_str(), of.type);
      t.root = of.root;
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
  if (code < BL_OP_EMBED_ROWS || code > BL_OP_TARGET_LOGPROB)
    fail(BL_ERR_PROGRAM, "Cannot read program: op %u has opcode %u, expected %d to %d", index, code, BL_OP_EMBED_ROWS, BL_OP_TARGET_LOGPROB);
  if (zero != 0) fail(BL_ERR_PROGRAM, "Cannot read program: op %u (%s): its sixth word is %u, expected 0", index, op_name(code), zero);
  words.need(uint64_t(n_dst) + n_src + n_param, "an op's operands");
  for (uint32_t i = 0; i < n_dst; i++) op.dst.push_back(words.next("an op"));
  for (uint32_t i = 0; i < n_src; i++) op.src.push_back(words.next("an op"));
  for (uint32_t i = 0; i < n_param; i++) op.param.push_back(words.next("an op"));
  for (const auto *ids : {&op.dst, &op.src})
    for (uint32_t id : *ids)
      if (id >= n_tensor)
        fail(BL_ERR_PROGRAM, "Cannot read program: op %u (%s) names tensor %u of %u", index, op_name(code), id, n_tensor);
  op.code = bl_op(code);
  return op;
}

}  // namespace

std::string shape_text(const uint64_t *ne) {
  std::string s = "[";
  for (int i = 0; i < 4; i++) s += (i ? ", " : "") + std::to_string(ne[i]);
  return s + "]";
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
  p.n_page = bounded(words.next("the header"), 0, MAX_ROWS, "n_page");
  const uint32_t n_tensor = bounded(words.next("the header"), 1, MAX_TENSORS, "n_tensor");
  const uint32_t n_op = bounded(words.next("the header"), 1, MAX_TENSORS, "n_op");
  const uint32_t n_output = bounded(words.next("the header"), 0, MAX_OUTPUTS, "n_output");
  words.need(uint64_t(n_tensor) * 8 + uint64_t(n_op) * 6 + n_output, "its tensors and ops");

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
  lay_out_scratch(p);
  return p;
}

}  // namespace bl
