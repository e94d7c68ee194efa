// program_internal.h: what program.cpp, program_ops.cpp and program_layout.cpp share.
#pragma once

#include <string>
#include <vector>

#include "program.h"

namespace bl {

// "[ne0, ne1, ne2, ne3]"
std::string shape_text(const uint64_t *ne);

// Checks ops in program order: operand counts, types, shapes, devices; that every value is written before it is read and only once;
// and infers what the rows of each scratch tensor count.
class OpChecker {
 public:
  OpChecker(Program &program, const std::vector<const DeviceTensor *> &weights, const std::vector<const DeviceCache *> &caches)
      : p_(program), weights_(weights), caches_(caches) {}
  void check(uint32_t index);
  void check_output(uint32_t index);

 private:
  [[noreturn]] void bad(const std::string &what) const;
  void want(bool ok, const char *what) const;
  const Tensor &src(size_t i);                                    // source i: an activation that was written, or anything else
  const Tensor &activation(size_t i, uint32_t type = TYPE_F32);   // source i as a written scratch tensor
  const Tensor &weight(size_t i, uint32_t use);
  const Tensor &input(size_t i, bl_input which);
  void shape(const char *what, const Tensor &t, uint64_t ne0, uint64_t ne1, uint64_t ne2 = 1, uint64_t ne3 = 1) const;
  Tensor &write(size_t i, uint32_t type, Rows rows, uint64_t limit = 0);
  const DeviceCache &cache(uint32_t index);
  void stream(const DeviceCache &c, uint32_t s, uint64_t head_dim, uint64_t n_head_kv) const;
  uint64_t bucket_rows(Rows rows) const { return rows == Rows::tok ? p_.n_tok : rows == Rows::out ? p_.n_out : 1; }
  void settle_view(uint32_t id);
  void expert_parts(const Tensor &w);

  Program &p_;
  const std::vector<const DeviceTensor *> &weights_;
  const std::vector<const DeviceCache *> &caches_;
  uint32_t index_ = 0;
  Op *op_ = nullptr;
};

void lay_out_scratch(Program &p);

}  // namespace bl
