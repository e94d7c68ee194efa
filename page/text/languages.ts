/**
 * What the highlighter knows of languages: comments, texts and words. It colours, it does not parse.
 * @module
 */

export interface Language {
  /** Beginnings of comments that end with the line. */
  readonly line?: readonly string[];
  /** Beginnings and ends of comments. */
  readonly block?: readonly (readonly [string, string])[];
  /** Marks around texts; longer ones first. Those of three characters and the backtick may span lines. */
  readonly quotes?: readonly string[];
  readonly keywords?: ReadonlySet<string>;
  readonly constants?: ReadonlySet<string>;
  /** Words are compared without case. */
  readonly anyCase?: boolean;
  /** Names before a colon or an equals sign are keys. */
  readonly keys?: boolean;
  /** Tags in angle brackets. */
  readonly markup?: boolean;
  /** Lines are coloured by their first character. */
  readonly diff?: boolean;
  /** `$name` is a variable. */
  readonly dollar?: boolean;
}

const words = (text: string): ReadonlySet<string> => new Set(text.trim().split(/\s+/));
const C_COMMENTS = { line: ["//"], block: [["/*", "*/"]] as const };
const VALUES = words("true false null undefined None True False nil NULL nullptr NaN Infinity this self super");

const C =
  "auto break case const continue default do else enum extern for goto if inline register return sizeof static struct switch " +
  "typedef union unsigned signed void volatile while int char float double long short bool ";
const javascript: Language = {
  ...C_COMMENTS,
  quotes: ["`", '"', "'"],
  keywords: words(
    "as async await break case catch class const continue debugger declare default delete do else enum export extends finally for from " +
      "function get if implements import in instanceof interface is keyof let namespace new of override private protected public readonly " +
      "return satisfies set static switch throw try type typeof using var void while with yield any boolean never number object string " +
      "symbol unknown",
  ),
  constants: VALUES,
};
const cpp: Language = {
  line: ["//"],
  block: [["/*", "*/"]],
  quotes: ['"', "'"],
  keywords: words(
    C +
      "alignas alignof asm catch class concept consteval constexpr constinit const_cast co_await co_return co_yield decltype delete " +
      "dynamic_cast explicit export final friend mutable namespace new noexcept operator override private protected public " +
      "reinterpret_cast requires static_assert static_cast template throw try typename using virtual __global__ __device__ __host__ " +
      "__shared__ size_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t",
  ),
  constants: VALUES,
};
const java: Language = {
  ...C_COMMENTS,
  quotes: ['"""', '"', "'"],
  keywords: words(
    C +
      "abstract as async await base boolean byte catch class constructor data decimal delegate event explicit extends final finally " +
      "fixed foreach fun get implements implicit import in init instanceof interface internal is lazy let lateinit lock module namespace " +
      "native new object open operator out override package params partial permits private protected public readonly record ref sealed " +
      "set string suspend synchronized throw throws transient try typealias typeof using val var virtual when where with yield",
  ),
  constants: VALUES,
};
const rust: Language = {
  ...C_COMMENTS,
  quotes: ['"'],
  keywords: words(
    "as async await break const continue crate dyn else enum extern fn for if impl in let loop match mod move mut pub ref return static " +
      "struct trait type union unsafe use where while i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 usize isize bool char str",
  ),
  constants: words("true false self Self None Some Ok Err"),
};
const go: Language = {
  ...C_COMMENTS,
  quotes: ["`", '"', "'"],
  keywords: words(
    "break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select " +
      "struct switch type var int int8 int16 int32 int64 uint uint8 uint16 uint32 uint64 float32 float64 string bool byte rune error any",
  ),
  constants: words("true false nil iota"),
};
const swift: Language = {
  ...C_COMMENTS,
  quotes: ['"""', '"'],
  keywords: words(
    "actor as associatedtype async await break case catch class continue default defer deinit do else enum extension fallthrough " +
      "fileprivate final for func get guard if import in init inout internal is lazy let mutating open override private protocol public " +
      "repeat rethrows return set some static struct subscript switch throw throws try typealias var weak where while",
  ),
  constants: VALUES,
};
const python: Language = {
  line: ["#"],
  quotes: ['"""', "'''", '"', "'"],
  keywords: words(
    "and as assert async await break case class continue def del elif else except finally for from global if import in is lambda match " +
      "nonlocal not or pass raise return try type while with yield",
  ),
  constants: VALUES,
};
const ruby: Language = {
  line: ["#"],
  quotes: ['"', "'"],
  keywords: words(
    "alias and begin break case class def defined? do else elsif end ensure extend for if in include module next not or private raise " +
      "redo require rescue retry return super then undef unless until when while yield",
  ),
  constants: VALUES,
};
const php: Language = { ...java, line: ["//", "#"], dollar: true };
const shell: Language = {
  line: ["#"],
  quotes: ['"', "'"],
  keywords: words(
    "if then else elif fi for in do done while until case esac function return local export set unset source alias echo cd exit trap " +
      "readonly declare shift sudo",
  ),
  dollar: true,
};
const sql: Language = {
  line: ["--"],
  block: [["/*", "*/"]],
  quotes: ["'", '"', "`"],
  anyCase: true,
  keywords: words(
    "add all alter and as asc begin between by case cast check column commit constraint create cross database default delete desc " +
      "distinct drop else end exists foreign from full group having if in index inner insert into is join key left like limit not null " +
      "offset on or order outer over partition primary references returning right rollback select set table then transaction union " +
      "unique update using values view when where with int integer text varchar boolean date timestamp",
  ),
};
const lua: Language = {
  line: ["--"],
  block: [["--[[", "]]"]],
  quotes: ['"', "'"],
  keywords: words(
    "and break do else elseif end for function goto if in local not or repeat return then until while",
  ),
  constants: VALUES,
};
const haskell: Language = {
  line: ["--"],
  block: [["{-", "-}"]],
  quotes: ['"'],
  keywords: words(
    "case class data deriving do else if import in infix infixl infixr instance let module newtype of then type where foreign forall",
  ),
};
const css: Language = { block: [["/*", "*/"]], quotes: ['"', "'"], keys: true };
const json: Language = { line: ["//"], quotes: ['"'], constants: VALUES, keys: true };
const yaml: Language = {
  line: ["#"],
  quotes: ['"', "'"],
  constants: words("true false null yes no on off"),
  keys: true,
};
const toml: Language = {
  line: ["#", ";"],
  quotes: ['"""', "'''", '"', "'"],
  constants: words("true false"),
  keys: true,
};
const docker: Language = {
  line: ["#"],
  quotes: ['"', "'"],
  keywords: words("FROM RUN CMD COPY ADD ENV ARG WORKDIR EXPOSE ENTRYPOINT VOLUME USER LABEL AS HEALTHCHECK SHELL"),
  dollar: true,
};
const make: Language = { line: ["#"], quotes: ['"', "'"], keys: true, dollar: true };
const html: Language = { block: [["<!--", "-->"]], markup: true };
const diff: Language = { diff: true };
/** For languages that are not known: what most have. */
const other: Language = { ...C_COMMENTS, line: ["//"], quotes: ['"'], constants: VALUES };
const none: Language = {};

