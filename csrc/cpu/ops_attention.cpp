// ops_attention.cpp: STREAM_WRITE, ATTENTION, INDEX and POOL over streams of paged caches (kernels in impl/attention.h, impl/index.h,
// impl/elementwise.h and impl/quantize_row.h).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "exec.h"

namespace bl {

// Neighbouring writes are one job.
size_t CpuExec::stream_write(size_t first) {
  struct Write {
    Lines x;
    CpuCache *cache;
    const PageTable *table;
    uint64_t n;
    uint32_t stream, ratio;
  };
  std::vector<Write> writes;
  uint64_t n = 0;
  size_t end = first;
  for (; end < p_.ops.size() && end <= first + FUSE_WINDOW && p_.ops[end].code == BL_OP_STREAM_WRITE; end++) {
    const Op &op = p_.ops[end];
    const uint32_t c = op.param[BL_PARAM_STREAM_WRITE_CACHE], s = op.param[BL_PARAM_STREAM_WRITE_STREAM];
    writes.push_back({runs(op.src[0]), caches_[c], &in_->tables[c], p_.tensors[op.src[0]].row_elems, s, caches_[c]->shape.ratio[s]});
    n += writes.back().n;
  }
  by_rows(in_->n_tok, n, [&](uint64_t begin, uint64_t end, uint32_t thread) {
    float *gathered = buffer_.floats() + thread * buffer_floats_;
    for (uint64_t t = begin; t < end; t++) {
      const uint32_t pos = uint32_t(in_->positions[t]);
      for (const Write &w : writes) {
        if ((pos + 1) % w.ratio != 0) continue;
        const float *x = w.x.of(t);
        if (w.x.per_row != 1) {
          for (uint64_t line = 0; line < w.x.per_row; line++) memcpy(gathered + line * w.x.n, w.x.at(t * w.x.per_row + line), w.x.n * 4);
          x = gathered;
        }
        k_.encode_cache(x, w.cache->shape.type[w.stream], w.n, w.cache->row(w.stream, w.table->of(in_->seqs[t]), pos));
      }
    }
  });
  return end;
}

AttentionSegment CpuExec::segment(const Op &op, size_t first_param, size_t select, uint32_t which, const int32_t *sees) {
  const uint32_t *param = &op.param[first_param];  // cache, k, v, window, unit
  CpuCache &c = *caches_[param[0]];
  AttentionSegment s{};
  s.pages = in_->tables[param[0]].pages, s.n_page = in_->tables[param[0]].n_page, s.page_size = c.shape.page_size;
  s.ratio = c.shape.ratio[param[1]], s.window = param[3];
  s.type_k = c.shape.type[param[1]], s.type_v = c.shape.type[param[2]];
  s.k = c.stream(param[1]), s.v = c.stream(param[2]);
  s.row_k = c.shape.row_bytes(param[1]), s.row_v = c.shape.row_bytes(param[2]);
  if (op.has(select)) list_rows(op, select, param[4], which, sees, s);
  return s;
}

// The visible ones of the rows that each token row selects, ascending, each once.
void CpuExec::list_rows(const Op &op, size_t select, uint32_t unit, uint32_t which, const int32_t *sees, AttentionSegment &s) {
  const Lines chosen = lines(op.src[select]);
  const uint64_t stride = list_rows_[which];
  uint32_t *list = reinterpret_cast<uint32_t *>(list_[which].data()), *n_list = reinterpret_cast<uint32_t *>(n_list_[which].data());
  by_rows(in_->n_tok, chosen.n * unit, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t t = begin; t < end; t++) {
      const uint32_t first = first_visible(uint32_t(in_->positions[t]), s.window, s.ratio), stop = end_visible(uint32_t(sees[t]), s.ratio);
      const int32_t *ids = reinterpret_cast<const int32_t *>(chosen.of(t));
      uint32_t *rows = list + t * stride, n = 0;
      const auto take = [&](uint64_t number) {
        for (uint64_t w = std::max<uint64_t>(first, number * unit); w < std::min<uint64_t>(stop, (number + 1) * unit); w++) rows[n++] = uint32_t(w);
      };
      for (uint64_t i = 0; i < chosen.n; i++)
        if (ids[i] >= 0) take(uint32_t(ids[i]));
      if (unit > 1) take(stop / unit);
      std::sort(rows, rows + n);
      n_list[t] = uint32_t(std::unique(rows, rows + n) - rows);
    }
  });
  s.list = list, s.n_list = n_list, s.list_stride = stride;
}

