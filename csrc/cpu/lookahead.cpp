// lookahead.cpp: finds the routers of a program and what they read.
#include "lookahead.h"

#include <algorithm>
#include <map>

#include "expert_pool.h"

namespace bl {
namespace {

constexpr size_t MAX_OPS = 8;  // of a router, its norm included

bool is_activation(const Program &p, uint32_t id) {
  if (id == BL_NO_OPERAND) return false;
  const bl_tensor_kind kind = p.tensors[id].kind;
  return (kind == BL_KIND_SCRATCH || kind == BL_KIND_VIEW) && p.root(id).kind == BL_KIND_SCRATCH;
}

bool is_weight(const Program &p, uint32_t id) { return id == BL_NO_OPERAND || p.tensors[id].kind == BL_KIND_WEIGHT; }

// The op that makes an activation; -1 for none.
int32_t maker(const Program &p, uint32_t id) { return is_activation(p, id) ? p.root(id).first : -1; }

// The activation that an op of a router makes another of, or BL_NO_OPERAND: all its other sources must be weights.
uint32_t row_source(const Program &p, const Op &op) {
  if (op.dst.size() != 1 && op.code != BL_OP_ROUTER) return BL_NO_OPERAND;
  size_t which = 0;
  switch (op.code) {
    case BL_OP_ROUTER: which = BL_SRC_ROUTER_LOGITS; break;
    case BL_OP_NORM: which = BL_SRC_NORM_X; break;
    case BL_OP_MUL_MAT: which = BL_SRC_MUL_MAT_X; break;
    case BL_OP_UNARY: break;
    case BL_OP_ADD:
    case BL_OP_MUL: which = is_weight(p, op.src[0]) ? 1 : 0; break;
    default: return BL_NO_OPERAND;
  }
  for (size_t i = 0; i < op.src.size(); i++)
    if (i == which ? !is_activation(p, op.src[i]) : !is_weight(p, op.src[i])) return BL_NO_OPERAND;
  return op.src[which];
}

// The ops of a router from its norm on, in their order; empty where it is made in another way. source: what the norm reads.
std::vector<uint32_t> router_ops(const Program &p, uint32_t ids, uint32_t &source) {
  std::vector<uint32_t> ops;
  int32_t at = maker(p, ids);
  if (at < 0 || p.ops[uint32_t(at)].code != BL_OP_ROUTER) return {};
  for (;;) {
    const Op &op = p.ops[uint32_t(at)];
    source = row_source(p, op);
    if (source == BL_NO_OPERAND || ops.size() == MAX_OPS) return {};
    ops.insert(ops.begin(), uint32_t(at));
    if (op.code == BL_OP_NORM) return ops;
    at = maker(p, source);
    if (at < 0) return {};
  }
}

// The ops with their tensors numbered anew, each scratch tensor in a place of its own.
RouterSlice cut(const Program &p, const std::vector<uint32_t> &ops, uint32_t source, uint32_t ids) {
  RouterSlice out;
  Program &q = out.program;
  q.n_tok = p.n_tok, q.n_out = p.n_out, q.n_seq = p.n_seq;
  q.arena_bytes = {0};
  std::map<uint32_t, uint32_t> known;
  const auto place = [&](Tensor &t) {
    t.offset = q.arena_bytes[0];
    q.arena_bytes[0] += (t.elems() * 4 + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
  };
  const auto add = [&](uint32_t id, Tensor t) {
    known[id] = uint32_t(q.tensors.size());
    q.tensors.push_back(t);
    return known[id];
  };
  Tensor rows = p.tensors[source];  // whatever it looks at: dense here
  rows.kind = BL_KIND_SCRATCH, rows.root = 0, rows.start = 0;
  rows.nb[0] = rows.dim[0], rows.nb[1] = rows.dim[0] * rows.dim[1], rows.row_stride = rows.row_elems;
  place(rows);
  out.source = add(source, rows);
  const auto number = [&](uint32_t id) -> uint32_t {
    if (id == BL_NO_OPERAND) return id;
    if (const auto found = known.find(id); found != known.end()) return found->second;
    Tensor t = p.tensors[id];
    if (t.kind == BL_KIND_WEIGHT) return add(id, t);
    if (const uint32_t root = t.root; root != id) {
      if (known.find(root) == known.end()) {
        Tensor whole = p.tensors[root];
        place(whole);
        whole.root = uint32_t(q.tensors.size());
        add(root, whole);
      }
      t.root = known[root];
      t.offset = q.tensors[t.root].offset + t.start * 4;
      return add(id, t);
    }
    place(t);
    t.root = uint32_t(q.tensors.size());
    return add(id, t);
  };
  for (const uint32_t i : ops) {
    Op op = p.ops[i];
    for (uint32_t &id : op.src) id = number(id);
    for (uint32_t &id : op.dst) id = number(id);
    q.ops.push_back(op);
  }
  out.ids = number(ids);
  q.outputs = {out.ids};
  return out;
}

bool same_rows(const Program &p, uint32_t a, uint32_t b) {
  const Tensor &x = p.tensors[a], &y = p.tensors[b];
  return std::equal(x.dim, x.dim + 3, y.dim) && (x.rows == y.rows || (x.rows == Rows::tok && y.rows == Rows::out));
}

}  // namespace

std::vector<Lookahead> find_lookaheads(const Program &p, const std::vector<const CpuTensor *> &weights) {
  struct Layer {
    size_t first;  // op
    uint32_t source;
  };
  std::vector<Lookahead> out;
  Layer before = {0, BL_NO_OPERAND};  // none yet, or one whose router is made in another way
  std::vector<std::pair<const ExpertPool *, uint32_t>> seen;
  for (size_t i = 0; i < p.ops.size(); i++) {
    const Op &op = p.ops[i];
    if (op.code != BL_OP_MUL_MAT_ID) continue;
    const CpuTensor *w = weights[p.tensors[op.src[BL_SRC_MUL_MAT_ID_W]].ref];
    const auto *pooled = dynamic_cast<const PooledTensor *>(w);
    if (pooled == nullptr) continue;
    const std::pair<const ExpertPool *, uint32_t> group{&pooled->pool, pooled->group};
    if (std::find(seen.begin(), seen.end(), group) != seen.end()) continue;
    seen.push_back(group);
    uint32_t source = BL_NO_OPERAND;
    const uint32_t ids = op.src[BL_SRC_MUL_MAT_ID_IDS];
    const std::vector<uint32_t> ops = router_ops(p, ids, source);
    if (ops.empty()) {
      before.source = BL_NO_OPERAND;
      continue;
    }
    if (before.source != BL_NO_OPERAND) {
      if (same_rows(p, before.source, source)) out.push_back({before.first, before.source, w, false, cut(p, ops, source, ids)});
      // A residual that is a sum of what the layer before left and of what this one has added since: the former is nearer.
      const int32_t sum = maker(p, source);
      if (sum >= 0 && p.ops[uint32_t(sum)].code == BL_OP_ADD) {
        const Op &add = p.ops[uint32_t(sum)];
        const uint32_t left = maker(p, add.src[0]) < maker(p, add.src[1]) ? add.src[0] : add.src[1];
        const int32_t made = maker(p, left);
        if (made > int32_t(before.first) && same_rows(p, left, source)) {
          const bool more = !out.empty() && out.back().weight == w;
          out.push_back({size_t(made), left, w, more, cut(p, ops, source, ids)});
        }
      }
    }
    before = {i, source};
  }
  return out;
}

}  // namespace bl
