/** Cases of the ops in core/program/reference/matrices.ts. */
import { GGML_TYPES, type GgmlType } from "../../../core/gguf/types.ts";
import { NMSE, normal, type OpCase, type Size, whole } from "../case.ts";

const NOT_WEIGHTS = new Set(["q8_1", "q8_K", "i8", "i16", "i32", "i64", "f64"]);
const FLOATS = new Set(["f32", "f16", "bf16"]);

/** Every type a matrix can have. */
export const WEIGHT_TYPES: readonly GgmlType[] = GGML_TYPES.filter((t) => !NOT_WEIGHTS.has(t.name));

export function matrixCases(size: Size): OpCase[] {
  const big = size === "bench";
  const cases: OpCase[] = [];
  const n_in = big ? 4096 : 512, n_out = big ? 4096 : 19;
  // Experts are many and narrow.
  const [e_in, e_out, n_expert, n_used] = big ? [2048, 768, 64, 8] : [512, 19, 5, 2];

  for (const type of WEIGHT_TYPES) {
    const nmse = FLOATS.has(type.name) ? NMSE.f32 : NMSE.quantized;
    const w = { type: type.name, fill: normal(0.1) };
    cases.push({
      name: `GET_ROWS of ${type.name}`,
      sequences: big ? [512] : [9, 1, 4],
      nmse: 0, // every decoder gives the same bits
      build(b) {
        b.out("y", b.op.get_rows(b.weight("table", [n_in, 50], w), b.ints("ids", [3], -1, 49)));
      },
    });
    for (const rows of big ? [1, 16, 512] : [21]) {
      cases.push({
        name: `MUL_MAT ${type.name} [${n_in}, ${n_out}] x ${rows}`,
        sequences: [rows],
        nmse,
        build(b) {
          b.out("y", b.op.mul_mat(b.weight("w", [n_in, n_out], w), b.act("x", [n_in])));
        },
      }, {
        name: `MUL_MAT_ID ${type.name} [${e_in}, ${e_out}, ${n_expert}] x ${rows}`,
        sequences: [rows],
        nmse,
        build(b) {
          const ids = b.rowsOf("ids", [n_used], (next) => different(next, n_used, n_expert));
          b.out("y", b.op.mul_mat_id(b.weight("w", [e_in, e_out, n_expert], w), b.act("x", [e_in]), ids));
        },
      });
    }
    if (big) continue;
    if (type.block > 1 && type.block < 256) {
      // Rows that are not whole superblocks of 256, as narrow experts have.
      for (const n of [3 * type.block, 256 + 3 * type.block]) {
        cases.push({
          name: `MUL_MAT ${type.name} [${n}, 10] x 7`,
          sequences: [7],
          nmse,
          build(b) {
            b.out("y", b.op.mul_mat(b.weight("w", [n, 10], w), b.act("x", [n])));
          },
        }, {
          name: `MUL_MAT_ID ${type.name} [${n}, 10, 3] x 7`,
          sequences: [7],
          nmse,
          build(b) {
            const ids = b.rowsOf("ids", [2], (next) => different(next, 2, 3));
            b.out("y", b.op.mul_mat_id(b.weight("w", [n, 10, 3], w), b.act("x", [n]), ids));
          },
        });
      }
    }
    cases.push({
      name: `MUL_MAT_ID ${type.name} with a row for each expert, source a slice`,
      sequences: [13],
      nmse,
      build(b) {
        const ids = b.rowsOf("ids", [3], (next) => different(next, 3, 4));
        const x = b.act("x", [512 + 64, 3]).slice(32, 512);
        b.out("y", b.op.mul_mat_id(b.weight("w", [512, 7, 4], w), x, ids));
      },
    }, {
      name: `MUL_MAT ${type.name} of slices of heads`,
      sequences: [6, 3],
      nmse,
      build(b) {
        b.out("y", b.op.mul_mat(b.weight("w", [256, 33], w), b.act("x", [256 + 32, 3]).slice(16, 256)));
      },
    }, {
      name: `MUL_MAT ${type.name} with a matrix for each head`,
      sequences: [6, 3],
      nmse,
      build(b) {
        b.out("y", b.op.mul_mat(b.weight("w", [256, 5, 3], w), b.act("x", [256, 5]).slice(1, 3, 1)));
      },
    });
  }
  if (big) return cases;

  for (const type of ["f32", "f16", "bf16"]) {
    for (const [rows, outs] of [[1, 1], [5, 130], [67, 3], [130, 65]]) {
      cases.push({
        name: `MUL_MAT ${type} [37, ${outs}] x ${rows}, odd sizes`,
        sequences: [rows],
        nmse: rows * outs > 1 ? NMSE.f32 : 1e-8, // one sum may be far smaller than its terms
        build(b) {
          b.out("y", b.op.mul_mat(b.weight("w", [37, outs], { type }), b.act("x", [37])));
        },
      });
    }
  }
  for (const type of ["q8_0", "q4_K", "mxfp4"]) {
    for (const rows of [1, 2, 7, 130]) {
      cases.push({
        name: `MUL_MAT ${type} [256, 130] x ${rows}`,
        sequences: [rows],
        nmse: NMSE.quantized,
        build(b) {
          b.out("y", b.op.mul_mat(b.weight("w", [256, 130], { type, fill: normal(0.1) }), b.act("x", [256])));
        },
      });
    }
  }
  cases.push({
    name: "MUL_MAT_ID where every row has the same expert",
    sequences: [40],
    nmse: NMSE.f32,
    build(b) {
      const ids = b.rowsOf("ids", [1], () => [2]);
      b.out("y", b.op.mul_mat_id(b.weight("w", [64, 9, 4]), b.act("x", [64]), ids));
    },
  }, {
    name: "GET_ROWS of a table of i32 by ids of a table of i32",
    sequences: [9, 2],
    nmse: 0,
    build(b) {
      const table = b.weight("table", [3, 20], { type: "i32", fill: whole(-1, 30) });
      b.out("y", b.op.get_rows(table, b.ints("ids", [2], 0, 19)));
    },
  }, {
    name: "GET_ROWS by ids the engine works out",
    sequences: [9, 2],
    nmse: 0,
    build(b) {
      const ids = b.op.derived({
        name: "ids",
        type: "i32",
        limit: 30,
        row: (out, at, position, token) => {
          for (let i = 0; i < 3; i++) out[at + i] = token(i) < 0 ? -1 : (7 * position + 11 * token(i) + i) % 30;
        },
      }, [3]);
      b.out("y", b.op.get_rows(b.weight("table", [17, 30]), ids));
    },
  }, {
    name: "GET_ROWS of the rows whose outputs are wanted",
    sequences: [9, 2, 5],
    nmse: 0,
    build(b) {
      b.out("y", b.op.out_rows(b.act("x", [37])));
    },
  });
  return cases;
}

/** `k` different numbers below `n`. */
function different(next: () => number, k: number, n: number): number[] {
  const left = Array.from({ length: n }, (_, i) => i);
  return Array.from({ length: k }, () => left.splice(Math.floor(next() * left.length), 1)[0]);
}
