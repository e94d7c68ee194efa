/**
 * Files of whole rows: the peer's are read and give its figures, ours are written as the peer writes them, and continued.
 */
import assert from "node:assert/strict";
import { gunzipSync } from "node:zlib";
import fc from "npm:fast-check@4.11.0";
import { bloomery } from "../cli/_testing.ts";
import { EvalError } from "../core/errors.ts";
import { compareKldRow, encodeKldHeader, encodeKldRow, KldFile, type KldRow, kldRowBytes } from "../eval/kld_file.ts";
import { meanOf } from "../eval/stats.ts";
import { bloomNano, testFolder } from "./models.ts";
import { repoDir } from "./shared.ts";

const goldens = `${repoDir}tests/goldens/kld/`;
interface Figures {
  ppl: Record<"bf16" | "Q4_0", number>;
  ln_ppl_ratio: number;
  kl: number;
  same_top: number;
}
const golden = JSON.parse(Deno.readTextFileSync(`${goldens}peer.json`)) as Figures & { window: number; bos: Figures };
const dir = `${testFolder()}/kld`;
Deno.mkdirSync(dir);
for (const type of ["bf16", "Q4_0", "bos-bf16", "bos-Q4_0"]) {
  Deno.writeFileSync(`${dir}/${type}.kld`, gunzipSync(Deno.readFileSync(`${goldens}${type}.kld.gz`)));
}

const near = (found: number, expected: number, tolerance: number, what: string) =>
  assert.ok(Math.abs(found - expected) <= tolerance, `${what}: ${found}, expected ${expected}`);

const decode = (row: KldRow) => Float32Array.from(row.codes, (code) => row.scale * code + row.least);

/** @param bos What the model starts texts with. */
function checkPeerFiles(prefix: string, golden: Figures, bos: number | null): void {
  using base = KldFile.open(`${dir}/${prefix}bf16.kld`);
  using other = KldFile.open(`${dir}/${prefix}Q4_0.kld`);
  assert.deepEqual([base.header.n_ctx, base.header.n_vocab, base.header.n_chunk, base.n_whole], [8, 8192, 2, 2]);
  const kl: number[] = [], same: number[] = [], logprob: number[] = [], logprobBase: number[] = [];
  for (const w of base.windows("text", bos)) {
    const rows = other.rows(w.index);
    base.rows(w.index).forEach((row, i) => {
      const logits = decode(rows[i]), target = w.ids[w.skip + i + 1];
      const best = logits.indexOf(Math.max(...logits));
      const p = compareKldRow(row, logits, 0, best, target);
      kl.push(p.kl);
      same.push(p.sameTop ? 1 : 0);
      logprobBase.push(p.logprobBase);
      logprob.push(logits[target]);
    });
  }
  assert.equal(kl.length, 6);
  near(meanOf(kl), golden.kl, 1e-4, "KL");
  near(meanOf(same), golden.same_top, 1e-5, "same top");
  near(-meanOf(logprobBase), Math.log(golden.ppl.bf16), 2e-4, "NLL of the base");
  near(meanOf(logprobBase) - meanOf(logprob), golden.ln_ppl_ratio, 2e-4, "ratio");
}

Deno.test("files of llama-perplexity are read, and one against another gives its figures, with bos and without", () => {
  checkPeerFiles("", golden, null);
  checkPeerFiles("bos-", golden.bos, 1);
});

