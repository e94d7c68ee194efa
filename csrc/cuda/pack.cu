// pack.cu: rearranges a weight's blocks into the fragment order of packed.h, once, when it is loaded.
//   raw [n_row, n_in] ggml blocks · packed [ceil(n_row / 16)][ceil(n_in / 256)] superblocks
// launch  grid (superblocks of k, tiles), block 256: one packed superblock per block, one output word per thread and turn
// floor   bytes read + bytes written over memory bandwidth; the transfer to the card is far slower
#include "pack.h"

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

// The code of value k without its offset, as many bits as the type has.
__device__ uint32_t code_of(uint32_t type, const Source &s, uint32_t k) {
  if (!s.has(k)) return type == TYPE_Q8_0 ? 128 : 0;
  switch (type) {
    case TYPE_Q8_0: return uint8_t(s.row[k / 32 * 34 + 2 + k % 32] ^ 0x80u);
    case TYPE_Q4_0: {
      const uint8_t q = s.row[k / 32 * 18 + 2 + k % 16];
      return k % 32 < 16 ? q & 15 : q >> 4;
    }
    case TYPE_MXFP4: {
      const uint8_t q = s.row[k / 32 * 17 + 1 + k % 16];
      return k % 32 < 16 ? q & 15 : q >> 4;
    }
    case TYPE_Q4_K: {
      const uint8_t *b = s.row + uint64_t(k / 256) * 144;
      const uint8_t q = b[16 + k % 256 / 64 * 32 + k % 32];
      return k % 64 < 32 ? q & 15 : q >> 4;
    }
    case TYPE_Q5_K: {
      const uint8_t *b = s.row + uint64_t(k / 256) * 176;
      const uint8_t q = b[48 + k % 256 / 64 * 32 + k % 32];
      return (k % 64 < 32 ? q & 15 : q >> 4) | (b[16 + k % 32] >> (k % 256 / 32) & 1) << 4;
    }
    case TYPE_Q6_K: {
      const uint8_t *b = s.row + uint64_t(k / 256) * 210;
      const uint32_t h = k % 256 / 128, e = k % 128, l = e % 32, plane = e / 32;
      const uint8_t q = b[64 * h + 32 * (plane & 1) + l];
      return (plane < 2 ? q & 15 : q >> 4) | (b[128 + 32 * h + l] >> (2 * plane) & 3) << 4;
    }
  }
  return 0;
}

// Scale and minimum of 32 values (q4_K, q5_K).
__device__ void k4_of(uint32_t type, const Source &s, uint32_t k, uint8_t *scale, uint8_t *min) {
  *scale = *min = 0;
  if (s.has(k)) unpack_k4(s.row + uint64_t(k / 256) * (type == TYPE_Q4_K ? 144 : 176) + 4, k % 256 / 32, scale, min);
}

// Which value of pair order a bit position means: value e of a lane's 8 stands at e even: e / 2, e odd: e / 2 + 4 (in units of the
// code's width in half a word).
__device__ uint32_t nibbles(uint32_t type, const Source &s, uint32_t k0) {
  uint32_t w = 0;
  for (int e = 0; e < 8; e++) w |= (code_of(type, s, k0 + e) & 15) << (4 * (e / 2) + 16 * (e & 1));
  return w;
}

