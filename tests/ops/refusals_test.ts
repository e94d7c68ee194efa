/** What the native runtime refuses when a program is created and when a step's input is read: the code, and what the message names. */
import assert from "node:assert/strict";
import { NativeError } from "../../core/errors.ts";
import { ggmlType } from "../../core/gguf/types.ts";
import type { Backend, StepInput } from "../../core/program/backend.ts";
import { NONE } from "../../core/program/ops.ts";
import { type OpDesc, Ops, type Program, type T, type TensorDesc } from "../../core/program/program.ts";
import { openNativeBackend } from "../../ffi/backend.ts";

const N_TOK = 6, N_OUT = 4, N_SEQ = 3, N_PAGE = 2, PAGE_SIZE = 8, N_PAGES = 7;

/** Weights of the programs below; values of i32 weights are given, those of others are 0. */
const WEIGHTS: Record<string, { ne: number[]; type?: string; values?: number[] }> = {
  "embd.weight": { ne: [32, 10] },
  "places.weight": { ne: [32, 14] },
  "experts.weight": { ne: [32, 16, 4] },
  "chosen.weight": { ne: [2, 10], type: "i32", values: Array.from({ length: 20 }, (_, i) => i % 4) },
  "wild.weight": { ne: [2, 10], type: "i32", values: Array.from({ length: 20 }, (_, i) => i - 7) },
  "w.weight": { ne: [32] },
  "taps.weight": { ne: [3, 32] },
  "two_taps.weight": { ne: [2, 32] },
};

/** A program that can be spoiled. */
interface Spoiled {
  readonly tensors: {
    -readonly [K in keyof TensorDesc]: TensorDesc[K] extends readonly number[] ? number[] : TensorDesc[K];
  }[];
  readonly ops: { -readonly [K in keyof OpDesc]: OpDesc[K] extends readonly number[] ? number[] : OpDesc[K] }[];
  readonly caches: Program["caches"];
}

type Build = (op: Ops, x: T) => void;

interface Setup {
  readonly page_size?: number;
  readonly caches?: number;
}

/** A program on the host with its weights and caches; `change` may spoil it. */
async function create(backend: Backend, build: Build, change: (p: Spoiled) => void = () => {}, setup: Setup = {}) {
  const bucket = { n_tok: N_TOK, n_out: N_OUT, n_seq: N_SEQ, n_page: N_PAGE };
  const op = new Ops(bucket, {
    find: (name) => {
      const w = WEIGHTS[name];
      return w && { ne: w.ne, type: ggmlType(w.type ?? "f32") };
    },
  });
  const x = op.get_rows(op.weights()("embd", [32, 10]), op.tokens);
  build(op, x);
  op.output("x", x);
  const program = op.finish();
  using handles = new DisposableStack();
  const weights = [];
  for (const w of program.weights) {
    const n = w.ne.reduce((a, b) => a * b, 1), values = WEIGHTS[w.name]?.values;
    const data = new Uint8Array((values ? Int32Array.from(values) : new Float32Array(n)).buffer);
    const spec = { device: 0, type: w.type, ne: w.ne, uses: w.uses, source: { data } };
    weights.push(handles.use(await backend.loadTensor(spec)));
  }
  const caches = program.caches.map((c) =>
    handles.use(backend.createCache({
      device: 0,
      streams: c.streams.map((s) => ({ type: ggmlType("f32"), ne: s.ne, ratio: s.ratio })),
      page_size: setup.page_size ?? (c.state ? 1 : PAGE_SIZE),
      n_pages: N_PAGES,
    }))
  );
  change(program as unknown as Spoiled);
  const handle = handles.use(backend.createProgram(program, weights, caches.slice(0, setup.caches ?? caches.length)));
  const all = handles.move();
  return { step: (input: StepInput) => handle.step(input, ["x"]), [Symbol.dispose]: () => all.dispose() };
}

const refused = (code: string, text: RegExp) => (e: unknown) =>
  e instanceof NativeError && e.code === code && text.test(e.message) ||
  assert.fail(`expected ${code} ${text}, found ${e}`);

