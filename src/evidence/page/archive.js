// An archive of evidence: a tar file in the one form that ktsu writes, read a piece at a time.

import { Blake3, hex } from "./blake3.js";
import { readJson } from "./json.js";

/** How much is read at once of a file, of a manifest or a proof, and of a file for SHA-256. */
const PIECE = 2 ** 20, MAX_LIST = 2 ** 26, MAX_TEXT = 2 ** 23, MAX_SHA256 = 2 ** 27;
const MAX_FILES = 1_000_000;

/** There is nothing to give a verdict about. */
export class Unreadable extends Error {}

/** What speaks against a claim, and the frame that shows it. */
export class Wrong extends Error {
  constructor(reason, frame) {
    super(reason);
    this.frame = frame;
  }
}

/** Why a claim is neither proven nor failed. */
export class NotCovered extends Error {
  constructor(reason, frame) {
    super(reason);
    this.frame = frame;
  }
}

export function wrongIf(condition, reason, frame) {
  if (condition) throw new Wrong(reason, frame);
}
export function unreadableIf(condition, reason) {
  if (condition) throw new Unreadable(reason);
}
export function check(condition) {
  if (!condition) throw new TypeError("it is malformed");
}
export function counted(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

export const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
export const bytesOf = (text) => new TextEncoder().encode(text);
export const ascii = (bytes) => String.fromCharCode(...bytes);

export function concat(...parts) {
  const made = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    made.set(part, at);
    at += part.length;
  }
  return made;
}

export async function sha256(bytes) {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}

const NAME = /^(?=.{1,99}$)[A-Za-z0-9_-][A-Za-z0-9_.-]*(\/[A-Za-z0-9_-][A-Za-z0-9_.-]*){0,2}$/;

/** The block before a file: everything in it follows from name and size. */
export function header(name, size) {
  const block = new Uint8Array(512);
  const octal = (number, digits) => number.toString(8).padStart(digits, "0");
  const fields = [
    [0, name], [100, "0000644\0"], [108, "0000000\0"], [116, "0000000\0"],
    [124, `${octal(size, 11)}\0`], [136, "00000000000\0"], [148, "        "], [156, "0"],
    [257, "ustar\0" + "00"]];
  for (const [at, text] of fields) block.set(bytesOf(text), at);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.set(bytesOf(`${octal(sum, 6)}\0 `), 148);
  return block;
}

/** Where each file of an archive is, in the order of their names. */
export class Archive {
  /** `source` has a `size`, and `read(begin, length)`, which returns so many bytes. */
  constructor(source) {
    this.source = source;
    this.windows = [];
    this.places = new Map();
    this.known = new Map();
    let at = 0, last = "";
    for (;;) {
      unreadableIf(at + 512 > source.size, `not an archive of evidence: it ends early, at byte ${at}`);
      const block = this.part(at, 512);
      if (block.every((byte) => byte === 0)) break;
      const [name, size] = this.named(block, at);
      const end = at + 512 + size, next = at + 512 + Math.ceil(size / 512) * 512;
      const place = `, at byte ${at}`;
      unreadableIf(end > source.size, "a file that is longer than the archive" + place);
      unreadableIf(next > source.size, "not an archive of evidence: it ends early" + place);
      unreadableIf(this.part(end, next - end).some((byte) => byte), "there is data between two files" + place);
      unreadableIf(name <= last, "a name twice or out of order" + place);
      unreadableIf(this.places.size === MAX_FILES, `more than ${MAX_FILES} files: use ktsu evidence verify`);
      this.places.set(name, { begin: at + 512, size });
      [last, at] = [name, next];
    }
    const ends = source.size - at === 1024 && this.part(at, 1024).every((byte) => byte === 0);
    unreadableIf(!ends, `not an archive of evidence: there is data after its end, at byte ${at}`);
  }

  named(block, at) {
    const place = `, at byte ${at}`;
    const name = ascii(block.subarray(0, 100)).split("\0")[0], size = ascii(block.subarray(124, 135));
    unreadableIf(!NAME.test(name), "a name that no archive of evidence has" + place);
    unreadableIf(!/^[0-7]{11}$/.test(size), "a size that is not a number" + place);
    const expected = header(name, parseInt(size, 8));
    const same = block.every((byte, index) => byte === expected[index]);
    unreadableIf(!same, "a header that no archive of evidence has" + place);
    return [name, parseInt(size, 8)];
  }

  /** Some bytes. Those around them are kept at hand, since the next ones are probably wanted. */
  part(begin, length) {
    const whole = (one) => one.begin <= begin && begin + length <= one.begin + one.bytes.length;
    let window = this.windows.find(whole);
    if (!window) {
      const size = Math.min(Math.max(length, PIECE), this.source.size - begin);
      const bytes = size < length ? new Uint8Array() : this.source.read(begin, size);
      unreadableIf(bytes.length < length, "the archive became shorter while it was read");
      window = { begin, bytes };
      if (size <= PIECE) this.windows = [window, ...this.windows.slice(0, 2)];
    }
    return window.bytes.subarray(begin - window.begin, begin - window.begin + length);
  }

  has(name) { return this.places.has(name); }
  names() { return this.places.keys(); }
  size(name) { return this.places.get(name).size; }

  /** The bytes of a file, one piece after another. */
  * pieces(name) {
    const { begin, size } = this.places.get(name);
    for (let at = 0; at < size; at += PIECE) yield this.part(begin + at, Math.min(PIECE, size - at));
  }

  /** The bytes of a file, if there are no more than so many. */
  whole(name, most = MAX_TEXT) {
    const { begin, size } = this.places.get(name);
    if (size > most) throw new NotCovered(`${name} is larger than what this page reads at once`);
    return this.part(begin, size);
  }

  /** A file that is one JSON value. */
  document(name) {
    unreadableIf(!this.has(name), `the archive has no ${name}`);
    try {
      return readJson(utf8.decode(this.whole(name, MAX_LIST)));
    } catch (error) {
      throw new Unreadable(`${name}: ${error.message}`);
    }
  }

  /** The BLAKE3 of a file. */
  blake3(name) {
    let known = this.known.get(name);
    if (!known) {
      const made = new Blake3();
      for (const piece of this.pieces(name)) made.update(piece);
      this.known.set(name, known = made.hex());
    }
    return known;
  }

  /** The SHA-256 of a file; WebCrypto takes no pieces, so that of a very large one is not known. */
  async sha256(name) {
    if (this.size(name) > MAX_SHA256) return null;
    return hex(await sha256(this.whole(name, MAX_SHA256)));
  }

  /** Where each line of a file begins, and how long it is. */
  * lines(name) {
    let at = this.places.get(name).begin, begin = at;
    for (const piece of this.pieces(name)) {
      for (let end = piece.indexOf(10); end >= 0; end = piece.indexOf(10, end + 1)) {
        yield { begin, length: at + end - begin };
        begin = at + end + 1;
      }
      at += piece.length;
    }
    wrongIf(begin !== at, `the last line of ${name} is cut`);
  }
}
