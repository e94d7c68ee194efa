/**
 * The raw symbol table: `csrc/bloomery.h` once more, in the same order under the same names (`scripts/check_abi.ts`
 * compares). Nothing here is safe to call; `backend.ts` is.
 * @module
 */

/** Every fallible call ends with these: `uint8_t *err, uint64_t n_err`. */
const ERR = ["buffer", "u64"] as const;

export const SYMBOLS = {
  bl_abi_version: { parameters: [], result: "u32" },
  bl_build_info: {
    parameters: [
      "buffer", // uint8_t *out
      "u64", //    n_out
    ],
    result: "u64",
  },
  bl_runtime_open: {
    parameters: [
      "u32", //    n_threads
      "buffer", // bl_runtime **out
      ...ERR,
    ],
    result: "i32",
  },
  bl_runtime_close: { parameters: ["pointer"], result: "void" },
  bl_runtime_devices: {
    parameters: [
      "pointer", // bl_runtime *rt
      "buffer", //  uint8_t *out
      "u64", //     n_out
    ],
    result: "u64",
  },
  bl_runtime_add_device: {
    parameters: [
      "pointer", // bl_runtime *rt
      "u32", //     like
      "buffer", //  uint32_t *out
      ...ERR,
    ],
    result: "i32",
  },
  bl_file_open: {
    parameters: [
      "pointer", // bl_runtime *rt
      "buffer", //  const uint8_t *path, NUL-terminated
      "buffer", //  bl_file **out
      ...ERR,
    ],
    result: "i32",
  },
  bl_file_close: { parameters: ["pointer"], result: "void" },
  bl_tensor_load: {
    parameters: [
      "pointer", // bl_runtime *rt
      "u32", //     device
      "u32", //     type
      "buffer", //  const uint64_t *ne  [4]
      "u32", //     uses
      "pointer", // bl_file *file
      "u64", //     offset
      "u64", //     n_bytes
      "buffer", //  bl_tensor **out
      ...ERR,
    ],
    result: "i32",
    nonblocking: true,
  },
  bl_tensor_create: {
    parameters: [
      "pointer", // bl_runtime *rt
      "u32", //     device
      "u32", //     type
      "buffer", //  const uint64_t *ne  [4]
      "u32", //     uses
      "buffer", //  const uint8_t *data
      "u64", //     n_bytes
      "buffer", //  bl_tensor **out
      ...ERR,
    ],
    result: "i32",
    nonblocking: true,
  },
  bl_pack: {
    parameters: [
      "pointer", // bl_runtime *rt
      "u32", //     device
      "u32", //     type
      "buffer", //  const uint64_t *ne  [4]
      "pointer", // bl_file *file
      "u64", //     offset
      "u64", //     n_bytes
      "buffer", //  uint8_t *dst
      "u64", //     n_dst
      ...ERR,
    ],
    result: "i32",
    nonblocking: true,
  },
  bl_tensor_map: {
    parameters: [
      "pointer", // bl_runtime *rt
      "u32", //     device
      "u32", //     type
      "buffer", //  const uint64_t *ne  [4]
      "u32", //     uses
      "pointer", // bl_file *file
      "u64", //     offset
      "u64", //     n_bytes
      "pointer", // bl_file *packed
      "u64", //     packed_offset
      "u64", //     stride
      "buffer", //  bl_tensor **out
      ...ERR,
    ],
    result: "i32",
  },
  bl_tensor_device_bytes: { parameters: ["pointer"], result: "u64" },
  bl_tensor_free: { parameters: ["pointer"], result: "void" },
  bl_pool_create: {
    parameters: [
      "pointer", // bl_runtime *rt
      "u32", //     device
      "u64", //     slot_bytes
      "u32", //     n_slots
      "buffer", //  bl_pool **out
      ...ERR,
    ],
    result: "i32",
  },
  bl_pool_tensor: {
    parameters: [
      "pointer", // bl_pool *pool
      "u32", //     group
      "u32", //     type
      "buffer", //  const uint64_t *ne  [4]
      "pointer", // bl_file *file
      "u64", //     offset
      "u64", //     n_bytes
      "buffer", //  bl_tensor **out
      ...ERR,
    ],
    result: "i32",
  },
  bl_pool_map: {
    parameters: [
      "pointer", // bl_pool *pool
      "u32", //     group
      "u32", //     type
      "buffer", //  const uint64_t *ne  [4]
      "pointer", // bl_file *packed
      "u64", //     packed_offset
      "u64", //     stride
      "buffer", //  bl_tensor **out
      ...ERR,
    ],
    result: "i32",
  },
  bl_pool_copy: {
    parameters: [
      "pointer", // bl_pool *pool
      "pointer", // const bl_file *of
      "pointer", // const bl_file *copy
      ...ERR,
    ],
    result: "i32",
  },
  bl_pool_seat: {
    parameters: [
      "pointer", // bl_pool *pool
      "u32", //     group
      "buffer", //  const uint8_t *seated  [n_expert]
      "u64", //     n_expert
      ...ERR,
    ],
    result: "i32",
  },
  bl_pool_fill: {
    parameters: [
      "pointer", // bl_pool *pool
      ...ERR,
    ],
    result: "i32",
    nonblocking: true,
  },
  bl_pool_counts: {
    parameters: [
      "pointer", // bl_pool *pool
      "buffer", //  uint64_t *out  [n_out]
      "u64", //     n_out
    ],
    result: "u64",
  },
  bl_pool_bytes: { parameters: ["pointer"], result: "u64" },
  bl_pool_free: { parameters: ["pointer"], result: "void" },
  bl_cache_create: {
    parameters: [
      "pointer", // bl_runtime *rt
      "u32", //     device
      "u32", //     n_stream
      "buffer", //  const uint32_t *stream_type  [n_stream]
      "buffer", //  const uint32_t *stream_ne    [n_stream]
      "buffer", //  const uint32_t *stream_ratio [n_stream]
      "u32", //     page_size
      "u32", //     n_pages
      "buffer", //  bl_cache **out
      ...ERR,
    ],
    result: "i32",
  },
  bl_cache_page_bytes: { parameters: ["pointer"], result: "u64" },
  bl_cache_copy: {
    parameters: [
      "pointer", // bl_cache *cache
      "buffer", //  const int32_t *src  [n]
      "buffer", //  const int32_t *dst  [n]
      "u32", //     n
      ...ERR,
    ],
    result: "i32",
  },
  bl_cache_read: {
    parameters: [
      "pointer", // bl_cache *cache
      "buffer", //  const int32_t *pages  [n]
      "u32", //     n
      "buffer", //  uint8_t *data
      "u64", //     n_data
      ...ERR,
    ],
    result: "i32",
  },
  bl_cache_write: {
    parameters: [
      "pointer", // bl_cache *cache
      "buffer", //  const int32_t *pages  [n]
      "u32", //     n
      "buffer", //  const uint8_t *data
      "u64", //     n_data
      ...ERR,
    ],
    result: "i32",
  },
  bl_cache_free: { parameters: ["pointer"], result: "void" },
  bl_program_create: {
    parameters: [
      "pointer", // bl_runtime *rt
      "buffer", //  const uint8_t *code
      "u64", //     n_code
      "buffer", //  bl_tensor *const *weights
      "u64", //     n_weights
      "buffer", //  bl_cache *const *caches
      "u64", //     n_caches
      "buffer", //  bl_program **out
      ...ERR,
    ],
    result: "i32",
  },
  bl_program_scratch_bytes: { parameters: ["pointer"], result: "u64" },
  bl_program_measure: {
    parameters: [
      "pointer", // bl_runtime *rt
      "u32", //     device
      "buffer", //  const uint8_t *code
      "u64", //     n_code
      "buffer", //  const uint64_t *weights  [n_weights, 7]
      "u64", //     n_weights
      "buffer", //  const uint32_t *caches
      "u64", //     n_cache_words
      "buffer", //  uint64_t *out
      ...ERR,
    ],
    result: "i32",
  },
  bl_program_step: {
    parameters: [
      "pointer", // bl_program *program
      "buffer", //  const uint8_t *input
      "u64", //     n_input
      "buffer", //  uint8_t *output
      "u64", //     n_output
      "u64", //     mask
      ...ERR,
    ],
    result: "i32",
    nonblocking: true,
  },
  bl_program_free: { parameters: ["pointer"], result: "void" },
  bl_quantize: {
    parameters: [
      "pointer", // bl_runtime *rt
      "u32", //     device
      "u32", //     src_type
      "buffer", //  const uint8_t *src
      "u64", //     n_src
      "u32", //     dst_type
      "buffer", //  uint8_t *dst
      "u64", //     n_dst
      "u64", //     n_rows
      "u64", //     n_per_row
      "buffer", //  const float *weights  [n_per_row] or NULL
      ...ERR,
    ],
    result: "i32",
    nonblocking: true,
  },
  bl_quantize_file: {
    parameters: [
      "pointer", // bl_runtime *rt
      "u32", //     device
      "u32", //     src_type
      "pointer", // bl_file *file
      "u64", //     offset
      "u64", //     n_src
      "u32", //     dst_type
      "buffer", //  uint8_t *dst
      "u64", //     n_dst
      "u64", //     n_rows
      "u64", //     n_per_row
      "buffer", //  const float *weights  [n_per_row] or NULL
      ...ERR,
    ],
    result: "i32",
    nonblocking: true,
  },
  bl_dequantize: {
    parameters: [
      "pointer", // bl_runtime *rt
      "u32", //     device
      "u32", //     type
      "buffer", //  const uint8_t *src
      "u64", //     n_src
      "buffer", //  float *dst
      "u64", //     n
      ...ERR,
    ],
    result: "i32",
    nonblocking: true,
  },
  bl_check_data: {
    parameters: [
      "pointer", // bl_runtime *rt
      "u32", //     type
      "buffer", //  const uint8_t *src
      "u64", //     n_src
      "buffer", //  uint64_t *bad  [2]
      ...ERR,
    ],
    result: "i32",
    nonblocking: true,
  },
  bl_compare_logits: {
    parameters: [
      "pointer", // bl_runtime *rt
      "buffer", //  const float *p  [n_rows, n_vocab]
      "buffer", //  const float *q  [n_rows, n_vocab]
      "u64", //     n_rows
      "u64", //     n_vocab
      "buffer", //  double *kl        [n_rows]
      "buffer", //  uint8_t *same_top [n_rows]
      ...ERR,
    ],
    result: "i32",
    nonblocking: true,
  },
} as const satisfies Deno.ForeignLibraryInterface;