const opOf = (p: Spoiled, name: string) => p.ops.find((o) => o.op === name)!;
const lastTensor = (p: Spoiled) => p.tensors[p.tensors.length - 1];
const kv = (op: Ops, x: T, window = 0) => op.kv("layer", x, x, { window });
const heads = { scale: 1, n_head_kv: 1 };

const attends: Build = (op, x) => op.attention(x.heads(1), kv(op, x), heads);
const slices: Build = (op, x) => op.copy(x.heads(4).slice(2, 4));
const convolves: Build = (op, x) => op.conv("state", x, op.weights()("taps", [3, 32]));
const chooses: Build = (op, x) => {
  const ids = op.get_rows(op.weights()("chosen", [2, 10]), op.tokens);
  op.mul_mat_id(op.weights()("experts", [32, 16, 4]), x, ids);
};
const derives: Build = (op) => {
  const ids = op.derived({ name: "ids", type: "i32", limit: 10, row: () => {} }, [3]);
  op.get_rows(op.weights()("embd", [32, 10]), ids);
};

const asBuilt = () => {};

const PROGRAMS: [what: string, build: Build, change: (p: Spoiled) => void, text: RegExp, setup?: Setup][] = [
  ["a slice that begins too late", slices, (p) => {
    const view = p.tensors.find((t) => t.offset === 2)!;
    view.offset = 29;
  }, /tensor \d+, rows \[4, 4, 1\] from element 29 .* reaches past the 32 elements of tensor/],
  ["a slice with too long strides", slices, (p) => {
    const view = p.tensors.find((t) => t.offset === 2)!;
    view.nb[0] = 0xFFFFFFFF;
  }, /reaches past the 32 elements/],
  ["a view of a view", slices, (p) => {
    const i = p.tensors.findIndex((t) => t.offset === 2);
    p.tensors[i].ref = i - 1;
  }, /views tensor \d+, expected an activation or a step input that is no view/],
  [
    "an offset of what is no view",
    slices,
    (p) => lastTensor(p).offset = 1,
    /has an offset or strides and is not a view/,
  ],
  ["a limit of what is no input", slices, (p) => lastTensor(p).limit = 3, /has limit 3 and is not a step input/],
  ["another number of rows", slices, (p) => lastTensor(p).ne[2] = 5, /expected a last axis of 6 rows/],
  ["a derived input without a limit", derives, (p) => {
    p.tensors.find((t) => t.limit === 10)!.limit = 0;
  }, /limit 0, expected f32 with 0 or i32 with 1/],
  ["a derived input too far", derives, (p) => {
    p.tensors.find((t) => t.limit === 10)!.ref = 7;
  }, /is derived input 2, expected at most 0/],
  ["ids past a table", derives, (p) => {
    p.tensors.find((t) => t.limit === 10)!.limit = 11;
  }, /the number of different ids is 11, expected 1 to 10/],
  [
    "experts from a table with wild numbers",
    (op, x) => {
      const ids = op.get_rows(op.weights()("wild", [2, 10]), op.tokens);
      op.mul_mat_id(op.weights()("experts", [32, 16, 4]), x, ids);
    },
    asBuilt,
    /MUL_MAT_ID.*ids range from 0 to below 0 \(0: not known\), the experts are 4/,
  ],
  [
    "experts that a caller may leave out",
    (op, x) => {
      const ids = op.derived({ name: "ids", type: "i32", limit: 4, row: () => {} }, [2]);
      op.mul_mat_id(op.weights()("experts", [32, 16, 4]), x, ids);
    },
    asBuilt,
    /ids range from -1 to below 4/,
  ],
  [
    "given experts past the logits",
    (op, x) => {
      const ids = op.get_rows(op.weights()("chosen", [2, 10]), op.tokens);
      op.router(x.slice(0, 3), 2, { score: "sigmoid", renorm: false, given: ids });
    },
    asBuilt,
    /given ranges from 0 to below 4 .* the experts are 3/,
  ],
  [
    "an unknown kind",
    (op, x) => op.unary("exp", x),
    (p) => opOf(p, "UNARY").params[0] = 13,
    /kind is 13, expected 0 to 12/,
  ],
  ["a source that must be there", chooses, (p) => opOf(p, "MUL_MAT_ID").src[1] = NONE, /source 1 is left out/],
  ["a value before it is written", slices, (p) => p.ops.reverse(), /is read before it is written/],
  ["a value written twice", slices, (p) => p.ops.push(opOf(p, "COPY")), /is written a second time/],
  ["a weight for another use", (op, x) => op.rms_norm(x, op.weights()("w", [32]), 1e-6), (p) => {
    opOf(p, "NORM").src[1] = opOf(p, "GET_ROWS").src[0];
  }, /was loaded for uses 2, which lack 4/],
  ["an eps that is no number", (op, x) => op.rms_norm(x, undefined, NaN), asBuilt, /eps is not finite/],
  [
    "half a rotation",
    (op, x) => op.rope(x.heads(1), op.constant("freqs", new Float32Array(4)), { kind: "pairs" }),
    (p) => {
      opOf(p, "ROPE").params[1] = 7;
    },
    /n_rot is 7 from 0, expected an even number/,
  ],
  [
    "a rotation past a head",
    (op, x) => op.rope(x.heads(1), op.constant("freqs", new Float32Array(4)), { kind: "pairs" }),
    (p) => {
      opOf(p, "ROPE").params[2] = 25;
    },
    /n_rot is 8 from 25/,
  ],
  ["a missing cache", attends, asBuilt, /it has 1, 0 were given/, { caches: 0 }],
  ["an unknown cache", attends, (p) => opOf(p, "STREAM_WRITE").params[0] = 1, /cache is 1, the program has 1/],
  ["an unknown stream", attends, (p) => opOf(p, "ATTENTION").params[5] = 2, /stream is 2, cache 0 has 2/],
  ["a stream of another size", attends, (p) => {
    const q = p.tensors[opOf(p, "ATTENTION").src[0]];
    q.ne[0] = 16;
  }, /stream 0 of cache 0 has rows of 32 elements, expected 16/],
  ["units without a selection", attends, (p) => opOf(p, "ATTENTION").params[7] = 4, /unit is 4, expected 1 to 1/],
  [
    "heads that do not divide",
    attends,
    (p) => opOf(p, "ATTENTION").params[0] = 3,
    /n_head_kv is 3, expected a divisor of 1/,
  ],
  ["a state with pages of 8", convolves, asBuilt, /pages of 8 positions, 1 a sequence, expected 1 and 1 for states/, {
    page_size: 8,
  }],
  [
    "rows in a cache of states",
    (op, x) => {
      op.conv("state", x, op.weights()("two_taps", [2, 32]));
      op.write(x, op.stream("rows", 32, { role: "f32" }));
    },
    (p) => opOf(p, "STREAM_WRITE").params[0] = opOf(p, "CONV").params[0],
    /cache 0 is used for states and for rows/,
  ],
];

