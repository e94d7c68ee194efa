// matmul_wide.cu: prompts' products on warpgroups, by the layout of their weights; matmul_wide.cuh has the kernel.
#include "matmul_wide.cuh"

#include <map>
#include <mutex>

namespace bl::cuda {

namespace {

__global__ void has_wgmma_kernel(int32_t *answer) { *answer = BL_SM90A; }

bool ask() {
  Buffer answer(sizeof(int32_t), "a question to the card");
  Stream s;
  launch("has_wgmma", has_wgmma_kernel, 1, 1, 0, s, answer.as<int32_t>());
  int32_t value = 0;
  check(cudaMemcpy(&value, answer.data(), sizeof value, cudaMemcpyDeviceToHost), "cudaMemcpy");
  return value != 0;
}

}  // namespace

bool has_wgmma() {
  static std::mutex mutex;
  static std::map<int, bool> known;
  int card = 0;
  check(cudaGetDevice(&card), "cudaGetDevice");
  std::lock_guard<std::mutex> lock(mutex);
  const auto at = known.find(card);
  return at != known.end() ? at->second : known[card] = ask();
}

bool takes_wide(const MatmulPart &part) { return reads_whole_rows(part.type) && part.form == Form::K32_MIN; }

void matmul_wide(const MatmulArgs &args, Stream &s) {
  if (args.part[0].kind == Kind::U4) launch_wide<Whole<Kind::U4, Form::K32_MIN>, 3>(args, s);
  else launch_wide<Whole<Kind::U5, Form::K32_MIN>, 3>(args, s);
}

}  // namespace bl::cuda
