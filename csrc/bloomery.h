// bloomery.h: the one contract between TypeScript and the native libraries.
//
// libbloomery_cpu and libbloomery_cuda (and libbloomery_metal) export exactly these symbols. A library built with a card
// backend also has the CPU as its device 0, so that one runtime, one program and one plan can span host and cards.
//
// Conventions
//   status   every call that can fail returns a bl_status and, on failure, writes one sentence (UTF-8, NUL-terminated, cut to fit)
//            into the caller's err[n_err]; err may be NULL when n_err is 0. There is no thread-local or global error: a nonblocking
//            call fails on another thread than the one that asks.
//   handles  opaque; made by *_open/*_create/*_load, ended by *_close/*_free (NULL is ignored). A handle must outlive what was made
//            from it: runtime > file, pool > tensor, cache > program.
//   sizes    bytes unless the name says otherwise; every size the caller passes is checked against what the call needs.
//   threads  calls on different handles may run in parallel; calls on one handle may not. Steps of programs that share a device
//            are serialized by the library.
//   never    exits, aborts, throws, prints, or keeps a pointer to caller memory after a call returns.
//
// Sized integers, floats, buffers and opaque pointers only: no struct crosses by value. ffi/symbols.ts declares the same functions in
// the same order; scripts/check_abi.ts compares the two.
#pragma once
#include <stdint.h>

#include "bloomery_ops.h"

#if defined(_WIN32)
#define BL_API __declspec(dllexport)
#else
#define BL_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define BL_ABI_VERSION 4

typedef enum bl_status {
  BL_OK = 0,
  BL_ERR_ARGUMENT = 1,     // a size, type, shape or handle the call cannot take
  BL_ERR_PROGRAM = 2,      // the op program is malformed: which op, which tensor, found, wanted
  BL_ERR_INPUT = 3,        // a step's input is out of range: which row, found, wanted
  BL_ERR_MEMORY = 4,       // an allocation failed: where, how many bytes, how many were free
  BL_ERR_DEVICE = 5,       // the device reported an error
  BL_ERR_IO = 6,           // a file could not be opened, mapped or read
  BL_ERR_UNSUPPORTED = 7,  // well-formed, but this library or device has no way to do it
  BL_ERR_DATA = 8,         // NaN, infinity or an invalid scale in tensor data
} bl_status;

typedef struct bl_runtime bl_runtime;  // devices and worker threads
typedef struct bl_file bl_file;        // a file opened for reading, mapped
typedef struct bl_tensor bl_tensor;    // a weight or constant on one device, in the layout its kernels want
typedef struct bl_pool bl_pool;        // slots that experts of routed weights are read into while steps run
typedef struct bl_cache bl_cache;      // paged per-token storage on one device
typedef struct bl_program bl_program;  // a checked op program with its scratch arena

// --- library and runtime ------------------------------------------------------------------------------------------------------------

// The version of this header the library was built from.
BL_API uint32_t bl_abi_version(void);

// JSON: {"backends":["cpu","cuda"],"compiler":"..."}.  Returns the length without NUL; writes at most n_out - 1 bytes and a NUL.
BL_API uint64_t bl_build_info(uint8_t *out, uint64_t n_out);

// Opens the devices of this library.  n_threads worker threads for the host device, 0 = one per available core.
BL_API int32_t bl_runtime_open(uint32_t n_threads, bl_runtime **out, uint8_t *err, uint64_t n_err);
BL_API void bl_runtime_close(bl_runtime *rt);

// JSON array, one object per device, in index order; device 0 is the host:
//   {"index":0,"kind":"cpu"|"cuda","name":"...","memory_bytes":N,"free_bytes":N,"features":["avx2",...]}
//   and for the host "pack_layout": the number of the layouts that bl_pack gives.
// Returns the length without NUL, as bl_build_info.
BL_API uint64_t bl_runtime_devices(bl_runtime *rt, uint8_t *out, uint64_t n_out);

// Adds a logical device: the memory and the processors of device `like`, with scratch memory of its own. *out: its index. A program over
// both is one over two devices, wherever they are.   errors BL_ERR_ARGUMENT, BL_ERR_UNSUPPORTED (device `like` can be there once only)
BL_API int32_t bl_runtime_add_device(bl_runtime *rt, uint32_t like, uint32_t *out, uint8_t *err, uint64_t n_err);

// --- files and tensors --------------------------------------------------------------------------------------------------------------