const BY_NAME: readonly [names: string, language: Language][] = [
  ["js javascript jsx mjs cjs ts typescript tsx mts node deno", javascript],
  ["c h cpp c++ cc cxx hpp cuda cu objc glsl hlsl metal opencl", cpp],
  ["java kotlin kt scala cs csharp c# dart groovy zig d", java],
  ["rust rs", rust],
  ["go golang", go],
  ["swift", swift],
  ["py python python3 py3 pyi mojo starlark", python],
  ["rb ruby elixir ex crystal", ruby],
  ["php", php],
  ["sh bash shell zsh fish console shell-session powershell ps1", shell],
  ["sql postgresql mysql sqlite plsql", sql],
  ["lua", lua],
  ["hs haskell elm ml ocaml", haskell],
  ["css scss less sass", css],
  ["json jsonc json5 ndjson jsonl", json],
  ["yaml yml", yaml],
  ["toml ini conf cfg properties env dotenv", toml],
  ["dockerfile docker", docker],
  ["make makefile cmake", make],
  ["html xml svg xhtml vue svelte jinja", html],
  ["diff patch", diff],
  ["text txt plain plaintext markdown md latex tex output log gbnf", none],
];
const LANGUAGES = new Map(BY_NAME.flatMap(([names, language]) => names.split(" ").map((name) => [name, language])));

/** The language of a code block's first word; without one, nothing is coloured. */
export function languageOf(name: string): Language {
  return name === "" ? none : LANGUAGES.get(name.toLowerCase()) ?? other;
}
