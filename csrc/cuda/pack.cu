// pack.cu: rearranges a weight's blocks into the fragment order of packed.h, once, when it is loaded.
//   raw [n_row, n_in] ggml blocks · packed [ceil(n_row / 16)][ceil(n_in / 256)] superblocks
// launch  grid (superblocks of k, tiles), block 256: one packed superblock per block, one output word per thread and turn
// floor   bytes read + bytes written over memory bandwidth; the transfer to the card is far slower
#include "pack.h"

#include "matmul.h"

namespace bl::cuda {

namespace {

template <class T>
__device__ T read_at(const uint8_t *p) {  // blocks of 18, 34 or 210 bytes lie at any address
  T v;
  memcpy(&v, p, sizeof v);
  return v;
}
__device__ uint16_t read_u16(const uint8_t *p) { return uint16_t(p[0] | p[1] << 8); }

// One row's source: blocks of the row, or nothing (padding) when `real` is false.
struct Source {
  const uint8_t *row;
  bool real;
  uint32_t n_in;
  __device__ bool has(uint32_t k) const { return real && k < n_in; }
};

// Rows as the file has them, of the types whose blocks are read here. Codes come as they are stored: as many bits as the kind has, two's
// complement where it is signed (whole.h).
struct RawRows {
  const uint8_t *raw;
  uint64_t row_bytes;
  uint32_t type, n_in;
  uint64_t n_row;

  __device__ Source source(uint64_t row) const { return {raw + row * row_bytes, row < n_row, n_in}; }
  __device__ uint32_t code(uint64_t row, uint32_t k) const {
    const Source s = source(row);
    if (!s.has(k)) return 0;
    switch (type) {
      case TYPE_Q8_0: return s.row[k / 32 * 34 + 2 + k % 32];
      case TYPE_Q4_0:
      case TYPE_MXFP4: {
        const uint8_t q = type == TYPE_Q4_0 ? s.row[k / 32 * 18 + 2 + k % 16] : s.row[k / 32 * 17 + 1 + k % 16];
        return (k % 32 < 16 ? q & 15 : q >> 4) ^ (type == TYPE_Q4_0 ? 8 : 0);
      }
      case TYPE_Q4_K: {
        const uint8_t q = s.row[uint64_t(k / 256) * 144 + 16 + k % 256 / 64 * 32 + k % 32];
        return k % 64 < 32 ? q & 15 : q >> 4;
      }
      case TYPE_Q5_K: {
        const uint8_t *b = s.row + uint64_t(k / 256) * 176;
        const uint8_t q = b[48 + k % 256 / 64 * 32 + k % 32];
        return (k % 64 < 32 ? q & 15 : q >> 4) | (b[16 + k % 32] >> (k % 256 / 32) & 1) << 4;
      }
      default: {  // q6_K
        const uint8_t *b = s.row + uint64_t(k / 256) * 210;
        const uint32_t h = k % 256 / 128, e = k % 128, l = e % 32, plane = e / 32;
        const uint8_t q = b[64 * h + 32 * (plane & 1) + l];
        return ((plane < 2 ? q & 15 : q >> 4) | (b[128 + 32 * h + l] >> (2 * plane) & 3) << 4) ^ 32;
      }
    }
  }
  // Scale and minimum of block b of superblock sb (q4_K, q5_K).
  __device__ void k4(uint64_t row, uint32_t sb, uint32_t b, uint8_t *scale, uint8_t *min) const {
    const Source s = source(row);
    *scale = *min = 0;
    if (s.has(sb * SB + b * 32)) unpack_k4(s.row + uint64_t(sb) * (type == TYPE_Q4_K ? 144 : 176) + 4, b, scale, min);
  }
  __device__ uint32_t scale32(uint64_t row, uint32_t sb, uint32_t b) const {
    uint8_t scale, min;
    k4(row, sb, b, &scale, &min);
    return scale;
  }
  __device__ uint32_t min32(uint64_t row, uint32_t sb, uint32_t b) const {
    uint8_t scale, min;
    k4(row, sb, b, &scale, &min);
    return min;
  }
  __device__ uint32_t d_dmin(uint64_t row, uint32_t sb) const {
    const Source s = source(row);
    if (!s.has(sb * SB)) return 0;
    const uint8_t *b = s.row + uint64_t(sb) * (type == TYPE_Q4_K ? 144 : 176);
    return read_u16(b) | uint32_t(read_u16(b + 2)) << 16;
  }
  __device__ uint32_t scale16(uint64_t row, uint32_t sb, uint32_t j) const {
    const Source s = source(row);
    return s.has(sb * SB) ? s.row[uint64_t(sb) * 210 + 192 + j] : 0;
  }
  __device__ float d(uint64_t row, uint32_t sb) const {
    const Source s = source(row);
    return s.has(sb * SB) ? f16_to_f32(read_u16(s.row + uint64_t(sb) * 210 + 208)) : 0.0f;
  }
  __device__ uint32_t exponent(uint64_t row, uint32_t sb, uint32_t b) const {
    const Source s = source(row);
    const uint32_t k = sb * SB + b * 32;
    return s.has(k) ? s.row[k / 32 * 17] : 0;
  }
  __device__ uint32_t block_d(uint64_t row, uint32_t sb, uint32_t b) const {
    const Source s = source(row);
    const uint32_t k = sb * SB + b * 32;
    return s.has(k) ? read_u16(s.row + uint64_t(k / 32) * (type == TYPE_Q8_0 ? 34 : 18)) : 0;
  }
  // What these types do not have.
  __device__ uint32_t min16(uint64_t, uint32_t, uint32_t) const { return 0; }
  __device__ float dmin(uint64_t, uint32_t) const { return 0.0f; }
  __device__ uint32_t block_m(uint64_t, uint32_t, uint32_t) const { return 0; }
};

// Rows that the host has put together as codes and scales.
struct CodedRows {
  const Coded *rows;
  uint32_t n_sb;
  uint64_t n_row;
  Kind kind;
  int8_t table[16];

