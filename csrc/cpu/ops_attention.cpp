// ops_attention.cpp: KV_WRITE and ATTENTION over paged caches (kernels in impl/attention.h and impl/quantize_row.h).
#include <algorithm>

#include "exec.h"

namespace bl {

void CpuExec::kv_write(const Op &op) {
  CpuCache &c = *caches_[op.param[KV_CACHE]];
  const uint32_t page_size = c.shape.page_size;
  struct Side {
    const float *x;
    uint64_t n, row_bytes;
    uint32_t type;
    uint8_t *base;
  } side[2];
  for (int i = 0; i < 2; i++) {
    const uint32_t s = op.param[i == 0 ? KV_K_STREAM : KV_V_STREAM];
    side[i] = {f32(op.src[size_t(i)]), p_.tensors[op.src[size_t(i)]].row_elems, c.shape.row_bytes(s), c.shape.type[s], c.stream(s)};
  }
  by_rows(in_->n_tok, side[0].n + side[1].n, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t t = begin; t < end; t++) {
      const uint32_t pos = uint32_t(in_->positions[t]);
      const uint64_t page = uint32_t(in_->pages[uint64_t(in_->seqs[t]) * in_->n_page + pos / page_size]);
      const uint64_t slot = page * page_size + pos % page_size;
      for (const Side &s : side) k_.encode_cache(s.x + t * s.n, s.type, s.n, s.base + slot * s.row_bytes);
    }
  });
}

void CpuExec::attention(const Op &op) {
  const Tensor &q = p_.tensors[op.src[0]];
  CpuCache &c = *caches_[op.param[ATT_CACHE]];
  const uint32_t k_stream = op.param[ATT_K_STREAM], v_stream = op.param[ATT_V_STREAM];
  AttentionJob job;
  job.q = f32(op.src[0]), job.y = f32(op.dst[0]);
  job.positions = in_->positions, job.seqs = in_->seqs, job.pages = in_->pages, job.n_page = in_->n_page;
  job.page_size = c.shape.page_size;
  job.n_head = uint32_t(q.ne[1]), job.n_head_kv = op.param[ATT_N_HEAD_KV];
  job.dim_k = uint32_t(q.ne[0]), job.dim_v = uint32_t(p_.tensors[op.dst[0]].ne[0]);
  job.scale = op.param_f32(ATT_SCALE), job.window = op.param[ATT_WINDOW];
  job.type_k = c.shape.type[k_stream], job.type_v = c.shape.type[v_stream];
  job.k = c.stream(k_stream), job.v = c.stream(v_stream);
  job.row_k = c.shape.row_bytes(k_stream), job.row_v = c.shape.row_bytes(v_stream);

  // Blocks of rows of one sequence, the longest first so that the threads finish together.
  const uint32_t most = attention_rows(job.n_head, job.n_head_kv);
  blocks_.clear();
  for (uint32_t t = 0; t < in_->n_tok;) {
    uint32_t end = t + 1;
    while (end < in_->n_tok && end - t < most && in_->seqs[end] == in_->seqs[t]) end++;
    blocks_.push_back({t, end});
    t = end;
  }
  std::reverse(blocks_.begin(), blocks_.end());
  const uint64_t n_item = blocks_.size() * job.n_head_kv;
  const uint64_t work = uint64_t(in_->max_len) * job.dim_k * (job.n_head / job.n_head_kv);  // of the longest single row
  const uint64_t grain = in_->n_tok == 1 && work < 4096 ? n_item : 1;
  pool_.run(n_item, grain, [&](uint64_t begin, uint64_t end, uint32_t thread) {
    for (uint64_t i = begin; i < end; i++)
      k_.attend(job, uint32_t(i % job.n_head_kv), blocks_[i / job.n_head_kv], attention_buffer_.floats() + thread * attention_floats_);
  });
}

}  // namespace bl
