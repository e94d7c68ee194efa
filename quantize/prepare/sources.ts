/**
 * The tensors of a checkpoint as views: stored floats as they are, quantized storage as what it stands for.
 * @module
 */
import type { Checkpoint, SafetensorsTensor } from "../../core/safetensors/read.ts";
import type { Config } from "./config.ts";
import { bytesOf, f32Of } from "./dtype.ts";
import { codedView, FP8_VALUES, scaleBlock, scaled } from "./fp8.ts";
import { mxfp4View, nvfp4View, packedIntView } from "./packed.ts";
import { f32View, sizeOf, type View, type ViewType } from "./view.ts";

/** Stored types that a view has as well, and their bytes. */
const DIRECT: Readonly<Record<string, readonly [ViewType, number]>> = {
  F32: ["F32", 4],
  F16: ["F16", 2],
  BF16: ["BF16", 2],
};

/** Readers of the other stored numbers; all become f32, as the converter makes them. */
const TO_F32: Readonly<Record<string, readonly [bytes: number, at: (v: DataView, i: number) => number]>> = {
  F64: [8, (v, i) => v.getFloat64(i, true)],
  I64: [8, (v, i) => Number(v.getBigInt64(i, true))],
  U64: [8, (v, i) => Number(v.getBigUint64(i, true))],
  I32: [4, (v, i) => v.getInt32(i, true)],
  U32: [4, (v, i) => v.getUint32(i, true)],
  I16: [2, (v, i) => v.getInt16(i, true)],
  U16: [2, (v, i) => v.getUint16(i, true)],
  I8: [1, (v, i) => v.getInt8(i)],
  U8: [1, (v, i) => v.getUint8(i)],
  BOOL: [1, (v, i) => v.getUint8(i)],
};

/** A stored tensor by itself, or undefined for a type that needs another tensor. */
function storedView(checkpoint: Checkpoint, t: SafetensorsTensor): View | undefined {
  const direct = DIRECT[t.dtype];
  if (direct) {
    const [dtype, size] = direct;
    return {
      dtype,
      shape: t.shape,
      from: t.name,
      read: (start, count) => checkpoint.readTensor(t, start * size, count * size),
      locate: (start, count) => ({ path: t.path, offset: t.offset + start * size, bytes: count * size }),
    };
  }
  const codes = FP8_VALUES[t.dtype];
  if (codes) {
    return codedView(t.name, t.shape, codes, (start, count) => checkpoint.readTensor(t, start, count));
  }
  const other = TO_F32[t.dtype];
  if (!other) return undefined;
  const [size, at] = other;
  return {
    dtype: "F32",
    shape: t.shape,
    from: t.name,
    read(start, count) {
      const bytes = checkpoint.readTensor(t, start * size, count * size);
      const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
      return bytesOf(Float32Array.from({ length: count }, (_, i) => at(view, i * size)));
    },
  };
}

/** Tensors in the converter's order: file by file, by name within each. */
export function orderedTensors(checkpoint: Checkpoint): SafetensorsTensor[] {
  const place = new Map(checkpoint.files.map((f, i) => [f.path, i]));
  // Names are ASCII, so the order of UTF-16 units is that of code points.
  return [...checkpoint.tensors.values()].sort((a, b) =>
    place.get(a.path)! - place.get(b.path)! || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0)
  );
}

/** A tensor of the model, whatever its storage. */
export interface SourceTensor {
  readonly name: string;
  readonly view: View;
  /** Name of the stored tensor that holds its values. */
  readonly stored: string;
}

/** Scales of activations, which weights do not need. */
const UNUSED = /(\.(input_scale|k_scale|v_scale|activation_scale|qscale_act|input_global_scale)|_activation_scale)$/;

/** Quantization methods that are not read, by their names for the user. */
const REFUSED: Readonly<Record<string, string>> = {
  gptq: "GPTQ",
  awq: "AWQ",
  bitsandbytes: "bitsandbytes",
  eetq: "EETQ",
  hqq: "HQQ",
  aqlm: "AQLM",
  quip: "QuIP",
  exl2: "EXL2",
  exl3: "EXL3",
};

/** Name of a quantization that is not read, or undefined. */
export function refusedQuantization(names: Iterable<string>, config: Config): string | undefined {
  const method = config.object("quantization_config")?.["quant_method"];
  if (typeof method === "string" && REFUSED[method.toLowerCase()]) return REFUSED[method.toLowerCase()];
  for (const name of names) {
    if (/\.qzeros$/.test(name)) return typeof method === "string" && method === "awq" ? "AWQ" : "GPTQ or AWQ";
    if (/\.(absmax|quant_map|quant_state\..*)$/.test(name)) return "bitsandbytes";
  }
  return undefined;
}

