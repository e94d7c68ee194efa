/**
 * Texts to the values of flags, wherever the text comes from: the command line, the environment, a config file.
 * @module
 */
import { UsageError } from "../core/errors.ts";
import type { Flag, FlagValue } from "./command.ts";

const ON = ["true", "1", "on", "enabled", "yes"];
const OFF = ["false", "0", "off", "disabled", "no"];

/** What a flag takes, in words: for messages and for help. */
export function expectedValue(flag: Flag): string {
  if (flag.choices) return `one of ${flag.choices.join(", ")}`;
  const words = Object.keys(flag.words ?? {}).map((word) => ` or ${word}`).join("");
  const { min, max } = flag;
  const range = min !== undefined && max !== undefined
    ? ` from ${min} to ${max}`
    : min !== undefined
    ? ` of at least ${min}`
    : max !== undefined
    ? ` of at most ${max}`
    : "";
  if (flag.type === "int") return `a whole number${range}${words}`;
  if (flag.type === "number") return `a number${range}${words}`;
  return flag.type === "bool" ? "on or off" : "a text";
}

function refuse(flag: Flag, found: string, where: string): never {
  throw new UsageError("usage.value", `Cannot use ${where} ${found}: expected ${expectedValue(flag)}`, {
    at: { flag: `--${flag.name}`, got: found },
  });
}

function numberOf(flag: Flag, text: string, where: string): number {
  const word = flag.words?.[text.toLowerCase()];
  if (word !== undefined) return word;
  const n = Number(text);
  const whole = flag.type !== "int" || Number.isSafeInteger(n);
  const inRange = n >= (flag.min ?? -Infinity) && n <= (flag.max ?? Infinity);
  if (text.trim() === "" || !Number.isFinite(n) || !whole || !inRange) refuse(flag, text, where);
  return n;
}

/**
 * The value of a flag.
 * @param texts What was given, in order; of a flag with one value the last counts.
 * @param where What the message calls it: `--temp`, `LLAMA_ARG_TEMPERATURE`.
 * @throws {UsageError} `usage.value`
 */
export function flagValue(flag: Flag, texts: readonly string[], where: string): FlagValue {
  if (flag.type === "strings") {
    const { separator } = flag;
    return separator === undefined
      ? [...texts]
      : texts.flatMap((text) => text.split(separator).map((part) => part.trim()).filter((part) => part !== ""));
  }
  const text = texts.at(-1)!;
  if (flag.type === "bool") {
    const word = text.toLowerCase();
    if (!ON.includes(word) && !OFF.includes(word)) refuse(flag, text, where);
    return ON.includes(word);
  }
  if (flag.type !== "string") return numberOf(flag, text, where);
  if (flag.choices && !flag.choices.includes(text)) refuse(flag, text, where);
  return text;
}