// Opens and maps a file read-only.  path UTF-8, NUL-terminated.   errors BL_ERR_IO
BL_API int32_t bl_file_open(bl_runtime *rt, const uint8_t *path, bl_file **out, uint8_t *err, uint64_t n_err);
BL_API void bl_file_close(bl_file *file);

// What a tensor will be read by; the library may pack it for exactly these uses.
#define BL_USE_MUL_MAT 1u  // MUL_MAT and MUL_MAT_ID weights
#define BL_USE_ROWS 2u     // GET_ROWS tables
#define BL_USE_VECTOR 4u   // norm weights, biases, frequencies, small f32 matrices of any shape: read whole
#define BL_USE_HOST 8u     // with BL_USE_ROWS alone: a card leaves the table in host memory and gathers rows there (it does so anyway with
                           // tables of more than a quarter of its memory); their ids must be step inputs

// Loads a tensor of ggml type `type` and shape ne[4] (fastest first, unused = 1) from bytes [offset, offset + n_bytes) of a file.
//   n_bytes must equal the type's size of ne.   errors BL_ERR_ARGUMENT, BL_ERR_IO, BL_ERR_MEMORY, BL_ERR_UNSUPPORTED
BL_API int32_t bl_tensor_load(bl_runtime *rt, uint32_t device, uint32_t type, const uint64_t *ne, uint32_t uses, bl_file *file,
                              uint64_t offset, uint64_t n_bytes, bl_tensor **out, uint8_t *err, uint64_t n_err);

// The same from caller memory, copied before the call returns.
BL_API int32_t bl_tensor_create(bl_runtime *rt, uint32_t device, uint32_t type, const uint64_t *ne, uint32_t uses, const uint8_t *data,
                                uint64_t n_bytes, bl_tensor **out, uint8_t *err, uint64_t n_err);

// Packs a MUL_MAT weight as bl_tensor_load packs it on a device: matrices of ne[1] rows one after the other, dst[n_dst]. The groups of 8 rows
// of a matrix are independent, so that a large matrix can be packed in pieces of whole groups. What a file keeps of it is valid for
// libraries with the same pack_layout.
//   errors BL_ERR_ARGUMENT (n_dst is not what the packed matrices take), BL_ERR_IO, BL_ERR_UNSUPPORTED (the device takes the type as it is,
//          or keeps no packed bytes in files: cards do not)
BL_API int32_t bl_pack(bl_runtime *rt, uint32_t device, uint32_t type, const uint64_t *ne, bl_file *file, uint64_t offset, uint64_t n_bytes,
                       uint8_t *dst, uint64_t n_dst, uint8_t *err, uint64_t n_err);

// As bl_tensor_load, for a weight whose packed matrices lie in another file: they are used where they lie, `stride` bytes apart from
// `packed_offset` on, both multiples of 64. Rows of BL_USE_ROWS come from the bytes of `file`.
BL_API int32_t bl_tensor_map(bl_runtime *rt, uint32_t device, uint32_t type, const uint64_t *ne, uint32_t uses, bl_file *file,
                             uint64_t offset, uint64_t n_bytes, bl_file *packed, uint64_t packed_offset, uint64_t stride, bl_tensor **out,
                             uint8_t *err, uint64_t n_err);

// Bytes the tensor takes on its device (0 when it lies in a file mapping).
BL_API uint64_t bl_tensor_device_bytes(const bl_tensor *tensor);
BL_API void bl_tensor_free(bl_tensor *tensor);

// --- pools --------------------------------------------------------------------------------------------------------------------------
//
// A pool is n_slots slots of slot_bytes in a device's memory. A slot holds one expert of one layer (a group of tensors): its matrices, packed
// as bl_tensor_load packs them. What a step needs and a slot does not hold is read from the file while the step runs, past the page cache
// where the file system allows it; an answer never depends on what was there. Who leaves: experts that are not seated before those that
// are, then the one that was not used for longest; what a step of 32 or more rows reads leaves first.

// errors BL_ERR_ARGUMENT, BL_ERR_MEMORY, BL_ERR_UNSUPPORTED (the device has no pools: cards do not yet)
BL_API int32_t bl_pool_create(bl_runtime *rt, uint32_t device, uint64_t slot_bytes, uint32_t n_slots, bl_pool **out, uint8_t *err,
                              uint64_t n_err);

