// program_checks.cpp: what the operand rules of program_ops.cpp are made of.
#include <algorithm>
#include <cmath>

#include "device.h"
#include "program_internal.h"

namespace bl {
namespace {

std::string row_text(const uint64_t *d) { return "[" + std::to_string(d[0]) + ", " + std::to_string(d[1]) + ", " + std::to_string(d[2]) + "]"; }

const char *rows_name(Rows rows) { return rows == Rows::tok ? "token rows" : rows == Rows::out ? "output rows" : "no rows"; }

const char *type_name(uint32_t type) {
  const TypeInfo *t = type_info(type);
  return t == nullptr ? "an unknown type" : t->name;
}

// The shape and the place of a view, when what it looks at is known.
void settle_view(Program &p, uint32_t id) {
  Tensor &t = p.tensors[id];
  const Tensor &of = p.tensors[t.root];
  if (t.kind != BL_KIND_VIEW || t.row_elems != 0) return;
  split_rows(t, of.rows == Rows::tok ? p.n_tok : p.n_out, id);
  t.rows = of.rows, t.row_stride = of.row_elems, t.least = of.least, t.limit = of.limit;
  // An axis of one element has no stride to speak of.
  const uint64_t packed[2] = {t.dim[0], t.dim[0] * t.dim[1]};
  unsigned __int128 last = (unsigned __int128)t.start + t.dim[0] - 1;
  for (int i = 0; i < 2; i++) {
    if (t.dim[i + 1] == 1) t.nb[i] = packed[i];
    last += (unsigned __int128)t.nb[i] * (t.dim[i + 1] - 1);
  }
  if (last >= of.row_elems)
    fail(BL_ERR_PROGRAM,
         "Cannot read program: tensor %u, rows %s from element %llu with strides %llu, %llu, reaches past the %llu elements of tensor %u's rows", id,
         row_text(t.dim).c_str(), (unsigned long long)t.start, (unsigned long long)t.nb[0], (unsigned long long)t.nb[1],
         (unsigned long long)of.row_elems, t.root);
}

}  // namespace

void OpChecker::bad(const std::string &what) const {
  fail(BL_ERR_PROGRAM, "Cannot create program: op %u (%s): %s", index_, op_name(op_->code), what.c_str());
}

void OpChecker::want(bool ok, const char *what) const {
  if (!ok) bad(what);
}

void OpChecker::between(const char *what, uint64_t value, uint64_t low, uint64_t high) const {
  if (value < low || value > high)
    bad(std::string(what) + " is " + std::to_string(value) + ", expected " + std::to_string(low) + " to " + std::to_string(high));
}

void OpChecker::finite(const char *what, size_t param) const {
  if (!std::isfinite(op_->param_f32(param))) bad(std::string(what) + " is not finite");
}

const Tensor &OpChecker::source(size_t i) {
  const uint32_t id = op_->src[i];
  if (id == BL_NO_OPERAND) bad("source " + std::to_string(i) + " is left out");
  Tensor &t = p_.tensors[id];
  Tensor &root = p_.tensors[t.root];
  if (root.kind == BL_KIND_SCRATCH) {
    if (root.first < 0) bad("source " + std::to_string(i) + " (tensor " + std::to_string(id) + ") is read before it is written");
    root.last = int32_t(index_);
  }
  settle_view(p_, id);
  if (root.kind != BL_KIND_INPUT && t.device != op_->device && op_->code != BL_OP_COPY)
    bad("source " + std::to_string(i) + " is on device " + std::to_string(t.device) + ", the op on device " + std::to_string(op_->device));
  return t;
}

const Tensor &OpChecker::value(size_t i, const char *what, uint32_t type) {
  const Tensor &t = source(i);
  const Tensor &root = p_.tensors[t.root];
  const bool is_value = root.kind == BL_KIND_SCRATCH || (root.kind == BL_KIND_INPUT && root.ref >= BL_INPUT_DERIVED);
  if (!is_value || t.type != type)
    bad(std::string(what) + " (source " + std::to_string(i) + ") is a " + type_name(t.type) + " tensor of kind " + std::to_string(t.kind) +
        ", expected an activation or derived input of " + type_name(type));
  return t;
}

const Tensor &OpChecker::weight(size_t i, const char *what, uint32_t use) {
  const Tensor &t = source(i);
  if (t.kind != BL_KIND_WEIGHT) bad(std::string(what) + " (source " + std::to_string(i) + ") is not a weight");
  if ((weights_[t.ref]->uses & use) != use)
    bad("weight " + std::to_string(t.ref) + " was loaded for uses " + std::to_string(weights_[t.ref]->uses) + ", which lack " +
        std::to_string(use));
  if (use == BL_USE_VECTOR && t.type != TYPE_F32) bad("weight " + std::to_string(t.ref) + " is " + type_name(t.type) + ", expected f32");
  return t;
}

const Tensor &OpChecker::vector(size_t i, const char *what, const Dims &ne) {
  const Tensor &t = weight(i, what, BL_USE_VECTOR);
  if (t.ne[0] != ne.d[0] || t.ne[1] != ne.d[1] || t.ne[2] != ne.d[2] || t.ne[3] != 1)
    bad(std::string(what) + " is " + shape_text(t.ne) + ", expected " + row_text(ne.d));
  return t;
}

void OpChecker::input(size_t i, bl_input which) {
  const Tensor &t = source(i);
  if (t.kind != BL_KIND_INPUT || t.ref != which) bad("source " + std::to_string(i) + " is not step input " + std::to_string(which));
}

void OpChecker::dims(const char *what, const Tensor &t, const Dims &want) const {
  if (memcmp(t.dim, want.d, sizeof want.d) != 0) bad(std::string(what) + " has rows " + row_text(t.dim) + ", expected " + row_text(want.d));
}

void OpChecker::rows(const char *what, const Tensor &t, Rows want) const {
  if (t.rows != want) bad(std::string(what) + " counts " + rows_name(t.rows) + ", expected " + rows_name(want));
}

Tensor &OpChecker::write(size_t i, uint32_t type, Rows rows, const Dims &want) {
  const uint32_t id = op_->dst[i];
  Tensor &t = p_.tensors[id];
  if (t.kind != BL_KIND_SCRATCH) bad("result " + std::to_string(i) + " is not a scratch tensor");
  if (t.first >= 0) bad("tensor " + std::to_string(id) + " is written a second time");
  if (t.type != type) bad("result " + std::to_string(i) + " has type " + type_name(t.type) + ", expected " + type_name(type));
  if (t.device != op_->device) bad("result " + std::to_string(i) + " is on another device than the op");
  t.rows = rows;
  split_rows(t, rows == Rows::tok ? p_.n_tok : p_.n_out, id);
  settle_packed(t);
  t.row_stride = t.row_elems;
  t.first = t.last = int32_t(index_);
  dims("the result", t, want);
  return t;
}

const DeviceCache &OpChecker::cache(uint32_t index) {
  if (index >= caches_.size()) bad("cache is " + std::to_string(index) + ", the program has " + std::to_string(caches_.size()));
  const DeviceCache &c = *caches_[index];
  if (c.device != op_->device) bad("cache " + std::to_string(index) + " is on device " + std::to_string(c.device) + ", the op on device " +
                                   std::to_string(op_->device));
  return c;
}

CacheUse &OpChecker::paged(uint32_t index, uint32_t reach) {
  cache(index);
  CacheUse &use = p_.caches[index];
  use.rows = true;
  use.reach = std::max(use.reach, reach);
  return use;
}

void OpChecker::state(uint32_t index, uint32_t s, uint64_t ne) {
  const DeviceCache &c = cache(index);
  if (stream(index, s, ne) != 1 || c.shape.type[s] != TYPE_F32)
    bad("stream " + std::to_string(s) + " of cache " + std::to_string(index) + " is not f32 with a row for each position");
  if (c.shape.page_size != 1 || p_.caches[index].n_page != 1)
    bad("cache " + std::to_string(index) + " has pages of " + std::to_string(c.shape.page_size) + " positions, " +
        std::to_string(p_.caches[index].n_page) + " a sequence, expected 1 and 1 for states");
  CacheUse &use = p_.caches[index];
  use.state = use.written = true;
  use.reach = std::max(use.reach, 1u);
  p_.has_state = true;
}

uint32_t OpChecker::stream(uint32_t index, uint32_t s, uint64_t ne) const {
  const CacheShape &shape = caches_[index]->shape;
  if (s >= shape.type.size())
    bad("stream is " + std::to_string(s) + ", cache " + std::to_string(index) + " has " + std::to_string(shape.type.size()));
  if (shape.ne[s] != ne)
    bad("stream " + std::to_string(s) + " of cache " + std::to_string(index) + " has rows of " + std::to_string(shape.ne[s]) +
        " elements, expected " + std::to_string(ne));
  return shape.ratio[s];
}

void OpChecker::heads(uint32_t index, uint32_t s, uint64_t head_dim) const {
  const uint32_t block = type_info(caches_[index]->shape.type[s])->block;
  if (!caches_[index]->splits_blocks && head_dim % block != 0)
    bad("heads of " + std::to_string(head_dim) + " elements are not whole blocks of " + std::to_string(block) + " in stream " +
        std::to_string(s) + " of cache " + std::to_string(index));
}

void OpChecker::check_caches() const {
  for (size_t i = 0; i < p_.caches.size(); i++)
    if (p_.caches[i].state && p_.caches[i].rows)
      fail(BL_ERR_PROGRAM, "Cannot create program: cache %zu is used for states and for rows", i);
}

void OpChecker::check_output(uint32_t i) {
  const uint32_t id = p_.outputs[i];
  const Tensor &t = p_.tensors[id];
  Tensor &root = p_.tensors[t.root];
  if (root.kind != BL_KIND_SCRATCH)
    fail(BL_ERR_PROGRAM, "Cannot create program: output %u is tensor %u, which is not an activation", i, id);
  if (root.first < 0) fail(BL_ERR_PROGRAM, "Cannot create program: output %u is tensor %u, which no op writes", i, id);
  settle_view(p_, id);
  root.last = int32_t(p_.ops.size());
}

}  // namespace bl
