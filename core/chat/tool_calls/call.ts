/**
 * What the parsers of all families share: what a call is and what is known of the request's tools.
 * @module
 */
import type { ArgumentType } from "./argument_type.ts";

/** A complete call: `arguments` is JSON text of an object. */
export interface Call {
  name: string;
  arguments: string;
  /** Where the format carries one. */
  id?: string;
}

/** What is known of the request's tools. */
export interface ToolSet {
  /** Whether a call of this name is one of the request's tools; all names where the request's are not known. */
  has(name: string): boolean;
  /** Whether a tool's name begins so. */
  begins(text: string): boolean;
  /** What the schema lets this argument be. */
  type(name: string, argument: string): ArgumentType;
}