// A MUL_MAT_ID weight [n_in, n_out, n_expert] whose experts are read into slots of the pool, from the bytes that bl_tensor_load takes.
//   group  the tensors of one layer, numbered from 0 in the order they are first named; a group's matrices of one expert fit a slot
//   errors BL_ERR_ARGUMENT, BL_ERR_IO (the bytes lie past the file's end), BL_ERR_UNSUPPORTED
BL_API int32_t bl_pool_tensor(bl_pool *pool, uint32_t group, uint32_t type, const uint64_t *ne, bl_file *file, uint64_t offset,
                              uint64_t n_bytes, bl_tensor **out, uint8_t *err, uint64_t n_err);

// The same for a weight whose packed matrices lie in a file, as bl_tensor_map takes them, from a whole page on and a multiple of 4096 bytes
// apart: experts are read into their slots as they are.
BL_API int32_t bl_pool_map(bl_pool *pool, uint32_t group, uint32_t type, const uint64_t *ne, bl_file *packed, uint64_t packed_offset,
                           uint64_t stride, bl_tensor **out, uint8_t *err, uint64_t n_err);

// A file with the bytes of another that the pool reads: each read goes to the drive with the least to do, and to the next one when it fails.
//   errors BL_ERR_ARGUMENT, BL_ERR_IO (the sizes differ)
BL_API int32_t bl_pool_copy(bl_pool *pool, const bl_file *of, const bl_file *copy, uint8_t *err, uint64_t n_err);

// seated[e] != 0, e < n_expert of the group: expert e leaves after those that are not seated.   errors BL_ERR_ARGUMENT
BL_API int32_t bl_pool_seat(bl_pool *pool, uint32_t group, const uint8_t *seated, uint64_t n_expert, uint8_t *err, uint64_t n_err);

// Reads the seated experts that are not there, as far as there are slots.   errors BL_ERR_IO
BL_API int32_t bl_pool_fill(bl_pool *pool, uint8_t *err, uint64_t n_err);

// Counts since the pool was made: bytes read, reads, nanoseconds that steps waited for reads, slots that hold an expert, 1 where reads pass
// the page cache by, bytes of experts that were read ahead, and of them those that left unused; then for each group experts that were there
// when an op needed them, experts that were not, in steps that guessed: experts needed, guessed, and both; and the rows of each expert.
//   Returns how many numbers there are; writes at most n_out.
BL_API uint64_t bl_pool_counts(bl_pool *pool, uint64_t *out, uint64_t n_out);

// Bytes of the slots, and of what the pool's readers read into.
BL_API uint64_t bl_pool_bytes(const bl_pool *pool);
BL_API void bl_pool_free(bl_pool *pool);

// --- caches -------------------------------------------------------------------------------------------------------------------------

// n_pages pages of page_size positions. A page holds, for each of n_stream streams, ceil(page_size / stream_ratio[i]) rows of stream_ne[i]
// elements of ggml type stream_type[i] (f32, f16 or q8_0). Ratio r: a row for every r positions, kept in the page of the last of them
// (r divides page_size or is a multiple of it). One page id means the same positions in every stream. States of recurrent layers are
// streams of a cache with page_size 1: a sequence has one page, which holds all of its state.
//   errors BL_ERR_ARGUMENT, BL_ERR_MEMORY
BL_API int32_t bl_cache_create(bl_runtime *rt, uint32_t device, uint32_t n_stream, const uint32_t *stream_type, const uint32_t *stream_ne,
                               const uint32_t *stream_ratio, uint32_t page_size, uint32_t n_pages, bl_cache **out, uint8_t *err,
                               uint64_t n_err);

// Bytes of one page over all streams, in the layout bl_cache_read and bl_cache_write move.
BL_API uint64_t bl_cache_page_bytes(const bl_cache *cache);

// Copies page src[i] to page dst[i], i < n (a fork's last, partly filled page).
BL_API int32_t bl_cache_copy(bl_cache *cache, const int32_t *src, const int32_t *dst, uint32_t n, uint8_t *err, uint64_t n_err);

// Snapshots: pages[i], i < n, to and from host memory; n_data = n * bl_cache_page_bytes.
BL_API int32_t bl_cache_read(bl_cache *cache, const int32_t *pages, uint32_t n, uint8_t *data, uint64_t n_data, uint8_t *err,
                             uint64_t n_err);
BL_API int32_t bl_cache_write(bl_cache *cache, const int32_t *pages, uint32_t n, const uint8_t *data, uint64_t n_data, uint8_t *err,
                              uint64_t n_err);
