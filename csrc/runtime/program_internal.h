// program_internal.h: what program.cpp, program_ops.cpp, program_checks.cpp and program_layout.cpp share.
#pragma once

#include <string>
#include <vector>

#include "program.h"

namespace bl {

// "[ne0, ne1, ne2, ne3]"
std::string shape_text(const uint64_t *ne);

// Strides of a row whose numbers lie one after the other.
void settle_packed(Tensor &t);

// Splits t.ne in the axis that counts n_rows and t.dim.   fails with BL_ERR_PROGRAM
void split_rows(Tensor &t, uint64_t n_rows, uint32_t id);

// Checks ops in program order: operand counts, types, shapes, devices; that every value is written before it is read and only once;
// and infers what the rows of each scratch tensor count. The rules of each op are in program_ops.cpp, what they are made of in
// program_checks.cpp.
class OpChecker {
 public:
  OpChecker(Program &program, const std::vector<const DeviceTensor *> &weights, const std::vector<const DeviceCache *> &caches)
      : p_(program), weights_(weights), caches_(caches) {}
  void check(uint32_t index);
  void check_output(uint32_t index);
  // What can be said when all ops are known.
  void check_caches() const;

 private:
  struct Dims {
    uint64_t d[3];
    Dims(uint64_t a, uint64_t b = 1, uint64_t c = 1) : d{a, b, c} {}
    explicit Dims(const Tensor &t) : d{t.dim[0], t.dim[1], t.dim[2]} {}
  };

  [[noreturn]] void bad(const std::string &what) const;
  void want(bool ok, const char *what) const;
  void between(const char *what, uint64_t value, uint64_t low, uint64_t high) const;
  void finite(const char *what, size_t param) const;
  void flag(const char *what, size_t param) const { between(what, op_->param[param], 0, 1); }
  bool has(size_t i) const { return op_->has(i); }

  const Tensor &source(size_t i);                                                // source i, settled
  const Tensor &value(size_t i, const char *what, uint32_t type = TYPE_F32);     // an activation, a derived input, or a view of one
  const Tensor &weight(size_t i, const char *what, uint32_t use);
  const Tensor &vector(size_t i, const char *what, const Dims &ne);              // an f32 weight that is read whole
  void input(size_t i, bl_input which);
  void dims(const char *what, const Tensor &t, const Dims &want) const;          // of a row
  void rows(const char *what, const Tensor &t, Rows want) const;
  Tensor &write(size_t i, uint32_t type, Rows rows, const Dims &dims);
  void chosen(Tensor &ids, int32_t least, uint64_t limit) const { ids.least = least, ids.limit = limit; }

  const DeviceCache &cache(uint32_t index);
  CacheUse &paged(uint32_t index, uint32_t reach);
  void state(uint32_t index, uint32_t stream, uint64_t ne);
  uint32_t stream(uint32_t cache, uint32_t s, uint64_t ne) const;  // the ratio of stream s, which has ne elements
  void heads(uint32_t cache, uint32_t s, uint64_t head_dim) const; // whole blocks a head, on a card

  void get_rows();
  void norm();
  void pair();
  void mul_mat();
  void mul_mat_id();
  void rope();
  void stream_write();
  void attention();
  void segment(size_t first_param, size_t select, const Tensor &q, const Tensor &y);
  void index();
  void pool();
  void router();
  void mix();
  void concat();
  void conv();
  void delta();
  void squares();
  void sinkhorn();
  void dot();
  void top_k();
  void target_logprob();

  Program &p_;
  const std::vector<const DeviceTensor *> &weights_;
  const std::vector<const DeviceCache *> &caches_;
  uint32_t index_ = 0;
  Op *op_ = nullptr;
};

void lay_out_scratch(Program &p);

}  // namespace bl