  __device__ const Coded &at(uint64_t row, uint32_t sb) const { return rows[row * n_sb + sb]; }
  __device__ uint32_t code(uint64_t row, uint32_t k) const {
    if (row >= n_row) return 0;
    const int8_t c = at(row, k / SB).code[k % SB];
    if (kind != Kind::T4) return uint32_t(c) & (kind == Kind::U5 || kind == Kind::S5 ? 31 : 15);
    for (uint32_t i = 0; i < 16; i++)
      if (table[i] == c) return i;
    return 0;  // past the end of a row
  }
  __device__ uint32_t scale16(uint64_t row, uint32_t sb, uint32_t j) const { return row < n_row ? uint8_t(at(row, sb).scale[j]) : 0; }
  __device__ uint32_t min16(uint64_t row, uint32_t sb, uint32_t j) const { return row < n_row ? uint8_t(at(row, sb).min[j]) : 0; }
  __device__ float d(uint64_t row, uint32_t sb) const { return row < n_row ? at(row, sb).d : 0.0f; }
  __device__ float dmin(uint64_t row, uint32_t sb) const { return row < n_row ? at(row, sb).dmin : 0.0f; }
  // Halves in the file, or exact as halves (nvfp4).
  __device__ uint32_t block_d(uint64_t row, uint32_t sb, uint32_t b) const {
    return row < n_row ? __half_as_ushort(__float2half_rn(at(row, sb).block_d[b])) : 0;
  }
  __device__ uint32_t block_m(uint64_t row, uint32_t sb, uint32_t b) const {
    return row < n_row ? __half_as_ushort(__float2half_rn(at(row, sb).block_m[b])) : 0;
  }
  __device__ uint32_t scale32(uint64_t, uint32_t, uint32_t) const { return 0; }
  __device__ uint32_t min32(uint64_t, uint32_t, uint32_t) const { return 0; }
  __device__ uint32_t d_dmin(uint64_t, uint32_t) const { return 0; }
  __device__ uint32_t exponent(uint64_t, uint32_t, uint32_t) const { return 0; }
};

// Word i (at byte `at`) of the codes of a superblock.   tile: its first row
template <class Rows>
__device__ uint32_t code_word(const Rows &rows, Kind kind, uint64_t tile, uint32_t k_sb, uint32_t at) {
  const uint32_t i = at / 4;
  uint32_t v = 0;
  if (kind == Kind::S8) {  // [block][lane][row half, half of the block]
    const uint32_t lane = at / 16 % 32, k = k_sb + at / 512 * 32 + i % 2 * 16 + lane % 4 * 4;
    for (uint32_t e = 0; e < 4; e++) v |= (rows.code(tile + lane / 4 + i % 4 / 2 * 8, k + e) & 255u) << (8 * e);
  } else if (at < HIGH_AT) {  // [step][lane][block, row half]: four bits of eight values
    const uint32_t lane = at / 16 % 32, k = k_sb + (at / 512 * 2 + i % 4 / 2) * 32 + lane % 4 * 4;
    for (uint32_t e = 0; e < 8; e++) {
      const uint32_t q = rows.code(tile + lane / 4 + i % 2 * 8, k + e % 4 + e / 4 * 16) & 15;
      v |= q << (kind == Kind::T4 ? 4 * e : 8 * (e % 4) + 4 * (e / 4));
    }
  } else if (kind == Kind::S6) {  // [step][lane][block]: two more bits
    const uint32_t lane = (at - HIGH_AT) / 8 % 32, k = k_sb + ((at - HIGH_AT) / 256 * 2 + i % 2) * 32 + lane % 4 * 4;
    for (uint32_t part = 0; part < 4; part++)  // row half, half of the block
      for (uint32_t e = 0; e < 4; e++)
        v |= (rows.code(tile + lane / 4 + part / 2 * 8, k + e + part % 2 * 16) >> 4 & 3) << (8 * e + 2 * part);
  } else {  // [lane][block pair]: a fifth bit
    const uint32_t lane = (at - HIGH_AT) / 16;
    for (uint32_t part = 0; part < 8; part++) {  // block of the pair, row half, half of the block
      const uint32_t k = k_sb + (i % 4 * 2 + part / 4) * 32 + lane % 4 * 4 + part % 2 * 16;
      for (uint32_t e = 0; e < 4; e++) v |= (rows.code(tile + lane / 4 + part / 2 % 2 * 8, k + e) >> 4 & 1) << (8 * e + part);
    }
  }
  return v;
}

// The word at byte `at` of a superblock's scales.
template <class Rows>
__device__ uint32_t scale_word(const Rows &rows, Form form, uint64_t tile, uint32_t sb, uint32_t at) {
  uint32_t v = 0;
  auto halves = [&](uint32_t first, uint32_t n, auto &&half) {  // [g][row half][n]
    for (uint32_t e = 0; e < 2; e++) {
      const uint32_t j = first / 2 + e;
      v |= uint32_t(half(tile + j / (2 * n) + j / n % 2 * 8, j % n)) << (16 * e);
    }
    return v;
  };
  auto bytes = [&](uint32_t first, uint32_t n, auto &&byte) {
    for (uint32_t e = 0; e < 4; e++) {
      const uint32_t j = first + e;
      v |= (uint32_t(byte(tile + j / (2 * n) + j / n % 2 * 8, j % n)) & 255u) << (8 * e);
    }
    return v;
  };
  switch (form) {
    case Form::K32_MIN:
      if (at < 128) return bytes(at, 8, [&](uint64_t row, uint32_t b) { return rows.scale32(row, sb, b); });
      if (at < 256) {  // [lane][row half][block t, t + 4]
        const uint32_t lane = (at - 128) / 4;
        for (uint32_t e = 0; e < 4; e++) v |= rows.min32(tile + lane / 4 + e / 2 * 8, sb, lane % 4 + e % 2 * 4) << (8 * e);
        return v;
      }
      return rows.d_dmin(tile + (at - 256) / 8 + (at - 256) / 4 % 2 * 8, sb);
    case Form::K16:
      if (at < 256) return bytes(at, 16, [&](uint64_t row, uint32_t j) { return rows.scale16(row, sb, j); });
      return __float_as_uint(rows.d(tile + (at - 256) / 8 + (at - 256) / 4 % 2 * 8, sb));
    case Form::K16_MIN:
      if (at < 256) return bytes(at, 16, [&](uint64_t row, uint32_t j) { return rows.scale16(row, sb, j); });
      if (at < 512) {  // [lane][row half][group 2t, 2t + 1, 2t + 8, 2t + 9]
        const uint32_t lane = (at - 256) / 8, row_half = (at - 256) / 4 % 2;
        for (uint32_t e = 0; e < 4; e++) v |= rows.min16(tile + lane / 4 + row_half * 8, sb, lane % 4 * 2 + e % 2 + e / 2 * 8) << (8 * e);
        return v;
      }
      {  // [g][row half]{d, dmin}
        const uint32_t j = (at - 512) / 4;
        const uint64_t row = tile + j / 4 + j / 2 % 2 * 8;
        return __float_as_uint(j % 2 ? rows.dmin(row, sb) : rows.d(row, sb));
      }
    case Form::BLOCKS: return halves(at, 8, [&](uint64_t row, uint32_t b) { return rows.block_d(row, sb, b); });
    case Form::BLOCKS_E8: return bytes(at, 8, [&](uint64_t row, uint32_t b) { return rows.exponent(row, sb, b); });
    case Form::BLOCKS_MIN:
      if (at < 256) return halves(at, 8, [&](uint64_t row, uint32_t b) { return rows.block_d(row, sb, b); });
      return halves(at - 256, 8, [&](uint64_t row, uint32_t b) { return rows.block_m(row, sb, b); });
    case Form::BLOCKS16: return halves(at, 16, [&](uint64_t row, uint32_t j) { return rows.block_d(row, sb, j); });
  }
  return 0;
}

template <class Rows>
__global__ __launch_bounds__(256) void pack_whole_kernel(const __grid_constant__ Rows rows, Kind kind, Form form, uint8_t *packed) {
  const uint64_t tile = uint64_t(blockIdx.z) * gridDim.y + blockIdx.y;
  if (tile * TILE_ROWS >= rows.n_row) return;
  const uint32_t codes = code_bytes(kind), sb_bytes = codes + scale_bytes(form);
  uint32_t *out = reinterpret_cast<uint32_t *>(packed + (tile * gridDim.x + blockIdx.x) * sb_bytes);
  for (uint32_t i = threadIdx.x; i < sb_bytes / 4; i += 256)
    out[i] = i * 4 < codes ? code_word(rows, kind, tile * TILE_ROWS, blockIdx.x * SB, i * 4)
                           : scale_word(rows, form, tile * TILE_ROWS, blockIdx.x, i * 4 - codes);
}

__global__ __launch_bounds__(256) void pack_floats_kernel(uint32_t type, const uint8_t *raw, uint64_t row_bytes, uint8_t *packed,
                                                          uint32_t n_in, uint64_t n_row) {
  const uint64_t tile = uint64_t(blockIdx.z) * gridDim.y + blockIdx.y;
  if (tile * TILE_ROWS >= n_row) return;
  const uint32_t k_sb = blockIdx.x * SB, sb_bytes = float_sb_bytes(type);
  uint32_t *out = reinterpret_cast<uint32_t *>(packed + (tile * gridDim.x + blockIdx.x) * sb_bytes);
  auto source = [&](uint32_t row) {
    const uint64_t r = tile * TILE_ROWS + row;
    return Source{raw + r * row_bytes, r < n_row, n_in};
  };
  for (uint32_t i = threadIdx.x; i < sb_bytes / 4; i += 256) {
    const uint32_t at = i * 4, lane = at / 16 % 32, g = lane / 4, t = lane % 4;
    uint32_t v = 0;
    if (type == TYPE_F32) {  // [block][row half, k half][lane][4 floats]
      const uint32_t part = at / 512 % 4, k = k_sb + at / 2048 * 32 + t * 8 + part % 2 * 4 + i % 4;
      const Source s = source(g + part / 2 * 8);
      if (s.has(k)) v = read_at<uint32_t>(s.row + uint64_t(k) * 4);
    } else {  // [block][row half][lane][8 halves]
      const uint32_t k = k_sb + at / 1024 * 32 + t * 8 + i % 4 * 2;
      const Source s = source(g + at / 512 % 2 * 8);
      if (s.has(k)) v = read_u16(s.row + uint64_t(k) * 2);
      if (s.has(k + 1)) v |= uint32_t(read_u16(s.row + uint64_t(k) * 2 + 2)) << 16;
    }
    out[i] = v;
  }
}

// Value k of row `row` of a packed superblock, by the operations of ../common/decode.h.
__device__ float value_of(uint32_t type, const uint8_t *sb, uint32_t row, uint32_t k) {
  const uint32_t g = row % 8, r = row / 8, b = k / 32;
  auto u32_at = [&](uint32_t at) { return *reinterpret_cast<const uint32_t *>(sb + at); };
  auto half_bits = [&](uint32_t at) { return __half2float(*reinterpret_cast<const __half *>(sb + at)); };
  if (type == TYPE_F32) return __uint_as_float(u32_at((b * 4 + r * 2 + k % 8 / 4) * 512 + (g * 4 + k % 32 / 8) * 16 + k % 4 * 4));
  if (type == TYPE_F16 || type == TYPE_BF16) {
    const uint32_t at = (b * 2 + r) * 512 + (g * 4 + k % 32 / 8) * 16 + k % 8 * 2;
    return type == TYPE_F16 ? half_bits(at) : __uint_as_float(uint32_t(*reinterpret_cast<const uint16_t *>(sb + at)) << 16);
  }
  const uint32_t lane = g * 4 + k % 16 / 4, half = k % 32 / 16, e = k % 4;
  if (type == TYPE_Q8_0) {
    const float d = half_bits(4096 + (g * 16 + r * 8 + b) * 2);
    return __fmul_rn(float(int8_t(sb[b * 512 + lane * 16 + (r * 2 + half) * 4 + e])), d);
  }
  const uint32_t w = u32_at(b / 2 * 512 + lane * 16 + (b % 2 * 2 + r) * 4);
  if (type == TYPE_MXFP4) {
    const uint32_t q = w >> (4 * (half * 4 + e)) & 15;
    const int m = q & 1, x = q >> 1 & 3, doubled = x == 0 ? m : (2 + m) << (x - 1);
    return __fmul_rn(float(q & 8 ? -doubled : doubled), e8m0_half(sb[HIGH_AT + g * 16 + r * 8 + b]));
  }
  const uint32_t q = w >> (8 * e + 4 * half) & 15;
  if (type == TYPE_Q4_0) return __fmul_rn(float(int(q ^ 8) - 8), half_bits(HIGH_AT + (g * 16 + r * 8 + b) * 2));
  if (type == TYPE_Q6_K) {
    const uint32_t high = u32_at(HIGH_AT + b / 2 * 256 + lane * 8 + b % 2 * 4) >> (8 * e + 2 * (r * 2 + half)) & 3;
    const float sc = float(int8_t(sb[3072 + g * 32 + r * 16 + b * 2 + half])), d = __uint_as_float(u32_at(3072 + 256 + (g * 2 + r) * 4));
    return __fmul_rn(__fmul_rn(d, sc), float(int((q | high << 4) ^ 32) - 32));
  }
  const bool five = type == TYPE_Q5_K;
  const uint32_t scales = five ? 2560 : 2048;
  const uint32_t high = five ? u32_at(HIGH_AT + lane * 16 + b / 2 * 4) >> (8 * e + b % 2 * 4 + r * 2 + half) & 1 : 0;
  const float dl = __fmul_rn(half_bits(scales + 256 + (g * 2 + r) * 4), float(sb[scales + g * 16 + r * 8 + b]));
  const float ml = __fmul_rn(half_bits(scales + 256 + (g * 2 + r) * 4 + 2), float(sb[scales + 128 + (g * 4 + b % 4) * 4 + r * 2 + b / 4]));
  return __fsub_rn(__fmul_rn(dl, float(q | high << 4)), ml);
}

__global__ __launch_bounds__(128) void embed_kernel(const __grid_constant__ EmbedArgs p, uint32_t sb_bytes) {
  release();
  depend();
  const uint32_t row = blockIdx.y;
  if (row >= row_count(p.rows)) return;
  const uint32_t n_sb = ceil_div(p.n, SB);
  const int32_t signed_id = p.ids[row];
  const uint32_t id = uint32_t(signed_id);
  for (uint32_t k = blockIdx.x * 1024 + threadIdx.x; k < min(p.n, blockIdx.x * 1024 + 1024); k += 128) {
    const uint8_t *sb = p.table + (uint64_t(id / TILE_ROWS) * n_sb + k / SB) * sb_bytes;
    p.y[uint64_t(row) * p.n + k] = signed_id >= 0 ? value_of(p.type, sb, id % TILE_ROWS, k % SB) : 0.0f;
  }
}

}  // namespace

// The sixteen values of a T4 code: those that codes of the type have (../cpu/coded.h).
static const WholeType WHOLE_TYPES[] = {
    {TYPE_Q4_0, Kind::S4, Form::BLOCKS, {}},
    {TYPE_Q4_1, Kind::U4, Form::BLOCKS_MIN, {}},
    {TYPE_Q5_0, Kind::S5, Form::BLOCKS, {}},
    {TYPE_Q5_1, Kind::U5, Form::BLOCKS_MIN, {}},
    {TYPE_Q8_0, Kind::S8, Form::BLOCKS, {}},
    {TYPE_Q2_K, Kind::U4, Form::K16_MIN, {}},
    {TYPE_Q3_K, Kind::S4, Form::K16, {}},
    {TYPE_Q4_K, Kind::U4, Form::K32_MIN, {}},
    {TYPE_Q5_K, Kind::U5, Form::K32_MIN, {}},
    {TYPE_Q6_K, Kind::S6, Form::K16, {}},
    {TYPE_IQ2_XXS, Kind::T4, Form::K16, {8, 25, 43, -8, -25, -43}},
    {TYPE_IQ2_XS, Kind::T4, Form::K16, {8, 25, 43, -8, -25, -43}},
    {TYPE_IQ2_S, Kind::T4, Form::K16, {8, 25, 43, -8, -25, -43}},
    {TYPE_IQ3_XXS, Kind::T4, Form::K16, {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62}},
    {TYPE_IQ3_S, Kind::T4, Form::K16, {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15}},
    {TYPE_IQ1_S, Kind::T4, Form::K16, {-9, -7, -1, 1, 7, 9}},
    {TYPE_IQ1_M, Kind::T4, Form::K16, {-9, -7, -1, 1, 7, 9}},
    {TYPE_IQ4_NL, Kind::T4, Form::BLOCKS, {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}},
    {TYPE_IQ4_XS, Kind::T4, Form::K16, {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}},
    {TYPE_TQ1_0, Kind::S4, Form::K16, {}},
    {TYPE_TQ2_0, Kind::S4, Form::K16, {}},
    {TYPE_Q1_0, Kind::S4, Form::BLOCKS, {}},
    {TYPE_Q2_0, Kind::S4, Form::BLOCKS, {}},
    {TYPE_MXFP4, Kind::T4, Form::BLOCKS_E8, {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}},
    {TYPE_NVFP4, Kind::T4, Form::BLOCKS16, {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}},
};

const WholeType *whole_type(uint32_t type) {
  for (const WholeType &w : WHOLE_TYPES)
    if (w.type == type) return &w;
  return nullptr;
}

MatmulPart matmul_part(const uint8_t *w, float *y, uint32_t type, uint32_t n_out, uint64_t expert_bytes) {
  MatmulPart part = {w, y, type, n_out, expert_bytes, {}, {}, {}};
  if (const WholeType *whole = whole_type(type)) {
    part.kind = whole->kind, part.form = whole->form;
    memcpy(&part.table, whole->table, sizeof part.table);
  }
  return part;
}

uint32_t packed_sb_bytes(uint32_t type) {
  if (!reads_whole_rows(type)) return float_sb_bytes(type);
  const WholeType *w = whole_type(type);
  return w == nullptr ? 0 : code_bytes(w->kind) + scale_bytes(w->form);
}

bool has_products(uint32_t type) { return packed_sb_bytes(type) != 0; }

uint64_t packed_bytes(uint32_t type, uint64_t n_in, uint64_t n_row, uint64_t n_matrix) {
  return ceil_div(n_row, uint64_t(TILE_ROWS)) * ceil_div(n_in, uint64_t(SB)) * packed_sb_bytes(type) * n_matrix;
}

bool packs_coded(uint32_t type) { return coded_type(type) != N_CODED && type != TYPE_MXFP4; }

static dim3 tiles_grid(uint64_t n_in, uint64_t n_row) {
  const uint64_t tiles = ceil_div(n_row, uint64_t(TILE_ROWS));
  const uint32_t y = uint32_t(tiles < 32768 ? tiles : 32768);
  return dim3(uint32_t(ceil_div(n_in, uint64_t(SB))), y, uint32_t(ceil_div(tiles, uint64_t(y))));
}

void pack_rows(uint32_t type, const uint8_t *raw, uint8_t *packed, uint64_t n_in, uint64_t n_row, cudaStream_t stream) {
  const TypeInfo *info = type_info(type);
  const uint64_t row_bytes = n_in / info->block * info->bytes;
  const dim3 grid = tiles_grid(n_in, n_row);
  Stream s{stream};
  if (const WholeType *w = whole_type(type))
    launch("pack", pack_whole_kernel<RawRows>, grid, dim3(256), 0, s, RawRows{raw, row_bytes, type, uint32_t(n_in), n_row}, w->kind, w->form, packed);
  else
    launch("pack", pack_floats_kernel, grid, dim3(256), 0, s, type, raw, row_bytes, packed, uint32_t(n_in), n_row);
}

void pack_coded(uint32_t type, const Coded *rows, uint8_t *packed, uint64_t n_in, uint64_t n_row, cudaStream_t stream) {
  const WholeType *w = whole_type(type);
  CodedRows source = {rows, uint32_t(ceil_div(n_in, uint64_t(SB))), n_row, w->kind, {}};
  memcpy(source.table, w->table, sizeof source.table);
  Stream s{stream};
  launch("pack coded", pack_whole_kernel<CodedRows>, tiles_grid(n_in, n_row), dim3(256), 0, s, source, w->kind, w->form, packed);
}

int code_version() {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, pack_floats_kernel), "cudaFuncGetAttributes");
  return attributes.ptxVersion;
}

void embed_rows(const EmbedArgs &args, Stream &s) {
  if (args.raw) return embed_raw_rows(args, s);
  launch("embed_rows", embed_kernel, dim3(ceil_div(args.n, 1024u), args.rows.max), 128, 0, s, args, packed_sb_bytes(args.type));
}

}  // namespace bl::cuda
