// matmul.h: y = W x for one or many activation rows and one or several matrices, over the thread pool.
#pragma once

#include <cstdint>
#include <vector>

#include "../runtime/thread_pool.h"
#include "kernels.h"
#include "scratch.h"
#include "tensor.h"

namespace bl {

// Activation rows that share their matrices: all of a MUL_MAT, or those of one expert.
struct RowSet {
  uint32_t begin, count;  // rows begin .. begin + count of the job's row lists
};

// One matrix applied to one row set.
struct MatmulPart {
  const CpuTensor *w;     // its type, shape and layout
  const uint8_t *matrix;  // one of w's
  uint32_t set;           // index of the row set
  uint32_t output;        // index of the job's output lists
};

class Matmul {
 public:
  Matmul(ThreadPool &pool, const Kernels &kernels) : pool_(pool), k_(kernels) {}

  // Makes room for jobs of up to n_rows rows against matrices of w.
  void reserve(uint64_t n_rows, const CpuTensor &w);
  void allocate(ScratchLayout &layout);

  // The job. Fill, then run(): x[row], y[output][row] over the rows of all sets. More parts of the same rows may follow: fill `parts`
  // anew, then run(false).
  std::vector<const float *> x;
  std::vector<std::vector<float *>> y;
  std::vector<RowSet> sets;
  std::vector<MatmulPart> parts;
  void clear(size_t n_output);
  void run(bool new_rows = true);

 private:
  void encode(uint64_t n_in);
  void many_rows(const ManyDot &many, const uint8_t *const *two, uint64_t n_block, uint64_t n_in, const ActRow *acts, uint32_t first, uint32_t last,
                 uint32_t thread, float *const *rows, uint64_t o, uint64_t n);
  void packed_groups(const MatmulPart &part, uint64_t begin, uint64_t end, uint32_t thread);
  void coded_groups(const MatmulPart &part, uint64_t begin, uint64_t end, uint32_t thread);
  void row_groups(const MatmulPart &part, uint64_t begin, uint64_t end, uint32_t thread);

  ThreadPool &pool_;
  const Kernels &k_;
  uint64_t act_bytes_ = 0, n_coded_ = 0, group_bytes_ = 0, row_floats_ = 0, wide_bytes_ = 0, panel_floats_ = 0;
  Scratch acts_;                      // encoded rows, in the order of x
  Scratch coded_;                     // a group of coded rows for each thread
  Scratch groups_;                    // two groups of coded rows side by side for each thread
  Scratch wide_;                      // two expanded groups for each thread
  Scratch weight_rows_;               // decoded weight rows for each thread
  Scratch panels_;                    // a panel of float weights and its sums for each thread
  std::vector<uint32_t> first_group_;
};

}  // namespace bl