BL_API void bl_cache_free(bl_cache *cache);

// --- programs -----------------------------------------------------------------------------------------------------------------------
//
// A program is an array of little-endian u32 words (core/program/encode.ts writes it, csrc/runtime/program.cpp reads it):
//
//   header   magic 'BLPR' (0x52504C42), BL_PROGRAM_VERSION, n_tok, n_out, n_seq, n_cache, n_tensor, n_op, n_output
//            n_tok, n_out, n_seq: the most token rows, output rows and sequences of one step (its shape bucket)
//   caches   n_cache words: the most pages of one sequence in each cache (1 for states)
//   tensors  n_tensor x 13 words: kind, ggml type, ne0, ne1, ne2, ne3, ref, device, offset, nb1, nb2, nb3, limit
//            offset, nb1 .. nb3: of a view, in elements of the tensor that it looks at; 0 otherwise
//            limit: of an i32 step input past BL_INPUT_TARGETS: its values lie in [-1, limit); 0 otherwise
//   ops      n_op x (6 + n_dst + n_src + n_param) words: opcode, device, n_dst, n_src, n_param, 0, dst ids, src ids, params
//            (params are u32, i32 or f32 by their bits; BL_NO_OPERAND stands for a source that is left out)
//            An op and all that it reads and writes are on one device; step inputs are on all, and the source of a COPY may be elsewhere.
//   outputs  n_output tensor ids: what a step can copy to the host, in output order
//
// The last axis of an activation counts rows and holds the bucket's size; a step computes only the rows its input names.
#define BL_PROGRAM_MAGIC 0x52504C42u
#define BL_PROGRAM_VERSION 2u

typedef enum bl_tensor_kind {
  BL_KIND_SCRATCH = 0,  // an activation; the library places it. ref unused
  BL_KIND_WEIGHT = 1,   // ref: index in the weights array of bl_program_create
  BL_KIND_INPUT = 2,    // ref: a bl_input, or BL_INPUT_DERIVED + i: what the caller works out for each token row
  BL_KIND_VIEW = 3,     // ref: id of an earlier activation, of which this is all or a slice: element (i0, i1, ..) of row r lies at
                        // offset + i0 + i1 nb1 + i2 nb2 + r (elements of a row of that activation)
} bl_tensor_kind;

typedef enum bl_input {
  BL_INPUT_TOKENS = 0,     // i32 [n_tok] token ids
  BL_INPUT_POSITIONS = 1,  // i32 [n_tok] position in its sequence, from 0
  BL_INPUT_SEQS = 2,       // i32 [n_tok] row of the page tables
  BL_INPUT_OUT_ROWS = 3,   // i32 [n_out] token rows whose outputs are wanted
  BL_INPUT_TARGETS = 4,    // i32 [n_out] token to score at each output row, -1 = none
  BL_INPUT_DERIVED = 5,    // from here on: i32 or f32 [n, n_tok]
} bl_input;

// The ops: bloomery_ops.h, from csrc/ops.def. core/program/reference.ts is their oracle.

// Checks a program, binds its weights and caches (arrays of handles) and lays out its scratch memory.
//   errors BL_ERR_PROGRAM, BL_ERR_ARGUMENT, BL_ERR_MEMORY, BL_ERR_UNSUPPORTED
BL_API int32_t bl_program_create(bl_runtime *rt, const uint8_t *code, uint64_t n_code, bl_tensor *const *weights, uint64_t n_weights,
                                 bl_cache *const *caches, uint64_t n_caches, bl_program **out, uint8_t *err, uint64_t n_err);

// Bytes of scratch memory that the program needs on all its devices. The programs of the host share theirs: it has what the largest needs.
BL_API uint64_t bl_program_scratch_bytes(const bl_program *program);

// The scratch memory of a program on one of its devices, without weights and caches: they are described. Nothing is allocated. The other
// devices need not be there; what passes between devices is the host's.
//   weights  [n_weights][7]: type, ne0 .. ne3, uses, device
//   caches   [n_caches]: device, page_size, n_pages, n_stream, then type, ne, ratio of each stream
//   errors BL_ERR_PROGRAM, BL_ERR_ARGUMENT, BL_ERR_UNSUPPORTED (the device cannot measure: cards do not yet)
BL_API int32_t bl_program_measure(bl_runtime *rt, uint32_t device, const uint8_t *code, uint64_t n_code, const uint64_t *weights,
                                  uint64_t n_weights, const uint32_t *caches, uint64_t n_cache_words, uint64_t *out, uint8_t *err,
                                  uint64_t n_err);

