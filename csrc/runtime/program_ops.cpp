// program_ops.cpp: the operand rules of each op of ops.def, checked once for all backends.
#include <algorithm>

#include "device.h"
#include "program_internal.h"

namespace bl {
namespace {

struct Arity {
  size_t n_dst, n_src;
  uint32_t optional;  // bit i: source i may be left out
  bool more;          // takes more sources
  size_t n_param;
};

const Arity ARITY[] = {{0, 0, 0, false, 0},
#define BL_ARITY(name, n_dst, n_src, optional, more, n_param) {n_dst, n_src, optional, more != 0, n_param},
                       BL_OPS(BL_ARITY)
#undef BL_ARITY
};

}  // namespace

void OpChecker::check(uint32_t index) {
  index_ = index;
  op_ = &p_.ops[index];
  const Arity &a = ARITY[op_->code];
  const size_t n_src = op_->src.size();
  if (op_->dst.size() != a.n_dst || (a.more ? n_src < a.n_src : n_src != a.n_src) || op_->param.size() != a.n_param)
    bad("it has " + std::to_string(op_->dst.size()) + " results, " + std::to_string(n_src) + " sources and " + std::to_string(op_->param.size()) +
        " parameters, expected " + std::to_string(a.n_dst) + ", " + std::to_string(a.n_src) + (a.more ? " or more" : "") + " and " +
        std::to_string(a.n_param));
  for (size_t i = 0; i < n_src; i++)
    if (!has(i) && (i >= 32 || ((a.optional >> i) & 1) == 0)) bad("source " + std::to_string(i) + " is left out");

  switch (op_->code) {
    case BL_OP_GET_ROWS: return get_rows();
    case BL_OP_NORM: return norm();
    case BL_OP_ADD:
    case BL_OP_MUL: return pair();
    case BL_OP_UNARY: {
      between("kind", op_->param[BL_PARAM_UNARY_KIND], 0, BL_UNARY_KIND_COUNT - 1);
      const Tensor &x = value(0, "x");
      write(0, TYPE_F32, x.rows, Dims(x));
      return;
    }
    case BL_OP_GATE: {
      between("kind", op_->param[BL_PARAM_GATE_KIND], 0, BL_GATE_KIND_COUNT - 1);
      const Tensor &x = value(0, "x"), &y = value(1, "y");
      dims("y", y, Dims(x));
      rows("y", y, x.rows);
      write(0, TYPE_F32, x.rows, Dims(x));
      return;
    }
    case BL_OP_MUL_MAT: return mul_mat();
    case BL_OP_MUL_MAT_ID: return mul_mat_id();
    case BL_OP_ROPE: return rope();
    case BL_OP_STREAM_WRITE: return stream_write();
    case BL_OP_ATTENTION: return attention();
    case BL_OP_INDEX: return this->index();
    case BL_OP_POOL: return pool();
    case BL_OP_ROUTER: return router();
    case BL_OP_MIX: return mix();
    case BL_OP_CONCAT: return concat();
    case BL_OP_SOFTMAX: {
      const Tensor &x = value(0, "x");
      write(0, TYPE_F32, x.rows, Dims(x));
      return;
    }
    case BL_OP_CONV: return conv();
    case BL_OP_DELTA: return delta();
    case BL_OP_SINKHORN: return sinkhorn();
    case BL_OP_DOT: return dot();
    case BL_OP_TOP_K: return top_k();
    case BL_OP_TARGET_LOGPROB: return target_logprob();
    case BL_OP_SQUARES: return squares();
    case BL_OP_COPY: {
      const uint32_t type = source(0).type == TYPE_I32 ? TYPE_I32 : TYPE_F32;
      const Tensor &x = value(0, "x", type);
      chosen(write(0, type, x.rows, Dims(x)), x.least, x.limit);
      return;
    }
    case BL_OP_COUNT: break;
  }
  bad("it is not known");
}

void OpChecker::get_rows() {
  const Tensor &table = source(BL_SRC_GET_ROWS_TABLE);
  if (table.kind != BL_KIND_WEIGHT) {
    const uint32_t type = table.type == TYPE_I32 ? TYPE_I32 : TYPE_F32;
    const Tensor &x = value(BL_SRC_GET_ROWS_TABLE, "the table", type);
    rows("the table", x, Rows::tok);
    input(BL_SRC_GET_ROWS_IDS, BL_INPUT_OUT_ROWS);
    chosen(write(0, type, Rows::out, Dims(x)), x.least, x.limit);
    return;
  }
  weight(BL_SRC_GET_ROWS_TABLE, "the table", BL_USE_ROWS);
  want(table.ne[2] == 1 && table.ne[3] == 1, "the table is not [n, N]");
  const Tensor &ids = source(BL_SRC_GET_ROWS_IDS);
  if (ids.kind == BL_KIND_INPUT && (ids.ref == BL_INPUT_TOKENS || ids.ref == BL_INPUT_POSITIONS)) {
    uint64_t &limit = ids.ref == BL_INPUT_TOKENS ? p_.token_limit : p_.position_limit;
    limit = limit == 0 ? table.ne[1] : std::min(limit, table.ne[1]);
  } else {
    value(BL_SRC_GET_ROWS_IDS, "ids", TYPE_I32);
    if (ids.limit == 0) bad("it is not known how far ids range, the table has " + std::to_string(table.ne[1]) + " rows");
    between("the number of different ids", ids.limit, 1, table.ne[1]);
  }
  want(ids.dim[2] == 1, "ids have more than two axes before their rows");
  const bool whole = table.type == TYPE_I32;
  // Id -1 gives zeros.
  Tensor &y = write(0, whole ? TYPE_I32 : TYPE_F32, ids.rows, {table.ne[0], ids.dim[0], ids.dim[1]});
  if (whole) chosen(y, table.least, table.limit);
}

void OpChecker::norm() {
  between("kind", op_->param[BL_PARAM_NORM_KIND], 0, BL_NORM_KIND_COUNT - 1);
  finite("eps", BL_PARAM_NORM_EPS);
  const Tensor &x = value(BL_SRC_NORM_X, "x");
  for (const size_t i : {size_t(BL_SRC_NORM_W), size_t(BL_SRC_NORM_B)}) {
    if (!has(i)) continue;
    const uint64_t m = source(i).ne[1];
    vector(i, i == BL_SRC_NORM_W ? "w" : "b", {x.dim[0], m == 1 ? 1 : x.dim[1]});
  }
  write(0, TYPE_F32, x.rows, Dims(x));
}

void OpChecker::pair() {
  const Tensor &a = value(0, "a"), &b = source(1);
  const bool fixed = b.kind == BL_KIND_WEIGHT;
  if (fixed) {
    weight(1, "b", BL_USE_VECTOR);
    want(b.ne[3] == 1, "b is a weight of four axes");
  } else {
    rows("b", value(1, "b"), a.rows);
  }
  Dims y(a);
  for (int i = 0; i < 3; i++) {
    if (a.dim[i] != b.dim[i] && a.dim[i] != 1 && b.dim[i] != 1)
      bad("axis " + std::to_string(i) + " has " + std::to_string(a.dim[i]) + " numbers in a, " + std::to_string(b.dim[i]) +
          " in b, expected the same or 1");
    y.d[i] = std::max(a.dim[i], b.dim[i]);
  }
  write(0, TYPE_F32, a.rows, y);
}

void OpChecker::mul_mat() {
  const Tensor &w = weight(BL_SRC_MUL_MAT_W, "w", BL_USE_MUL_MAT), &x = value(BL_SRC_MUL_MAT_X, "x");
  if (w.ne[0] != x.dim[0] || w.ne[3] != 1)
    bad("w is " + shape_text(w.ne) + ", expected [" + std::to_string(x.dim[0]) + ", n_out] or a matrix for each head");
  if (w.ne[2] != 1) dims("x", x, {w.ne[0], w.ne[2]});
  write(0, TYPE_F32, x.rows, {w.ne[1], x.dim[1], x.dim[2]});
}

void OpChecker::mul_mat_id() {
  const Tensor &w = weight(BL_SRC_MUL_MAT_ID_W, "w", BL_USE_MUL_MAT), &x = value(BL_SRC_MUL_MAT_ID_X, "x");
  const Tensor &ids = value(BL_SRC_MUL_MAT_ID_IDS, "ids", TYPE_I32);
  const uint64_t k = ids.dim[0];
  want(w.ne[3] == 1, "w has four axes");
  dims("ids", ids, {k});
  rows("ids", ids, x.rows);
  dims("x", x, {w.ne[0], x.dim[1] == 1 ? 1 : k});
  if (ids.limit == 0 || ids.limit > w.ne[2] || ids.least < 0)
    bad("ids range from " + std::to_string(ids.least) + " to below " + std::to_string(ids.limit) + " (0: not known), the experts are " +
        std::to_string(w.ne[2]));
  write(0, TYPE_F32, x.rows, {w.ne[1], k});
}

void OpChecker::rope() {
  const Tensor &x = value(BL_SRC_ROPE_X, "x");
  input(BL_SRC_ROPE_POSITIONS, BL_INPUT_POSITIONS);
  rows("x", x, Rows::tok);
  dims("x", x, {x.dim[0], x.dim[1]});
  between("kind", op_->param[BL_PARAM_ROPE_KIND], 0, BL_ROPE_KIND_COUNT - 1);
  const uint64_t n_rot = op_->param[BL_PARAM_ROPE_N_ROT], offset = op_->param[BL_PARAM_ROPE_OFFSET];
  if (n_rot < 2 || n_rot % 2 != 0 || n_rot + offset > x.dim[0])
    bad("n_rot is " + std::to_string(n_rot) + " from " + std::to_string(offset) + ", expected an even number within heads of " +
        std::to_string(x.dim[0]));
  flag("inverse", BL_PARAM_ROPE_INVERSE);
  finite("mscale", BL_PARAM_ROPE_MSCALE);
  vector(BL_SRC_ROPE_INV_FREQ, "inv_freq", {n_rot / 2});
  write(0, TYPE_F32, Rows::tok, Dims(x));
}

void OpChecker::stream_write() {
  const Tensor &x = value(BL_SRC_STREAM_WRITE_X, "x");
  input(BL_SRC_STREAM_WRITE_POSITIONS, BL_INPUT_POSITIONS);
  input(BL_SRC_STREAM_WRITE_SEQS, BL_INPUT_SEQS);
  rows("x", x, Rows::tok);
  const uint32_t c = op_->param[BL_PARAM_STREAM_WRITE_CACHE];
  paged(c, 1).written = true;
  stream(c, op_->param[BL_PARAM_STREAM_WRITE_STREAM], x.row_elems);
}

void OpChecker::attention() {
  const Tensor &q = value(BL_SRC_ATTENTION_Q, "q");
  input(BL_SRC_ATTENTION_POSITIONS, BL_INPUT_POSITIONS);
  input(BL_SRC_ATTENTION_SEQS, BL_INPUT_SEQS);
  rows("q", q, Rows::tok);
  dims("q", q, {q.dim[0], q.dim[1]});
  const uint64_t n_head_kv = op_->param[BL_PARAM_ATTENTION_N_HEAD_KV];
  if (n_head_kv == 0 || q.dim[1] % n_head_kv != 0)
    bad("n_head_kv is " + std::to_string(n_head_kv) + ", expected a divisor of " + std::to_string(q.dim[1]));
  finite("scale", BL_PARAM_ATTENTION_SCALE);
  finite("softcap", BL_PARAM_ATTENTION_SOFTCAP);
  if (has(BL_SRC_ATTENTION_SINKS)) vector(BL_SRC_ATTENTION_SINKS, "sinks", {q.dim[1]});
  const Tensor &y = write(0, TYPE_F32, Rows::tok, {p_.tensors[op_->dst[0]].ne[0], q.dim[1]});
  segment(BL_PARAM_ATTENTION_A_CACHE, BL_SRC_ATTENTION_SELECT_A, q, y);
  if (op_->param[BL_PARAM_ATTENTION_B_CACHE] != BL_NONE) segment(BL_PARAM_ATTENTION_B_CACHE, BL_SRC_ATTENTION_SELECT_B, q, y);
  else want(!has(BL_SRC_ATTENTION_SELECT_B), "select_b is there, segment b is not");
}

void OpChecker::segment(size_t first_param, size_t select, const Tensor &q, const Tensor &y) {
  const uint32_t *param = &op_->param[first_param];  // cache, k, v, window, unit
  const uint64_t n_head_kv = op_->param[BL_PARAM_ATTENTION_N_HEAD_KV], dk = q.dim[0], dv = y.dim[0];
  const uint32_t c = param[0], k = param[1], v = param[2], window = param[3], unit = param[4];
  paged(c, window == 0 ? REACH_ALL : window);
  const uint32_t ratio = stream(c, k, dk * n_head_kv);
  heads(c, k, dk);
  if (v == k) {
    between("the values that are part of keys", dv, 1, dk);
  } else {
    if (stream(c, v, dv * n_head_kv) != ratio) bad("the streams of keys and values have different ratios");
    heads(c, v, dv);
  }
  if (has(select)) {
    const Tensor &s = value(select, "select", TYPE_I32);
    rows("select", s, Rows::tok);
    dims("select", s, {s.dim[0]});
    between("unit", unit, 1, 1u << 20);
  } else {
    between("unit", unit, 1, 1);
  }
}

void OpChecker::index() {
  const Tensor &q = value(BL_SRC_INDEX_Q, "q");
  input(BL_SRC_INDEX_POSITIONS, BL_INPUT_POSITIONS);
  input(BL_SRC_INDEX_SEQS, BL_INPUT_SEQS);
  rows("q", q, Rows::tok);
  dims("q", q, {q.dim[0], q.dim[1]});
  const uint32_t c = op_->param[BL_PARAM_INDEX_K_CACHE];
  paged(c, REACH_ALL);
  stream(c, op_->param[BL_PARAM_INDEX_K_STREAM], q.dim[0]);
  finite("scale", BL_PARAM_INDEX_SCALE);
  between("unit", op_->param[BL_PARAM_INDEX_UNIT], 1, 1u << 20);
  flag("pin", BL_PARAM_INDEX_PIN);
  between("candidate_unit", op_->param[BL_PARAM_INDEX_CANDIDATE_UNIT], 1, 1u << 20);
  if (has(BL_SRC_INDEX_W)) {
    const Tensor &w = value(BL_SRC_INDEX_W, "w");
    rows("w", w, Rows::tok);
    dims("w", w, {q.dim[1]});
  }
  if (has(BL_SRC_INDEX_CANDIDATES)) {
    const Tensor &s = value(BL_SRC_INDEX_CANDIDATES, "candidates", TYPE_I32);
    rows("candidates", s, Rows::tok);
    dims("candidates", s, {s.dim[0]});
  }
  write(0, TYPE_I32, Rows::tok, {p_.tensors[op_->dst[0]].ne[0]});
}

void OpChecker::pool() {
  input(BL_SRC_POOL_POSITIONS, BL_INPUT_POSITIONS);
  input(BL_SRC_POOL_SEQS, BL_INPUT_SEQS);
  const uint32_t kind = op_->param[BL_PARAM_POOL_KIND], ratio = op_->param[BL_PARAM_POOL_RATIO];
  between("kind", kind, 0, BL_POOL_KIND_COUNT - 1);
  between("ratio", ratio, 1, 1u << 20);
  flag("overlap", BL_PARAM_POOL_OVERLAP);
  const bool overlap = op_->param[BL_PARAM_POOL_OVERLAP] != 0;
  const Tensor &y = write(0, TYPE_F32, Rows::tok, {p_.tensors[op_->dst[0]].ne[0]});
  const uint64_t width = overlap ? 2 * y.dim[0] : y.dim[0];
  const uint32_t c = op_->param[BL_PARAM_POOL_CACHE];
  paged(c, overlap ? 2 * ratio : ratio);
  want(stream(c, op_->param[BL_PARAM_POOL_K_STREAM], width) == 1 && stream(c, op_->param[BL_PARAM_POOL_Z_STREAM], width) == 1,
       "its streams do not have a row for each position");
  if (has(BL_SRC_POOL_APE)) {
    want(kind == BL_POOL_SOFTMAX, "ape is there, and the mean has no use for it");
    vector(BL_SRC_POOL_APE, "ape", {width, ratio});
  }
}

void OpChecker::router() {
  const Tensor &x = value(BL_SRC_ROUTER_LOGITS, "the logits");
  const uint64_t n = x.dim[0];
  dims("the logits", x, {n});
  between("score", op_->param[BL_PARAM_ROUTER_SCORE], 0, BL_SCORE_KIND_COUNT - 1);
  flag("renorm", BL_PARAM_ROUTER_RENORM);
  for (const size_t i : {BL_PARAM_ROUTER_SUM_ADD, BL_PARAM_ROUTER_SUM_MIN, BL_PARAM_ROUTER_SCALE}) finite("a parameter", i);
  const uint64_t n_group = op_->param[BL_PARAM_ROUTER_N_GROUP];
  if (n_group == 0 || n % n_group != 0) bad("n_group is " + std::to_string(n_group) + ", expected a divisor of " + std::to_string(n));
  between("n_group_used", op_->param[BL_PARAM_ROUTER_N_GROUP_USED], 1, n_group);
  between("group_top", op_->param[BL_PARAM_ROUTER_GROUP_TOP], 1, UINT32_MAX);
  if (has(BL_SRC_ROUTER_BIAS)) vector(BL_SRC_ROUTER_BIAS, "bias", {n});
  const uint64_t k = p_.tensors[op_->dst[BL_DST_ROUTER_IDS]].ne[0];
  between("the experts of a row", k, 1, n_group > 1 ? op_->param[BL_PARAM_ROUTER_N_GROUP_USED] * (n / n_group) : n);
  if (has(BL_SRC_ROUTER_GIVEN)) {
    const Tensor &given = value(BL_SRC_ROUTER_GIVEN, "given", TYPE_I32);
    rows("given", given, x.rows);
    dims("given", given, {k});
    if (given.limit == 0 || given.limit > n || given.least < 0)
      bad("given ranges from " + std::to_string(given.least) + " to below " + std::to_string(given.limit) + " (0: not known), the experts are " +
          std::to_string(n));
  }
  chosen(write(BL_DST_ROUTER_IDS, TYPE_I32, x.rows, {k}), 0, n);
  write(BL_DST_ROUTER_WEIGHTS, TYPE_F32, x.rows, {k});
}

void OpChecker::mix() {
  const Tensor &x = value(BL_SRC_MIX_X, "x"), &w = source(BL_SRC_MIX_W);
  dims("x", x, {x.dim[0], x.dim[1]});
  if (w.kind == BL_KIND_WEIGHT) {
    vector(BL_SRC_MIX_W, "w", {x.dim[1], w.ne[1]});
  } else {
    rows("w", value(BL_SRC_MIX_W, "w"), x.rows);
    dims("w", w, {x.dim[1], w.dim[1]});
  }
  write(0, TYPE_F32, x.rows, {x.dim[0], w.dim[1]});
}

void OpChecker::concat() {
  const uint32_t axis = op_->param[BL_PARAM_CONCAT_AXIS];
  between("axis", axis, 0, 2);
  const uint32_t type = source(0).type == TYPE_I32 ? TYPE_I32 : TYPE_F32;
  const Tensor &first = value(0, "the first part", type);
  Dims y(first);
  int32_t least = first.least;
  uint64_t limit = first.limit;
  for (size_t i = 1; i < op_->src.size(); i++) {
    const Tensor &part = value(i, "a part", type);
    rows("a part", part, first.rows);
    Dims fits(first);
    fits.d[axis] = part.dim[axis];
    dims("a part", part, fits);
    y.d[axis] += part.dim[axis];
    least = std::min(least, part.least);
    limit = limit == 0 || part.limit == 0 ? 0 : std::max(limit, part.limit);
  }
  chosen(write(0, type, first.rows, y), least, limit);
}

void OpChecker::conv() {
  const Tensor &x = value(BL_SRC_CONV_X, "x");
  const uint64_t n = x.dim[0];
  dims("x", x, {n});
  rows("x", x, Rows::tok);
  const uint64_t K = source(BL_SRC_CONV_W).ne[0], dilation = op_->param[BL_PARAM_CONV_DILATION];
  vector(BL_SRC_CONV_W, "w", {K, n});
  if (has(BL_SRC_CONV_B)) vector(BL_SRC_CONV_B, "b", {n});
  input(BL_SRC_CONV_POSITIONS, BL_INPUT_POSITIONS);
  input(BL_SRC_CONV_SEQS, BL_INPUT_SEQS);
  between("the kernel's length", K, 2, 1u << 10);
  between("dilation", dilation, 1, 1u << 10);
  flag("silu", BL_PARAM_CONV_SILU);
  state(op_->param[BL_PARAM_CONV_CACHE], op_->param[BL_PARAM_CONV_STREAM], (K - 1) * dilation * n);
  write(0, TYPE_F32, Rows::tok, {n});
}

void OpChecker::delta() {
  const Tensor &q = value(BL_SRC_DELTA_Q, "q"), &k = value(BL_SRC_DELTA_K, "k"), &v = value(BL_SRC_DELTA_V, "v");
  const Tensor &g = value(BL_SRC_DELTA_G, "g"), &beta = value(BL_SRC_DELTA_BETA, "beta");
  input(BL_SRC_DELTA_POSITIONS, BL_INPUT_POSITIONS);
  input(BL_SRC_DELTA_SEQS, BL_INPUT_SEQS);
  const uint64_t dk = q.dim[0], Hk = q.dim[1], dv = v.dim[0], Hv = v.dim[1];
  for (const Tensor *t : {&q, &k, &v, &g, &beta}) rows("a source", *t, Rows::tok);
  dims("q", q, {dk, Hk});
  dims("k", k, {dk, Hk});
  dims("v", v, {dv, Hv});
  dims("g", g, {g.dim[0] == 1 ? 1 : dk, Hv});
  dims("beta", beta, {1, Hv});
  if (Hv % Hk != 0) bad("it has " + std::to_string(Hv) + " value heads for " + std::to_string(Hk) + " key heads");
  between("rule", op_->param[BL_PARAM_DELTA_RULE], 0, BL_DELTA_RULE_COUNT - 1);
  flag("tiled", BL_PARAM_DELTA_TILED);
  want(dk <= (1u << 16) && dv <= (1u << 16) && Hv <= (1u << 16), "its heads are too large");
  state(op_->param[BL_PARAM_DELTA_CACHE], op_->param[BL_PARAM_DELTA_STREAM], dk * dv * Hv);
  write(0, TYPE_F32, Rows::tok, {dv, Hv});
}

void OpChecker::squares() {
  const Tensor &x = value(BL_SRC_SQUARES_X, "x");
  rows("x", x, Rows::tok);
  input(BL_SRC_SQUARES_POSITIONS, BL_INPUT_POSITIONS);
  input(BL_SRC_SQUARES_SEQS, BL_INPUT_SEQS);
  const uint64_t n_mat = op_->param[BL_PARAM_SQUARES_N_MAT];
  between("n_mat", n_mat, 1, 1u << 20);
  want(x.dim[0] <= (1u << 24), "its rows are too long");
  if (has(BL_SRC_SQUARES_IDS)) {
    const Tensor &ids = value(BL_SRC_SQUARES_IDS, "ids", TYPE_I32);
    const uint64_t k = ids.dim[0];
    dims("ids", ids, {k});
    rows("ids", ids, Rows::tok);
    dims("x", x, {x.dim[0], x.dim[1] == 1 ? 1 : k});
    if (ids.limit == 0 || ids.limit > n_mat || ids.least < 0)
      bad("ids range from " + std::to_string(ids.least) + " to below " + std::to_string(ids.limit) + " (0: not known), the matrices are " +
          std::to_string(n_mat));
  } else if (n_mat > 1) {
    dims("x", x, {x.dim[0], n_mat});
  }
  state(op_->param[BL_PARAM_SQUARES_CACHE], op_->param[BL_PARAM_SQUARES_STREAM], n_mat * 2 * (x.dim[0] + 1));
}

void OpChecker::sinkhorn() {
  const Tensor &m = value(BL_SRC_SINKHORN_M, "m");
  const uint64_t n = op_->param[BL_PARAM_SINKHORN_N];
  between("n", n, 1, 64);
  between("iterations", op_->param[BL_PARAM_SINKHORN_ITERATIONS], 1, 1u << 10);
  finite("eps", BL_PARAM_SINKHORN_EPS);
  dims("m", m, {n * n + 2 * n});
  vector(BL_SRC_SINKHORN_SCALE, "scale", {3});
  vector(BL_SRC_SINKHORN_BASE, "base", {n * n + 2 * n});
  write(BL_DST_SINKHORN_PRE, TYPE_F32, m.rows, {n});
  write(BL_DST_SINKHORN_POST, TYPE_F32, m.rows, {n});
  write(BL_DST_SINKHORN_COMB, TYPE_F32, m.rows, {n, n});
}

void OpChecker::dot() {
  const Tensor &a = value(BL_SRC_DOT_A, "a"), &b = source(BL_SRC_DOT_B);
  if (b.kind == BL_KIND_WEIGHT) {
    vector(BL_SRC_DOT_B, "b", {a.dim[0], b.ne[1] == 1 ? 1 : a.dim[1]});
  } else {
    rows("b", value(BL_SRC_DOT_B, "b"), a.rows);
    dims("b", b, Dims(a));
  }
  write(0, TYPE_F32, a.rows, {1, a.dim[1], a.dim[2]});
}

void OpChecker::top_k() {
  const Tensor &x = value(0, "x");
  dims("x", x, {x.dim[0]});
  Tensor &ids = write(BL_DST_TOP_K_IDS, TYPE_I32, x.rows, {p_.tensors[op_->dst[0]].ne[0]});
  const uint64_t k = ids.dim[0];
  between("the number it chooses", k, 1, x.dim[0]);
  chosen(ids, 0, x.dim[0]);
  write(BL_DST_TOP_K_VALUES, TYPE_F32, x.rows, {k});
  write(BL_DST_TOP_K_LSE, TYPE_F32, x.rows, {1});
}

void OpChecker::target_logprob() {
  const Tensor &x = value(BL_SRC_TARGET_LOGPROB_X, "x"), &lse = value(BL_SRC_TARGET_LOGPROB_LSE, "lse");
  input(BL_SRC_TARGET_LOGPROB_TARGETS, BL_INPUT_TARGETS);
  rows("x", x, Rows::out);
  rows("lse", lse, Rows::out);
  dims("x", x, {x.dim[0]});
  dims("lse", lse, {1});
  p_.target_limit = p_.target_limit == 0 ? x.dim[0] : std::min(p_.target_limit, x.dim[0]);
  write(0, TYPE_F32, Rows::out, {1});
}

}  // namespace bl