// The last position that each token row sees.
const int32_t *CpuExec::seen_until(uint32_t ahead) {
  if (ahead == 0) return in_->positions;
  sees_.resize(in_->n_tok);
  for (const RowBlock &run : runs_)
    for (uint32_t t = run.begin; t < run.end; t++)
      sees_[t] = int32_t(std::min<int64_t>(int64_t(in_->positions[t]) + ahead, in_->positions[run.end - 1]));
  return sees_.data();
}

void CpuExec::attention(const Op &op) {
  const Tensor &q = p_.tensors[op.src[BL_SRC_ATTENTION_Q]];
  AttentionJob job{};
  job.q = f32(op.src[BL_SRC_ATTENTION_Q]), job.q_row = q.row_stride, job.q_head = q.nb[0];
  job.y = result(op.dst[0]);
  job.positions = in_->positions, job.sees = seen_until(op.param[BL_PARAM_ATTENTION_AHEAD]), job.seqs = in_->seqs;
  job.n_head = uint32_t(q.dim[1]), job.n_head_kv = op.param[BL_PARAM_ATTENTION_N_HEAD_KV];
  job.dim_k = uint32_t(q.dim[0]), job.dim_v = uint32_t(p_.tensors[op.dst[0]].dim[0]);
  job.scale = op.param_f32(BL_PARAM_ATTENTION_SCALE), job.softcap = op.param_f32(BL_PARAM_ATTENTION_SOFTCAP);
  job.sinks = vector(op.src[BL_SRC_ATTENTION_SINKS]);
  job.n_segment = op.param[BL_PARAM_ATTENTION_B_CACHE] == BL_NONE ? 1 : 2;
  for (uint32_t i = 0; i < job.n_segment; i++)
    job.segment[i] = segment(op, i == 0 ? BL_PARAM_ATTENTION_A_CACHE : BL_PARAM_ATTENTION_B_CACHE, BL_SRC_ATTENTION_SELECT_A + i, i, job.sees);

  // Blocks of rows of one sequence, the longest first so that the threads finish together; rows that select have no keys in common.
  const uint32_t n_rep = job.n_head / job.n_head_kv, n_head = attention_heads(n_rep), n_part = (n_rep + n_head - 1) / n_head;
  const bool listed = job.segment[0].list != nullptr || job.segment[1].list != nullptr;
  const uint32_t most = listed ? 1 : attention_rows(n_rep);
  blocks_.clear();
  for (const RowBlock &run : runs_)
    for (uint32_t t = run.begin; t < run.end; t += most) blocks_.push_back({t, std::min(run.end, t + most)});
  std::reverse(blocks_.begin(), blocks_.end());
  const uint64_t n_item = blocks_.size() * job.n_head_kv * n_part;
  const uint64_t work = uint64_t(in_->max_len) * job.dim_k * n_rep;  // of the longest single row
  const uint64_t grain = in_->n_tok == 1 && work < 4096 ? n_item : 1;
  pool_.run(n_item, grain, [&](uint64_t begin, uint64_t end, uint32_t thread) {
    for (uint64_t i = begin; i < end; i++) {
      const uint32_t head = uint32_t(i % n_part) * n_head, kv_head = uint32_t(i / n_part % job.n_head_kv);
      k_.attend(job, kv_head, head, std::min(n_head, n_rep - head), blocks_[i / n_part / job.n_head_kv],
                buffer_.floats() + thread * buffer_floats_);
    }
  });
}

