// compiler.cu: op patterns to launches; compiler.h says which.
#include "compiler.h"

#include <algorithm>

#include "attention.h"
#include "experts.h"
#include "logits.h"
#include "pack.h"

namespace bl::cuda {

Compiler::Compiler(CudaExec &exec, const std::vector<DeviceTensor *> &weights, const std::vector<DeviceCache *> &caches)
    : exec_(exec), device_(exec.device_), p_(exec.program_), weights_(weights), caches_(caches) {}

void Compiler::run() {
  done_.assign(p_.ops.size(), false);
  count_uses();
  const uint32_t device = p_.ops[0].device;
  exec_.arena_.allocate(device < p_.arena_bytes.size() ? p_.arena_bytes[device] : 0, "a program's scratch");
  place_inputs();
  for (uint32_t i = 0; i < p_.ops.size(); i++)
    if (!done_[i]) emit(i);
  for (const uint32_t id : p_.outputs) exec_.outputs_.push_back(address(id));
}

// --- tensors and memory ---------------------------------------------------------------------------------------------------------------

uint8_t *Compiler::address(uint32_t id) const {
  const Tensor &t = tensor(id);
  if (t.kind == BL_KIND_WEIGHT) return weight(id).vector.data();
  if (t.kind == BL_KIND_INPUT) {
    const InputBlock &at = exec_.at_;
    const uint32_t word[] = {at.tokens, at.positions, at.seqs, at.out_rows, at.targets};
    return exec_.inputs_.data() + uint64_t(word[t.ref]) * 4;
  }
  return exec_.arena_.data() + t.offset;
}

RowCount Compiler::rows_of(uint32_t id, uint64_t n) const {
  const Tensor &t = tensor(id);
  const StepCounts *counts = exec_.inputs_.as<StepCounts>();
  const uint32_t per = uint32_t(t.row_elems / n);
  if (t.rows == Rows::tok) return {&counts->n_tok, per, per * p_.n_tok};
  if (t.rows == Rows::out) return {&counts->n_out, per, per * p_.n_out};
  return {&counts->one, per, per};
}

uint8_t *Compiler::allocate(uint64_t bytes, const char *what) {
  exec_.extra_.emplace_back(bytes, what);
  return exec_.extra_.back().data();
}

void Compiler::place_inputs() {
  // Attention reads tiles of rows; how many tokens fit a tile depends on the heads of a layer.
  for (const Op &op : p_.ops) {
    if (op.code != BL_OP_ATTENTION) continue;
    const CudaCache &cache = *static_cast<const CudaCache *>(caches_[op.param[ATT_CACHE]]);
    const Tensor &q = tensor(op.src[0]), &y = tensor(op.dst[0]);
    const uint32_t n_chunk = uint32_t(ceil_div(uint64_t(p_.n_page) * p_.page_size, uint64_t(CHUNK_KEYS)));
    const AttentionKind kind = attention_kind(cache.stream(op.param[ATT_K_STREAM]), cache.stream(op.param[ATT_V_STREAM]), uint32_t(q.ne[0]),
                                              uint32_t(y.ne[0]), p_.n_tok,
                                              attention_state_bytes(p_.n_tok, uint32_t(q.ne[1]), uint32_t(y.ne[0]), n_chunk));
    if (kind == AttentionKind::exact) continue;
    const uint32_t tokens = attention_tile_tokens(kind, uint32_t(q.ne[1]), op.param[ATT_N_HEAD_KV]);
    auto same = [&](const TileList &l) { return l.tokens == tokens; };
    if (std::any_of(exec_.tile_lists_.begin(), exec_.tile_lists_.end(), same)) continue;
    if (exec_.tile_lists_.size() == 2)
      fail(BL_ERR_UNSUPPORTED, "Cannot compile for cuda: attention has more than two kinds of head groups");
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
  at.pages = take(uint64_t(p_.n_seq) * p_.n_page), at.order = take(p_.n_tok);
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
    for (const uint32_t id : op.src) readers_[root(id)].push_back(i);
    if (op.code == BL_OP_MUL_MAT || op.code == BL_OP_MUL_MAT_ID) {
      const uint32_t x = op.src[1];
      wanted_[{root(x), tensor(x).ne[0], !reads_f16_rows(tensor(op.src[0]).type)}]++;
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
    if (tensor(op.src[1]).ne[0] != n) return true;  // encoded later, from the values
  }
  return false;
}

// --- encodings ------------------------------------------------------------------------------------------------------------------------

Compiler::Encoding &Compiler::make_encoding(const EncodingKey &key, uint32_t id) {
  const uint64_t rows = rows_of(id, key.n).max, k = round_up(key.n, uint64_t(SB)), n_sb = ceil_div(key.n, uint64_t(SB));
  const uint64_t values = round_up(rows * k * 2 * (key.bf16 ? 3 : 1), uint64_t(256));
  const uint64_t sums = key.bf16 ? 0 : round_up(rows * n_sb * 32, uint64_t(256)), scales = key.bf16 ? 0 : rows * n_sb * 4;
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

void Compiler::add_encodings(uint32_t id, RowsArgs &args) {
  for (const bool bf16 : {false, true}) {
    const EncodingKey key{root(id), tensor(id).ne[0], bf16};
    if (wanted_.count(key) == 0) continue;
    (bf16 ? args.bf16 : args.f16) = make_encoding(key, id).encoded;
  }
}

Encoded Compiler::encoded(uint32_t id, uint64_t n, bool bf16) {
  const EncodingKey key{root(id), n, bf16};
  const auto known = encodings_.find(key);
  if (known != encodings_.end()) return known->second.encoded;
  const Encoded e = make_encoding(key, id).encoded;
  RowsArgs args = {};
  args.op = RowOp::copy, args.a = at<float>(id), args.n = uint32_t(n), args.rows = rows_of(id, n);
  (bf16 ? args.bf16 : args.f16) = e;
  push([=](Stream &s) { row_op(args, s); });
  return e;
}

void Compiler::used_encoding(uint32_t id, uint64_t n, bool bf16, uint32_t times) {
  const auto known = encodings_.find({root(id), n, bf16});
  known->second.uses_left -= times;
  if (known->second.uses_left > 0) return;
  const size_t buffer = known->second.buffer;
  free_.insert({exec_.extra_[buffer].bytes(), buffer});
  encodings_.erase(known);
}

// --- ops ------------------------------------------------------------------------------------------------------------------------------

void Compiler::emit(uint32_t i) {
  const Op &op = p_.ops[i];
  done_[i] = true;
  switch (op.code) {
    case BL_OP_EMBED_ROWS: {
      EmbedArgs args = {};
      const Tensor &table = tensor(op.src[0]);
      args.table = weight(op.src[0]).packed.data(), args.type = table.type, args.n = uint32_t(table.ne[0]);
      args.ids = at<int32_t>(op.src[1]), args.y = at<float>(op.dst[0]), args.rows = rows_of(op.dst[0], table.ne[0]);
      return push([=](Stream &s) { embed_rows(args, s); });
    }
    case BL_OP_RMS_NORM: {
      HeadJob job;
      uint32_t n_op, result;
      done_[i] = false;
      if (head_rope(i, job, n_op, result)) return emit_heads(i);
      done_[i] = true;
      return emit_rows(i);
    }
    case BL_OP_ADD:
    case BL_OP_SILU_MUL:
    case BL_OP_EXPERT_SUM:
    case BL_OP_GET_ROWS: return emit_rows(i);
    case BL_OP_ROPE:
    case BL_OP_KV_WRITE: done_[i] = false; return emit_heads(i);
    case BL_OP_MUL_MAT: return emit_products(i);
    case BL_OP_MUL_MAT_ID: return emit_routed(i);
    case BL_OP_ATTENTION: return emit_attention(i);
    case BL_OP_ROUTER: return emit_router(i);
    case BL_OP_TOP_K: return emit_top_k(i);
    case BL_OP_TARGET_LOGPROB: {
      TargetArgs args = {};
      args.logits = at<float>(op.src[0]), args.lse = at<float>(op.src[1]), args.targets = at<int32_t>(op.src[2]);
      args.y = at<float>(op.dst[0]), args.n = uint32_t(tensor(op.src[0]).ne[0]), args.rows = rows_of(op.dst[0], 1);
      return push([=](Stream &s) { target_logprob(args, s); });
    }
  }
}

// Row work from op i on: a sum or a choice of rows, then perhaps a residual, then perhaps a norm.
void Compiler::emit_rows(uint32_t i) {
  const Op *op = &p_.ops[i];
  uint32_t result = op->dst[0];
  const uint64_t n = tensor(result).ne[0];
  RowsArgs args = {};
  args.op = RowOp::copy, args.n = uint32_t(n), args.rows = rows_of(result, n);
  args.a = at<float>(op->src[0]);
  uint32_t last = i;
  bool summed = false;  // args.sum takes what enters the norm
  switch (op->code) {
    case BL_OP_RMS_NORM:
      args.op = RowOp::norm, args.w = at<float>(op->src[1]), args.eps = op->param_f32(0);
      break;
    case BL_OP_SILU_MUL:
      args.op = RowOp::silu_mul, args.b = at<float>(op->src[1]);
      break;
    case BL_OP_ADD:
      args.op = RowOp::add, args.b = at<float>(op->src[1]), args.b_is_row = tensor(op->src[1]).kind == BL_KIND_WEIGHT;
      summed = true;
      break;
    case BL_OP_GET_ROWS:
      args.gather = at<int32_t>(op->src[1]);
      summed = !only_use(result, i + 1);
      break;
    default: {  // EXPERT_SUM
      args.b = at<float>(op->src[1]), args.n_expert_used = uint32_t(tensor(op->src[0]).ne[1]);
      summed = true;
      if (is_op(i + 1, BL_OP_ADD) && only_use(result, i + 1) && tensor(p_.ops[i + 1].dst[0]).ne[0] == n) {
        const Op &add = p_.ops[i + 1];  // only a residual that stands first, as a + b rounds the same either way
        const uint32_t other = root(add.src[0]) == root(result) ? add.src[1] : add.src[0];
        if (tensor(other).kind != BL_KIND_WEIGHT && root(other) != root(result) && made(other)) {
          args.residual = at<float>(other);
          result = add.dst[0], last = i + 1;
        }
      }
    }
  }
  // A norm of the whole rows right behind.
  if (op->code != BL_OP_RMS_NORM && op->code != BL_OP_SILU_MUL && is_op(last + 1, BL_OP_RMS_NORM)) {
    const Op &norm = p_.ops[last + 1];
    const bool fits = root(norm.src[0]) == root(result) && tensor(norm.dst[0]).ne[0] == n &&
                      !(op->code == BL_OP_GET_ROWS && summed);
    if (fits) {
      const bool keep = summed && (is_output_[root(result)] || readers_[root(result)].size() > 1);
      args.op = op->code == BL_OP_GET_ROWS ? RowOp::norm : RowOp::add_norm;
      args.sum = keep ? at<float>(result) : nullptr;
      args.w = at<float>(norm.src[1]), args.eps = norm.param_f32(0);
      result = norm.dst[0], last++;
    }
  }
  for (uint32_t j = i; j <= last; j++) done_[j] = true;
  if (needs_values(result, n)) args.y = at<float>(result);
  add_encodings(result, args);
  if (args.y == nullptr && args.sum == nullptr && args.f16.values == nullptr && args.bf16.values == nullptr) return;  // nobody reads it
  push([=](Stream &s) { row_op(args, s); });
}

// ROPE at i, or a norm over heads at i whose only reader is the ROPE behind it.
bool Compiler::head_rope(uint32_t i, HeadJob &job, uint32_t &n_op, uint32_t &result) const {
  job = {};
  n_op = 0;
  if (i >= p_.ops.size() || !made(p_.ops[i].src[0])) return false;
  uint32_t at_op = i;
  const uint32_t x = p_.ops[i].src[0];
  if (is_op(i, BL_OP_RMS_NORM)) {
    if (!is_op(i + 1, BL_OP_ROPE) || root(p_.ops[i + 1].src[0]) != root(p_.ops[i].dst[0]) || !only_use(p_.ops[i].dst[0], i + 1)) return false;
    if (tensor(p_.ops[i].src[0]).ne[0] != tensor(p_.ops[i + 1].src[0]).ne[0]) return false;
    job.norm = at<float>(p_.ops[i].src[1]), job.eps = p_.ops[i].param_f32(0);
    at_op = i + 1, n_op = 1;
  }
  if (!is_op(at_op, BL_OP_ROPE)) return false;
  const Op &rope = p_.ops[at_op];
  const Tensor &shape = tensor(rope.src[0]);
  job.x = at<float>(x), job.head_dim = uint32_t(shape.ne[0]), job.n_head = uint32_t(shape.ne[1]);
  job.inv_freq = at<float>(rope.src[2]), job.rope_kind = rope.param[ROPE_KIND], job.n_rot = rope.param[ROPE_N_ROT];
  job.mscale = rope.param_f32(ROPE_MSCALE);
  n_op++;
  result = rope.dst[0];
  return true;
}

void Compiler::emit_heads(uint32_t i) {
  HeadsArgs args = {};
  uint32_t results[MAX_HEAD_JOBS];
  args.positions = input(exec_.at_.positions), args.seqs = input(exec_.at_.seqs), args.pages = input(exec_.at_.pages);
  args.n_page = p_.n_page, args.page_size = p_.page_size;
  args.rows = {&exec_.inputs_.as<StepCounts>()->n_tok, 1, p_.n_tok};
  // Rotations that follow each other, then the cache write that takes their results.
  uint32_t next = i, n_op, result;
  HeadJob job;
  auto in_window = [&] {
    while (next < p_.ops.size() && done_[next]) next++;  // products that were taken earlier
    return next < p_.ops.size() && next <= i + FUSE_WINDOW;
  };
  while (args.n_job < 2 && in_window() && head_rope(next, job, n_op, result) && next + n_op - 1 <= i + FUSE_WINDOW) {
    job.y = at<float>(result);
    results[args.n_job] = result;
    args.job[args.n_job++] = job;
    for (uint32_t j = 0; j < n_op; j++) done_[next++] = true;
  }
  if (in_window() && is_op(next, BL_OP_KV_WRITE) && made(p_.ops[next].src[0]) && made(p_.ops[next].src[1])) {
    const uint32_t at_op = next;
    const Op &op = p_.ops[at_op];
    const CudaCache &cache = *static_cast<const CudaCache *>(caches_[op.param[KV_CACHE]]);
    for (int side = 0; side < 2; side++) {
      const uint32_t src = op.src[side];
      const CacheStream stream = cache.stream(op.param[side == 0 ? KV_K_STREAM : KV_V_STREAM]);
      uint32_t j = 0;
      while (j < args.n_job && !(args.job[j].cache.base == nullptr && results[j] != NO_TENSOR && root(results[j]) == root(src))) j++;
      if (j == args.n_job) {
        HeadJob copy = {};
        copy.x = at<float>(src), copy.head_dim = uint32_t(tensor(src).ne[0]), copy.n_head = uint32_t(tensor(src).ne[1]);
        results[args.n_job] = NO_TENSOR;
        args.job[args.n_job++] = copy;
      } else if (only_use(src, at_op)) {
        args.job[j].y = nullptr;
      }
      args.job[j].cache = stream;
    }
    done_[at_op] = true;
  }
  push([=](Stream &s) { heads_op(args, s); });
}

void Compiler::emit_products(uint32_t i) {
  const Op &op = p_.ops[i];
  const uint32_t x = op.src[1];
  const uint64_t n = tensor(x).ne[0];
  const bool bf16 = !reads_f16_rows(tensor(op.src[0]).type);
  MatmulArgs args = {};
  args.n_in = uint32_t(n), args.x = encoded(x, n, bf16), args.rows = rows_of(x, n);
  for (uint32_t j = i; j <= i + FUSE_WINDOW && j < p_.ops.size() && args.n_part < MAX_PARTS; j++) {
    const Op &o = p_.ops[j];
    if (o.code != BL_OP_MUL_MAT || (j != i && done_[j])) continue;
    if (root(o.src[1]) != root(x) || tensor(o.src[1]).ne[0] != n || reads_f16_rows(tensor(o.src[0]).type) == bf16) continue;
    const Tensor &w = tensor(o.src[0]);
    args.part[args.n_part++] = {weight(o.src[0]).packed.data(), at<float>(o.dst[0]), w.type, uint32_t(w.ne[1]), 0};
    done_[j] = true;
  }
  launch_products(args);
  used_encoding(x, n, bf16, args.n_part);
}

// One launch, or one per type where the kernel takes one type.
void Compiler::launch_products(const MatmulArgs &args) {
  const uint32_t n_sm = device_.n_sm();
  const bool few = args.ids != nullptr ? args.tiles == nullptr : args.rows.max <= FEW_ROWS;
  if (few) return push([=](Stream &s) { matmul_few(args, n_sm, s); });
  std::vector<bool> taken(args.n_part, false);
  for (uint32_t i = 0; i < args.n_part; i++) {
    if (taken[i]) continue;
    MatmulArgs one = args;
    one.n_part = 0;
    for (uint32_t j = i; j < args.n_part; j++)
      if (args.part[j].type == args.part[i].type) one.part[one.n_part++] = args.part[j], taken[j] = true;
    push([=](Stream &s) { matmul_many(one, s); });
  }
}

void Compiler::emit_routed(uint32_t i) {
  const Op &op = p_.ops[i];
  if (op.src.size() > 3) fail(BL_ERR_UNSUPPORTED, "Cannot compile for cuda: op %u (MUL_MAT_ID) has its experts in several places", i);
  const uint32_t x = op.src[1], ids = op.src[2];
  const uint64_t n = tensor(x).ne[0];
  const bool bf16 = !reads_f16_rows(tensor(op.src[0]).type);
  const uint32_t n_expert = uint32_t(tensor(op.src[0]).ne[2]), k = uint32_t(tensor(ids).ne[0]);
  MatmulArgs args = {};
  args.n_in = uint32_t(n), args.x = encoded(x, n, bf16);
  args.ids = at<int32_t>(ids), args.rows = rows_of(ids, 1), args.pairs_per_x = k / uint32_t(tensor(x).ne[1]);
  for (uint32_t j = i; j <= i + FUSE_WINDOW && j < p_.ops.size() && args.n_part < MAX_PARTS; j++) {
    const Op &o = p_.ops[j];
    if (o.code != BL_OP_MUL_MAT_ID || (j != i && done_[j]) || o.src.size() > 3) continue;
    if (root(o.src[1]) != root(x) || tensor(o.src[1]).ne[0] != n || root(o.src[2]) != root(ids)) continue;
    if (reads_f16_rows(tensor(o.src[0]).type) == bf16 || tensor(o.src[0]).ne[2] != n_expert) continue;
    const Tensor &w = tensor(o.src[0]);
    const CudaTensor &weights = weight(o.src[0]);
    args.part[args.n_part++] = {weights.packed.data(), at<float>(o.dst[0]), w.type, uint32_t(w.ne[1]), weights.matrix_bytes};
    done_[j] = true;
  }
  if (args.rows.max > FEW_PAIRS) {
    const uint32_t pairs = args.rows.max, columns = expert_tile_columns(pairs, n_expert, bf16);
    const uint32_t max_tiles = group_max_tiles(pairs, n_expert, columns);
    // One set of buffers serves all layers: sized for every pair its own tile.
    const uint64_t order_bytes = round_up(uint64_t(pairs) * 4, uint64_t(256));
    if (group_ == nullptr) group_ = allocate(256 + order_bytes + (uint64_t(pairs) + 1) * sizeof(ExpertTile), "grouped rows");
    args.n_tiles = reinterpret_cast<int32_t *>(group_);
    args.order = reinterpret_cast<int32_t *>(group_ + 256);
    args.tiles = reinterpret_cast<ExpertTile *>(group_ + 256 + order_bytes);
    args.max_tiles = max_tiles, args.tile_columns = columns;
    if (grouped_ids_ != root(ids) || grouped_columns_ != columns) {
      GroupArgs g = {};
      g.ids = args.ids, g.pairs = args.rows, g.n_expert = n_expert, g.tile_columns = columns;
      g.order = const_cast<int32_t *>(args.order), g.tiles = const_cast<ExpertTile *>(args.tiles), g.n_tiles = const_cast<int32_t *>(args.n_tiles);
      push([=](Stream &s) { group_by_expert(g, s); });
      grouped_ids_ = root(ids), grouped_columns_ = columns;
    }
  }
  launch_products(args);
  used_encoding(x, n, bf16, args.n_part);
}

void Compiler::emit_attention(uint32_t i) {
  const Op &op = p_.ops[i];
  const CudaCache &cache = *static_cast<const CudaCache *>(caches_[op.param[ATT_CACHE]]);
  const Tensor &q = tensor(op.src[0]), &y = tensor(op.dst[0]);
  AttentionArgs args = {};
  args.q = at<float>(op.src[0]), args.y = at<float>(op.dst[0]);
  args.k = cache.stream(op.param[ATT_K_STREAM]), args.v = cache.stream(op.param[ATT_V_STREAM]);
  args.n_head = uint32_t(q.ne[1]), args.n_head_kv = op.param[ATT_N_HEAD_KV];
  args.head_dim_k = uint32_t(q.ne[0]), args.head_dim_v = uint32_t(y.ne[0]);
  args.scale = op.param_f32(ATT_SCALE), args.window = op.param[ATT_WINDOW];
  args.positions = input(exec_.at_.positions), args.seqs = input(exec_.at_.seqs), args.pages = input(exec_.at_.pages);
  args.n_page = p_.n_page, args.page_size = p_.page_size;
  args.rows = {&exec_.inputs_.as<StepCounts>()->n_tok, 1, p_.n_tok};
  args.order = input(exec_.at_.order);
  args.n_chunk = uint32_t(ceil_div(uint64_t(p_.n_page) * p_.page_size, uint64_t(CHUNK_KEYS)));
  const uint64_t state_bytes = attention_state_bytes(p_.n_tok, args.n_head, args.head_dim_v, args.n_chunk);
  const AttentionKind kind = attention_kind(args.k, args.v, args.head_dim_k, args.head_dim_v, p_.n_tok, state_bytes);
  if (kind != AttentionKind::exact) {
    const uint32_t tokens = attention_tile_tokens(kind, args.n_head, args.n_head_kv);
    for (size_t l = 0; l < exec_.tile_lists_.size(); l++) {
      if (exec_.tile_lists_[l].tokens != tokens) continue;
      args.tiles = reinterpret_cast<const AttentionTile *>(input(exec_.at_.tiles[l]));
      args.n_tiles = &exec_.inputs_.as<StepCounts>()->n_tile[l];
      args.max_tiles = exec_.tile_lists_[l].max_tiles;
    }
  }
  if (kind == AttentionKind::split) {
    if (states_bytes_ < state_bytes) states_ = allocate(state_bytes, "attention states"), states_bytes_ = state_bytes;
    args.states = reinterpret_cast<float *>(states_);
    const uint64_t n = uint64_t(args.n_head) * args.head_dim_v;
    if (attention_encodes(args.n_head, args.head_dim_v)) {
      for (const bool bf16 : {false, true}) {
        const EncodingKey key{root(op.dst[0]), n, bf16};
        if (wanted_.count(key) != 0) (bf16 ? args.bf16 : args.f16) = make_encoding(key, op.dst[0]).encoded;
      }
      if (!needs_values(op.dst[0], n)) args.y = nullptr;
    }
  }
  push([=](Stream &s) { attention(args, kind, s); });
}

void Compiler::emit_router(uint32_t i) {
  const Op &op = p_.ops[i];
  RouterArgs args = {};
  args.logits = at<float>(op.src[0]), args.ids = at<int32_t>(op.dst[0]), args.weights = at<float>(op.dst[1]);
  args.n_expert = uint32_t(tensor(op.src[0]).ne[0]), args.k = uint32_t(tensor(op.dst[0]).ne[0]);
  args.score = op.param[ROUTER_SCORE], args.renorm = op.param[ROUTER_RENORM] != 0, args.scale = op.param_f32(ROUTER_SCALE);
  args.rows = rows_of(op.src[0], args.n_expert);
  push([=](Stream &s) { router(args, s); });
}

void Compiler::emit_top_k(uint32_t i) {
  const Op &op = p_.ops[i];
  TopKArgs args = {};
  args.logits = at<float>(op.src[0]), args.n = uint32_t(tensor(op.src[0]).ne[0]), args.k = uint32_t(tensor(op.dst[0]).ne[0]);
  args.ids = at<int32_t>(op.dst[0]), args.values = at<float>(op.dst[1]), args.lse = at<float>(op.dst[2]);
  args.rows = rows_of(op.src[0], args.n);
  args.scratch = reinterpret_cast<uint64_t *>(allocate(top_k_scratch_bytes(args.n, args.k, args.rows.max), "top-k"));
  push([=](Stream &s) { top_k(args, s); });
}

}  // namespace bl::cuda