__global__ __launch_bounds__(256) void pack_kernel(uint32_t type, const uint8_t *raw, uint64_t row_bytes, uint8_t *packed,
                                                   uint32_t n_in, uint64_t n_row) {
  const uint64_t tile = uint64_t(blockIdx.z) * gridDim.y + blockIdx.y;
  if (tile * TILE_ROWS >= n_row) return;
  const uint32_t sb = blockIdx.x, sb_bytes = packed_sb_bytes(type);
  uint32_t *out = reinterpret_cast<uint32_t *>(packed + (tile * gridDim.x + sb) * sb_bytes);
  auto source = [&](uint32_t row) {
    const uint64_t r = tile * TILE_ROWS + row;
    return Source{raw + r * row_bytes, r < n_row, n_in};
  };
  const uint32_t k_sb = sb * SB;

  for (uint32_t i = threadIdx.x; i < sb_bytes / 4; i += 256) {
    const uint32_t at = i * 4;
    uint32_t v = 0;
    if (type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16) {
      const uint32_t lane = at / 16 % 32, g = lane / 4, t = lane % 4;
      if (type == TYPE_F32) {  // [block][row half, k half][lane][4 floats]
        const uint32_t part = at / 512 % 4, k = k_sb + at / 2048 * 32 + t * 8 + part % 2 * 4 + i % 4;
        const Source s = source(g + part / 2 * 8);
        if (s.has(k)) v = read_at<uint32_t>(s.row + uint64_t(k) * 4);
      } else {                 // [block][row half][lane][8 halves]
        const uint32_t k = k_sb + at / 1024 * 32 + t * 8 + i % 4 * 2;
        const Source s = source(g + at / 512 % 2 * 8);
        if (s.has(k)) v = read_u16(s.row + uint64_t(k) * 2);
        if (s.has(k + 1)) v |= uint32_t(read_u16(s.row + uint64_t(k) * 2 + 2)) << 16;
      }
    } else if (type == TYPE_Q8_0 && at < Q80_D) {
      const uint32_t lane = at / 16 % 32, g = lane / 4, t = lane % 4;
      const uint32_t k = k_sb + at / 512 * 32 + t * 8 + i % 2 * 4;
      const Source s = source(g + i % 4 / 2 * 8);
      for (int e = 0; e < 4; e++) v |= code_of(type, s, k + e) << (8 * e);
    } else if (type != TYPE_Q8_0 && at < 2048) {
      const uint32_t lane = at / 16 % 32, g = lane / 4, t = lane % 4;
      v = nibbles(type, source(g + i % 2 * 8), k_sb + (at / 512 * 2 + i % 4 / 2) * 32 + t * 8);
    } else if (type == TYPE_Q8_0 || type == TYPE_Q4_0) {
      const uint32_t j = (at - (type == TYPE_Q8_0 ? Q80_D : Q40_D)) / 2;  // [g][row half][8 blocks]
      const Source s = source(j / 16 + j / 8 % 2 * 8);
      for (int e = 0; e < 2; e++) {
        const uint32_t k = k_sb + (j % 8 + e) * 32;
        if (s.has(k)) v |= uint32_t(read_u16(s.row + uint64_t(k / 32) * (type == TYPE_Q8_0 ? 34 : 18))) << (16 * e);
      }
    } else if (type == TYPE_MXFP4) {  // [g][row half][8 blocks]: exponents
      for (int e = 0; e < 4; e++) {
        const uint32_t j = at - MXFP4_SCALES + e, k = k_sb + j % 8 * 32;
        const Source s = source(j / 16 + j / 8 % 2 * 8);
        if (s.has(k)) v |= uint32_t(s.row[k / 32 * 17]) << (8 * e);
      }
    } else if (type == TYPE_Q6_K) {
      if (at < Q6K_SCALES) {  // [step][lane][2 blocks]: two high bits of each value
        const uint32_t lane = (at - Q6K_HIGH) / 8 % 32, g = lane / 4, t = lane % 4, b = (at - Q6K_HIGH) / 256 * 2 + i % 2;
        for (int r = 0; r < 2; r++)
          for (int e = 0; e < 8; e++)
            v |= (code_of(type, source(g + 8 * r), k_sb + b * 32 + t * 8 + e) >> 4 & 3) << (8 * r + 2 * (e / 2) + 16 * (e & 1));
      } else if (at < Q6K_D) {  // [g][16-value half of a block][row half][8 blocks], each + 128
        for (int e = 0; e < 4; e++) {
          const uint32_t j = at - Q6K_SCALES + e, half = j / 16 % 2, b = j % 8;
          const Source s = source(j / 32 + j / 8 % 2 * 8);
          const uint32_t k = k_sb + b * 32;
          const uint32_t sc = s.has(k) ? s.row[uint64_t(k / 256) * 210 + 192 + b * 2 + half] ^ 0x80u : 0x80u;
          v |= (sc & 0xFFu) << (8 * e);
        }
      } else {
        for (int r = 0; r < 2; r++) {
          const Source s = source((at - Q6K_D) / 4 + 8 * r);
          if (s.has(k_sb)) v |= uint32_t(read_u16(s.row + uint64_t(k_sb / 256) * 210 + 208)) << (16 * r);
        }
      }
    } else {  // q4_K, q5_K behind the nibbles
      const bool five = type == TYPE_Q5_K;
      if (five && at < Q5K_SCALES) {  // [lane][block pair]: fifth bits
        const uint32_t lane = (at - Q5K_HIGH) / 16, g = lane / 4, t = lane % 4;
        for (int j = 0; j < 2; j++)
          for (int r = 0; r < 2; r++)
            for (int e = 0; e < 8; e++)
              v |= (code_of(type, source(g + 8 * r), k_sb + (i % 4 * 2 + j) * 32 + t * 8 + e) >> 4 & 1)
                   << (8 * j + 4 * r + e / 2 + 16 * (e & 1));
      } else if (at < (five ? Q5K_MINS : Q4K_MINS)) {  // [g][row half][8 blocks]
        for (int e = 0; e < 4; e++) {
          const uint32_t j = at - (five ? Q5K_SCALES : Q4K_SCALES) + e;
          uint8_t scale, min;
          k4_of(type, source(j / 16 + j / 8 % 2 * 8), k_sb + j % 8 * 32, &scale, &min);
          v |= uint32_t(scale) << (8 * e);
        }
      } else if (at < (five ? Q5K_D : Q4K_D)) {  // [lane][row half][blocks 2t, 2t + 1]
        const uint32_t lane = (at - (five ? Q5K_MINS : Q4K_MINS)) / 4;
        for (int e = 0; e < 4; e++) {
          uint8_t scale, min;
          k4_of(type, source(lane / 4 + e / 2 * 8), k_sb + (lane % 4 * 2 + e % 2) * 32, &scale, &min);
          v |= uint32_t(min) << (8 * e);
        }
      } else {  // [g][row half]{d, dmin}
        const uint32_t j = (at - (five ? Q5K_D : Q4K_D)) / 4;
        const Source s = source(j / 2 + j % 2 * 8);
        if (s.has(k_sb)) {
          const uint8_t *b = s.row + uint64_t(k_sb / 256) * (five ? 176 : 144);
          v = read_u16(b) | uint32_t(read_u16(b + 2)) << 16;
        }
      }
    }
    out[i] = v;
  }
}