for (const [what, build, change, text, setup] of PROGRAMS) {
  Deno.test(`a program is refused: ${what}`, async () => {
    using backend = openNativeBackend("cpu", { threads: 1 });
    await assert.rejects(() => create(backend, build, change, setup), refused("native.program", text));
    if (change === asBuilt && !setup) return; // it has no better version
    using program = await create(backend, build);
    assert.ok(program);
  });
}

/** Rows of two sequences, 3 and 2, on pages of their own. */
function input(change: Partial<StepInput> = {}): StepInput {
  return {
    tokens: Int32Array.of(1, 2, 3, 4, 5),
    positions: Int32Array.of(7, 8, 9, 0, 1),
    seqs: Int32Array.of(0, 0, 0, 1, 1),
    outRows: Int32Array.of(4, 0),
    targets: Int32Array.of(-1, 3),
    n_seq: 2,
    pages: [Int32Array.of(4, 5, 6, -1)],
    n_page: [2],
    derived: [],
    ...change,
  };
}
const states = (change: Partial<StepInput> = {}) => input({ pages: [Int32Array.of(4, 2)], n_page: [1], ...change });
const windowed: Build = (op, x) => op.attention(x.heads(1), kv(op, x, 2), heads);
const places: Build = (op) => op.get_rows(op.weights()("places", [32, 14]), op.positions);