Deno.test("encodeKldRow() keeps log-probabilities to 16 below the best, and compareKldRow() sees which token is best", () => {
  const logits = Float32Array.from([1, 4, 3.5, -40, 0]);
  const lse = Math.log(logits.reduce((s, x) => s + Math.exp(x), 0));
  const bytes = new Uint8Array(kldRowBytes(5)), view = new DataView(bytes.buffer);
  assert.equal(bytes.length, 8 + 2 * 6);
  encodeKldRow(logits, lse, bytes, 0);
  const row = {
    scale: view.getFloat32(0, true),
    least: view.getFloat32(4, true),
    codes: Uint16Array.from({ length: 5 }, (_, i) => view.getUint16(8 + 2 * i, true)),
  };
  near(row.scale, 16 / 65535, 1e-9, "scale");
  near(row.least, 4 - 16 - lse, 1e-5, "least");
  assert.deepEqual([row.codes[1], row.codes[3]], [65535, 0]);
  decode(row).forEach((x, i) => i !== 3 && near(x, logits[i] - lse, 2e-4, `token ${i}`));
  const same = compareKldRow(row, logits, lse, 1, 2);
  near(same.kl, 0, 1e-4, "KL with itself");
  near(same.logprobBase, 3.5 - lse, 2e-4, "target");
  assert.equal(same.sameTop, true);
  assert.equal(compareKldRow(row, logits, lse, 2, 2).sameTop, false);
  const other = Float32Array.from([1, 3.5, 4, -40, 0]);
  const expected = [0, 1, 2, 4].reduce((s, i) => s + Math.exp(logits[i] - lse) * (logits[i] - other[i]), 0);
  near(compareKldRow(row, other, lse, 2, 2).kl, expected, 1e-4, "KL of another");
  encodeKldRow(new Float32Array(5).fill(2), Math.log(5) + 2, bytes, 0);
  assert.deepEqual([view.getFloat32(0, true), view.getUint16(8, true)], [0, 0], "equal logits have no scale");
  assert.throws(() => encodeKldRow(new Float32Array(5).fill(NaN), NaN, bytes, 0), { code: "eval.non_finite" });
});

Deno.test("score --format kld writes what llama-perplexity writes, and continues its own file only", async () => {
  const model = await bloomNano("bf16"), path = `${dir}/ours.kld`;
  const args = [
    "--device",
    "cpu",
    "-f",
    `${goldens}text.txt`,
    "--window",
    "8",
    "--format",
    "kld",
    "--json",
    "-o",
    path,
  ];
  const score = (...more: string[]) => bloomery(["score", "-m", model, ...args, ...more]);
  const first = await score();
  assert.equal(first.code, 0, first.err);
  const nll = Math.log(golden.ppl.bf16);
  near(JSON.parse(first.out).nll.mean, nll, 2e-3 * nll, "NLL");
  const whole = Deno.readFileSync(path), peer = Deno.readFileSync(`${dir}/bf16.kld`);
  assert.equal(whole.length, peer.length);
  assert.deepEqual(whole.subarray(0, 20 + 4 * 16), peer.subarray(0, 20 + 4 * 16), "header and tokens");
  {
    using ours = KldFile.open(path);
    using theirs = KldFile.open(`${dir}/bf16.kld`);
    for (const chunk of [0, 1]) {
      const rows = theirs.rows(chunk).map(decode);
      ours.rows(chunk).map(decode).forEach((row, r) => row.forEach((x, i) => near(x, rows[r][i], 0.1, `row ${r}`)));
    }
  }
  const half = whole.slice(0, whole.length - 5);
  Deno.writeFileSync(path, half);
  const second = await score();
  assert.equal(second.code, 0, second.err);
  assert.deepEqual(Deno.readFileSync(path), whole);
  near(JSON.parse(second.out).nll.mean, JSON.parse(first.out).nll.mean, 2e-4, "NLL of a continued run");
  half[20 + 4 * 16 + 9] ^= 1;
  Deno.writeFileSync(path, half);
  const refused = await score();
  assert.equal(JSON.parse(refused.out).error.code, "eval.resume_mismatch");
  assert.deepEqual(Deno.readFileSync(path), half, "what is not continued stays as it is");
  assert.equal((await score("--restart")).code, 0);
  assert.deepEqual(Deno.readFileSync(path), whole);
});