// The 8 values of lane t in block b of row r of a packed superblock.
__device__ void decode8(uint32_t type, const uint8_t *sb, uint32_t row, uint32_t b, uint32_t t, float *y) {
  const uint32_t g = row % 8, r = row / 8, lane = g * 4 + t;
  auto u32_at = [&](uint32_t at) { return *reinterpret_cast<const uint32_t *>(sb + at); };
  auto half_at = [&](uint32_t at) { return __half2float(*reinterpret_cast<const __half *>(sb + at)); };
  if (type == TYPE_F32) {
    for (int e = 0; e < 8; e++) y[e] = __uint_as_float(u32_at((b * 4 + r * 2 + e / 4) * 512 + lane * 16 + e % 4 * 4));
    return;
  }
  if (type == TYPE_F16 || type == TYPE_BF16) {
    for (int e = 0; e < 8; e++) {
      const uint32_t at = (b * 2 + r) * 512 + lane * 16 + e * 2;
      y[e] = type == TYPE_F16 ? half_at(at) : __uint_as_float(uint32_t(*reinterpret_cast<const uint16_t *>(sb + at)) << 16);
    }
    return;
  }
  if (type == TYPE_Q8_0) {
    const float d = half_at(Q80_D + (g * 16 + r * 8 + b) * 2);
    for (int e = 0; e < 8; e++) y[e] = __fmul_rn(float(int(sb[b * 512 + lane * 16 + r * 8 + e]) - 128), d);
    return;
  }
  const uint32_t w = u32_at(b / 2 * 512 + lane * 16 + (b % 2 * 2 + r) * 4);
  uint32_t q[8];
  for (int e = 0; e < 8; e++) q[e] = w >> (4 * (e / 2) + 16 * (e & 1)) & 15;
  if (type == TYPE_Q4_0) {
    const float d = half_at(Q40_D + (g * 16 + r * 8 + b) * 2);
    for (int e = 0; e < 8; e++) y[e] = __fmul_rn(float(int(q[e]) - 8), d);
  } else if (type == TYPE_MXFP4) {
    const float d = e8m0_half(sb[MXFP4_SCALES + g * 16 + r * 8 + b]);
    for (int e = 0; e < 8; e++) {
      const int m = q[e] & 1, x = q[e] >> 1 & 3, doubled = x == 0 ? m : (2 + m) << (x - 1);
      y[e] = __fmul_rn(float(q[e] & 8 ? -doubled : doubled), d);
    }
  } else if (type == TYPE_Q6_K) {
    const uint32_t high = u32_at(Q6K_HIGH + b / 2 * 256 + lane * 8 + b % 2 * 4);
    const float d = half_at(Q6K_D + (g * 2 + r) * 2);
    const float sc = float(int(sb[Q6K_SCALES + g * 32 + t / 2 * 16 + r * 8 + b]) - 128);
    for (int e = 0; e < 8; e++) {
      q[e] |= (high >> (8 * r + 2 * (e / 2) + 16 * (e & 1)) & 3) << 4;
      y[e] = __fmul_rn(__fmul_rn(d, sc), float(int(q[e]) - 32));
    }
  } else {
    const bool five = type == TYPE_Q5_K;
    const uint32_t scales = five ? Q5K_SCALES : Q4K_SCALES, mins = five ? Q5K_MINS : Q4K_MINS, ds = five ? Q5K_D : Q4K_D;
    if (five) {
      const uint32_t high = u32_at(Q5K_HIGH + lane * 16 + b / 2 * 4);
      for (int e = 0; e < 8; e++) q[e] |= (high >> (8 * (b & 1) + 4 * r + e / 2 + 16 * (e & 1)) & 1) << 4;
    }
    const float dl = __fmul_rn(half_at(ds + (g * 2 + r) * 4), float(sb[scales + g * 16 + r * 8 + b]));
    const float ml = __fmul_rn(half_at(ds + (g * 2 + r) * 4 + 2), float(sb[mins + (g * 4 + b / 2) * 4 + r * 2 + b % 2]));
    for (int e = 0; e < 8; e++) y[e] = __fsub_rn(__fmul_rn(dl, float(q[e])), ml);
  }
}

