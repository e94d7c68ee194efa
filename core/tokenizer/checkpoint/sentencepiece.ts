/**
 * Reads a SentencePiece model (`tokenizer.model`): a protobuf message with the pieces, their scores and types, and how
 * text is normalised. Source of the field numbers: google/sentencepiece `sentencepiece_model.proto`.
 * @module
 */

import { TextError } from "../../errors.ts";
import { TOKEN_TYPE } from "../types.ts";

export interface Piece {
  readonly text: string;
  readonly score: number;
  /** `TOKEN_TYPE`; user-defined pieces count as normal, as llama.cpp's converter has them. */
  readonly type: number;
}

export interface SentencePieceModel {
  readonly pieces: readonly Piece[];
  readonly isUnigram: boolean;
  readonly addDummyPrefix: boolean;
  readonly removeExtraWhitespaces: boolean;
  readonly precompiledCharsmap: Uint8Array;
}

/** `SentencePiece.Type` to token types. */
const TYPES: Record<number, number> = {
  1: TOKEN_TYPE.normal,
  2: TOKEN_TYPE.unknown,
  3: TOKEN_TYPE.control,
  4: TOKEN_TYPE.normal,
  5: TOKEN_TYPE.unused,
  6: TOKEN_TYPE.byte,
};

/** @throws {TextError} `text.sentencepiece` for bytes that are no such message. */
export function readSentencePiece(bytes: Uint8Array, file: string): SentencePieceModel {
  const pieces: Piece[] = [];
  let isUnigram = true;
  let addDummyPrefix = true;
  let removeExtraWhitespaces = true;
  let precompiledCharsmap: Uint8Array = new Uint8Array(0);
  for (const field of fields(bytes, file)) {
    if (field.number === 1 && field.bytes) pieces.push(readPiece(field.bytes, file));
    if (field.number === 2 && field.bytes) {
      for (const f of fields(field.bytes, file)) if (f.number === 3) isUnigram = f.value === 1;
    }
    if (field.number === 3 && field.bytes) {
      for (const f of fields(field.bytes, file)) {
        if (f.number === 2 && f.bytes) precompiledCharsmap = f.bytes;
        if (f.number === 3) addDummyPrefix = f.value !== 0;
        if (f.number === 4) removeExtraWhitespaces = f.value !== 0;
      }
    }
  }
  if (pieces.length === 0) throw broken(file, "it has no pieces");
  return { pieces, isUnigram, addDummyPrefix, removeExtraWhitespaces, precompiledCharsmap };
}

function readPiece(bytes: Uint8Array, file: string): Piece {
  let text = "";
  let score = 0;
  let type: number = TOKEN_TYPE.normal;
  for (const field of fields(bytes, file)) {
    if (field.number === 1 && field.bytes) text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(field.bytes);
    if (field.number === 2 && field.bytes?.length === 4) {
      score = new DataView(field.bytes.buffer, field.bytes.byteOffset).getFloat32(0, true);
    }
    if (field.number === 3) type = TYPES[field.value] ?? TOKEN_TYPE.normal;
  }
  return { text, score, type };
}

interface Field {
  readonly number: number;
  /** Of a varint field, exact to 53 bits. */
  readonly value: number;
  /** Of a length-delimited or fixed-width field. */
  readonly bytes: Uint8Array | undefined;
}

/** The fields of one protobuf message. */
function* fields(bytes: Uint8Array, file: string): Generator<Field> {
  let at = 0;
  const varint = () => {
    let value = 0;
    for (let shift = 0; shift < 70; shift += 7) {
      if (at >= bytes.length) throw broken(file, "a number runs past the end");
      const byte = bytes[at++];
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return value;
    }
    throw broken(file, "a number has more than ten bytes");
  };
  while (at < bytes.length) {
    const tag = varint();
    const number = Math.floor(tag / 8);
    const wire = tag % 8;
    if (number === 0) throw broken(file, "a field has the number 0");
    if (wire === 0) {
      yield { number, value: varint(), bytes: undefined };
      continue;
    }
    const length = wire === 1 ? 8 : wire === 5 ? 4 : wire === 2 ? varint() : -1;
    if (length < 0) throw broken(file, `field ${number} has wire type ${wire}`);
    if (length > bytes.length - at) throw broken(file, `field ${number} of ${length} bytes runs past the end`);
    yield { number, value: 0, bytes: bytes.subarray(at, at + length) };
    at += length;
  }
}

function broken(file: string, what: string): TextError {
  return new TextError("text.sentencepiece", `Cannot read ${file} as a SentencePiece model: ${what}`, {
    at: { file },
    hint: "the file is damaged or of another kind: download it again",
  });
}
