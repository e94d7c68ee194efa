// compiler.cu: op patterns to launches; compiler.h says which.
#include "compiler.h"

#include <algorithm>

#include "attention.h"
#include "elements.h"
#include "experts.h"
#include "matmul_wide.h"
#include "pack.h"
#include "recurrent.h"

namespace bl::cuda {

namespace {

// Whether all vectors of a row kernel begin at 16 bytes.
bool aligned(const RowsArgs &a) {
  const auto whole = [](const float *p, uint64_t step) { return reinterpret_cast<uintptr_t>(p) % 16 == 0 && step % 4 == 0; };
  return a.n % 4 == 0 && whole(a.a, a.a_row) && whole(a.b, a.b_row) && whole(a.residual, 0) && whole(a.w, 0);
}

}  // namespace

Compiler::Compiler(CudaExec &exec, const std::vector<DeviceTensor *> &weights, const std::vector<DeviceCache *> &caches)
    : exec_(exec), device_(exec.device_), p_(exec.program_), weights_(weights), caches_(caches) {}

void Compiler::run() {
  done_.assign(p_.ops.size(), false);
  count_uses();
  const uint32_t device = p_.device;
  exec_.arena_.allocate(device < p_.arena_bytes.size() ? p_.arena_bytes[device] : 0, "a program's scratch");
  place_inputs();
  for (uint32_t i = 0; i < p_.ops.size(); i++)
    if (!done_[i]) emit(i);
  for (const uint32_t id : p_.outputs) exec_.outputs_.push_back(dense(id));
}

// --- tensors and memory ---------------------------------------------------------------------------------------------------------------

uint8_t *Compiler::address(uint32_t id) const {
  const Tensor &t = tensor(id), &root = p_.root(id);
  if (t.kind == BL_KIND_WEIGHT) return weight(id).vector.data();
  if (root.kind == BL_KIND_INPUT) {
    const InputBlock &at = exec_.at_;
    const uint32_t word[] = {at.tokens, at.positions, at.seqs, at.out_rows, at.targets};
    const uint32_t words = root.ref < BL_INPUT_DERIVED ? word[root.ref] : at.derived[root.ref - BL_INPUT_DERIVED];
    return exec_.inputs_.data() + (words + t.start) * 4;
  }
  return exec_.arena_.data() + t.offset;
}

RowCount Compiler::rows_of(uint32_t id, uint64_t n) const {
  const Tensor &t = tensor(id);
  const uint32_t per = uint32_t(t.row_elems / n);
  if (t.rows == Rows::tok) return {&counts()->n_tok, per, per * p_.n_tok};
  if (t.rows == Rows::out) return {&counts()->n_out, per, per * p_.n_out};
  return {&counts()->one, per, per};
}

bool Compiler::whole(uint32_t id) const {
  const Tensor &t = tensor(id);
  return t.kind != BL_KIND_WEIGHT && t.start == 0 && t.dense();
}

bool Compiler::lines(uint32_t id, uint64_t n, uint64_t &step) const {
  const Tensor &t = tensor(id);
  step = t.row_stride;
  if (n == t.row_elems) return t.packed();
  if (n != t.dim[0]) return false;
  // Lines along both axes and from row to row: equally far apart.
  const uint64_t lines1 = t.dim[1], lines2 = t.dim[2];
  if (lines1 * lines2 == 1) return true;
  const uint64_t first = lines1 > 1 ? t.nb[0] : t.nb[1];
  if (lines1 > 1 && lines2 > 1 && t.nb[1] != first * lines1) return false;
  step = first;
  return t.row_stride == first * lines1 * lines2;
}

Operand Compiler::operand(uint32_t id) const {
  const Tensor &t = tensor(id);
  Operand o;
  o.data = at<float>(id);
  if (t.kind == BL_KIND_WEIGHT) {
    o.nb[1] = uint32_t(t.ne[0]), o.nb[2] = uint32_t(t.ne[0] * t.ne[1]);
  } else {
    o.nb[1] = uint32_t(t.nb[0]), o.nb[2] = uint32_t(t.nb[1]), o.row = t.row_stride;
  }
  return o;
}

Result Compiler::result(uint32_t id) const {
  const Tensor &t = tensor(id);
  Result z;
  z.data = at<float>(id);
  for (int i = 0; i < 3; i++) z.ne[i] = uint32_t(t.dim[i]);
  z.nb[1] = uint32_t(t.dim[0]), z.nb[2] = uint32_t(t.dim[0] * t.dim[1]), z.row = t.row_elems;
  return z;
}

uint8_t *Compiler::allocate(uint64_t bytes, const char *what) {
  exec_.extra_.emplace_back(bytes, what);
  return exec_.extra_.back().data();
}

void Compiler::place_inputs() {
  // Attention reads tiles of rows; how many tokens fit a tile depends on the heads of a layer.
  for (const Op &op : p_.ops) {
    if (op.code != BL_OP_ATTENTION) continue;
    const AttentionKind kind = attention_kind_of(op);
    if (kind == AttentionKind::general) continue;
    const uint32_t tokens = attention_tile_tokens(kind, uint32_t(tensor(op.src[BL_SRC_ATTENTION_Q]).dim[1]), op.param[BL_PARAM_ATTENTION_N_HEAD_KV]);
    auto same = [&](const TileList &l) { return l.tokens == tokens; };
    if (std::any_of(exec_.tile_lists_.begin(), exec_.tile_lists_.end(), same)) continue;
    if (exec_.tile_lists_.size() == MAX_TILE_LISTS)
      fail(BL_ERR_UNSUPPORTED, "Cannot compile for cuda: attention has more than %zu kinds of head groups", MAX_TILE_LISTS);
    exec_.tile_lists_.push_back({tokens, std::min(p_.n_tok, p_.n_tok / tokens + p_.n_seq)});
  }
  InputBlock &at = exec_.at_;
  uint64_t words = sizeof(StepCounts) / 4;
  auto take = [&](uint64_t n) {
    const uint64_t first = words;
    words = round_up(words + n, uint64_t(4));
    if (words > UINT32_MAX) fail(BL_ERR_UNSUPPORTED, "Cannot compile for cuda: the step's inputs exceed 2^32 words");
    return uint32_t(first);
  };
  at.tokens = take(p_.n_tok), at.positions = take(p_.n_tok), at.seqs = take(p_.n_tok);
  at.out_rows = take(p_.n_out), at.targets = take(p_.n_out);
  at.runs = take(uint64_t(p_.n_seq) * 2);
  for (const CacheUse &c : p_.caches) at.pages.push_back(take(uint64_t(p_.n_seq) * c.n_page));
  for (const DerivedInput &d : p_.derived) at.derived.push_back(take(p_.n_tok * d.n));
  for (size_t l = 0; l < exec_.tile_lists_.size(); l++) at.tiles[l] = take(uint64_t(exec_.tile_lists_[l].max_tiles) * 3);
  at.words = uint32_t(words);
  exec_.inputs_.allocate(words * 4, "a program's inputs");
  check(cudaHostAlloc(reinterpret_cast<void **>(&exec_.host_inputs_), words * 4, cudaHostAllocDefault), "cudaHostAlloc");
  std::fill(exec_.host_inputs_, exec_.host_inputs_ + words, 0);
}

void Compiler::count_uses() {
  readers_.assign(p_.tensors.size(), {});
  is_output_.assign(p_.tensors.size(), false);
  for (uint32_t i = 0; i < p_.ops.size(); i++) {
    const Op &op = p_.ops[i];
    for (const uint32_t id : op.src)
      if (id != BL_NO_OPERAND) readers_[root(id)].push_back(i);
    if (op.code == BL_OP_MUL_MAT || op.code == BL_OP_MUL_MAT_ID) {
      const uint32_t x = op.src[1];
      wanted_[key_of(x, tensor(x).dim[0], !reads_whole_rows(tensor(op.src[0]).type))]++;
    }
  }
  for (const uint32_t id : p_.outputs) is_output_[root(id)] = true;
}

bool Compiler::only_use(uint32_t id, uint32_t op) const {
  const std::vector<uint32_t> &r = readers_[root(id)];
  return r.size() == 1 && r[0] == op && !is_output_[root(id)];
}

bool Compiler::needs_values(uint32_t id, uint64_t n) const {
  if (is_output_[root(id)]) return true;
  for (const uint32_t i : readers_[root(id)]) {
    const Op &op = p_.ops[i];
    if (op.code != BL_OP_MUL_MAT && op.code != BL_OP_MUL_MAT_ID) return true;
    const uint32_t x = op.src[1];
    if (!same(x, id) || tensor(x).dim[0] != n) return true;  // encoded later, from the values
  }
  return false;
}

const uint8_t *Compiler::dense(uint32_t id) {
  const Tensor &t = tensor(id);
  if (t.kind == BL_KIND_WEIGHT || t.dense()) return address(id);
  ElementArgs args = {};
  args.op = ElementOp::copy, args.x = operand(id), args.z = result(id), args.rows = rows_of(id, t.row_elems);
  args.z.data = reinterpret_cast<float *>(allocate(t.row_elems * p_.bucket_rows(id) * 4, "a slice's copy"));
  push([=](Stream &s) { element_op(args, s); });
  return reinterpret_cast<const uint8_t *>(args.z.data);
}

// --- encodings ------------------------------------------------------------------------------------------------------------------------

// A tensor whose vectors lie at no one distance is copied first: the key then stands for that copy.
Compiler::EncodingKey Compiler::key_of(uint32_t id, uint64_t n, bool bf16) const {
  uint64_t step;
  if (lines(id, n, step)) return {root(id), tensor(id).start, n, step, bf16};
  return {id, ~0ull, n, n, bf16};
}

Compiler::Encoding &Compiler::make_encoding(const EncodingKey &key, uint32_t id) {
  const uint64_t rows = rows_of(id, key.n).max, k = round_up(key.n, uint64_t(SB)), n_sb = ceil_div(key.n, uint64_t(SB));
  const uint64_t values = round_up(rows * k * 2 * (key.bf16 ? 3 : 1), uint64_t(256));
  const uint64_t sums = key.bf16 ? 0 : round_up(rows * n_sb * 64, uint64_t(256)), scales = key.bf16 ? 0 : rows * n_sb * 4;
  const uint64_t bytes = values + sums + scales;
  const auto reuse = free_.find(bytes);
  size_t buffer;
  if (reuse != free_.end()) {
    buffer = reuse->second;
    free_.erase(reuse);
  } else {
    allocate(bytes, "encoded rows");
    buffer = exec_.extra_.size() - 1;
  }
  uint8_t *data = exec_.extra_[buffer].data();
  Encoding e = {};
  e.encoded.values = reinterpret_cast<uint16_t *>(data);
  e.encoded.plane = rows * k;
  if (!key.bf16) {
    e.encoded.sums = reinterpret_cast<uint16_t *>(data + values);
    e.encoded.scale = reinterpret_cast<float *>(data + values + sums);
  }
  e.encoded.k_stride = uint32_t(k), e.encoded.n_sb = uint32_t(n_sb);
  e.buffer = buffer, e.uses_left = wanted_[key];
  return encodings_[key] = e;
}

void Compiler::add_encodings(uint32_t id, uint64_t n, RowsArgs &args) {
  for (const bool bf16 : {false, true}) {
    const EncodingKey key = key_of(id, n, bf16);
    if (wanted_.count(key) == 0) continue;
    (bf16 ? args.bf16 : args.f16) = make_encoding(key, id).encoded;
  }
}

Encoded Compiler::encoded(uint32_t id, bool bf16) {
  const uint64_t n = tensor(id).dim[0];
  const EncodingKey key = key_of(id, n, bf16);
  const auto known = encodings_.find(key);
  if (known != encodings_.end()) return known->second.encoded;
  RowsArgs args = {};
  args.op = RowOp::copy, args.n = uint32_t(n), args.rows = rows_of(id, n), args.a_row = n;
  if (lines(id, n, args.a_row)) args.a = at<float>(id);
  else args.a = reinterpret_cast<const float *>(dense(id)), args.a_row = n;
  args.unaligned = !aligned(args);
  const Encoded e = make_encoding(key, id).encoded;
  (bf16 ? args.bf16 : args.f16) = e;
  push([=](Stream &s) { row_op(args, s); });
  return e;
}

void Compiler::used_encoding(uint32_t id, bool bf16, uint32_t times) {
  const auto known = encodings_.find(key_of(id, tensor(id).dim[0], bf16));
  known->second.uses_left -= times;
  if (known->second.uses_left > 0) return;
  const size_t buffer = known->second.buffer;
  free_.insert({exec_.extra_[buffer].bytes(), buffer});
  encodings_.erase(known);
}

// --- ops ------------------------------------------------------------------------------------------------------------------------------

void Compiler::emit(uint32_t i) {
  const Op &op = p_.ops[i];
  switch (op.code) {
    case BL_OP_NORM:
    case BL_OP_ROPE:
    case BL_OP_STREAM_WRITE:
      if (emit_heads(i) || emit_rows(i)) return;
      break;
    case BL_OP_GET_ROWS:
    case BL_OP_ADD:
    case BL_OP_GATE:
    case BL_OP_MIX:
      if (emit_rows(i)) return;
      break;
    default: break;
  }
  done_[i] = true;
  switch (op.code) {
    case BL_OP_GET_ROWS: return emit_table(op);
    case BL_OP_NORM:
    case BL_OP_SOFTMAX:
    case BL_OP_DOT: return emit_line(op);
    case BL_OP_ADD:
    case BL_OP_MUL:
    case BL_OP_UNARY:
    case BL_OP_GATE:
    case BL_OP_COPY: return p_.crosses(op) ? emit_crossing(i) : emit_elements(op);
    case BL_OP_MUL_MAT: return tensor(op.src[0]).ne[2] > 1 ? emit_routed(i) : emit_products(i);
    case BL_OP_MUL_MAT_ID: return emit_routed(i);
    case BL_OP_ATTENTION: return emit_attention(i);
    case BL_OP_INDEX: return emit_index(op);
    case BL_OP_POOL: return emit_pool(op);
    case BL_OP_ROUTER: return emit_router(op);
    case BL_OP_MIX: return emit_mix(op);
    case BL_OP_CONCAT: return emit_concat(op);
    case BL_OP_CONV: return emit_conv(op);
    case BL_OP_DELTA: return emit_delta(op);
    case BL_OP_SINKHORN: return emit_sinkhorn(op);
    case BL_OP_TOP_K: return emit_top_k(op);
    case BL_OP_TARGET_LOGPROB: return emit_target_logprob(op);
    case BL_OP_ROPE:
    case BL_OP_STREAM_WRITE:
    case BL_OP_SQUARES:  // the engine refuses to collect on a card before anything is loaded
    case BL_OP_COUNT: break;
  }
  fail(BL_ERR_UNSUPPORTED, "Cannot compile for cuda: op %u (%s) has no kernel", i, op_name(op.code));
}

// A value leaves or arrives between two graphs.
void Compiler::emit_crossing(uint32_t i) {
  const Op &op = p_.ops[i];
  if (op.device != p_.device) exec_.leaving_[op.src[0]] = dense(op.src[0]);
  exec_.cuts_.push_back({i, exec_.launches_.size()});
}

bool Compiler::is_rms(uint32_t i) const {
  if (!is_op(i, BL_OP_NORM)) return false;
  const Op &op = p_.ops[i];
  return op.param[BL_PARAM_NORM_KIND] == BL_NORM_RMS && !op.has(BL_SRC_NORM_B) &&
         (!op.has(BL_SRC_NORM_W) || tensor(op.src[BL_SRC_NORM_W]).ne[1] == 1);
}

// Row work from op i on: a sum or a choice of rows, then perhaps a residual, then perhaps a norm.
bool Compiler::emit_rows(uint32_t i) {
  const Op *op = &p_.ops[i];
  uint32_t result = op->dst[0];
  const Tensor &y = tensor(result);
  // Vectors as products read them: whole rows where they do that.
  uint64_t n = y.dim[0];
  if (op->code == BL_OP_GATE || op->code == BL_OP_GET_ROWS) {
    const auto wants = [&](uint64_t size) { return wanted_.count({root(result), 0, size, size, false}) + wanted_.count({root(result), 0, size, size, true}) > 0; };
    if (op->code == BL_OP_GET_ROWS || (!wants(n) && wants(y.row_elems))) n = y.row_elems;
  }
  RowsArgs args = {};
  args.op = RowOp::copy, args.n = uint32_t(n), args.rows = rows_of(result, n);
  uint32_t last = i;
  bool summed = false;  // args.sum takes what enters the norm
  switch (op->code) {
    case BL_OP_NORM:
      if (!is_rms(i) || !lines(op->src[0], n, args.a_row)) return false;
      args.op = RowOp::norm, args.w = optional(*op, BL_SRC_NORM_W), args.eps = op->param_f32(BL_PARAM_NORM_EPS);
      break;
    case BL_OP_GATE:
      if (!lines(op->src[0], n, args.a_row) || !lines(op->src[1], n, args.b_row)) return false;
      args.op = op->param[BL_PARAM_GATE_KIND] == BL_GATE_SILU ? RowOp::silu_mul : RowOp::gate;
      args.gate_kind = op->param[BL_PARAM_GATE_KIND], args.gate_a = op->param_f32(BL_PARAM_GATE_A), args.gate_b = op->param_f32(BL_PARAM_GATE_B);
      args.b = at<float>(op->src[1]);
      break;
    case BL_OP_ADD: {
      const Tensor &a = tensor(op->src[0]), &b = tensor(op->src[1]);
      if (!lines(op->src[0], n, args.a_row) || memcmp(a.dim, y.dim, sizeof a.dim) != 0) return false;
      if (b.kind == BL_KIND_WEIGHT) {
        if (b.dim[0] != n || b.dim[1] != 1 || b.dim[2] != 1) return false;
      } else if (memcmp(b.dim, y.dim, sizeof b.dim) != 0 || !lines(op->src[1], n, args.b_row)) {
        return false;
      }
      args.op = RowOp::add, args.b = at<float>(op->src[1]);
      summed = true;
      break;
    }
    case BL_OP_GET_ROWS:
      if (tensor(op->src[0]).kind == BL_KIND_WEIGHT) return false;
      if (lines(op->src[0], n, args.a_row)) args.a = at<float>(op->src[0]);
      else args.a = reinterpret_cast<const float *>(dense(op->src[0])), args.a_row = n;
      args.gather = at<int32_t>(op->src[1]);
      summed = !only_use(result, i + 1);
      break;
    case BL_OP_MIX: {  // of experts
      const Tensor &x = tensor(op->src[0]), &w = tensor(op->src[1]);
      if (w.kind == BL_KIND_WEIGHT || w.dim[1] != 1 || !w.dense() || !x.dense()) return false;
      args.b = at<float>(op->src[1]), args.n_expert_used = uint32_t(x.dim[1]);
      summed = true;
      if (is_op(i + 1, BL_OP_ADD) && only_use(result, i + 1) && tensor(p_.ops[i + 1].dst[0]).row_elems == n) {
        const Op &add = p_.ops[i + 1];  // only a residual that stands first, as a + b rounds the same either way
        const bool first = root(add.src[0]) == root(result);
        const uint32_t mixed = first ? add.src[0] : add.src[1], other = first ? add.src[1] : add.src[0];
        const Tensor &o = tensor(other);
        if (o.kind != BL_KIND_WEIGHT && same(mixed, result) && root(other) != root(result) && o.dense() && o.row_elems == n && made(other)) {
          args.residual = at<float>(other);
          result = add.dst[0], last = i + 1;
        }
      }
      break;
    }
    default: return false;
  }
  if (args.a == nullptr) args.a = at<float>(op->src[0]);
  // A norm of the whole rows right behind.
  if (op->code != BL_OP_NORM && op->code != BL_OP_GATE && is_rms(last + 1)) {
    const Op &norm = p_.ops[last + 1];
    const bool fits = same(norm.src[0], result) && tensor(norm.dst[0]).dim[0] == n && !(op->code == BL_OP_GET_ROWS && summed);
    if (fits) {
      const bool keep = summed && (is_output_[root(result)] || readers_[root(result)].size() > 1);
      args.op = op->code == BL_OP_GET_ROWS ? RowOp::norm : RowOp::add_norm;
      args.sum = keep ? at<float>(result) : nullptr;
      args.w = optional(norm, BL_SRC_NORM_W), args.eps = norm.param_f32(BL_PARAM_NORM_EPS);
      result = norm.dst[0], last++;
    }
  }
  for (uint32_t j = i; j <= last; j++) done_[j] = true;
  args.unaligned = !aligned(args);
  if (needs_values(result, n)) args.y = at<float>(result);
  add_encodings(result, n, args);
  if (args.y == nullptr && args.sum == nullptr && args.f16.values == nullptr && args.bf16.values == nullptr) return true;  // nobody reads it
  push([=](Stream &s) { row_op(args, s); });
  return true;
}

// ROPE at i, or a norm over heads at i whose only reader is the ROPE behind it.
bool Compiler::head_rope(uint32_t i, HeadJob &job, uint32_t &n_op, uint32_t &result) const {
  job = {};
  n_op = 0;
  if (i >= p_.ops.size() || (p_.ops[i].code != BL_OP_NORM && p_.ops[i].code != BL_OP_ROPE) || !made(p_.ops[i].src[0])) return false;
  uint32_t at_op = i;
  const uint32_t x = p_.ops[i].src[0];
  if (is_rms(i)) {
    const Op &norm = p_.ops[i];
    if (!norm.has(BL_SRC_NORM_W) || !is_op(i + 1, BL_OP_ROPE)) return false;
    const uint32_t turned = p_.ops[i + 1].src[0];
    if (!same(turned, norm.dst[0]) || !only_use(norm.dst[0], i + 1) || memcmp(tensor(x).dim, tensor(turned).dim, sizeof tensor(x).dim) != 0) return false;
    job.norm = at<float>(norm.src[BL_SRC_NORM_W]), job.eps = norm.param_f32(BL_PARAM_NORM_EPS);
    at_op = i + 1, n_op = 1;
  }
  if (!is_op(at_op, BL_OP_ROPE)) return false;
  const Op &rope = p_.ops[at_op];
  const Tensor &shape = tensor(x);
  job.x = at<float>(x), job.x_head = shape.nb[0], job.x_row = shape.row_stride;
  job.head_dim = uint32_t(shape.dim[0]), job.n_head = uint32_t(shape.dim[1]);
  job.inv_freq = at<float>(rope.src[BL_SRC_ROPE_INV_FREQ]);
  job.rope_kind = rope.param[BL_PARAM_ROPE_KIND], job.n_rot = rope.param[BL_PARAM_ROPE_N_ROT], job.offset = rope.param[BL_PARAM_ROPE_OFFSET];
  job.inverse = rope.param[BL_PARAM_ROPE_INVERSE] != 0, job.shift = int32_t(rope.param[BL_PARAM_ROPE_SHIFT]);
  job.mscale = rope.param_f32(BL_PARAM_ROPE_MSCALE);
  n_op++;
  result = rope.dst[0];
  return true;
}

// A STREAM_WRITE alone: its row as heads that a warp each may copy.
HeadJob Compiler::write_job(const Op &op) const {
  const uint32_t x = op.src[BL_SRC_STREAM_WRITE_X];
  const Tensor &t = tensor(x);
  HeadJob job = {};
  job.cache = cache(op.param[BL_PARAM_STREAM_WRITE_CACHE]).stream(op.param[BL_PARAM_STREAM_WRITE_STREAM]);
  job.table = pages(op.param[BL_PARAM_STREAM_WRITE_CACHE]);
  job.x = at<float>(x), job.x_row = t.row_stride;
  job.head_dim = uint32_t(t.dim[0]), job.n_head = uint32_t(t.dim[1]), job.x_head = t.nb[0];
  if (t.packed()) {
    const uint32_t n = uint32_t(t.row_elems);
    uint32_t d = n;
    for (const uint32_t size : {128u, 96u, 64u, 32u})
      if (n > size && n % size == 0 && d == n) d = size;
    job.head_dim = d, job.n_head = n / d, job.x_head = d;
  }
  return job;
}

bool Compiler::emit_heads(uint32_t i) {
  HeadsArgs args = {};
  uint32_t results[MAX_HEAD_JOBS];  // of jobs that rotate; NO_RESULT for those that write alone
  constexpr uint32_t NO_RESULT = UINT32_MAX;
  args.positions = input(exec_.at_.positions), args.seqs = input(exec_.at_.seqs), args.rows = token_rows();
  // Rotations and cache writes that follow each other, and do not read each other's results but for a write of one.
  uint32_t next = i, n_op, result;
  HeadJob job;
  const auto mine = [&](uint32_t id) {
    for (uint32_t j = 0; j < args.n_job; j++)
      if (results[j] != NO_RESULT && root(results[j]) == root(id)) return true;
    return false;
  };
  for (;;) {
    while (next < p_.ops.size() && done_[next]) next++;  // products that were taken earlier
    if (next >= p_.ops.size() || next > i + FUSE_WINDOW) break;
    const Op &op = p_.ops[next];
    if (is_op(next, BL_OP_STREAM_WRITE)) {
      const uint32_t x = op.src[BL_SRC_STREAM_WRITE_X];
      job = write_job(op);
      uint32_t j = 0;
      while (j < args.n_job && !(results[j] != NO_RESULT && args.job[j].cache.base == nullptr && same(x, results[j]) &&
                                 (job.cache.type != TYPE_Q8_0 || args.job[j].head_dim % 32 == 0)))
        j++;
      if (j < args.n_job) {
        args.job[j].cache = job.cache, args.job[j].table = job.table;
        if (only_use(x, next)) args.job[j].y = nullptr;
      } else {
        if (args.n_job == MAX_HEAD_JOBS || mine(x) || !made(x)) break;
        if (!tensor(x).packed() && (tensor(x).dim[2] > 1 || (job.cache.type == TYPE_Q8_0 && job.head_dim % 32 != 0))) {
          if (args.n_job > 0) break;
          const Tensor &t = tensor(x);  // a slice whose heads no warp can write: copied first
          job.x = reinterpret_cast<const float *>(dense(x)), job.x_row = t.row_elems, job.n_head = 1;
          job.head_dim = uint32_t(t.row_elems), job.x_head = t.row_elems;
        }
        results[args.n_job] = NO_RESULT;
        args.job[args.n_job++] = job;
      }
      done_[next++] = true;
      continue;
    }
    if (args.n_job == MAX_HEAD_JOBS || mine(op.src[0]) || !head_rope(next, job, n_op, result) || next + n_op - 1 > i + FUSE_WINDOW) break;
    job.y = at<float>(result);
    results[args.n_job] = result;
    args.job[args.n_job++] = job;
    for (uint32_t j = 0; j < n_op; j++) done_[next++] = true;
  }
  if (args.n_job == 0) return false;
  push([=](Stream &s) { heads_op(args, s); });
  return true;
}

void Compiler::emit_products(uint32_t i) {
  const Op &op = p_.ops[i];
  const uint32_t x = op.src[1];
  const uint64_t n = tensor(x).dim[0];
  const bool bf16 = !reads_whole_rows(tensor(op.src[0]).type);
  const EncodingKey key = key_of(x, n, bf16);
  MatmulArgs args = {};
  args.n_in = uint32_t(n), args.x = encoded(x, bf16), args.rows = rows_of(x, n);
  for (uint32_t j = i; j <= i + FUSE_WINDOW && j < p_.ops.size() && args.n_part < MAX_PARTS; j++) {
    const Op &o = p_.ops[j];
    if (o.code != BL_OP_MUL_MAT || (j != i && done_[j])) continue;
    const Tensor &w = tensor(o.src[0]);
    if (w.ne[2] > 1 || reads_whole_rows(w.type) == bf16 || !(key_of(o.src[1], n, bf16) == key) || tensor(o.src[1]).dim[0] != n) continue;
    args.part[args.n_part++] = matmul_part(weight(o.src[0]).packed.data(), at<float>(o.dst[0]), w.type, uint32_t(w.ne[1]), 0);
    done_[j] = true;
  }
  launch_products(args);
  used_encoding(x, bf16, args.n_part);
}

// One launch, or one per type where the kernel takes one type.
void Compiler::launch_products(const MatmulArgs &args) {
  const uint32_t n_sm = device_.n_sm();
  const bool few = args.ids != nullptr ? args.tiles == nullptr : args.rows.max <= FEW_ROWS;
  std::vector<bool> taken(args.n_part, false);
  for (uint32_t i = 0; i < args.n_part; i++) {
    if (taken[i]) continue;
    MatmulArgs one = args;
    one.n_part = 0;
    for (uint32_t j = i; j < args.n_part; j++) {
      const uint32_t a = args.part[i].type, b = args.part[j].type;
      if (!taken[j] && (few ? few_together(a, b) : a == b)) one.part[one.n_part++] = args.part[j], taken[j] = true;
    }
    if (few) push([=](Stream &s) { matmul_few(one, n_sm, s); });
    else if (one.ids == nullptr && one.rows.max >= WIDE_FROM && takes_wide(one.part[0]) && has_wgmma()) push([=](Stream &s) { matmul_wide(one, s); });
    else push([=](Stream &s) { matmul_many(one, s); });
  }
}

// Pairs (head, row) of a weight that has a matrix for each head: head h is expert h.
const int32_t *Compiler::heads_as_experts(uint32_t n_head, uint32_t rows) {
  const int32_t *&known = head_ids_[n_head];
  if (known != nullptr) return known;
  std::vector<int32_t> ids(size_t(n_head) * rows);
  for (size_t i = 0; i < ids.size(); i++) ids[i] = int32_t(i % n_head);
  uint8_t *on_card = allocate(ids.size() * 4, "heads as experts");
  check(cudaMemcpy(on_card, ids.data(), ids.size() * 4, cudaMemcpyHostToDevice), "cudaMemcpy");
  return known = reinterpret_cast<const int32_t *>(on_card);
}

void Compiler::emit_routed(uint32_t i) {
  const Op &op = p_.ops[i];
  const uint32_t x = op.src[1];
  const uint64_t n = tensor(x).dim[0];
  const Tensor &first = tensor(op.src[0]);
  const bool bf16 = !reads_whole_rows(first.type), by_head = op.code == BL_OP_MUL_MAT;
  const uint32_t n_expert = uint32_t(first.ne[2]), ids = by_head ? BL_NO_OPERAND : op.src[2];
  const EncodingKey key = key_of(x, n, bf16);
  MatmulArgs args = {};
  args.n_in = uint32_t(n), args.x = encoded(x, bf16);
  uint64_t routing;  // names the ids
  if (by_head) {
    const RowCount rows = rows_of(x, n);
    args.ids = heads_as_experts(n_expert, std::max(p_.n_tok, p_.n_out)), args.rows = rows, args.pairs_per_x = 1;
    routing = 1ull << 32 | n_expert;
  } else {
    args.ids = reinterpret_cast<const int32_t *>(dense(ids)), args.rows = rows_of(ids, 1);
    args.pairs_per_x = uint32_t(tensor(ids).dim[0] / tensor(x).dim[1]);
    routing = whole(ids) ? root(ids) : 2ull << 32 | ids;
  }
  for (uint32_t j = i; j <= i + FUSE_WINDOW && j < p_.ops.size() && args.n_part < MAX_PARTS; j++) {
    const Op &o = p_.ops[j];
    if (o.code != op.code || (j != i && done_[j])) continue;
    const Tensor &w = tensor(o.src[0]);
    if (!(key_of(o.src[1], n, bf16) == key) || tensor(o.src[1]).dim[1] != tensor(x).dim[1] || reads_whole_rows(w.type) == bf16) continue;
    if (w.ne[2] != n_expert || (!by_head && o.src[2] != ids && !same(o.src[2], ids))) continue;
    const CudaTensor &weights = weight(o.src[0]);
    args.part[args.n_part++] = matmul_part(weights.packed.data(), at<float>(o.dst[0]), w.type, uint32_t(w.ne[1]), weights.matrix_bytes);
    done_[j] = true;
  }
  // Rows of few tokens meet a matrix of their own each: nothing would share a tile.
  if (args.rows.max > (by_head ? std::max(FEW_PAIRS, 2 * n_expert) : FEW_PAIRS)) group(args, n_expert, bf16, routing);
  launch_products(args);
  used_encoding(x, bf16, args.n_part);
}

// Has the pairs ordered by expert. One set of buffers serves all layers: sized for every pair its own tile.
void Compiler::group(MatmulArgs &args, uint32_t n_expert, bool bf16, uint64_t routing) {
  const uint32_t pairs = args.rows.max, columns = expert_tile_columns(pairs, n_expert, bf16);
  if (group_pairs_ < pairs) {
    group_ = allocate(256 + round_up(uint64_t(pairs) * 4, uint64_t(256)) + (uint64_t(pairs) + 1) * sizeof(ExpertTile), "grouped rows");
    group_pairs_ = pairs, grouped_ = ~0ull;
  }
  args.n_tiles = reinterpret_cast<int32_t *>(group_);
  args.order = reinterpret_cast<int32_t *>(group_ + 256);
  args.tiles = reinterpret_cast<ExpertTile *>(group_ + 256 + round_up(group_pairs_ * 4, uint64_t(256)));
  args.max_tiles = group_max_tiles(pairs, n_expert, columns), args.tile_columns = columns;
  if (grouped_ == routing && grouped_columns_ == columns) return;
  GroupArgs g = {};
  g.ids = args.ids, g.pairs = args.rows, g.n_expert = n_expert, g.tile_columns = columns;
  g.order = const_cast<int32_t *>(args.order), g.tiles = const_cast<ExpertTile *>(args.tiles), g.n_tiles = const_cast<int32_t *>(args.n_tiles);
  push([=](Stream &s) { group_by_expert(g, s); });
  grouped_ = routing, grouped_columns_ = columns;
}

// What runs on tensor cores: one segment with a row for every position, no lists, no look ahead.
AttentionKind Compiler::attention_kind_of(const Op &op) const {
  const Tensor &q = tensor(op.src[BL_SRC_ATTENTION_Q]), &y = tensor(op.dst[0]);
  const uint32_t c = op.param[BL_PARAM_ATTENTION_A_CACHE], k = op.param[BL_PARAM_ATTENTION_A_K], v = op.param[BL_PARAM_ATTENTION_A_V];
  const bool plain = op.param[BL_PARAM_ATTENTION_B_CACHE] == BL_NONE && !op.has(BL_SRC_ATTENTION_SELECT_A) && op.param[BL_PARAM_ATTENTION_AHEAD] == 0 && q.dense() &&
                     (k != v || op.param[BL_PARAM_ATTENTION_N_HEAD_KV] == 1);
  if (!plain) return AttentionKind::general;
  const uint32_t n_chunk = uint32_t(ceil_div(uint64_t(p_.caches[c].n_page) * p_.caches[c].page_size, uint64_t(CHUNK_KEYS)));
  return attention_kind(cache(c).stream(k), cache(c).stream(v), uint32_t(q.dim[0]), uint32_t(y.dim[0]), p_.n_tok,
                        attention_state_bytes(p_.n_tok, uint32_t(q.dim[1]), uint32_t(y.dim[0]), n_chunk));
}

void Compiler::emit_attention(uint32_t i) {
  const Op &op = p_.ops[i];
  const AttentionKind kind = attention_kind_of(op);
  if (kind == AttentionKind::general) return emit_general_attention(op);
  const uint32_t c = op.param[BL_PARAM_ATTENTION_A_CACHE];
  const uint32_t q_id = op.src[BL_SRC_ATTENTION_Q], y_id = op.dst[0];
  const Tensor &q = tensor(q_id), &y = tensor(y_id);
  const CachePages table = pages(c);
  AttentionArgs args = {};
  args.q = at<float>(q_id), args.y = at<float>(y_id), args.sinks = optional(op, BL_SRC_ATTENTION_SINKS);
  args.k = cache(c).stream(op.param[BL_PARAM_ATTENTION_A_K]), args.v = cache(c).stream(op.param[BL_PARAM_ATTENTION_A_V]);
  args.n_head = uint32_t(q.dim[1]), args.n_head_kv = op.param[BL_PARAM_ATTENTION_N_HEAD_KV];
  args.head_dim_k = uint32_t(q.dim[0]), args.head_dim_v = uint32_t(y.dim[0]);
  args.scale = op.param_f32(BL_PARAM_ATTENTION_SCALE), args.softcap = op.param_f32(BL_PARAM_ATTENTION_SOFTCAP);
  args.window = op.param[BL_PARAM_ATTENTION_A_WINDOW];
  args.positions = input(exec_.at_.positions), args.seqs = input(exec_.at_.seqs), args.pages = table.pages;
  args.n_page = table.n_page, args.page_size = table.page_size;
  args.rows = token_rows();
  args.n_chunk = uint32_t(ceil_div(uint64_t(table.n_page) * table.page_size, uint64_t(CHUNK_KEYS)));
  const uint32_t tokens = attention_tile_tokens(kind, args.n_head, args.n_head_kv);
  for (size_t l = 0; l < exec_.tile_lists_.size(); l++) {
    if (exec_.tile_lists_[l].tokens != tokens) continue;
    args.tiles = reinterpret_cast<const AttentionTile *>(input(exec_.at_.tiles[l]));
    args.n_tiles = &counts()->n_tile[l];
    args.max_tiles = exec_.tile_lists_[l].max_tiles;
  }
  if (kind == AttentionKind::split) {
    const uint64_t state_bytes = attention_state_bytes(p_.n_tok, args.n_head, args.head_dim_v, args.n_chunk);
    if (states_bytes_ < state_bytes) states_ = allocate(state_bytes, "attention states"), states_bytes_ = state_bytes;
    args.states = reinterpret_cast<float *>(states_);
    const uint64_t n = uint64_t(args.n_head) * args.head_dim_v;
    if (attention_encodes(args.n_head, args.head_dim_v)) {
      for (const bool bf16 : {false, true}) {
        const EncodingKey key{root(y_id), 0, n, n, bf16};
        if (wanted_.count(key) != 0) (bf16 ? args.bf16 : args.f16) = make_encoding(key, y_id).encoded;
      }
      if (!needs_values(y_id, n)) args.y = nullptr;
    }
  }
  push([=](Stream &s) { attention(args, kind, s); });
}

}  // namespace bl::cuda