__global__ __launch_bounds__(128) void embed_kernel(const __grid_constant__ EmbedArgs p) {
  release();
  depend();
  const uint32_t row = blockIdx.y;
  if (row >= row_count(p.rows)) return;
  const uint32_t unit = blockIdx.x * 128 + threadIdx.x;  // 8 values
  if (unit * 8 >= p.n) return;
  const int32_t signed_id = p.ids[row];
  const uint32_t n_sb = ceil_div(p.n, SB), id = uint32_t(signed_id);
  float y[8] = {};
  if (signed_id >= 0) {
    const uint8_t *sb = p.table + (uint64_t(id / TILE_ROWS) * n_sb + unit / 32) * packed_sb_bytes(p.type);
    decode8(p.type, sb, id % TILE_ROWS, unit / 4 % 8, unit % 4, y);
  }
  for (int e = 0; e < 8; e++)
    if (unit * 8 + e < p.n) p.y[uint64_t(row) * p.n + unit * 8 + e] = y[e];
}

// One superblock of 16 rows a block: a warp two rows. Each row by a power of two that brings its largest value to [1, 2).
__global__ __launch_bounds__(256) void pack_halves_kernel(const float *rows, uint8_t *packed, uint32_t n_in, uint64_t n_row) {
  const uint64_t tile = uint64_t(blockIdx.z) * gridDim.y + blockIdx.y;
  if (tile * TILE_ROWS >= n_row) return;
  uint8_t *out = packed + (tile * gridDim.x + blockIdx.x) * packed_sb_bytes(PACKED_HALF);
  const uint32_t lane = threadIdx.x % WARP;
  for (uint32_t row = threadIdx.x / WARP; row < TILE_ROWS; row += 256 / WARP) {
    const uint64_t at = tile * TILE_ROWS + row;
    const uint32_t b = lane / 4, t = lane % 4, k = blockIdx.x * SB + b * 32 + t * 8;  // a lane's 8 values
    float v[8], largest = 0.0f;
    for (int e = 0; e < 8; e++) {
      v[e] = at < n_row && k + e < n_in ? rows[at * n_in + k + e] : 0.0f;
      largest = fmaxf(largest, fabsf(v[e]));
    }
    for (int o = 16; o > 0; o >>= 1) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, o));
    const int exponent = min(max(int(__float_as_uint(largest) >> 23), 1), 253);
    const float scale = __uint_as_float(uint32_t(exponent) << 23), inverse = __uint_as_float(uint32_t(254 - exponent) << 23);
    uint32_t w[4];
    for (int e = 0; e < 4; e++) w[e] = h2_bits(__floats2half2_rn(v[2 * e] * inverse, v[2 * e + 1] * inverse));
    *reinterpret_cast<uint4 *>(out + (b * 2 + row / 8) * 512 + (row % 8 * 4 + t) * 16) = make_uint4(w[0], w[1], w[2], w[3]);
    if (lane == 0) *reinterpret_cast<float *>(out + HALF_D + (row % 8 * 2 + row / 8) * 4) = scale;
  }
}

}  // namespace