/**
 * The tensors of the model, in the converter's order: stored floats, and what quantized storage stands for.
 *
 * @param rename The name without wrapping, or undefined for a tensor that is not wanted.
 * @param problems Takes what is wrong, one sentence each.
 */
export function sourceTensors(
  checkpoint: Checkpoint,
  config: Config,
  rename: (name: string) => string | undefined,
  problems: string[],
): SourceTensor[] {
  const byName = new Map<string, SafetensorsTensor>();
  for (const t of orderedTensors(checkpoint)) {
    const name = rename(t.name);
    if (name !== undefined) byName.set(name, t);
  }
  return new Reader(checkpoint, config, byName, problems).read();
}

class Reader {
  /** Tensors that belong to another one. */
  readonly #used = new Set<string>();
  readonly #block: readonly number[] | undefined;
  readonly #group: number;
  readonly #bits: number;
  /** Quantization of all tensors, or by module. */
  readonly #algo: (module: string) => unknown;

  constructor(
    readonly checkpoint: Checkpoint,
    config: Config,
    readonly tensors: ReadonlyMap<string, SafetensorsTensor>,
    readonly problems: string[],
  ) {
    const q = config.object("quantization_config") ?? {};
    const groups = Object.values((q["config_groups"] ?? {}) as Record<string, any>);
    const weights = groups.map((g) => g?.weights).find((w) => w) ?? {};
    const block = q["weight_block_size"] ?? weights.block_structure;
    this.#block = Array.isArray(block) ? block : undefined;
    this.#group = typeof weights.group_size === "number" ? weights.group_size : 0;
    const layers = (q["quantized_layers"] ?? {}) as Record<string, any>;
    this.#algo = (module) => layers[module]?.quant_algo ?? q["quant_algo"];
    this.#bits = typeof weights.num_bits === "number" ? weights.num_bits : 4;
  }

  read(): SourceTensor[] {
    const made: SourceTensor[] = [];
    const last: SourceTensor[] = []; // packed integers come last, as the converter has them
    for (const [name, t] of this.tensors) {
      if (name.endsWith(".weight_packed") && t.dtype === "I32") {
        const view = this.#packedInts(name, t);
        if (view) last.push({ name: name.slice(0, -"_packed".length), view, stored: t.name });
      } else {
        const made1 = this.#one(name, t);
        if (made1) made.push(made1);
      }
    }
    const all = [...made, ...last];
    return all.filter((s) => !this.#used.has(s.name) && !this.#isLoose(s.name));
  }

  /** A scale of something that is not there or not a weight. */
  #isLoose(name: string): boolean {
    if (!UNUSED.test(name)) return false;
    const base = name.replace(UNUSED, "");
    return ["", ".weight", ".weight_packed"].some((s) => this.tensors.has(base + s));
  }

