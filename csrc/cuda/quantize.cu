// quantize.cu: streams rows through the encoders and decoders of a card.
#include "quantize.h"

#include <algorithm>
#include <cstring>

#include "../common/quantize.h"

namespace bl::cuda {
namespace {

constexpr uint64_t COPY_GRAIN = 256u << 10;  // bytes a host thread copies at a time

// Which lattice a type's points are of: its place in RowCoder's; -1 for none.
int lattice_of(uint32_t type, const Lattice &(**get)()) {
  switch (type) {
    case TYPE_IQ2_XXS: *get = lattice_iq2xxs; return 0;
    case TYPE_IQ2_XS: *get = lattice_iq2xs; return 1;
    case TYPE_IQ2_S: *get = lattice_iq2s; return 2;
    case TYPE_IQ3_XXS: *get = lattice_iq3xxs; return 3;
    case TYPE_IQ3_S: *get = lattice_iq3s; return 4;
    case TYPE_IQ1_S:
    case TYPE_IQ1_M: *get = lattice_iq1s; return 5;
    default: return -1;
  }
}

bool needs_mean_square(uint32_t type) { return type == TYPE_Q4_0 || type == TYPE_Q4_1 || type == TYPE_Q5_0 || type == TYPE_Q5_1; }

void grow(Buffer &b, uint64_t bytes, const char *what) {
  if (b.bytes() < bytes) b.allocate(bytes, what);
}

void grow_pinned(uint8_t **p, uint64_t *have, uint64_t bytes) {
  if (*have >= bytes) return;
  if (*p != nullptr) check(cudaFreeHost(*p), "cudaFreeHost");
  *p = nullptr, *have = 0;
  check(cudaHostAlloc(reinterpret_cast<void **>(p), bytes, cudaHostAllocDefault), "cudaHostAlloc");
  *have = bytes;
}

// Copies to the card, all the way: a copy from ordinary memory alone may still be on it when cudaMemcpy returns, and the stages'
// streams do not wait for it.
void put(void *card, const void *host, uint64_t bytes) {
  check(cudaMemcpy(card, host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  check(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
}

// Where the word about blocks without an encoding lies behind n encoded rows.
uint64_t no_code_at(const RowJob &job, uint64_t n) { return round_up<uint64_t>(n * job.dst_row(), sizeof(unsigned long long)); }

}  // namespace

RowCoder::~RowCoder() {
  if (cudaSetDevice(ordinal_) != cudaSuccess) return;
  for (Stage &s : stages_) {
    if (s.stream != nullptr) cudaStreamDestroy(s.stream);
    if (s.done != nullptr) cudaEventDestroy(s.done);
    if (s.pinned_in != nullptr) cudaFreeHost(s.pinned_in);
    if (s.pinned_out != nullptr) cudaFreeHost(s.pinned_out);
    for (Buffer *b : {&s.raw, &s.values, &s.coded, &s.mean_squares}) b->reset();
  }
  weights_.reset();
  for (Buffer &b : lattice_memory_) b.reset();
}

void RowCoder::copy(uint8_t *dst, const uint8_t *src, uint64_t n) {
  pool_.run(ceil_div(n, COPY_GRAIN), 1, [&](uint64_t begin, uint64_t end, uint32_t) {
    const uint64_t from = begin * COPY_GRAIN;
    memcpy(dst + from, src + from, std::min(end * COPY_GRAIN, n) - from);
  });
}

void RowCoder::prepare(Stage &s, uint64_t in_bytes, uint64_t n_values, uint64_t out_bytes) {
  if (s.stream == nullptr) check(cudaStreamCreateWithFlags(&s.stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  if (s.done == nullptr) check(cudaEventCreateWithFlags(&s.done, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  grow_pinned(&s.pinned_in, &s.in_bytes, in_bytes);
  grow_pinned(&s.pinned_out, &s.out_bytes, out_bytes);
  grow(s.raw, in_bytes, "rows to convert");
  grow(s.values, n_values * sizeof(float), "values of rows to convert");
  grow(s.coded, out_bytes, "converted rows");
}

void RowCoder::receive(Stage &s, uint64_t n) {
  check(cudaMemcpyAsync(s.raw.data(), s.pinned_in, n, cudaMemcpyHostToDevice, s.stream), "cudaMemcpyAsync");
}

void RowCoder::send_back(Stage &s, const uint8_t *from, uint64_t n, uint64_t begin, uint64_t count) {
  check(cudaMemcpyAsync(s.pinned_out, from, n, cudaMemcpyDeviceToHost, s.stream), "cudaMemcpyAsync");
  check(cudaEventRecord(s.done, s.stream), "cudaEventRecord");
  s.in_flight = true, s.begin = begin, s.count = count;
}

// Whether something was in flight; it lies in pinned_out then.
bool RowCoder::wait(Stage &s) {
  if (!s.in_flight) return false;
  s.in_flight = false;
  check(cudaEventSynchronize(s.done), "cudaEventSynchronize");
  return true;
}

// After a failure: nothing may be in flight when the next call begins.
void RowCoder::drain() {
  for (Stage &s : stages_) {
    if (s.stream != nullptr) cudaStreamSynchronize(s.stream);
    s.in_flight = false;
  }
  cudaGetLastError();
}

Lattice RowCoder::lattice_for(uint32_t type) {
  const Lattice &(*get)();
  const int at = lattice_of(type, &get);
  if (at < 0) return Lattice{};
  Lattice &view = lattices_[at];
  if (view.slots != nullptr) return view;
  const Lattice &host = get();
  const uint64_t slots = uint64_t(host.n_slots) * sizeof(int32_t), keys = round_up<uint64_t>(host.n_keys * sizeof(uint16_t), 16);
  Buffer memory(slots + keys + host.n_lists * sizeof(uint16_t), "a lattice");
  uint8_t *base = memory.data();
  put(base, host.slots, slots);
  put(base + slots, host.keys, host.n_keys * sizeof(uint16_t));
  put(base + slots + keys, host.lists, host.n_lists * sizeof(uint16_t));
  lattice_memory_[at] = std::move(memory);
  view = host;
  view.slots = reinterpret_cast<const int32_t *>(base);
  view.keys = reinterpret_cast<const uint16_t *>(base + slots);
  view.lists = reinterpret_cast<const uint16_t *>(base + slots + keys);
  return view;
}

// The rows in raw, decoded where they are no f32, encoded to `coded`. Its last word is a row with a block that has no encoding.
void RowCoder::launch(Stage &s, const RowJob &job, const float *weights, const Lattice &lattice) {
  const TypeInfo &from = *type_info(job.src_type), &to = *type_info(job.dst_type);
  const float *x = s.raw.as<float>();
  if (job.src_type != TYPE_F32) {
    x = s.values.as<float>();
    if (!decode(job.src_type, s.raw.data(), s.values.as<float>(), s.count * job.n_per_row, s.stream))
      fail(BL_ERR_UNSUPPORTED, "Cannot read type %s", from.name);
  }
  const bool mean_squares = weights != nullptr && needs_mean_square(job.dst_type);
  if (mean_squares) {
    grow(s.mean_squares, s.count * sizeof(float), "mean squares");
    row_mean_squares(x, s.count, job.n_per_row, s.mean_squares.as<float>(), s.stream);
  }
  EncodeJob e{};
  e.x = x, e.n_rows = s.count, e.n_per_row = job.n_per_row;
  e.weights = weights, e.mean_squares = mean_squares ? s.mean_squares.as<float>() : nullptr;
  e.lattice = lattice;
  e.dst = s.coded.data(), e.row_bytes = job.dst_row(), e.piece_bytes = PIECE / to.block * to.bytes;
  e.no_code = reinterpret_cast<unsigned long long *>(s.coded.data() + no_code_at(job, s.count));
  check(cudaMemsetAsync(e.no_code, 0xFF, sizeof(*e.no_code), s.stream), "cudaMemsetAsync");
  if (!encode_simple(job.dst_type, e, s.stream) && !encode_k(job.dst_type, e, s.stream) && !encode_lattice(job.dst_type, e, s.stream) &&
      !encode_iq1(job.dst_type, e, s.stream))
    fail(BL_ERR_UNSUPPORTED, "Cannot write type %s on cuda device %d", to.name, ordinal_);
}

// What a stage has made goes to the caller, looked at on the way.
void RowCoder::hand_over(Stage &s, RowJob &job, uint8_t *dst) {
  if (!wait(s)) return;
  unsigned long long no_code;
  memcpy(&no_code, s.pinned_out + no_code_at(job, s.count), sizeof no_code);
  if (no_code != UINT64_MAX) return job.found_no_code(s.begin + no_code);
  const uint64_t bytes = job.dst_row();
  pool_.run(s.count, job.grain(), [&](uint64_t begin, uint64_t end, uint32_t) {
    uint8_t *d = dst + (s.begin + begin) * bytes;
    memcpy(d, s.pinned_out + begin * bytes, (end - begin) * bytes);
    job.check(s.begin + begin, s.begin + end, d);
  });
}

void RowCoder::quantize(uint32_t src_type, const RowSource &src, uint32_t dst_type, uint8_t *dst, uint64_t n_rows, uint64_t n_per_row,
                        const float *weights) {
  need_encoder(dst_type, weights != nullptr);
  RowJob job{src_type, dst_type, src, n_rows, n_per_row};
  std::lock_guard<std::mutex> lock(lock_);
  check(cudaSetDevice(ordinal_), "cudaSetDevice");
  const uint64_t src_row = job.src_row();
  const uint64_t rows_per_stage = std::min(n_rows, std::max<uint64_t>(1, STAGE_VALUES / n_per_row));
  const Lattice lattice = lattice_for(dst_type);
  if (weights != nullptr) {
    grow(weights_, n_per_row * sizeof(float), "importance weights");
    put(weights_.data(), weights, n_per_row * sizeof(float));
  }
  if (src.file != nullptr) src.file->expect(src.offset + n_rows * src_row, n_rows * src_row);  // most likely wanted next
  try {
    uint64_t turn = 0;
    for (uint64_t row = 0; row < n_rows; row += rows_per_stage, turn++) {
      Stage &s = stages_[turn % N_STAGE];
      hand_over(s, job, dst);
      s.begin = row, s.count = std::min(rows_per_stage, n_rows - row);
      prepare(s, rows_per_stage * src_row, src_type == TYPE_F32 ? 0 : rows_per_stage * n_per_row,
              no_code_at(job, rows_per_stage) + sizeof(unsigned long long));
      pool_.run(s.count, job.grain(), [&](uint64_t begin, uint64_t end, uint32_t) {
        uint8_t *room = s.pinned_in + begin * src_row;
        const uint8_t *rows = job.fetch(row + begin, row + end, room);
        if (rows != nullptr && rows != room) memcpy(room, rows, (end - begin) * src_row);
      });
      if (job.any_bad_source()) break;
      receive(s, s.count * src_row);
      launch(s, job, weights == nullptr ? nullptr : weights_.as<float>(), lattice);
      send_back(s, s.coded.data(), no_code_at(job, s.count) + sizeof(unsigned long long), s.begin, s.count);
    }
    for (uint64_t i = 0; i < N_STAGE; i++) hand_over(stages_[(turn + i) % N_STAGE], job, dst);
  } catch (...) {
    drain();
    throw;
  }
  job.finish();
}

void RowCoder::dequantize(uint32_t type, const uint8_t *src, float *dst, uint64_t n) {
  const TypeInfo &from = *type_info(type);
  std::lock_guard<std::mutex> lock(lock_);
  check(cudaSetDevice(ordinal_), "cudaSetDevice");
  const auto hand_over_values = [&](Stage &s) {
    if (wait(s)) copy(reinterpret_cast<uint8_t *>(dst + s.begin), s.pinned_out, s.count * sizeof(float));
  };
  try {
    uint64_t turn = 0;
    for (uint64_t at = 0; at < n; at += STAGE_VALUES, turn++) {
      Stage &s = stages_[turn % N_STAGE];
      const uint64_t count = std::min(STAGE_VALUES, n - at), bytes = count / from.block * from.bytes;
      hand_over_values(s);
      prepare(s, bytes, count, count * sizeof(float));
      copy(s.pinned_in, src + at / from.block * from.bytes, bytes);
      receive(s, bytes);
      if (!decode(type, s.raw.data(), s.values.as<float>(), count, s.stream)) fail(BL_ERR_UNSUPPORTED, "Cannot read type %s", from.name);
      send_back(s, s.values.data(), count * sizeof(float), at, count);
    }
    for (uint64_t i = 0; i < N_STAGE; i++) hand_over_values(stages_[(turn + i) % N_STAGE]);
  } catch (...) {
    drain();
    throw;
  }
}

}  // namespace bl::cuda