uint32_t packed_type(uint32_t type) {
  if (packed_sb_bytes(type) != 0) return type;
  switch (type) {
    case TYPE_I8:
    case TYPE_I16:
    case TYPE_I32:
    case TYPE_I64:
    case TYPE_F64: return NOT_PACKED;
    default: return type_info(type) != nullptr ? PACKED_HALF : NOT_PACKED;
  }
}

uint64_t packed_bytes(uint32_t type, uint64_t n_in, uint64_t n_row, uint64_t n_matrix) {
  return ceil_div(n_row, uint64_t(TILE_ROWS)) * ceil_div(n_in, uint64_t(SB)) * packed_sb_bytes(type) * n_matrix;
}

void pack_rows(uint32_t type, const uint8_t *raw, uint8_t *packed, uint64_t n_in, uint64_t n_row, cudaStream_t stream) {
  const TypeInfo *info = type_info(type);
  const uint64_t tiles = ceil_div(n_row, uint64_t(TILE_ROWS));
  const uint32_t y = uint32_t(tiles < 32768 ? tiles : 32768);
  Stream s{stream};
  launch("pack", pack_kernel, dim3(uint32_t(ceil_div(n_in, uint64_t(SB))), y, uint32_t(ceil_div(tiles, uint64_t(y)))), dim3(256), 0, s,
         type, raw, n_in / info->block * info->bytes, packed, uint32_t(n_in), n_row);
}

void pack_halves(const float *rows, uint8_t *packed, uint64_t n_in, uint64_t n_row, cudaStream_t stream) {
  const uint64_t tiles = ceil_div(n_row, uint64_t(TILE_ROWS));
  const uint32_t y = uint32_t(tiles < 32768 ? tiles : 32768);
  Stream s{stream};
  launch("pack halves", pack_halves_kernel, dim3(uint32_t(ceil_div(n_in, uint64_t(SB))), y, uint32_t(ceil_div(tiles, uint64_t(y)))), dim3(256), 0,
         s, rows, packed, uint32_t(n_in), n_row);
}

int code_version() {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, pack_kernel), "cudaFuncGetAttributes");
  return attributes.ptxVersion;
}

void embed_rows(const EmbedArgs &args, Stream &s) {
  if (args.raw) return embed_raw_rows(args, s);
  launch("embed_rows", embed_kernel, dim3(ceil_div(ceil_div(args.n, 8u), 128u), args.rows.max), 128, 0, s, args);
}

}  // namespace bl::cuda