Deno.test("eval against a file of llama-perplexity", async () => {
  const model = await bloomNano("bf16");
  const args = ["eval", "-m", model, "--device", "cpu", "--against", `${dir}/bf16.kld`, "--json"];
  const { code, out, err } = await bloomery(args);
  assert.equal(code, 0, err);
  const { rows: [row], kl_support, skip } = JSON.parse(out);
  assert.deepEqual([kl_support, skip, row.n_tokens], ["the whole vocabulary, in 16 bits", 4, 6]);
  assert.ok(row.kl.mean >= 0 && row.kl.mean < 1e-3, `KL of a model with itself: ${row.kl.mean}`);
  assert.equal(row.same_top.mean, 1);
  near(row.ppl_base.mean, golden.ppl.bf16, 0.1, "PPL of the base");
});

Deno.test("a model with bos gives the peer's file and figures", async () => {
  const model = `${dir}/bos.gguf`, path = `${dir}/bos-ours.kld`;
  const keys = ["bos_token_id=int:1", "add_bos_token=bool:true"].flatMap((k) => [
    "--override-kv",
    `tokenizer.ggml.${k}`,
  ]);
  const run = async (...args: string[]) => {
    const { code, out, err } = await bloomery([...args, "--device", "cpu", "--json"]);
    assert.equal(code, 0, err);
    return out;
  };
  await run("quantize", ...keys, await bloomNano("bf16"), model, "BF16");
  const text = ["-f", `${goldens}text.txt`];
  await run("score", "-m", model, ...text, "--window", "8", "--format", "kld", "-o", path);
  const head = 20 + 4 * 16;
  assert.deepEqual(
    Deno.readFileSync(path).subarray(0, head),
    Deno.readFileSync(`${dir}/bos-bf16.kld`).subarray(0, head),
  );
  for (const against of [path, `${dir}/bos-bf16.kld`]) {
    const { rows: [row], bos } = JSON.parse(await run("eval", "-m", model, "--against", against));
    assert.equal(bos, true);
    near(row.kl.mean, 0, 1e-4, `KL with itself, by ${against}`);
    assert.equal(row.same_top.mean, 1);
    near(row.nll_base.mean, Math.log(golden.bos.ppl.bf16), against === path ? 0.02 : 2e-4, "NLL of the base");
  }
  const { rows: [row] } = JSON.parse(await run("eval", "--ppl", "-c", "8", "-m", model, ...text));
  near(row.nll.mean, Math.log(golden.bos.ppl.bf16), 2e-3 * row.nll.mean, "NLL");
});

Deno.test("KldFile.open() names what is wrong with a file, whatever its bytes", () => {
  const path = `${dir}/broken.kld`;
  const good = [
    encodeKldHeader({ n_ctx: 4, n_vocab: 3, n_chunk: 1, ids: Int32Array.from([0, 1, 2, 0]) }),
    new Uint8Array(16),
  ];
  const bytes = Uint8Array.from(good.flatMap((part) => [...part]));
  const open = (b: Uint8Array) => {
    Deno.writeFileSync(path, b);
    using file = KldFile.open(path);
    for (let w = 0; w < file.n_whole; w++) file.rows(w);
    return file.n_whole;
  };
  assert.equal(open(bytes), 1);
  assert.equal(open(bytes.subarray(0, bytes.length - 1)), 0, "a chunk that is not whole does not count");
  assert.throws(() => open(bytes.subarray(0, 30)), { code: "eval.kld_file", message: /ends before its 4 tokens/ });
  fc.assert(
    fc.property(fc.nat(bytes.length - 1), fc.nat(255), fc.nat(bytes.length), (at, value, end) => {
      const changed = bytes.slice(0, end);
      if (at < end) changed[at] = value;
      try {
        open(changed);
      } catch (e) {
        assert.ok(e instanceof EvalError && e.code === "eval.kld_file", String(e));
      }
    }),
    { numRuns: 300 },
  );
});