// Runs one step.
//   input   i32 words: n_tok, n_out, n_seq, n_page of each cache; tokens[n_tok], positions[n_tok], seqs[n_tok], out_rows[n_out],
//           targets[n_out]; for each cache pages[n_seq][n_page] (page ids of each sequence in order); each derived input [n_tok][n].
//           Counts up to the program's. The rows of one sequence are neighbours and ascend in position, by one where the program has
//           states. A row reads what was written at positions 0..its own, in this or earlier steps. Page -1: past the sequence's end,
//           or before everything that a row of this step can still reach (windows).
//   output  outputs whose bit is set in mask, in output order, each cut to the step's rows (last dimension n_out or n_tok), packed;
//           n_output must be exactly that size
//   errors  BL_ERR_INPUT (the caches and outputs are untouched), BL_ERR_DEVICE, BL_ERR_ARGUMENT
//   Returns once the outputs are on the host.
BL_API int32_t bl_program_step(bl_program *program, const uint8_t *input, uint64_t n_input, uint8_t *output, uint64_t n_output,
                               uint64_t mask, uint8_t *err, uint64_t n_err);
BL_API void bl_program_free(bl_program *program);

// --- tensor arithmetic outside programs ---------------------------------------------------------------------------------------------

// Encodes n_rows rows of n_per_row values of ggml type src_type (f32, f16, bf16 or quantized) as dst_type, by the bit-exact encoders
// of csrc/common/quantize*; rows that are of dst_type already are copied.  weights: importance [n_per_row] f32 or NULL. Results do not
// depend on threads, device or CPU features.
//   errors BL_ERR_ARGUMENT (type, block size, sizes), BL_ERR_UNSUPPORTED (type needs weights), BL_ERR_DATA (the source has a NaN, an
//   infinity or an invalid scale, or the result has an invalid scale); on a card also BL_ERR_DEVICE, BL_ERR_MEMORY
BL_API int32_t bl_quantize(bl_runtime *rt, uint32_t device, uint32_t src_type, const uint8_t *src, uint64_t n_src, uint32_t dst_type,
                           uint8_t *dst, uint64_t n_dst, uint64_t n_rows, uint64_t n_per_row, const float *weights, uint8_t *err,
                           uint64_t n_err);

// The same with rows that lie in a file, n_src bytes from offset; each thread reads those that it encodes.
//   errors as bl_quantize; BL_ERR_IO (the bytes lie past the file's end, or cannot be read)
BL_API int32_t bl_quantize_file(bl_runtime *rt, uint32_t device, uint32_t src_type, bl_file *file, uint64_t offset, uint64_t n_src,
                                uint32_t dst_type, uint8_t *dst, uint64_t n_dst, uint64_t n_rows, uint64_t n_per_row,
                                const float *weights, uint8_t *err, uint64_t n_err);

// Decodes n elements of any type to f32, to the same bits on every device.
//   errors BL_ERR_ARGUMENT, BL_ERR_UNSUPPORTED; on a card also BL_ERR_DEVICE, BL_ERR_MEMORY
BL_API int32_t bl_dequantize(bl_runtime *rt, uint32_t device, uint32_t type, const uint8_t *src, uint64_t n_src, float *dst, uint64_t n,
                             uint8_t *err, uint64_t n_err);

// Looks for NaN, infinity and invalid scales.  BL_ERR_DATA: bad[0] = element index of the first bad block or value, bad[1] = how many.
BL_API int32_t bl_check_data(bl_runtime *rt, uint32_t type, const uint8_t *src, uint64_t n_src, uint64_t *bad, uint8_t *err,
                             uint64_t n_err);

// Compares two sets of logits row by row, softmax in f64: kl[i] = KL(softmax(p_i) || softmax(q_i)) in nats, same_top[i] = 1 when the
// largest entries (lowest index on ties) agree.   p, q [n_rows, n_vocab] f32
BL_API int32_t bl_compare_logits(bl_runtime *rt, const float *p, const float *q, uint64_t n_rows, uint64_t n_vocab, double *kl,
                                 uint8_t *same_top, uint8_t *err, uint64_t n_err);

#ifdef __cplusplus
}
#endif