// Token rows in batches: their keys are scored by pieces, so that one long sequence keeps all threads busy, then each row chooses.
void CpuExec::index(const Op &op) {
  constexpr uint64_t PIECE_ROWS = 16 * INDEX_ROWS;
  const uint32_t c = op.param[BL_PARAM_INDEX_K_CACHE], s = op.param[BL_PARAM_INDEX_K_STREAM];
  const uint32_t unit = op.param[BL_PARAM_INDEX_UNIT], candidate_unit = op.param[BL_PARAM_INDEX_CANDIDATE_UNIT];
  const bool pin = op.param[BL_PARAM_INDEX_PIN] != 0, has_candidates = op.has(BL_SRC_INDEX_CANDIDATES);
  CpuCache &cache = *caches_[c];
  const uint32_t ratio = cache.shape.ratio[s];
  const Lines q = lines(op.src[BL_SRC_INDEX_Q]);
  const uint64_t n = p_.tensors[op.dst[0]].dim[0];
  int32_t *out = int_result(op.dst[0]);
  float *scores = index_scores_.floats();
  uint32_t *lists = reinterpret_cast<uint32_t *>(index_list_.data());
  struct Row {
    uint32_t visible, n;  // rows that are visible; of those, how many take part
  } row[INDEX_BATCH];

  for (uint64_t first = 0; first < in_->n_tok; first += INDEX_BATCH) {
    const uint64_t n_batch = std::min<uint64_t>(INDEX_BATCH, in_->n_tok - first);
    uint64_t most = 0;
    for (uint64_t b = 0; b < n_batch; b++) {
      const uint32_t visible = end_visible(uint32_t(in_->positions[first + b]), ratio);
      row[b] = {visible, visible};
      if (has_candidates) {
        uint32_t *list = lists + b * index_rows_;
        const Lines ids = lines(op.src[BL_SRC_INDEX_CANDIDATES]);
        const int32_t *listed = reinterpret_cast<const int32_t *>(ids.of(first + b));
        std::vector<int32_t> blocks(listed, listed + ids.n);
        std::sort(blocks.begin(), blocks.end());
        blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
        row[b].n = 0;
        for (const int32_t block : blocks)
          for (uint64_t w = uint64_t(uint32_t(std::max(block, 0))) * candidate_unit;
               block >= 0 && w < std::min<uint64_t>(visible, (uint64_t(uint32_t(block)) + 1) * candidate_unit); w++)
            list[row[b].n++] = uint32_t(w);
      }
      most = std::max<uint64_t>(most, row[b].n);
    }
    const uint64_t n_piece = (most + PIECE_ROWS - 1) / PIECE_ROWS;
    pool_.run(n_batch * n_piece, 1, [&](uint64_t begin, uint64_t end, uint32_t thread) {
      for (uint64_t item = begin; item < end; item++) {
        const uint64_t b = item / n_piece, t = first + b;
        const uint32_t *list = has_candidates ? lists + b * index_rows_ : nullptr;
        const int32_t *pages = in_->tables[c].of(in_->seqs[t]);
        const IndexJob job{q.of(t), q.nb1, op.has(BL_SRC_INDEX_W) ? lines(op.src[BL_SRC_INDEX_W]).of(t) : nullptr, uint32_t(q.n1), uint32_t(q.n),
                           op.param_f32(BL_PARAM_INDEX_SCALE), cache.shape.type[s]};
        const uint64_t stop = std::min<uint64_t>(row[b].n, (item % n_piece + 1) * PIECE_ROWS);
        for (uint64_t i = item % n_piece * PIECE_ROWS; i < stop; i += INDEX_ROWS) {
          const uint32_t n_key = uint32_t(std::min<uint64_t>(INDEX_ROWS, stop - i));
          const uint8_t *keys[INDEX_ROWS];
          for (uint32_t j = 0; j < n_key; j++) {
            const uint32_t w = list == nullptr ? uint32_t(i + j) : list[i + j];
            keys[j] = cache.row(s, pages, (w + 1) * ratio - 1);
          }
          k_.index(job, keys, n_key, scores + b * index_rows_ + i, buffer_.floats() + thread * buffer_floats_);
        }
      }
    });
    pool_.run(n_batch, 1, [&](uint64_t begin, uint64_t end, uint32_t thread) {
      auto &blocks = heaps_[thread];  // score and number of each block that takes part
      for (uint64_t b = begin; b < end; b++) {
        const uint32_t *list = has_candidates ? lists + b * index_rows_ : nullptr;
        const float *score = scores + b * index_rows_;
        blocks.clear();
        for (uint32_t i = 0; i < row[b].n; i++) {
          const int32_t block = int32_t((list == nullptr ? i : list[i]) / unit);
          const float value = score[i] == score[i] ? score[i] : -INFINITY;
          if (!blocks.empty() && blocks.back().second == block) blocks.back().first = std::max(blocks.back().first, value);
          else blocks.emplace_back(value, block);
        }
        if (pin && row[b].visible > 0) {
          const int32_t last = int32_t((row[b].visible - 1) / unit);
          if (blocks.empty() || blocks.back().second != last) blocks.emplace_back(0.0f, last);
          blocks.back().first = INFINITY;
        }
        const auto better = [](const auto &x, const auto &y) { return x.first > y.first || (x.first == y.first && x.second < y.second); };
        const size_t k = std::min<size_t>(n, blocks.size());
        if (k < blocks.size()) std::nth_element(blocks.begin(), blocks.begin() + int64_t(k), blocks.end(), better);
        int32_t *ids = out + (first + b) * n;
        for (size_t i = 0; i < k; i++) ids[i] = blocks[i].second;
        std::sort(ids, ids + k);
        std::fill(ids + k, ids + n, -1);
      }
    });
  }
}