const STEPS: [what: string, build: Build, good: StepInput, bad: StepInput, text: RegExp][] = [
  [
    "a position that is passed over where there are states",
    convolves,
    states(),
    states({ positions: Int32Array.of(7, 9, 10, 0, 1) }),
    /position of row 1 is 9, expected 8 in sequence 0/,
  ],
  [
    "a position twice",
    attends,
    input({ positions: Int32Array.of(6, 8, 9, 0, 1) }),
    input({ positions: Int32Array.of(7, 7, 9, 0, 1) }),
    /position of row 1 is 7, expected 8 or more in sequence 0/,
  ],
  [
    "rows of a sequence apart",
    attends,
    input(),
    input({ seqs: Int32Array.of(0, 0, 1, 1, 0), positions: Int32Array.of(7, 8, 0, 1, 9) }),
    /row 4 is of sequence 0, expected its rows to be neighbours/,
  ],
  [
    "a sequence that is not there",
    attends,
    input(),
    input({ seqs: Int32Array.of(0, 0, 0, 1, 2) }),
    /sequence of row 4 is 2, expected 0 to 1/,
  ],
  [
    "a page that is not there",
    attends,
    input(),
    input({ pages: [Int32Array.of(4, 7, 6, -1)] }),
    /page 1 of sequence 0 in cache 0 is 7, expected 0 to 6/,
  ],
  [
    "a page that is needed",
    attends,
    input(),
    input({ pages: [Int32Array.of(-1, 5, 6, -1)] }),
    /page 0 of sequence 0 in cache 0 is -1/,
  ],
  [
    "a page within the window",
    windowed,
    input({ positions: Int32Array.of(9, 10, 11, 0, 1), pages: [Int32Array.of(-1, 5, 6, -1)] }),
    input({ positions: Int32Array.of(8, 9, 10, 0, 1), pages: [Int32Array.of(-1, 5, 6, -1)] }),
    /page 0 of sequence 0 in cache 0 is -1/,
  ],
  [
    "a position past the pages",
    attends,
    input(),
    input({ positions: Int32Array.of(7, 8, 16, 0, 1) }),
    /sequence 0 reaches position 16, its 2 pages in cache 0 hold 16/,
  ],
  [
    "a page that two sequences write",
    attends,
    input(),
    input({ pages: [Int32Array.of(4, 5, 5, -1)] }),
    /page 5 of cache 0 is written for two/,
  ],
  [
    "a state of two sequences",
    convolves,
    states(),
    states({ pages: [Int32Array.of(2, 2)] }),
    /page 2 of cache 0 is written for two/,
  ],
  [
    "a state that is not there",
    convolves,
    states(),
    states({ pages: [Int32Array.of(2, -1)] }),
    /page 0 of sequence 1 in cache 0 is -1/,
  ],
  [
    "a token past the table",
    attends,
    input(),
    input({ tokens: Int32Array.of(1, 2, 3, 4, 10) }),
    /token 4 is 10, expected 0 to 9/,
  ],
  [
    "a position past a table",
    places,
    input({ pages: [], n_page: [] }),
    input({ pages: [], n_page: [], positions: Int32Array.of(7, 8, 14, 0, 1) }),
    /position of row 2 is 14, expected 0 to 13/,
  ],
  [
    "a derived number past its limit",
    derives,
    input({ pages: [], n_page: [], derived: [new Int32Array(15).fill(-1)] }),
    input({ pages: [], n_page: [], derived: [new Int32Array(15).fill(10)] }),
    /number 0 of row 0 of derived input 0 is 10, expected -1 to 9/,
  ],
  [
    "too few derived numbers",
    derives,
    input({ pages: [], n_page: [], derived: [new Int32Array(15)] }),
    input({ pages: [], n_page: [], derived: [new Int32Array(14)] }),
    /its input has \d+ bytes, expected \d+/,
  ],
  [
    "an output row that is not there",
    attends,
    input(),
    input({ outRows: Int32Array.of(5, 0) }),
    /output row 0 is token row 5, expected 0 to 4/,
  ],
  ["too many rows", attends, input(), input({ n_seq: 4, pages: [new Int32Array(8)] }), /n_seq is 4, expected 1 to 3/],
];

for (const [what, build, good, bad, text] of STEPS) {
  Deno.test(`a step is refused: ${what}`, async () => {
    using backend = openNativeBackend("cpu", { threads: 1 });
    using program = await create(backend, build);
    await assert.rejects(() => program.step(bad), refused("native.input", text));
    await program.step(good);
  });
}
