// JSON in which no two readers read two things: no member twice or out of order, integers exact,
// no half of a character, and a bounded depth.

/** How deep a value may be, and a frame. */
const MAX_DEPTH = 64, MAX_BODY_DEPTH = 96;

/** A number that is not written as an integer. */
export class Real {
  constructor(text) { this.text = text; }
}

const SPACE = /[ \t\n\r]*/y;
const TEXT = /"[^"\\\u0000-\u001f]*(?:\\.[^"\\\u0000-\u001f]*)*"/y;
const NUMERAL = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y;
const LONE_SURROGATE = /\p{Surrogate}/u;
const WORDS = [["true", true], ["false", false], ["null", null]];

/** Whether one text comes before another in UTF-8, which is the order of code points. */
export function isBefore(one, other) {
  const common = Math.min(one.length, other.length);
  for (let at = 0; at < common; at += 1) {
    const a = one.charCodeAt(at), b = other.charCodeAt(at);
    // Code units of characters beyond U+FFFF come after all others.
    if (a !== b) return a + (a >> 11 === 27 ? 0x10000 : 0) < b + (b >> 11 === 27 ? 0x10000 : 0);
  }
  return one.length < other.length;
}

class JsonReader {
  constructor(text) {
    this.text = text;
    this.at = 0;
  }

  fail(reason) { throw new SyntaxError(`${reason} at character ${this.at}`); }

  match(pattern) {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (found) this.at = pattern.lastIndex;
    return found;
  }

  /** Whether this comes next, after spaces; if so, it is read. */
  takes(word) {
    this.match(SPACE);
    const found = this.text.startsWith(word, this.at);
    if (found) this.at += word.length;
    return found;
  }

  /** A value; the members of its outermost object need no order if it is the body of a frame. */
  value(depth, isBody) {
    if (this.takes("{")) return this.object(depth - 1, isBody);
    if (this.takes("[")) return this.list(depth - 1);
    if (this.text[this.at] === '"') return this.string();
    const word = WORDS.find(([name]) => this.takes(name));
    return word ? word[1] : this.number();
  }

  object(depth, isBody) {
    if (depth < 0) this.fail("nested too deep");
    const made = Object.create(null);
    if (this.takes("}")) return made;
    let last = null;
    do {
      this.match(SPACE);
      const name = this.string();
      const inOrder = last === null || (isBody ? !(name in made) : isBefore(last, name));
      if (!inOrder) this.fail("a member twice or out of order");
      if (!this.takes(":")) this.fail("no colon");
      made[name] = this.value(depth, false);
      last = name;
    } while (this.takes(","));
    if (!this.takes("}")) this.fail("an object without an end");
    return made;
  }

  list(depth) {
    if (depth < 0) this.fail("nested too deep");
    const made = [];
    if (this.takes("]")) return made;
    do made.push(this.value(depth, false)); while (this.takes(","));
    if (!this.takes("]")) this.fail("a list without an end");
    return made;
  }

  string() {
    const found = this.match(TEXT);
    if (!found) this.fail("no text");
    const text = JSON.parse(found[0]);
    if (LONE_SURROGATE.test(text)) this.fail("half of a character");
    return text;
  }

  /** A number; beyond 2^53, where floating point is not exact, a BigInt. */
  number() {
    const found = this.match(NUMERAL);
    if (!found) this.fail("no value");
    const [text, fraction, exponent] = found;
    if (fraction || exponent || text === "-0") {
      if (!Number.isFinite(Number(text))) this.fail("too large a number");
      return new Real(text);
    }
    if (Number.isSafeInteger(Number(text))) return Number(text);
    const exact = BigInt(text);
    if (exact < -(2n ** 63n) || exact >= 2n ** 64n) this.fail("too large a number");
    return exact;
  }
}

export function readJson(text, isBody = false) {
  const reader = new JsonReader(text);
  const value = reader.value(isBody ? MAX_BODY_DEPTH : MAX_DEPTH, isBody);
  reader.match(SPACE);
  if (reader.at !== text.length) reader.fail("more than one value");
  return value;
}

/** The kind of a value that was read. */
function kindOf(value) {
  if (value === null) return "null";
  if (Array.isArray(value)) return "list";
  if (value instanceof Real) return "real";
  return { bigint: "integer", number: "integer" }[typeof value] ?? typeof value;
}

/** Whether an object has these members, each of its kind, and no others but an optional one. */
export function hasMembers(value, kinds, optional) {
  if (kindOf(value) !== "object") return false;
  const names = Object.keys(value).filter((name) => name !== optional);
  return names.length === Object.keys(kinds).length
    && names.every((name) => Object.hasOwn(kinds, name) && kindOf(value[name]) === kinds[name]);
}

export function isCount(value) {
  return kindOf(value) === "integer" && value >= 0;
}
