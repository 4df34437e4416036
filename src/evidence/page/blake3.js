// BLAKE3, as its specification describes it: the plain hash of 32 bytes, of bytes that come in
// pieces. WebCrypto does not have it.

const BLOCK = 64, CHUNK = 1024;
const START = 1, END = 2, PARENT = 4, ROOT = 8;
const IV = Int32Array.of(
  0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19);
/** The order in which each of the seven rounds takes the words of a block. */
const ORDER = (() => {
  const step = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
  const rounds = [step.map((_, at) => at)];
  while (rounds.length < 7) rounds.push(step.map((from) => rounds.at(-1)[from]));
  return Uint8Array.from(rounds.flat());
})();
/** The words of the state that each of the eight steps of a round mixes. */
const MIXED = Uint8Array.of(
  0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,
  0, 5, 10, 15, 1, 6, 11, 12, 2, 7, 8, 13, 3, 4, 9, 14);

const state = new Int32Array(16);

function mix(a, b, c, d, x, y) {
  let p = state[a], q = state[b], r = state[c], s = state[d];
  p = (p + q + x) | 0; s ^= p; s = (s >>> 16) | (s << 16);
  r = (r + s) | 0; q ^= r; q = (q >>> 12) | (q << 20);
  p = (p + q + y) | 0; s ^= p; s = (s >>> 8) | (s << 24);
  r = (r + s) | 0; q ^= r; q = (q >>> 7) | (q << 25);
  state[a] = p; state[b] = q; state[c] = r; state[d] = s;
}

/** The chaining value of a block of 16 words after `chain`. */
function compress(chain, words, counter, length, flags) {
  for (let at = 0; at < 8; at += 1) {
    state[at] = chain[at];
    state[at + 8] = IV[at];
  }
  state[12] = counter % 2 ** 32;
  state[13] = Math.floor(counter / 2 ** 32);
  state[14] = length;
  state[15] = flags;
  for (let at = 0; at < ORDER.length; at += 2) {
    const to = (2 * at) % 32;
    mix(MIXED[to], MIXED[to + 1], MIXED[to + 2], MIXED[to + 3], words[ORDER[at]], words[ORDER[at + 1]]);
  }
  const made = new Int32Array(8);
  for (let at = 0; at < 8; at += 1) made[at] = state[at] ^ state[at + 8];
  return made;
}

/** The chaining value of two parts of the tree. */
function joined(left, right, flags) {
  const words = new Int32Array(16);
  words.set(left);
  words.set(right, 8);
  return compress(IV, words, 0, BLOCK, PARENT | flags);
}

/** A hash in the making. */
export class Blake3 {
  constructor() {
    this.block = new Uint8Array(BLOCK);
    /** How many bytes of the block are filled, and of the chunk before it. */
    this.filled = this.before = 0;
    this.chain = IV;
    /** The number of the chunk, and the roots of the whole parts of the tree before it. */
    this.chunk = 0;
    this.parts = [];
  }

  update(bytes) {
    for (let at = 0; at < bytes.length;) {
      if (this.filled === BLOCK) this.endBlock();
      const size = Math.min(BLOCK - this.filled, bytes.length - at);
      this.block.set(bytes.subarray(at, at + size), this.filled);
      this.filled += size;
      at += size;
    }
    return this;
  }

  compressBlock(flags) {
    const words = new Int32Array(16);
    const { block } = this;
    for (let at = 0; at < 16; at += 1) {
      const from = 4 * at;
      words[at] = block[from] | (block[from + 1] << 8) | (block[from + 2] << 16) | (block[from + 3] << 24);
    }
    const start = this.before === 0 ? START : 0;
    return compress(this.chain, words, this.chunk, this.filled, start | flags);
  }

  /** Ends a block that is not the last one. */
  endBlock() {
    const isLast = this.before + BLOCK === CHUNK;
    this.chain = this.compressBlock(isLast ? END : 0);
    this.before += BLOCK;
    if (isLast) this.endChunk();
    this.block.fill(0);
    this.filled = 0;
  }

  /** A part is whole where a bit of the number of chunks becomes zero. */
  endChunk() {
    this.chunk += 1;
    let part = this.chain;
    for (let left = this.chunk; left % 2 === 0; left /= 2) part = joined(this.parts.pop(), part, 0);
    this.parts.push(part);
    this.chain = IV;
    this.before = 0;
  }

  /** The digest, as 64 hexadecimal digits. */
  hex() {
    const { parts } = this;
    let root = this.compressBlock(END | (parts.length === 0 ? ROOT : 0));
    for (let at = parts.length - 1; at >= 0; at -= 1) root = joined(parts[at], root, at === 0 ? ROOT : 0);
    return hex(new Uint8Array(Uint32Array.from(root, littleEndian).buffer));
  }
}

const isLittle = new Uint8Array(Uint32Array.of(1).buffer)[0] === 1;
function littleEndian(word) {
  if (isLittle) return word;
  return (word << 24) | ((word & 0xff00) << 8) | ((word >>> 8) & 0xff00) | (word >>> 24);
}

export function hex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function blake3(bytes) {
  return new Blake3().update(bytes).hex();
}