  #take(name: string): SafetensorsTensor | undefined {
    const t = this.tensors.get(name);
    if (t) this.#used.add(name);
    return t;
  }

  #bytes(t: SafetensorsTensor) {
    return (start: number, count: number) => this.checkpoint.readTensor(t, start, count);
  }

  #one(name: string, t: SafetensorsTensor): SourceTensor | undefined {
    if (name.endsWith("_blocks") && t.dtype === "U8") {
      const base = name.slice(0, -"_blocks".length);
      const scales = this.#take(`${base}_scales`);
      if (!scales) return this.#missing(t, `${base}_scales`);
      const shape = [...t.shape.slice(0, -2), t.shape[t.shape.length - 2] * 32];
      if (sizeOf(scales.shape) * 32 !== sizeOf(shape)) return this.#unfit(t, scales);
      const view = mxfp4View(t.name, shape, this.#bytes(t), this.#bytes(scales));
      return { name: `${base}.mxfp4`, view, stored: t.name };
    }
    if (name.endsWith(".weight_packed")) return this.#fourBit(name.slice(0, -"_packed".length), t);
    const scaleName = this.#scaleOf(name);
    const scale = scaleName === undefined ? undefined : this.tensors.get(scaleName)!;
    const isByte = t.dtype === "U8" || t.dtype === "I8";
    if (scale && isByte && (scale.dtype.startsWith("F8_") || scale.dtype === "U8")) return this.#fourBit(name, t);
    const plain = storedView(this.checkpoint, t);
    if (!plain) {
      this.problems.push(`tensor "${t.name}" is stored as ${t.dtype}, which is not read`);
      return undefined;
    }
    if (!scale || !(isByte || t.dtype.startsWith("F8_"))) return { name, view: plain, stored: t.name };
    const s = storedView(this.checkpoint, scale);
    const block = s && scaleBlock(t.shape, scale.shape, this.#block);
    if (!s || !block) return this.#unfit(t, scale);
    this.#used.add(scaleName!);
    return { name, view: scaled(plain, s, block), stored: t.name };
  }

  /** The tensor of scales that belongs to a tensor of codes. */
  #scaleOf(name: string): string | undefined {
    const base = name.replace(/\.weight$/, "");
    return [
      `${name}_scale_inv`,
      `${name}_scale`,
      ...base === name ? [] : [`${base}.scale`, `${base}.qscale_weight`],
    ].find((s) => this.tensors.has(s));
  }

  /** Two codes a byte, with a scale per 32 (MXFP4) or 16 (NVFP4). */
  #fourBit(as: string, t: SafetensorsTensor): SourceTensor | undefined {
    const scaleName = this.#scaleOf(as);
    const scale = scaleName === undefined ? undefined : this.#take(scaleName);
    if (!scale) return this.#missing(t, `${as}_scale`);
    const shape = [...t.shape.slice(0, -1), t.shape[t.shape.length - 1] * 2];
    const per = sizeOf(shape) / sizeOf(scale.shape);
    if (per === 32 && (scale.dtype === "U8" || scale.dtype === "F8_E8M0")) {
      return { name: as, view: mxfp4View(t.name, shape, this.#bytes(t), this.#bytes(scale)), stored: t.name };
    }
    if (per !== 16 || !scale.dtype.startsWith("F8_E4M3") || shape[shape.length - 1] % 64 !== 0) {
      return this.#unfit(t, scale);
    }
    const view = nvfp4View(t.name, shape, this.#bytes(t), this.#bytes(scale));
    const base = as.replace(/\.weight$/, "");
    // One library stores the factor itself, the other its reciprocal.
    const side = (direct: string, reciprocal: string) => {
      const d = this.#take(direct);
      const r = d ? undefined : this.#take(reciprocal);
      const v = d ?? r ? storedView(this.checkpoint, (d ?? r)!) : undefined;
      return () => v ? f32Of(f32View(v).read(0, 1)).map((x) => r ? 1 / x : x) : Float32Array.of(1);
    };
    return {
      name: as,
      view: {
        ...view,
        ...this.#algo(t.name.replace(/\.weight(_packed)?$/, "")) === "W4A16_NVFP4" ? { wideActivations: true } : {},
        side: {
          scale: side(`${as}_scale_2`, `${as}_global_scale`),
          input_scale: side(`${base}.input_scale`, `${base}.input_global_scale`),
        },
      },
      stored: t.name,
    };
  }

  #packedInts(name: string, t: SafetensorsTensor): View | undefined {
    const base = name.slice(0, -"_packed".length);
    const scale = this.#take(`${base}_scale`);
    const shape = this.#take(`${base}_shape`);
    const zero = this.#take(`${base}_zero_point`);
    this.#take(`${base}_g_idx`);
    if (!scale) return void this.#missing(t, `${base}_scale`);
    const scales = storedView(this.checkpoint, scale);
    const shapeView = shape && storedView(this.checkpoint, shape);
    const perWord = Math.floor(32 / this.#bits);
    const [rows, columns] = shapeView ? [...f32Of(f32View(shapeView).read(0, 2))] : [t.shape[0], t.shape[1] * perWord];
    const group = this.#group > 0 ? this.#group : columns / scale.shape[scale.shape.length - 1];
    const fits = rows === t.shape[0] && Math.ceil(columns / perWord) === t.shape[1] &&
      sizeOf(scale.shape) === rows * Math.ceil(columns / group);
    if (!scales || !fits) return void this.#unfit(t, scale);
    return packedIntView({
      from: t.name,
      rows,
      columns,
      bits: this.#bits,
      group,
      words: this.#bytes(t),
      scales,
      ...zero ? { zeros: this.#bytes(zero) } : {},
    });
  }

  #missing(t: SafetensorsTensor, scale: string): undefined {
    this.problems.push(`tensor "${t.name}" (${t.dtype}) lacks its scales "${scale}"`);
  }

  #unfit(t: SafetensorsTensor, scale: SafetensorsTensor): undefined {
    this.problems.push(
      `scales "${scale.name}" (${scale.dtype} [${scale.shape.join(", ")}]) do not fit tensor "${t.name}" (${t.dtype} ` +
        `[${t.shape.join(", ")}])`,
    );
  }
}
