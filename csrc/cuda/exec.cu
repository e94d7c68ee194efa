// exec.cu: capture and replay of a compiled program. compiler.cu chooses the launches.
#include "exec.h"

#include <algorithm>
#include <cstring>

#include "../common/quantize.h"
#include "compiler.h"
#include "recurrent.h"

namespace bl::cuda {

namespace {
constexpr uint64_t MAX_PINNED_OUTPUT = 8u << 20;  // larger outputs go straight to the caller's memory
}

CudaExec::CudaExec(CudaDevice &device, const Program &program, const std::vector<DeviceTensor *> &weights,
                   const std::vector<DeviceCache *> &caches)
    : device_(device), program_(program) {
  try {
    Compiler(*this, weights, caches).run();
    uint64_t bytes = 0;
    for (const uint32_t id : program.outputs) bytes += program.row_bytes(id) * program.bucket_rows(id);
    host_output_bytes_ = std::min(bytes, MAX_PINNED_OUTPUT);
    if (host_output_bytes_ > 0)
      check(cudaHostAlloc(reinterpret_cast<void **>(&host_outputs_), host_output_bytes_, cudaHostAllocDefault), "cudaHostAlloc");
    capture();
  } catch (...) {
    release();
    throw;
  }
}

CudaExec::~CudaExec() {
  try {
    device_.use();
  } catch (const Failure &) {
    return;
  }
  release();
}

void CudaExec::release() {
  for (const Piece &p : pieces_)
    if (p.graph != nullptr) cudaGraphExecDestroy(p.graph);
  if (host_inputs_ != nullptr) cudaFreeHost(host_inputs_);
  if (host_outputs_ != nullptr) cudaFreeHost(host_outputs_);
  for (const HostRows &h : host_rows_)
    if (h.rows != nullptr) cudaFreeHost(h.rows);
}

uint64_t CudaExec::scratch_bytes() const {
  uint64_t bytes = arena_.bytes() + inputs_.bytes();
  for (const Buffer &b : extra_) bytes += b.bytes();
  return bytes;
}

void CudaExec::capture() {
  cuts_.push_back({uint32_t(program_.ops.size()), launches_.size()});
  size_t first = 0;
  for (const Cut &cut : cuts_) {
    if (cut.launch == first && !pieces_.empty()) continue;  // nothing to do in between
    pieces_.push_back({cut.op, nullptr});
    pieces_.back().graph = capture(first, cut.launch);
    first = cut.launch;
  }
  launches_.clear();
}

cudaGraphExec_t CudaExec::capture(size_t first, size_t end) {
  Stream s{device_.stream(), device_.can_overlap(), false};
  check(cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    if (first == 0) check(cudaMemcpyAsync(inputs_.data(), host_inputs_, inputs_.bytes(), cudaMemcpyHostToDevice, s.stream), "cudaMemcpyAsync");
    for (size_t i = first; i < end; i++) launches_[i](s);
  } catch (...) {
    cudaStreamEndCapture(s.stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  check(cudaStreamEndCapture(s.stream, &graph), "cudaStreamEndCapture");
  cudaGraphExec_t made = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&made, graph, 0);
  cudaGraphDestroy(graph);
  check(status, "cudaGraphInstantiate");
  check(cudaGraphUpload(made, s.stream), "cudaGraphUpload");
  check(cudaStreamSynchronize(s.stream), "cudaStreamSynchronize");
  return made;
}

// Lays the step's inputs out as the bucket's kernels expect them, and cuts attention tiles: rows of a sequence together.
void CudaExec::fill_inputs(const StepInput &in) {
  StepCounts counts = {};
  counts.n_tok = int32_t(in.n_tok), counts.n_out = int32_t(in.n_out), counts.n_seq = int32_t(in.n_seq), counts.one = 1;
  int32_t *w = host_inputs_;
  memcpy(w + at_.tokens, in.tokens, in.n_tok * 4);
  memcpy(w + at_.positions, in.positions, in.n_tok * 4);
  memcpy(w + at_.seqs, in.seqs, in.n_tok * 4);
  if (in.n_out > 0) {
    memcpy(w + at_.out_rows, in.out_rows, in.n_out * 4);
    memcpy(w + at_.targets, in.targets, in.n_out * 4);
  }
  for (size_t i = 0; i < at_.derived.size(); i++) memcpy(w + at_.derived[i], in.derived[i], in.n_tok * program_.derived[i].n * 4);
  for (size_t c = 0; c < at_.pages.size(); c++) {
    const uint32_t n = in.tables[c].n_page, wanted = program_.caches[c].n_page;
    for (uint32_t s = 0; s < in.n_seq; s++) {
      int32_t *pages = w + at_.pages[c] + uint64_t(s) * wanted;
      if (n > 0) memcpy(pages, in.tables[c].of(int32_t(s)), n * 4);
      std::fill(pages + n, pages + wanted, -1);
    }
  }

  SequenceRun *runs = reinterpret_cast<SequenceRun *>(w + at_.runs);
  std::fill(runs, runs + in.n_seq, SequenceRun{0, 0});
  for (uint32_t i = 0; i < in.n_tok; i++) {
    SequenceRun &run = runs[in.seqs[i]];
    if (run.count++ == 0) run.first = int32_t(i);
  }
  for (size_t l = 0; l < tile_lists_.size(); l++) {
    AttentionTile *tiles = reinterpret_cast<AttentionTile *>(w + at_.tiles[l]);
    const int32_t tokens = int32_t(tile_lists_[l].tokens);
    int32_t n = 0;
    for (uint32_t s = 0; s < in.n_seq; s++)
      for (int32_t at = 0; at < runs[s].count; at += tokens)
        tiles[n++] = {runs[s].first + at, std::min(runs[s].count - at, tokens), int32_t(s)};
    counts.n_tile[l] = n;
  }
  memcpy(w, &counts, sizeof counts);
}

// Rows of tables that stay with the host.
void CudaExec::gather(const StepInput &in) {
  for (const HostRows &h : host_rows_) {
    const int32_t *ids = in.words(h.input);
    const TypeInfo &type = *type_info(h.type);
    const uint64_t row_bytes = h.n / type.block * type.bytes;
    for (uint64_t i = 0; i < in.n_tok * h.ids; i++) {
      float *row = h.rows + i * h.n;
      if (ids[i] < 0) std::fill(row, row + h.n, 0.0f);
      else if (h.type == TYPE_I32) memcpy(row, h.table->host + uint64_t(ids[i]) * row_bytes, row_bytes);
      else dequantize_row(h.type, h.table->host + uint64_t(ids[i]) * row_bytes, row, h.n);
    }
  }
}

uint64_t CudaExec::step_bytes(uint32_t id) const { return program_.row_bytes(id) * program_.step_rows(id, in_->n_tok, in_->n_out); }

void CudaExec::begin(const StepInput &input) {
  device_.use();
  in_ = &input;
  next_ = 0;
  fill_inputs(input);
  gather(input);
}

void CudaExec::run_to(uint32_t end) {
  device_.use();
  for (; next_ < pieces_.size() && pieces_[next_].end <= end; next_++) check(cudaGraphLaunch(pieces_[next_].graph, device_.stream()), "cudaGraphLaunch");
}

void CudaExec::take(uint32_t id, uint8_t *rows) {
  const auto known = leaving_.find(id);
  const size_t output = size_t(std::find(program_.outputs.begin(), program_.outputs.end(), id) - program_.outputs.begin());
  const uint8_t *from = known != leaving_.end() ? known->second : outputs_[output];
  if (step_bytes(id) == 0) return;
  device_.use();
  check(cudaMemcpyAsync(rows, from, step_bytes(id), cudaMemcpyDeviceToHost, device_.stream()), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(device_.stream()), "a step (cudaStreamSynchronize)");
}

void CudaExec::give(uint32_t id, const uint8_t *rows) {
  if (step_bytes(id) == 0) return;
  device_.use();
  uint8_t *to = arena_.data() + program_.tensors[id].offset;
  check(cudaMemcpyAsync(to, rows, step_bytes(id), cudaMemcpyHostToDevice, device_.stream()), "cudaMemcpyAsync");
}

void CudaExec::finish() {
  device_.use();
  check(cudaStreamSynchronize(device_.stream()), "a step (cudaStreamSynchronize)");
}

std::shared_ptr<uint8_t> CudaExec::host_memory(uint64_t bytes) {
  uint8_t *data = nullptr;
  device_.use();
  check(cudaHostAlloc(reinterpret_cast<void **>(&data), bytes, cudaHostAllocPortable), "cudaHostAlloc");
  return std::shared_ptr<uint8_t>(data, [](uint8_t *p) { cudaFreeHost(p); });
}

void CudaExec::step(const StepInput &input, uint8_t *output, uint64_t mask) {
  begin(input);
  run_to(uint32_t(program_.ops.size()));
  const cudaStream_t stream = device_.stream();
  uint64_t at = 0;
  std::vector<uint64_t> pinned_bytes(program_.outputs.size(), 0);
  uint64_t pinned = 0;
  for (size_t i = 0; i < program_.outputs.size(); i++) {
    if ((mask >> i & 1) == 0) continue;
    const uint64_t bytes = program_.row_bytes(program_.outputs[i]) * program_.step_rows(program_.outputs[i], input.n_tok, input.n_out);
    if (bytes == 0) continue;
    const bool small = pinned + bytes <= host_output_bytes_;
    check(cudaMemcpyAsync(small ? host_outputs_ + pinned : output + at, outputs_[i], bytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
    if (small) pinned_bytes[i] = bytes, pinned += bytes;
    at += bytes;
  }
  check(cudaStreamSynchronize(stream), "a step (cudaStreamSynchronize)");
  at = pinned = 0;
  for (size_t i = 0; i < program_.outputs.size(); i++) {
    if ((mask >> i & 1) == 0) continue;
    const uint64_t bytes = program_.row_bytes(program_.outputs[i]) * program_.step_rows(program_.outputs[i], input.n_tok, input.n_out);
    if (pinned_bytes[i] > 0) memcpy(output + at, host_outputs_ + pinned, bytes), pinned += bytes;
    at += bytes;
  }
}

std::unique_ptr<Exec> compile_program(CudaDevice &device, const Program &program, const std::vector<DeviceTensor *> &weights,
                                      const std::vector<DeviceCache *> &caches) {
  return std::make_unique<CudaExec>(device, program, weights, caches);
}

}  // namespace bl::cuda
