// ops_matmul.cpp: MUL_MAT and MUL_MAT_ID. Neighbouring ops with the same source are one job: the source is quantized once and the
// threads meet once.
#include <algorithm>

#include "exec.h"

namespace bl {

size_t CpuExec::mul_mat(size_t first) {
  const Op &op = p_.ops[first];
  const Tensor &x = p_.tensors[op.src[1]];
  size_t end = first + 1;
  while (end < p_.ops.size() && p_.ops[end].code == BL_OP_MUL_MAT && p_.ops[end].src[1] == op.src[1]) end++;
  const uint64_t n_in = x.ne[0];
  const uint32_t n_rows = uint32_t(rows(op.src[1]) * (x.row_elems / n_in));
  matmul_.clear(end - first);
  matmul_.sets.push_back({0, n_rows});
  for (uint32_t r = 0; r < n_rows; r++) matmul_.x.push_back(f32(op.src[1]) + r * n_in);
  for (size_t i = first; i < end; i++) {
    const CpuTensor &w = weight(p_.ops[i].src[0]);
    const uint32_t output = uint32_t(i - first);
    float *y = f32(p_.ops[i].dst[0]);
    for (uint32_t r = 0; r < n_rows; r++) matmul_.y[output].push_back(y + r * w.ne[1]);
    matmul_.parts.push_back({&w, 0, 0, output});
  }
  matmul_.run();
  return end;
}

// Rows are sorted by expert (a stable counting sort over (token, slot)); each expert's rows are one row set.
size_t CpuExec::mul_mat_id(size_t first) {
  const Op &op = p_.ops[first];
  const Tensor &x = p_.tensors[op.src[1]], &ids = p_.tensors[op.src[2]];
  size_t end = first + 1;
  while (end < p_.ops.size() && p_.ops[end].code == BL_OP_MUL_MAT_ID && p_.ops[end].src[1] == op.src[1] &&
         p_.ops[end].src[2] == op.src[2] && p_.ops[end].src.size() == 3 && op.src.size() == 3)
    end++;
  const uint64_t n_in = x.ne[0], k = ids.ne[0], n_rows = rows(op.src[2]) * k;
  const int32_t *id = i32(op.src[2]);
  const bool mapped = op.src.size() > 3;
  const uint64_t n_expert = mapped ? p_.tensors[op.src[3]].ne[1] : p_.tensors[op.src[0]].ne[2];

  expert_count_.assign(n_expert, 0);
  for (uint64_t r = 0; r < n_rows; r++) expert_count_[uint32_t(id[r])]++;
  matmul_.clear(end - first);
  expert_row_.assign(n_expert, 0);
  uint32_t at = 0;
  for (uint64_t e = 0; e < n_expert; e++) {
    expert_row_[e] = at;
    if (expert_count_[e] == 0) continue;
    const uint32_t set = uint32_t(matmul_.sets.size());
    matmul_.sets.push_back({at, expert_count_[e]});
    at += expert_count_[e];
    for (size_t i = first; i < end; i++) {
      const CpuTensor *w = &weight(p_.ops[i].src[0]);
      uint64_t matrix = e;
      if (mapped) {
        const std::vector<int32_t> &map = weights_[p_.tensors[op.src[3]].ref]->host_i32;
        if (map[2 * e] > 0) w = &weight(op.src[size_t(3 + map[2 * e])]);
        matrix = uint64_t(map[2 * e + 1]);
      }
      matmul_.parts.push_back({w, matrix, set, uint32_t(i - first)});
    }
  }
  matmul_.x.resize(n_rows);
  for (auto &y : matmul_.y) y.resize(n_rows);
  for (uint64_t r = 0; r < n_rows; r++) {
    const uint32_t to = expert_row_[uint32_t(id[r])]++;
    matmul_.x[to] = f32(op.src[1]) + (x.ne[1] == 1 ? r / k : r) * n_in;
    for (size_t i = first; i < end; i++) matmul_.y[i - first][to] = f32(p_.ops[i].dst[0]) + r * p_.tensors[p_.ops[i].dst[0]].ne[0];
  }
  matmul_.run();
  return end;
}

}  // namespace bl
