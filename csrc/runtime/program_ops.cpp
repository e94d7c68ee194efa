// program_ops.cpp: the operand rules of each op (bloomery.h lists them), checked once for all backends.
#include <algorithm>

#include "device.h"
#include "program_internal.h"

namespace bl {

void OpChecker::bad(const std::string &what) const {
  fail(BL_ERR_PROGRAM, "Cannot create program: op %u (%s): %s", index_, op_name(op_->code), what.c_str());
}

void OpChecker::want(bool ok, const char *what) const {
  if (!ok) bad(what);
}

// A view has its root's rows; its shape must not cut through them.
void OpChecker::settle_view(uint32_t id) {
  Tensor &t = p_.tensors[id];
  if (t.kind != BL_KIND_VIEW) return;
  const Tensor &root = p_.tensors[t.root];
  t.rows = root.rows, t.row_elems = root.row_elems, t.limit = root.limit;
  uint64_t n = 1;
  for (int i = 0; i < 4 && n != t.row_elems; i++) n *= t.ne[i];
  if (n == t.row_elems) return;
  bad("tensor " + std::to_string(id) + " views rows of " + std::to_string(t.row_elems) + " elements as " + shape_text(t.ne));
}

const Tensor &OpChecker::src(size_t i) {
  const uint32_t id = op_->src[i];
  Tensor &t = p_.tensors[id];
  if (t.kind == BL_KIND_SCRATCH || t.kind == BL_KIND_VIEW) {
    Tensor &root = p_.tensors[t.root];
    if (root.first < 0) bad("source " + std::to_string(i) + " (tensor " + std::to_string(id) + ") is read before it is written");
    root.last = int32_t(index_);
    settle_view(id);
  }
  if (t.kind != BL_KIND_INPUT && t.device != op_->device)
    bad("source " + std::to_string(i) + " is on device " + std::to_string(t.device) + ", the op on device " + std::to_string(op_->device));
  return t;
}

const Tensor &OpChecker::activation(size_t i, uint32_t type) {
  const Tensor &t = src(i);
  if ((t.kind != BL_KIND_SCRATCH && t.kind != BL_KIND_VIEW) || t.type != type)
    bad("source " + std::to_string(i) + " is not " + (type == TYPE_F32 ? "an f32" : "an i32") + " activation");
  return t;
}

const Tensor &OpChecker::weight(size_t i, uint32_t use) {
  const Tensor &t = src(i);
  if (t.kind != BL_KIND_WEIGHT) bad("source " + std::to_string(i) + " is not a weight");
  if ((weights_[t.ref]->uses & use) != use)
    bad("weight " + std::to_string(t.ref) + " was loaded for uses " + std::to_string(weights_[t.ref]->uses) + ", which lack " +
        std::to_string(use));
  if (use == BL_USE_VECTOR && t.type != TYPE_F32) bad("weight " + std::to_string(t.ref) + " is not f32");
  return t;
}

const Tensor &OpChecker::input(size_t i, bl_input which) {
  const Tensor &t = src(i);
  if (t.kind != BL_KIND_INPUT || t.ref != which) bad("source " + std::to_string(i) + " is not step input " + std::to_string(which));
  return t;
}

void OpChecker::shape(const char *what, const Tensor &t, uint64_t ne0, uint64_t ne1, uint64_t ne2, uint64_t ne3) const {
  const uint64_t ne[4] = {ne0, ne1, ne2, ne3};
  if (memcmp(ne, t.ne, sizeof ne) != 0) bad(std::string(what) + " is " + shape_text(t.ne) + ", expected " + shape_text(ne));
}

Tensor &OpChecker::write(size_t i, uint32_t type, Rows rows, uint64_t limit) {
  const uint32_t id = op_->dst[i];
  Tensor &t = p_.tensors[id];
  if (t.kind != BL_KIND_SCRATCH) bad("result " + std::to_string(i) + " is not a scratch tensor");
  if (t.first >= 0) bad("tensor " + std::to_string(id) + " is written a second time");
  if (t.type != type) bad("result " + std::to_string(i) + " has type " + std::to_string(t.type) + ", expected " + std::to_string(type));
  if (t.device != op_->device) bad("result " + std::to_string(i) + " is on another device than the op");
  t.rows = rows;
  t.row_elems = t.elems() / bucket_rows(rows);
  t.limit = limit;
  t.first = t.last = int32_t(index_);
  return t;
}

const DeviceCache &OpChecker::cache(uint32_t index) {
  if (index >= caches_.size()) bad("cache " + std::to_string(index) + " of " + std::to_string(caches_.size()));
  const DeviceCache &c = *caches_[index];
  if (c.device != op_->device) bad("cache " + std::to_string(index) + " is on device " + std::to_string(c.device));
  if (p_.page_size != 0 && p_.page_size != c.shape.page_size)
    bad("cache " + std::to_string(index) + " has pages of " + std::to_string(c.shape.page_size) + " tokens, another has " +
        std::to_string(p_.page_size));
  p_.page_limit = p_.page_size == 0 ? c.shape.n_pages : std::min<uint64_t>(p_.page_limit, c.shape.n_pages);
  p_.page_size = c.shape.page_size;
  want(p_.n_page > 0, "the program has n_page 0, expected at least 1");
  return c;
}

void OpChecker::stream(const DeviceCache &c, uint32_t s, uint64_t head_dim, uint64_t n_head_kv) const {
  if (s >= c.shape.type.size()) bad("stream " + std::to_string(s) + " of " + std::to_string(c.shape.type.size()));
  if (c.shape.ne[s] != head_dim * n_head_kv)
    bad("stream " + std::to_string(s) + " has " + std::to_string(c.shape.ne[s]) + " elements a token, expected " +
        std::to_string(head_dim * n_head_kv));
  if (c.shape.type[s] == TYPE_Q8_0 && head_dim % 32 != 0) bad("head_dim " + std::to_string(head_dim) + " is not a multiple of 32 (q8_0 cache)");
}

// MUL_MAT_ID with experts in several places: src W, x, ids, map, further parts.
void OpChecker::expert_parts(const Tensor &w) {
  want(op_->src.size() != 4, "an expert map needs further parts");
  const Tensor &map = p_.tensors[op_->src[3]];
  if (map.kind != BL_KIND_WEIGHT || map.type != TYPE_I32) bad("source 3 is not an i32 weight");
  shape("the expert map", map, 2, map.ne[1]);
  std::vector<uint64_t> n_expert = {w.ne[2]};
  for (size_t i = 4; i < op_->src.size(); i++) {
    const Tensor &part = weight(i, BL_USE_MUL_MAT);
    shape("an expert part", part, w.ne[0], w.ne[1], part.ne[2]);
    n_expert.push_back(part.ne[2]);
  }
  const std::vector<int32_t> &values = weights_[map.ref]->host_i32;
  want(values.size() == 2 * map.ne[1], "the expert map has no host values");
  for (uint64_t e = 0; e < map.ne[1]; e++) {
    const int64_t part = values[2 * e], at = values[2 * e + 1];
    if (part < 0 || uint64_t(part) >= n_expert.size() || at < 0 || uint64_t(at) >= n_expert[size_t(part)])
      bad("expert " + std::to_string(e) + " is mapped to part " + std::to_string(part) + ", index " + std::to_string(at));
  }
}

void OpChecker::check(uint32_t index) {
  index_ = index;
  op_ = &p_.ops[index];
  struct Arity {
    uint8_t n_dst, n_src, n_param;
  };
  static const Arity arity[] = {{0, 0, 0}, {1, 2, 0}, {1, 2, 1}, {1, 2, 0}, {1, 2, 0}, {1, 2, 0}, {1, 3, 3}, {0, 4, 3},
                                {1, 3, 6}, {2, 1, 3}, {1, 3, 0}, {1, 2, 0}, {1, 2, 0}, {3, 1, 0}, {1, 3, 0}};
  const Arity &a = arity[op_->code];
  const bool more = op_->code == BL_OP_MUL_MAT_ID && op_->src.size() > 3;
  if (op_->dst.size() != a.n_dst || (op_->src.size() != a.n_src && !more) || op_->param.size() != a.n_param)
    bad("it has " + std::to_string(op_->dst.size()) + " results, " + std::to_string(op_->src.size()) + " sources and " +
        std::to_string(op_->param.size()) + " parameters, expected " + std::to_string(a.n_dst) + ", " + std::to_string(a.n_src) + " and " +
        std::to_string(a.n_param));

  switch (op_->code) {
    case BL_OP_EMBED_ROWS: {
      const Tensor &table = weight(0, BL_USE_ROWS);
      shape("the table", table, table.ne[0], table.ne[1]);
      input(1, BL_INPUT_TOKENS);
      p_.token_limit = p_.token_limit == 0 ? table.ne[1] : std::min(p_.token_limit, table.ne[1]);
      shape("the result", write(0, TYPE_F32, Rows::tok), table.ne[0], p_.n_tok);
      break;
    }
    case BL_OP_RMS_NORM: {
      const Tensor &x = activation(0);
      shape("the norm weight", weight(1, BL_USE_VECTOR), x.ne[0], 1);
      want(x.row_elems % x.ne[0] == 0, "the normalised axis is longer than a row");
      shape("the result", write(0, TYPE_F32, x.rows), x.ne[0], x.ne[1], x.ne[2], x.ne[3]);
      break;
    }
    case BL_OP_ADD: {
      const Tensor &x = activation(0);
      const Tensor &b = src(1);
      if (b.kind == BL_KIND_WEIGHT) {
        shape("the bias", weight(1, BL_USE_VECTOR), x.ne[0], 1);
        want(x.row_elems % x.ne[0] == 0, "the bias is longer than a row");
      } else {
        shape("the second source", activation(1), x.ne[0], x.ne[1], x.ne[2], x.ne[3]);
        want(b.rows == x.rows, "the sources count different rows");
      }
      shape("the result", write(0, TYPE_F32, x.rows), x.ne[0], x.ne[1], x.ne[2], x.ne[3]);
      break;
    }
    case BL_OP_MUL_MAT: {
      const Tensor &w = weight(0, BL_USE_MUL_MAT);
      const Tensor &x = activation(1);
      shape("the matrix", w, x.ne[0], w.ne[1]);
      want(x.row_elems % x.ne[0] == 0, "the inner axis is longer than a row");
      shape("the result", write(0, TYPE_F32, x.rows), w.ne[1], x.ne[1], x.ne[2], x.ne[3]);
      break;
    }
    case BL_OP_SILU_MUL: {
      const Tensor &x = activation(0);
      const Tensor &b = activation(1);
      shape("the second source", b, x.ne[0], x.ne[1], x.ne[2], x.ne[3]);
      want(b.rows == x.rows, "the sources count different rows");
      shape("the result", write(0, TYPE_F32, x.rows), x.ne[0], x.ne[1], x.ne[2], x.ne[3]);
      break;
    }
    case BL_OP_ROPE: {
      const Tensor &x = activation(0);
      input(1, BL_INPUT_POSITIONS);
      const uint32_t kind = op_->param[ROPE_KIND], n_rot = op_->param[ROPE_N_ROT];
      want(x.rows == Rows::tok, "the source does not count token rows");
      shape("the source", x, x.ne[0], x.ne[1], p_.n_tok);
      want(kind == BL_ROPE_PAIRS || kind == BL_ROPE_HALVES, "kind is not 0 or 1");
      if (n_rot < 2 || n_rot % 2 != 0 || n_rot > x.ne[0])
        bad("n_rot is " + std::to_string(n_rot) + ", expected an even number up to " + std::to_string(x.ne[0]));
      shape("inv_freq", weight(2, BL_USE_VECTOR), n_rot / 2, 1);
      shape("the result", write(0, TYPE_F32, Rows::tok), x.ne[0], x.ne[1], x.ne[2]);
      break;
    }
    case BL_OP_KV_WRITE: {
      const Tensor &k = activation(0);
      const Tensor &v = activation(1);
      input(2, BL_INPUT_POSITIONS);
      input(3, BL_INPUT_SEQS);
      want(k.rows == Rows::tok && v.rows == Rows::tok, "k and v do not count token rows");
      shape("k", k, k.ne[0], k.ne[1], p_.n_tok);
      shape("v", v, v.ne[0], k.ne[1], p_.n_tok);
      const DeviceCache &c = cache(op_->param[KV_CACHE]);
      stream(c, op_->param[KV_K_STREAM], k.ne[0], k.ne[1]);
      stream(c, op_->param[KV_V_STREAM], v.ne[0], v.ne[1]);
      want(op_->param[KV_K_STREAM] != op_->param[KV_V_STREAM], "k and v have the same stream");
      break;
    }
    case BL_OP_ATTENTION: {
      const Tensor &q = activation(0);
      input(1, BL_INPUT_POSITIONS);
      input(2, BL_INPUT_SEQS);
      want(q.rows == Rows::tok, "q does not count token rows");
      shape("q", q, q.ne[0], q.ne[1], p_.n_tok);
      const uint64_t n_head_kv = op_->param[ATT_N_HEAD_KV];
      if (n_head_kv == 0 || q.ne[1] % n_head_kv != 0)
        bad("n_head_kv is " + std::to_string(n_head_kv) + ", expected a divisor of " + std::to_string(q.ne[1]));
      const DeviceCache &c = cache(op_->param[ATT_CACHE]);
      const Tensor &y = write(0, TYPE_F32, Rows::tok);
      shape("the result", y, y.ne[0], q.ne[1], p_.n_tok);
      stream(c, op_->param[ATT_K_STREAM], q.ne[0], n_head_kv);
      stream(c, op_->param[ATT_V_STREAM], y.ne[0], n_head_kv);
      break;
    }
    case BL_OP_ROUTER: {
      const Tensor &x = activation(0);
      shape("the logits", x, x.ne[0], x.ne[1]);
      want(x.row_elems == x.ne[0], "the logits are not one row each");
      want(op_->param[ROUTER_SCORE] <= BL_SCORE_SIGMOID, "score is not 0 or 1");
      want(op_->param[ROUTER_RENORM] <= 1, "renorm is not 0 or 1");
      const Tensor &ids = write(0, TYPE_I32, x.rows, x.ne[0]);
      shape("the ids", ids, ids.ne[0], x.ne[1]);
      if (ids.ne[0] > x.ne[0]) bad("it chooses " + std::to_string(ids.ne[0]) + " of " + std::to_string(x.ne[0]) + " experts");
      shape("the weights", write(1, TYPE_F32, x.rows), ids.ne[0], x.ne[1]);
      break;
    }
    case BL_OP_MUL_MAT_ID: {
      const Tensor &w = weight(0, BL_USE_MUL_MAT);
      const Tensor &x = activation(1);
      const Tensor &ids = activation(2, TYPE_I32);
      shape("the matrices", w, x.ne[0], w.ne[1], w.ne[2]);
      shape("the ids", ids, ids.ne[0], ids.ne[1]);
      want(ids.rows == x.rows && ids.row_elems == ids.ne[0], "the ids do not count the source's rows");
      shape("the source", x, x.ne[0], x.ne[1] == 1 ? 1 : ids.ne[0], ids.ne[1]);
      want(x.row_elems == x.ne[0] * x.ne[1], "the source's rows are not [n_in, k or 1]");
      if (more) expert_parts(w);
      const uint64_t n_expert = more ? p_.tensors[op_->src[3]].ne[1] : w.ne[2];
      if (ids.limit == 0 || ids.limit > n_expert)
        bad("ids range over " + std::to_string(ids.limit) + " experts, the matrices are " + std::to_string(n_expert));
      shape("the result", write(0, TYPE_F32, x.rows), w.ne[1], ids.ne[0], ids.ne[1]);
      break;
    }
    case BL_OP_EXPERT_SUM: {
      const Tensor &x = activation(0);
      const Tensor &g = activation(1);
      shape("the source", x, x.ne[0], x.ne[1], x.ne[2]);
      shape("the weights", g, x.ne[1], x.ne[2]);
      want(g.rows == x.rows && x.row_elems == x.ne[0] * x.ne[1] && g.row_elems == x.ne[1], "source and weights count different rows");
      shape("the result", write(0, TYPE_F32, x.rows), x.ne[0], x.ne[2]);
      break;
    }
    case BL_OP_GET_ROWS: {
      const Tensor &x = activation(0);
      input(1, BL_INPUT_OUT_ROWS);
      want(x.rows == Rows::tok && x.row_elems == x.ne[0], "the source's last axis does not count token rows");
      shape("the source", x, x.ne[0], p_.n_tok);
      shape("the result", write(0, TYPE_F32, Rows::out), x.ne[0], p_.n_out);
      break;
    }
    case BL_OP_TOP_K: {
      const Tensor &x = activation(0);
      shape("the logits", x, x.ne[0], x.ne[1]);
      want(x.row_elems == x.ne[0], "the logits are not one row each");
      const Tensor &ids = write(0, TYPE_I32, x.rows, x.ne[0]);
      shape("the ids", ids, ids.ne[0], x.ne[1]);
      if (ids.ne[0] > x.ne[0]) bad("it chooses " + std::to_string(ids.ne[0]) + " of " + std::to_string(x.ne[0]) + " logits");
      shape("the top logits", write(1, TYPE_F32, x.rows), ids.ne[0], x.ne[1]);
      shape("the log-sum-exp", write(2, TYPE_F32, x.rows), 1, x.ne[1]);
      break;
    }
    case BL_OP_TARGET_LOGPROB: {
      const Tensor &x = activation(0);
      const Tensor &lse = activation(1);
      input(2, BL_INPUT_TARGETS);
      want(x.rows == Rows::out && lse.rows == Rows::out && x.row_elems == x.ne[0], "the sources do not count output rows");
      shape("the logits", x, x.ne[0], p_.n_out);
      shape("the log-sum-exp", lse, 1, p_.n_out);
      p_.target_limit = p_.target_limit == 0 ? x.ne[0] : std::min(p_.target_limit, x.ne[0]);
      shape("the result", write(0, TYPE_F32, Rows::out), 1, p_.n_out);
      break;
    }
  }
}

void OpChecker::check_output(uint32_t i) {
  const uint32_t id = p_.outputs[i];
  Tensor &t = p_.tensors[id];
  if (t.kind != BL_KIND_SCRATCH && t.kind != BL_KIND_VIEW)
    fail(BL_ERR_PROGRAM, "Cannot create program: output %u is tensor %u, which is not scratch", i, id);
  Tensor &root = p_.tensors[t.root];
  if (root.first < 0) fail(BL_ERR_PROGRAM, "Cannot create program: output %u is tensor %u, which no op writes", i, id);
  t.rows = root.rows, t.row_elems = root.row_elems;
  root.last = int32_t(p_.ops.size());
}

}  // namespace bl
