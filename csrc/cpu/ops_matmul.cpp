// ops_matmul.cpp: MUL_MAT and MUL_MAT_ID. Neighbouring ops with the same source are one job: the source is encoded once and the
// threads meet once.
#include <algorithm>

#include "exec.h"
#include "expert_pool.h"

namespace bl {
namespace {

// One past the last op that may run with op `first`: at most FUSE_WINDOW follow it.
size_t last_fused(const Program &p, size_t first) { return std::min(p.ops.size(), first + FUSE_WINDOW + 1); }

}  // namespace

// Rows of the same matrix are one row set: all of them, or those of one head where W has a matrix for each.
size_t CpuExec::mul_mat(size_t first) {
  const Op &op = p_.ops[first];
  const uint32_t source = op.src[BL_SRC_MUL_MAT_X];
  const uint64_t n_matrix = p_.tensors[op.src[BL_SRC_MUL_MAT_W]].ne[2];
  size_t end = first + 1;
  while (end < last_fused(p_, first) && p_.ops[end].code == BL_OP_MUL_MAT && p_.ops[end].src[BL_SRC_MUL_MAT_X] == source &&
         p_.tensors[p_.ops[end].src[BL_SRC_MUL_MAT_W]].ne[2] == n_matrix)
    end++;
  const Lines x = lines(source);
  const uint64_t n = n_lines(source), per_set = n / n_matrix;
  matmul_.clear(end - first);
  for (uint64_t h = 0; h < n_matrix; h++) {
    matmul_.sets.push_back({uint32_t(h * per_set), uint32_t(per_set)});
    for (uint64_t r = 0; r < per_set; r++) matmul_.x.push_back(x.at(r * n_matrix + h));
  }
  for (size_t i = first; i < end; i++) {
    const CpuTensor &w = weight(p_.ops[i].src[BL_SRC_MUL_MAT_W]);
    const uint32_t output = uint32_t(i - first);
    float *y = result(p_.ops[i].dst[0]);
    for (uint64_t h = 0; h < n_matrix; h++) {
      for (uint64_t r = 0; r < per_set; r++) matmul_.y[output].push_back(y + (r * n_matrix + h) * w.ne[1]);
      matmul_.parts.push_back({&w, w.matrix(h), uint32_t(h), output});
    }
  }
  matmul_.run();
  return end;
}

// Rows are sorted by expert (a stable counting sort over (token, slot)); each expert's rows are one row set. Where the experts are in a
// pool they are computed as they arrive: a row's numbers depend on its own expert alone, so no order of arrival changes them.
size_t CpuExec::mul_mat_id(size_t first) {
  const Op &op = p_.ops[first];
  const uint32_t source = op.src[BL_SRC_MUL_MAT_ID_X], ids = op.src[BL_SRC_MUL_MAT_ID_IDS];
  const auto matrices = [&](size_t i) -> const CpuTensor & { return weight(p_.ops[i].src[BL_SRC_MUL_MAT_ID_W]); };
  const PooledTensor *pooled = dynamic_cast<const PooledTensor *>(&matrices(first));
  const auto together = [&](size_t i) {
    const PooledTensor *other = dynamic_cast<const PooledTensor *>(&matrices(i));
    return pooled == nullptr ? other == nullptr : other != nullptr && &other->pool == &pooled->pool && other->group == pooled->group;
  };
  size_t end = first + 1;
  while (end < last_fused(p_, first) && p_.ops[end].code == BL_OP_MUL_MAT_ID && p_.ops[end].src[BL_SRC_MUL_MAT_ID_X] == source &&
         p_.ops[end].src[BL_SRC_MUL_MAT_ID_IDS] == ids && together(end))
    end++;
  const Lines x = lines(source), id = lines(ids);
  const uint64_t k = id.n, n_rows = rows(ids) * k, n_expert = p_.tensors[op.src[BL_SRC_MUL_MAT_ID_W]].ne[2];
  const auto expert = [&](uint64_t r) { return uint32_t(reinterpret_cast<const int32_t *>(id.of(r / k))[r % k]); };

  expert_count_.assign(n_expert, 0);
  for (uint64_t r = 0; r < n_rows; r++) expert_count_[expert(r)]++;
  matmul_.clear(end - first);
  expert_row_.assign(n_expert, 0);
  used_experts_.clear();
  uint32_t at = 0;
  for (uint64_t e = 0; e < n_expert; e++) {
    expert_row_[e] = at;
    if (expert_count_[e] == 0) continue;
    used_experts_.push_back(uint32_t(e));
    matmul_.sets.push_back({at, expert_count_[e]});
    at += expert_count_[e];
  }
  matmul_.x.resize(n_rows);
  for (auto &y : matmul_.y) y.resize(n_rows);
  for (uint64_t r = 0; r < n_rows; r++) {
    const uint32_t to = expert_row_[expert(r)]++;
    matmul_.x[to] = x.per_row == 1 ? x.of(r / k) : x.of(r / k, r % k);
    for (size_t i = first; i < end; i++) matmul_.y[i - first][to] = result(p_.ops[i].dst[0]) + r * p_.tensors[p_.ops[i].dst[0]].dim[0];
  }
  if (pooled == nullptr) {
    for (uint32_t set = 0; set < used_experts_.size(); set++)
      for (size_t i = first; i < end; i++)
        matmul_.parts.push_back({&matrices(i), matrices(i).matrix(used_experts_[set]), set, uint32_t(i - first)});
    matmul_.run();
    return end;
  }
  uint64_t tensors = 0;
  for (size_t i = first; i < end; i++) tensors |= 1ull << static_cast<const PooledTensor &>(matrices(i)).part;
  ExpertPool::Visit visit(pooled->pool, pooled->group, tensors, used_experts_, expert_count_, in_->n_tok >= PASS_ROWS);
  guess(first, end);  // its reads come behind those that were just asked for
  std::vector<ExpertPool::Ready> ready;
  for (bool new_rows = true; visit.next(ready); new_rows = false) {
    matmul_.parts.clear();
    for (const auto &[e, slot] : ready) {
      const uint32_t set = uint32_t(std::lower_bound(used_experts_.begin(), used_experts_.end(), e) - used_experts_.begin());
      for (size_t i = first; i < end; i++)
        matmul_.parts.push_back({&matrices(i), slot + static_cast<const PooledTensor &>(matrices(i)).at, set, uint32_t(i - first)});
    }
    matmul_.run(new_rows);
  }
  return end;
}

}  // namespace bl
