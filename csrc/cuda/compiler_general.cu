// compiler_general.cu: ops that run one by one, over any slices: their operands as kernels want them.
#include <algorithm>

#include "attention_general.h"
#include "compiler.h"
#include "elements.h"
#include "experts.h"
#include "groups.h"
#include "index.h"
#include "lines.h"
#include "logits.h"
#include "pack.h"
#include "recurrent.h"

namespace bl::cuda {

namespace {

// The longest row list of a sequence in a cache.
uint64_t most_rows(const CacheUse &use, uint32_t ratio) { return uint64_t(use.n_page) * use.page_size / ratio; }

}  // namespace

// --- tables ---------------------------------------------------------------------------------------------------------------------------

void Compiler::emit_table(const Op &op) {
  const uint32_t table_id = op.src[BL_SRC_GET_ROWS_TABLE], ids = op.src[BL_SRC_GET_ROWS_IDS];
  const CudaTensor &table = weight(table_id);
  if (table.host != nullptr) return emit_host_table(op);
  const Tensor &t = tensor(table_id);
  EmbedArgs args = {};
  args.raw = table.raw.bytes() > 0;
  args.table = args.raw ? table.raw.data() : table.packed.data();
  args.type = t.type, args.n = uint32_t(t.ne[0]);
  args.row_bytes = t.ne[0] / type_info(t.type)->block * type_info(t.type)->bytes;
  args.ids = reinterpret_cast<const int32_t *>(dense(ids)), args.y = at<float>(op.dst[0]), args.rows = rows_of(op.dst[0], t.ne[0]);
  push([=](Stream &s) { embed_rows(args, s); });
}

void Compiler::emit_host_table(const Op &op) {
  const uint32_t table_id = op.src[BL_SRC_GET_ROWS_TABLE], ids = op.src[BL_SRC_GET_ROWS_IDS], y = op.dst[0];
  const Tensor &t = tensor(table_id), &input = p_.root(ids);
  if (input.kind != BL_KIND_INPUT || input.rows != Rows::tok || !whole(ids))
    fail(BL_ERR_UNSUPPORTED, "Cannot compile for cuda: weight %u stays in host memory, and its rows are chosen by what the card computes", t.ref);
  HostRows rows = {&weight(table_id), t.type, input.ref, t.ne[0], input.row_elems, nullptr};
  check(cudaHostAlloc(reinterpret_cast<void **>(&rows.rows), tensor(y).row_elems * p_.n_tok * 4, cudaHostAllocDefault), "cudaHostAlloc");
  exec_.host_rows_.push_back(rows);
  ElementArgs args = {};
  args.op = ElementOp::copy, args.z = result(y), args.rows = token_rows();
  args.x.data = rows.rows, args.x.nb[1] = args.z.nb[1], args.x.nb[2] = args.z.nb[2], args.x.row = args.z.row;
  push([=](Stream &s) { element_op(args, s); });
}

// --- elements -------------------------------------------------------------------------------------------------------------------------

void Compiler::emit_elements(const Op &op) {
  const uint32_t y = op.dst[0];
  ElementArgs args = {};
  args.x = operand(op.src[0]), args.z = result(y), args.rows = rows_of(y, tensor(y).row_elems);
  const auto repeat = [&](Operand &o, uint32_t id) {  // axes of length 1
    for (int i = 0; i < 3; i++)
      if (tensor(id).dim[i] == 1) o.nb[i] = 0;
  };
  switch (op.code) {
    case BL_OP_ADD:
    case BL_OP_MUL:
      args.op = op.code == BL_OP_ADD ? ElementOp::add : ElementOp::mul;
      args.y = operand(op.src[1]);
      repeat(args.x, op.src[0]), repeat(args.y, op.src[1]);
      break;
    case BL_OP_GATE:
      args.op = ElementOp::gate, args.y = operand(op.src[1]);
      args.kind = op.param[BL_PARAM_GATE_KIND], args.a = op.param_f32(BL_PARAM_GATE_A), args.b = op.param_f32(BL_PARAM_GATE_B);
      break;
    case BL_OP_UNARY:
      args.op = ElementOp::unary;
      args.kind = op.param[BL_PARAM_UNARY_KIND], args.a = op.param_f32(BL_PARAM_UNARY_A), args.b = op.param_f32(BL_PARAM_UNARY_B);
      break;
    default: args.op = ElementOp::copy;
  }
  push([=](Stream &s) { element_op(args, s); });
}

void Compiler::emit_mix(const Op &op) {
  const Tensor &x = tensor(op.src[BL_SRC_MIX_X]), &w = tensor(op.src[BL_SRC_MIX_W]);
  MixArgs args = {};
  args.x = operand(op.src[BL_SRC_MIX_X]), args.w = operand(op.src[BL_SRC_MIX_W]);
  args.n = uint32_t(x.dim[0]), args.J = uint32_t(x.dim[1]), args.M = uint32_t(w.dim[1]);
  args.y = at<float>(op.dst[0]), args.rows = rows_of(op.dst[0], tensor(op.dst[0]).row_elems);
  push([=](Stream &s) { mix(args, s); });
}

void Compiler::emit_concat(const Op &op) {
  const uint32_t y = op.dst[0], axis = op.param[BL_PARAM_CONCAT_AXIS];
  ElementArgs args = {};
  args.op = ElementOp::copy, args.rows = rows_of(y, tensor(y).row_elems);
  uint64_t at_axis = 0;
  for (const uint32_t part : op.src) {
    args.x = operand(part), args.z = result(y);
    args.z.data += at_axis * args.z.nb[axis];
    for (int i = 0; i < 3; i++) args.z.ne[i] = uint32_t(tensor(part).dim[i]);
    at_axis += tensor(part).dim[axis];
    push([=](Stream &s) { element_op(args, s); });
  }
}

void Compiler::emit_line(const Op &op) {
  const uint32_t x = op.src[0];
  const Tensor &t = tensor(x);
  LineArgs args = {};
  args.x = operand(x), args.z = at<float>(op.dst[0]), args.rows = rows_of(x, t.row_elems);
  for (int i = 0; i < 3; i++) args.ne[i] = uint32_t(t.dim[i]);
  const auto line = [&](size_t source) { return op.has(source) && tensor(op.src[source]).ne[1] > 1 ? args.ne[0] : 0; };
  switch (op.code) {
    case BL_OP_NORM:
      args.op = LineOp::norm, args.kind = op.param[BL_PARAM_NORM_KIND], args.eps = op.param_f32(BL_PARAM_NORM_EPS);
      args.w = optional(op, BL_SRC_NORM_W), args.b = optional(op, BL_SRC_NORM_B);
      args.w_line = line(BL_SRC_NORM_W), args.b_line = line(BL_SRC_NORM_B);
      break;
    case BL_OP_DOT:
      args.op = LineOp::dot, args.y = operand(op.src[1]);
      if (tensor(op.src[1]).kind == BL_KIND_WEIGHT) args.y.nb[1] = line(1), args.y.nb[2] = 0;
      break;
    default: args.op = LineOp::softmax;
  }
  push([=](Stream &s) { line_op(args, s); });
}

// --- caches ---------------------------------------------------------------------------------------------------------------------------

void Compiler::emit_general_attention(const Op &op) {
  const uint32_t q_id = op.src[BL_SRC_ATTENTION_Q];
  const Tensor &q = tensor(q_id), &y = tensor(op.dst[0]);
  GeneralAttentionArgs args = {};
  args.q = at<float>(q_id), args.q_head = q.nb[0], args.q_row = q.row_stride;
  args.y = at<float>(op.dst[0]), args.sinks = optional(op, BL_SRC_ATTENTION_SINKS);
  args.n_head = uint32_t(q.dim[1]), args.n_head_kv = op.param[BL_PARAM_ATTENTION_N_HEAD_KV];
  args.head_dim_k = uint32_t(q.dim[0]), args.head_dim_v = uint32_t(y.dim[0]);
  args.scale = op.param_f32(BL_PARAM_ATTENTION_SCALE), args.softcap = op.param_f32(BL_PARAM_ATTENTION_SOFTCAP);
  args.positions = input(exec_.at_.positions), args.seqs = input(exec_.at_.seqs), args.rows = token_rows();
  args.runs = reinterpret_cast<const SequenceRun *>(input(exec_.at_.runs)), args.ahead = op.param[BL_PARAM_ATTENTION_AHEAD];
  const size_t first_param[] = {BL_PARAM_ATTENTION_A_CACHE, BL_PARAM_ATTENTION_B_CACHE};  // cache, k, v, window, unit
  const size_t select[] = {BL_SRC_ATTENTION_SELECT_A, BL_SRC_ATTENTION_SELECT_B};
  for (int g = 0; g < 2; g++) {
    const uint32_t *param = &op.param[first_param[g]], c = param[0];
    if (c == BL_NONE) continue;
    AttentionSegment &segment = args.segment[args.n_segment++];
    segment.k = cache(c).stream(param[1]), segment.v = cache(c).stream(param[2]), segment.table = pages(c);
    segment.window = param[3], segment.unit = param[4];
    segment.v_head = param[1] == param[2] ? args.head_dim_k : args.head_dim_v;
    uint64_t places = most_rows(p_.caches[c], segment.k.ratio);
    if (op.has(select[g])) {
      segment.select = reinterpret_cast<const int32_t *>(dense(op.src[select[g]]));
      segment.n_select = uint32_t(tensor(op.src[select[g]]).dim[0]);
      places = (uint64_t(segment.n_select) + (segment.unit > 1 ? 1 : 0)) * segment.unit;
    }
    if (places > INT32_MAX) fail(BL_ERR_UNSUPPORTED, "Cannot attend to %llu rows on cuda: at most 2^31 - 1", (unsigned long long)places);
    segment.n_span = uint32_t(std::max<uint64_t>(1, ceil_div(places, uint64_t(CHUNK_KEYS) * SPAN_CHUNKS)));
  }
  const uint64_t state_bytes = plan_general_attention(args);
  if (states_bytes_ < state_bytes) states_ = allocate(state_bytes, "attention states"), states_bytes_ = state_bytes;
  args.states = reinterpret_cast<float *>(states_);
  push([=](Stream &s) { general_attention(args, s); });
}

void Compiler::emit_index(const Op &op) {
  const uint32_t q_id = op.src[BL_SRC_INDEX_Q], c = op.param[BL_PARAM_INDEX_K_CACHE];
  const Tensor &q = tensor(q_id);
  IndexArgs args = {};
  args.q = at<float>(q_id), args.q_head = q.nb[0], args.q_row = q.row_stride;
  if (op.has(BL_SRC_INDEX_W)) args.w = at<float>(op.src[BL_SRC_INDEX_W]), args.w_row = tensor(op.src[BL_SRC_INDEX_W]).row_stride;
  if (op.has(BL_SRC_INDEX_CANDIDATES)) {
    args.candidates = reinterpret_cast<const int32_t *>(dense(op.src[BL_SRC_INDEX_CANDIDATES]));
    args.n_candidate = uint32_t(tensor(op.src[BL_SRC_INDEX_CANDIDATES]).dim[0]);
  }
  args.candidate_unit = op.param[BL_PARAM_INDEX_CANDIDATE_UNIT];
  args.k = cache(c).stream(op.param[BL_PARAM_INDEX_K_STREAM]), args.table = pages(c);
  args.d = uint32_t(q.dim[0]), args.n_head = uint32_t(q.dim[1]);
  args.scale = op.param_f32(BL_PARAM_INDEX_SCALE), args.unit = op.param[BL_PARAM_INDEX_UNIT], args.pin = op.param[BL_PARAM_INDEX_PIN] != 0;
  args.positions = input(exec_.at_.positions), args.seqs = input(exec_.at_.seqs), args.rows = token_rows();
  args.ids = at<int32_t>(op.dst[0]), args.n = uint32_t(tensor(op.dst[0]).dim[0]);
  args.max_rows = uint32_t(std::max<uint64_t>(1, most_rows(p_.caches[c], args.k.ratio)));
  const uint64_t bytes = index_scratch_bytes(args);
  if (index_bytes_ < bytes) index_ = allocate(bytes, "index scores"), index_bytes_ = bytes;
  args.keys = reinterpret_cast<uint32_t *>(index_);
  push([=](Stream &s) { index_rows(args, s); });
}

void Compiler::emit_pool(const Op &op) {
  const uint32_t c = op.param[BL_PARAM_POOL_CACHE];
  PoolArgs args = {};
  args.k = cache(c).stream(op.param[BL_PARAM_POOL_K_STREAM]), args.z = cache(c).stream(op.param[BL_PARAM_POOL_Z_STREAM]), args.table = pages(c);
  args.ape = optional(op, BL_SRC_POOL_APE), args.y = at<float>(op.dst[0]), args.n = uint32_t(tensor(op.dst[0]).dim[0]);
  args.ratio = op.param[BL_PARAM_POOL_RATIO], args.mean = op.param[BL_PARAM_POOL_KIND] == BL_POOL_MEAN, args.overlap = op.param[BL_PARAM_POOL_OVERLAP] != 0;
  args.positions = input(exec_.at_.positions), args.seqs = input(exec_.at_.seqs), args.rows = token_rows();
  push([=](Stream &s) { pool(args, s); });
}

// --- states ---------------------------------------------------------------------------------------------------------------------------

void Compiler::emit_conv(const Op &op) {
  const Tensor &x = tensor(op.src[BL_SRC_CONV_X]);
  const uint32_t c = op.param[BL_PARAM_CONV_CACHE];
  ConvArgs args = {};
  args.x = at<float>(op.src[BL_SRC_CONV_X]), args.x_row = x.row_stride;
  args.w = at<float>(op.src[BL_SRC_CONV_W]), args.b = optional(op, BL_SRC_CONV_B), args.y = at<float>(op.dst[0]);
  args.C = uint32_t(x.dim[0]), args.K = uint32_t(tensor(op.src[BL_SRC_CONV_W]).ne[0]), args.dilation = op.param[BL_PARAM_CONV_DILATION];
  args.silu = op.param[BL_PARAM_CONV_SILU] != 0;
  args.state = cache(c).stream(op.param[BL_PARAM_CONV_STREAM]), args.table = pages(c);
  args.positions = input(exec_.at_.positions), args.runs = reinterpret_cast<const SequenceRun *>(input(exec_.at_.runs));
  args.n_seq = &counts()->n_seq, args.max_seq = p_.n_seq, args.max_rows = p_.n_tok;
  push([=](Stream &s) { conv(args, s); });
}

void Compiler::emit_delta(const Op &op) {
  const Tensor &q = tensor(op.src[BL_SRC_DELTA_Q]), &v = tensor(op.src[BL_SRC_DELTA_V]);
  const uint32_t c = op.param[BL_PARAM_DELTA_CACHE];
  DeltaArgs args = {};
  args.q = operand(op.src[BL_SRC_DELTA_Q]), args.k = operand(op.src[BL_SRC_DELTA_K]), args.v = operand(op.src[BL_SRC_DELTA_V]);
  args.g = operand(op.src[BL_SRC_DELTA_G]), args.beta = operand(op.src[BL_SRC_DELTA_BETA]), args.y = at<float>(op.dst[0]);
  args.dk = uint32_t(q.dim[0]), args.dv = uint32_t(v.dim[0]), args.n_key_head = uint32_t(q.dim[1]), args.n_head = uint32_t(v.dim[1]);
  args.plain = op.param[BL_PARAM_DELTA_RULE] == BL_DELTA_PLAIN, args.tiled = op.param[BL_PARAM_DELTA_TILED] != 0;
  args.one_decay = tensor(op.src[BL_SRC_DELTA_G]).dim[0] == 1;
  args.state = cache(c).stream(op.param[BL_PARAM_DELTA_STREAM]), args.table = pages(c);
  args.positions = input(exec_.at_.positions), args.runs = reinterpret_cast<const SequenceRun *>(input(exec_.at_.runs));
  args.n_seq = &counts()->n_seq, args.max_seq = p_.n_seq;
  push([=](Stream &s) { delta(args, s); });
}

// --- choices --------------------------------------------------------------------------------------------------------------------------

void Compiler::emit_router(const Op &op) {
  RouterArgs args = {};
  const uint32_t logits = op.src[BL_SRC_ROUTER_LOGITS];
  args.logits = reinterpret_cast<const float *>(dense(logits)), args.bias = optional(op, BL_SRC_ROUTER_BIAS);
  if (op.has(BL_SRC_ROUTER_GIVEN)) args.given = reinterpret_cast<const int32_t *>(dense(op.src[BL_SRC_ROUTER_GIVEN]));
  args.ids = at<int32_t>(op.dst[BL_DST_ROUTER_IDS]), args.weights = at<float>(op.dst[BL_DST_ROUTER_WEIGHTS]);
  args.n_expert = uint32_t(tensor(logits).dim[0]), args.k = uint32_t(tensor(op.dst[BL_DST_ROUTER_IDS]).dim[0]);
  args.score = op.param[BL_PARAM_ROUTER_SCORE], args.renorm = op.param[BL_PARAM_ROUTER_RENORM] != 0;
  args.n_group = op.param[BL_PARAM_ROUTER_N_GROUP], args.n_group_used = op.param[BL_PARAM_ROUTER_N_GROUP_USED];
  args.group_top = std::min(op.param[BL_PARAM_ROUTER_GROUP_TOP], args.n_expert / args.n_group);
  args.sum_add = op.param_f32(BL_PARAM_ROUTER_SUM_ADD), args.sum_min = op.param_f32(BL_PARAM_ROUTER_SUM_MIN);
  args.scale = op.param_f32(BL_PARAM_ROUTER_SCALE), args.rows = rows_of(logits, args.n_expert);
  push([=](Stream &s) { router(args, s); });
}

void Compiler::emit_sinkhorn(const Op &op) {
  const uint32_t m = op.src[BL_SRC_SINKHORN_M];
  SinkhornArgs args = {};
  args.m = reinterpret_cast<const float *>(dense(m));
  args.scale = at<float>(op.src[BL_SRC_SINKHORN_SCALE]), args.base = at<float>(op.src[BL_SRC_SINKHORN_BASE]);
  args.pre = at<float>(op.dst[BL_DST_SINKHORN_PRE]), args.post = at<float>(op.dst[BL_DST_SINKHORN_POST]), args.comb = at<float>(op.dst[BL_DST_SINKHORN_COMB]);
  args.n = op.param[BL_PARAM_SINKHORN_N], args.iterations = op.param[BL_PARAM_SINKHORN_ITERATIONS], args.eps = op.param_f32(BL_PARAM_SINKHORN_EPS);
  args.rows = rows_of(m, tensor(m).row_elems);
  push([=](Stream &s) { sinkhorn(args, s); });
}

void Compiler::emit_top_k(const Op &op) {
  const uint32_t x = op.src[BL_SRC_TOP_K_X];
  TopKArgs args = {};
  args.logits = reinterpret_cast<const float *>(dense(x)), args.n = uint32_t(tensor(x).dim[0]), args.k = uint32_t(tensor(op.dst[0]).dim[0]);
  args.ids = at<int32_t>(op.dst[BL_DST_TOP_K_IDS]), args.values = at<float>(op.dst[BL_DST_TOP_K_VALUES]), args.lse = at<float>(op.dst[BL_DST_TOP_K_LSE]);
  args.rows = rows_of(x, args.n);
  args.scratch = reinterpret_cast<uint64_t *>(allocate(top_k_scratch_bytes(args.n, args.k, args.rows.max), "top-k"));
  push([=](Stream &s) { top_k(args, s); });
}

void Compiler::emit_target_logprob(const Op &op) {
  const uint32_t x = op.src[BL_SRC_TARGET_LOGPROB_X];
  TargetArgs args = {};
  args.logits = reinterpret_cast<const float *>(dense(x)), args.lse = reinterpret_cast<const float *>(dense(op.src[BL_SRC_TARGET_LOGPROB_LSE]));
  args.targets = at<int32_t>(op.src[BL_SRC_TARGET_LOGPROB_TARGETS]);
  args.y = at<float>(op.dst[0]), args.n = uint32_t(tensor(x).dim[0]), args.rows = rows_of(op.dst[0], 1);
  push([=](Stream &s) { target_logprob(args, s); });
}

}  // namespace bl::cuda