void CpuExec::pool(const Op &op) {
  const uint32_t c = op.param[BL_PARAM_POOL_CACHE], ratio = op.param[BL_PARAM_POOL_RATIO];
  const uint32_t stream[2] = {op.param[BL_PARAM_POOL_K_STREAM], op.param[BL_PARAM_POOL_Z_STREAM]};
  const bool overlap = op.param[BL_PARAM_POOL_OVERLAP] != 0, weighted = op.param[BL_PARAM_POOL_KIND] == BL_POOL_SOFTMAX;
  CpuCache &cache = *caches_[c];
  const float *ape = vector(op.src[BL_SRC_POOL_APE]);
  const uint64_t n = p_.tensors[op.dst[0]].dim[0], width = overlap ? 2 * n : n, padded = (width + 7) / 8 * 8;
  float *y = result(op.dst[0]);
  by_rows(in_->n_tok, (weighted ? 8 : 2) * width * ratio, [&](uint64_t begin, uint64_t end, uint32_t thread) {
    float *buffer = buffer_.floats() + thread * buffer_floats_;
    std::vector<const float *> rows[3];  // k, z, ape
    for (uint64_t t = begin; t < end; t++) {
      const uint32_t stop = uint32_t(in_->positions[t]) + 1;
      if (stop % ratio != 0) {
        std::fill_n(y + t * n, n, 0.0f);
        continue;
      }
      const uint32_t own = stop - ratio, first = overlap && own >= ratio ? own - ratio : own;
      for (auto &list : rows) list.clear();
      const int32_t *pages = in_->tables[c].of(in_->seqs[t]);
      float *to = buffer;
      for (uint32_t p = first; p < stop; p++) {
        const uint64_t half = overlap && p >= own ? n : 0;  // the second half of a row belongs to its own group, the first to the next one
        for (int i = 0; i < (weighted ? 2 : 1); i++, to += padded) {
          k_.decode_cache(cache.row(stream[i], pages, p), cache.shape.type[stream[i]], width, to);
          rows[i].push_back(to + half);
        }
        if (ape != nullptr) rows[2].push_back(ape + p % ratio * width + half);
      }
      k_.pool(rows[0].data(), weighted ? rows[1].data() : nullptr, ape != nullptr ? rows[2].data() : nullptr, stop - first, y + t * n, n);
    }
  });
}

}  // namespace bl
