/**
 * Evaluates a parsed template with Python's meaning of every construct: `str()` of what is printed, equality and
 * order by value, code points as the unit of strings, a scope per loop round, methods before keys on `a.b`.
 * Semantics: Jinja 3.1 as transformers configures it (trim_blocks, lstrip_blocks, loop controls).
 * @module
 */
import { applyFilter, contains, testNamed } from "./filters.ts";
import { method, percentFormat } from "./methods.ts";
import { type Node, NOT_TEST_FILTER, TEST_FILTER } from "./parse.ts";
import {
  type Callable,
  compare,
  equal,
  escapeHtml,
  Float,
  isText,
  iterate,
  Markup,
  Namespace,
  numeric,
  repr,
  str,
  TemplateFailure,
  textOf,
  truthy,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

/** Variables of one scope; reading falls through to the enclosing one, `set` stays here. */
class Scope {
  readonly own = new Map<string, Value>();
  constructor(readonly parent?: Scope) {}

  get(name: string): Value {
    const v = this.own.get(name);
    if (v !== undefined) return v;
    return this.parent ? this.parent.get(name) : new Undefined(`'${name}' is undefined`);
  }
}

class BreakLoop {}
class ContinueLoop {}

const MAX_RANGE = 100_000; // The sandbox's own limit.
const MAX_STEPS = 5_000_000; // Statements and loop rounds: nested ranges must not hang whoever loads the template.
const MAX_OUTPUT = 64 << 20; // Characters: a template that doubles its text must not take the machine down.

/** Renders `tree` with the given variables. Throws TemplateRefusal, TemplateFailure. */
export function evaluateTemplate(tree: Node, variables: Map<string, Value>): string {
  const scope = new Scope();
  for (const [name, v] of globals) scope.own.set(name, v);
  for (const [name, v] of variables) scope.own.set(name, v);
  return new Evaluator().block(tree.body, scope);
}

const globals = new Map<string, Value>([
  ["range", (args) => range(args.map((a) => numeric(a) ?? NaN))],
  ["namespace", (args, kwargs) => {
    const members = new Map<Value, Value>();
    for (const a of args) {
      if (a instanceof Map) { for (const [k, v] of a) members.set(k, v); }
      else for (const pair of iterate(a)) members.set(iterate(pair)[0], iterate(pair)[1]);
    }
    for (const [k, v] of kwargs) members.set(k, v);
    return new Namespace(members);
  }],
  ["dict", (args, kwargs) => {
    const d = new Map<Value, Value>(args[0] instanceof Map ? args[0] : []);
    for (const [k, v] of kwargs) d.set(k, v);
    return d;
  }],
  ["tojson", (args, kwargs) => applyFilter("tojson", args[0] ?? null, args.slice(1), kwargs)],
  ["joiner", (args) => {
    let used = false;
    return () => used ? args[0] ?? ", " : (used = true, "");
  }],
  ["cycler", (args) => {
    let at = 0;
    return new Map<Value, Value>([["next", () => args[at++ % args.length]], ["reset", () => (at = 0, null)]]);
  }],
]);

function range(args: number[]): Value[] {
  const [start, stop, step] = args.length === 1 ? [0, args[0], 1] : [args[0], args[1], args[2] ?? 1];
  if ([start, stop, step].some(Number.isNaN)) throw new TemplateFailure("range() wants integers");
  if (step === 0) throw new TemplateFailure("range() arg 3 must not be zero");
  const n = Math.max(0, Math.ceil((stop - start) / step));
  if (n > MAX_RANGE) throw new TemplateFailure(`Range too big. The sandbox blocks ranges larger than ${MAX_RANGE}.`);
  return Array.from({ length: n }, (_, i) => start + i * step);
}

class Evaluator {
  #written = 0;
  #steps = 0;

  #step(): void {
    if (++this.#steps > MAX_STEPS) throw new TemplateFailure(`it takes more than ${MAX_STEPS} steps`);
  }

  block(body: Node[], scope: Scope): string {
    let out = "";
    for (const node of body) {
      this.#step();
      const part = this.#statement(node, scope);
      this.#written += part.length;
      if (this.#written > MAX_OUTPUT) throw new TemplateFailure(`output exceeds ${MAX_OUTPUT} characters`);
      out += part;
    }
    return out;
  }

  /** Runs a statement, or prints an expression. */
  #statement(node: Node, scope: Scope): string {
    switch (node.type) {
      case "Set":
        this.#set(node, scope);
        return "";
      case "If":
        return this.block(truthy(this.#value(node.test, scope)) ? node.body : node.alternate, scope);
      case "For":
        return this.#for(node, scope);
      case "Macro":
        scope.own.set(node.name.value, this.#macro(node.args, node.body, scope));
        return "";
      case "CallStatement": {
        const { args, kwargs } = this.#arguments(node.call.args, scope);
        kwargs.set("caller", this.#macro(node.callerArgs ?? [], node.body, scope));
        return str(this.#call(node.call.callee, args, kwargs, scope));
      }
      case "FilterStatement":
        return str(this.#filter(this.block(node.body, new Scope(scope)), node.filter, scope));
      case "Break":
        throw new BreakLoop();
      case "Continue":
        throw new ContinueLoop();
      case "Comment":
        return "";
      default:
        return str(this.#value(node, scope));
    }
  }

  #set(node: Node, scope: Scope): void {
    this.#assign(
      node.assignee,
      node.value ? this.#value(node.value, scope) : this.block(node.body, new Scope(scope)),
      scope,
    );
  }

  #assign(target: Node, v: Value, scope: Scope): void {
    if (target.type === "Identifier") {
      scope.own.set(target.value, v);
    } else if (target.type === "TupleLiteral") {
      const items = iterate(v);
      if (items.length !== target.value.length) {
        const few = items.length < target.value.length;
        throw new TemplateFailure(
          few
            ? `not enough values to unpack (expected ${target.value.length}, got ${items.length})`
            : `too many values to unpack (expected ${target.value.length})`,
        );
      }
      target.value.forEach((t: Node, i: number) => this.#assign(t, items[i], scope));
    } else {
      const holder = target.type === "MemberExpression" ? this.#value(target.object, scope) : null;
      if (!(holder instanceof Namespace)) throw new TemplateFailure("cannot assign attribute on non-namespace object");
      holder.members.set(target.property.value, v);
    }
  }

  #for(node: Node, scope: Scope): string {
    const filtered = node.iterable.type === "SelectExpression";
    let items = iterate(this.#value(filtered ? node.iterable.lhs : node.iterable, scope));
    if (filtered) {
      items = items.filter((item) => {
        const inner = new Scope(scope);
        this.#assign(node.loopvar, item, inner);
        return truthy(this.#value(node.iterable.test, inner));
      });
    }
    if (items.length === 0) return this.block(node.defaultBlock, scope);
    let out = "";
    let changed: Value[] | undefined;
    for (let i = 0; i < items.length; i++) {
      this.#step();
      const inner = new Scope(scope);
      inner.own.set(
        "loop",
        new Map<Value, Value>([
          ["index", i + 1],
          ["index0", i],
          ["revindex", items.length - i],
          ["revindex0", items.length - i - 1],
          ["first", i === 0],
          ["last", i === items.length - 1],
          ["length", items.length],
          ["depth", 1],
          ["depth0", 0],
          ["previtem", items[i - 1] ?? new Undefined("there is no previous item")],
          ["nextitem", items[i + 1] ?? new Undefined("there is no next item")],
          ["cycle", (args) => args[i % args.length]],
          ["changed", (args) => {
            const same = changed !== undefined && equal(changed, args);
            changed = args;
            return !same;
          }],
        ]),
      );
      this.#assign(node.loopvar, items[i], inner);
      // Text printed before a break or continue stays, so the body is run statement by statement.
      try {
        for (const part of this.#parts(node.body, inner)) out += part;
      } catch (e) {
        if (e instanceof BreakLoop) break;
        if (!(e instanceof ContinueLoop)) throw e;
      }
    }
    return out;
  }

  *#parts(body: Node[], scope: Scope): Generator<string> {
    for (const node of body) {
      // An `if` is opened here: a loop control inside it must not swallow what it printed first.
      if (node.type === "If") {
        yield* this.#parts(truthy(this.#value(node.test, scope)) ? node.body : node.alternate, scope);
      } else yield this.block([node], scope);
    }
  }

  #macro(parameters: Node[], body: Node[], scope: Scope): Callable {
    return (args, kwargs) => {
      const inner = new Scope(scope);
      const named = new Map(kwargs);
      parameters.forEach((p, i) => {
        const key: string = p.type === "Identifier" ? p.value : p.key.value;
        const fallback: Node | undefined = p.type === "Identifier" ? undefined : p.value;
        if (i < args.length) inner.own.set(key, args[i]);
        else if (named.has(key)) inner.own.set(key, named.get(key)!);
        else {
          inner.own.set(
            key,
            fallback ? this.#value(fallback, inner) : new Undefined(`parameter '${key}' was not provided`),
          );
        }
        named.delete(key);
      });
      const caller = named.get("caller");
      if (caller !== undefined) inner.own.set("caller", caller);
      named.delete("caller");
      inner.own.set("varargs", Tuple.of_(args.slice(parameters.length)));
      inner.own.set("kwargs", new Map<Value, Value>(named));
      return this.block(body, inner);
    };
  }

  #arguments(nodes: Node[], scope: Scope): { args: Value[]; kwargs: Map<string, Value> } {
    const args: Value[] = [];
    const kwargs = new Map<string, Value>();
    for (const node of nodes) {
      if (node.type === "SpreadExpression") args.push(...iterate(this.#value(node.argument, scope)));
      else if (node.type === "KeywordArgumentExpression") kwargs.set(node.key.value, this.#value(node.value, scope));
      else if (node.type === "KeywordSpreadExpression") {
        const map = this.#value(node.argument, scope);
        if (!(map instanceof Map)) {
          throw new TemplateFailure(`argument after ** must be a mapping, not ${typeName(map)}`);
        }
        for (const [k, v] of map) kwargs.set(str(k), v);
      } else args.push(this.#value(node, scope));
    }
    return { args, kwargs };
  }

  #call(callee: Node, args: Value[], kwargs: Map<string, Value>, scope: Scope): Value {
    const fn = this.#value(callee, scope);
    if (fn instanceof Undefined) throw new TemplateFailure(fn.message);
    if (typeof fn !== "function") throw new TemplateFailure(`'${typeName(fn)}' object is not callable`);
    return fn(args, kwargs);
  }

  #filter(v: Value, node: Node, scope: Scope): Value {
    const call = node.type === "CallExpression";
    const name: string = call ? node.callee.value : node.value;
    const { args, kwargs } = call ? this.#arguments(node.args, scope) : { args: [], kwargs: new Map() };
    if (name.startsWith(NOT_TEST_FILTER)) return !testNamed(name.slice(NOT_TEST_FILTER.length))(v, ...args);
    if (name.startsWith(TEST_FILTER)) return testNamed(name.slice(TEST_FILTER.length))(v, ...args);
    return applyFilter(name, v, args, kwargs);
  }

  #value(node: Node | undefined, scope: Scope): Value {
    if (!node) return new Undefined("value is undefined");
    switch (node.type) {
      case "IntegerLiteral":
      case "StringLiteral":
        return node.value;
      case "FloatLiteral":
        return new Float(node.value);
      case "ArrayLiteral":
        return node.value.map((x: Node) => this.#value(x, scope));
      case "TupleLiteral":
        return Tuple.of_(node.value.map((x: Node) => this.#value(x, scope)));
      case "ObjectLiteral": {
        const map = new Map<Value, Value>();
        for (const [k, v] of node.value as Map<Node, Node>) map.set(this.#value(k, scope), this.#value(v, scope));
        return map;
      }
      case "Identifier":
        return constants.has(node.value) ? constants.get(node.value)! : scope.get(node.value);
      case "CallExpression": {
        const { args, kwargs } = this.#arguments(node.args, scope);
        return this.#call(node.callee, args, kwargs, scope);
      }
      case "MemberExpression":
        return this.#member(node, scope);
      case "UnaryExpression":
        return unary(node.operator.value, this.#value(node.argument, scope));
      case "BinaryExpression": {
        const op: string = node.operator.value;
        const left = this.#value(node.left, scope);
        if (op === "and") return truthy(left) ? this.#value(node.right, scope) : left;
        if (op === "or") return truthy(left) ? left : this.#value(node.right, scope);
        return binary(op, left, this.#value(node.right, scope));
      }
      case "FilterExpression":
        return this.#filter(this.#value(node.operand, scope), node.filter, scope);
      case "TestExpression":
        return testNamed(node.test.value)(this.#value(node.operand, scope)) !== node.negate;
      case "SelectExpression":
        return truthy(this.#value(node.test, scope))
          ? this.#value(node.lhs, scope)
          : new Undefined("the inline if-expression evaluated to false and no else section was defined.");
      case "Ternary":
        return this.#value(truthy(this.#value(node.condition, scope)) ? node.trueExpr : node.falseExpr, scope);
      default:
        throw new TemplateFailure(`${node.type} cannot be evaluated here`);
    }
  }

  #member(node: Node, scope: Scope): Value {
    const object = this.#value(node.object, scope);
    if (object instanceof Undefined) throw new TemplateFailure(object.message);
    if (node.property.type === "SliceExpression") {
      const bound = (n: Node | undefined) => n === undefined ? null : this.#value(n, scope);
      return slice(object, bound(node.property.start), bound(node.property.stop), bound(node.property.step));
    }
    if (node.computed) return item(object, this.#value(node.property, scope));
    // `a.b` asks for the attribute first and the key second, `a["b"]` the other way round.
    const name: Value = node.property.value;
    return (typeof name === "string" ? method(object, name) : undefined) ?? item(object, name);
  }
}

const constants = new Map<string, Value>([
  ["true", true],
  ["True", true],
  ["false", false],
  ["False", false],
  ["none", null],
  ["None", null],
]);

function item(object: Value, key: Value): Value {
  if (object instanceof Map || object instanceof Namespace) {
    const map = object instanceof Map ? object : object.members;
    const found = map.get(key instanceof Markup ? key.text : key instanceof Float ? key.value : key);
    if (found !== undefined) return found;
  } else if (Array.isArray(object) || isText(object)) {
    const index = numeric(key);
    if (index !== undefined) {
      return (Array.isArray(object) ? object : [...textOf(object)]).at(index) ??
        new Undefined(`${typeName(object)} object has no element ${index}`);
    }
  }
  const type = object instanceof Map ? "dict object" : `${typeName(object)} object`;
  return (isText(key) ? method(object, textOf(key)) : undefined) ??
    new Undefined(`'${type}' has no attribute ${repr(key)}`);
}

function slice(object: Value, start: Value, stop: Value, step: Value): Value {
  if (!Array.isArray(object) && !isText(object)) {
    throw new TemplateFailure(`'${typeName(object)}' object is not subscriptable`);
  }
  const bound = (v: Value): number | undefined => v instanceof Undefined || v === null ? undefined : numeric(v);
  const items: Value[] = Array.isArray(object) ? object : [...textOf(object)];
  const by = bound(step) ?? 1, n = items.length;
  if (by === 0) throw new TemplateFailure("slice step cannot be zero");
  const clamp = (v: number, low: number, high: number) => Math.min(Math.max(v < 0 ? v + n : v, low), high);
  const from = bound(start), to = bound(stop);
  const low = by > 0 ? 0 : -1, high = by > 0 ? n : n - 1;
  const first = from === undefined ? (by > 0 ? 0 : n - 1) : clamp(from, low, high);
  const last = to === undefined ? (by > 0 ? n : -1) : clamp(to, low, high);
  const out: Value[] = [];
  for (let i = first; by > 0 ? i < last : i > last; i += by) out.push(items[i]);
  return isText(object) ? out.join("") : object instanceof Tuple ? Tuple.of_(out) : out;
}

function unary(op: string, v: Value): Value {
  if (op === "not") return !truthy(v);
  const n = numeric(v);
  if (n === undefined) throw new TemplateFailure(`bad operand type for unary ${op}: '${typeName(v)}'`);
  const signed = op === "-" ? -n : n;
  return v instanceof Float ? new Float(signed) : signed;
}

function binary(op: string, a: Value, b: Value): Value {
  switch (op) {
    case "==":
      return equal(a, b);
    case "!=":
      return !equal(a, b);
    case "~":
      return str(a) + str(b);
    case "in":
      return contains(b, a);
    case "not in":
      return !contains(b, a);
  }
  for (const v of [a, b]) if (v instanceof Undefined) throw new TemplateFailure(v.message);
  switch (op) {
    case "<":
      return compare(a, b) < 0;
    case ">":
      return compare(a, b) > 0;
    case "<=":
      return compare(a, b) <= 0;
    case ">=":
      return compare(a, b) >= 0;
  }
  if (op === "+" && isText(a) && isText(b)) return join(a, b);
  if (op === "+" && Array.isArray(a) && Array.isArray(b)) {
    return a instanceof Tuple ? Tuple.of_([...a, ...b]) : [...a, ...b];
  }
  if (op === "%" && isText(a)) return percentFormat(textOf(a), b);
  if (op === "*" && isText(a) && typeof b === "number") {
    if (textOf(a).length * b > MAX_OUTPUT) throw new TemplateFailure(`output exceeds ${MAX_OUTPUT} characters`);
    return textOf(a).repeat(Math.max(0, b));
  }
  const x = numeric(a), y = numeric(b);
  if (x === undefined || y === undefined) {
    throw new TemplateFailure(
      op === "+" && isText(a)
        ? `can only concatenate str (not "${typeName(b)}") to str`
        : `unsupported operand type(s) for ${op}: '${typeName(a)}' and '${typeName(b)}'`,
    );
  }
  if (y === 0 && (op === "/" || op === "//" || op === "%")) throw new TemplateFailure("division by zero");
  const float = a instanceof Float || b instanceof Float || op === "/" || (op === "**" && y < 0);
  const result = arithmetic[op]?.(x, y);
  if (result === undefined) throw new TemplateFailure(`unknown operator ${op}`);
  return float ? new Float(result) : result;
}

const arithmetic: Record<string, (x: number, y: number) => number> = {
  "+": (x, y) => x + y,
  "-": (x, y) => x - y,
  "*": (x, y) => x * y,
  "/": (x, y) => x / y,
  "//": (x, y) => Math.floor(x / y),
  "%": (x, y) => x - y * Math.floor(x / y),
  "**": (x, y) => x ** y,
};

/** `a + b` of texts; where one is marked safe, the other is escaped and the whole is safe (markupsafe). */
function join(a: string | Markup, b: string | Markup): Value {
  if (typeof a === "string" && typeof b === "string") return a + b;
  const escaped = (v: string | Markup) => typeof v === "string" ? escapeHtml(v) : v.text;
  return new Markup(escaped(a) + escaped(b));
}
