// What is signed: the tree over all frames of a ledger, the checkpoints over it, and the keys.

import { NotCovered, Wrong, ascii, bytesOf, check, concat, counted, sha256, wrongIf } from "./archive.js";
import { hex } from "./blake3.js";
import { HASH, idOf, numberOf } from "./frames.js";
import { isCount } from "./json.js";

const UNSIGNED = "the ledger has no signed checkpoint";
const MAX_NOTE = 16 * 1024, DASH = "\u2014 ";

/** The bytes of a text in canonical base64. */
function fromBase64(text) {
  check(typeof text === "string" && btoa(atob(text)) === text);
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}
function toBase64(bytes) {
  return btoa(ascii(bytes));
}
function fromHex(text) {
  check(typeof text === "string" && HASH.test(text));
  return Uint8Array.from(text.match(/../g), (byte) => parseInt(byte, 16));
}

// ---- The tree (RFC 6962) ----
async function above(left, right) {
  return sha256(concat([1], left, right));
}

/** The largest power of two below a size. */
function split(size) {
  let half = 1;
  while (half * 2 < size) half *= 2;
  return half;
}

/** The number of those that are less, of numbers in ascending order. */
function countBelow(numbers, limit) {
  let low = 0, high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] < limit) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The roots of the tree and of earlier ones, from the leaves that are shown and the hashes of the
 * parts that are left out. A part is left out whole where it holds no leaf that is shown, and no
 * earlier tree ends within. */
async function treeRoots(size, leaves, sizes, hashes) {
  const ascending = (numbers) => [...numbers].sort((a, b) => a - b);
  const shown = ascending(leaves.keys()), ends = ascending(sizes);
  const beyond = !Number.isSafeInteger(size) || ends.some((end) => end < 1 || end > size) || shown.at(-1) >= size;
  wrongIf(beyond, "it is about more than the tree holds");
  const between = (numbers, low, high) => countBelow(numbers, low) < countBelow(numbers, high);
  const known = new Map(), key = (low, high) => `${low} ${high}`;
  let used = 0;

  async function part(low, high, isKept) {
    const ended = high - low > 1 && between(ends, low + 1, high);
    let node;
    if (!between(shown, low, high) && !ended) {
      wrongIf(used === hashes.length, "the proof is too short");
      node = fromHex(hashes[used++]);
    } else if (high - low === 1) {
      node = leaves.get(low);
    } else {
      const middle = low + split(high - low);
      // Hashes are used in the order of the walk; small parts are hashed at the same time.
      let left = part(low, middle, ended);
      if (high - low > 4096) left = await left;
      node = await above(...await Promise.all([left, part(middle, high, ended)]));
    }
    if (isKept) known.set(key(low, high), node);
    return node;
  }

  /** A part of an earlier tree, from nodes that were met on the walk. */
  async function again(low, high) {
    const node = known.get(key(low, high));
    if (node) return node;
    wrongIf(high - low < 2, "the proof is too short");
    const middle = low + split(high - low);
    return above(await again(low, middle), await again(middle, high));
  }

  await part(0, size, true);
  wrongIf(used !== hashes.length, "the proof is too long");
  const roots = new Map();
  for (const one of new Set([size, ...ends])) roots.set(one, hex(await again(0, one)));
  return roots;
}

// ---- Signed notes and checkpoints ----
/** The first bytes of a digest identify a key. */
async function keyId(name, key) {
  return (await sha256(concat(bytesOf(name), [10, 1], key))).subarray(0, 4);
}

const ED25519 = { name: "Ed25519" };
function importKey(key) {
  return crypto.subtle.importKey("raw", key, ED25519, false, ["verify"]);
}

/** Whether WebCrypto has Ed25519 here. */
async function hasEd25519() {
  const base = Uint8Array.of(0x58, ...new Array(31).fill(0x66));
  return importKey(base).then(() => true, () => false);
}

async function isSignedBy(key, text, signature) {
  if (key.length !== 32 || signature.length !== 64) return false;
  const imported = await importKey(key).catch(() => null);
  return imported !== null && crypto.subtle.verify(ED25519, imported, signature, bytesOf(text));
}

/** A signed note: its text, and the names and signatures below it. */
function readNote(note) {
  check(typeof note === "string" && bytesOf(note).length <= MAX_NOTE);
  const at = note.lastIndexOf("\n\n");
  wrongIf(at < 0, "the note has no signature");
  const lines = note.slice(at + 2).replace(/\n$/, "").split("\n").map((line) => {
    const [name, signature] = [line.slice(2).split(" ", 1)[0], line.slice(line.indexOf(" ", 2) + 1)];
    wrongIf(!line.startsWith(DASH) || line.indexOf(" ", 2) < 0, "a signature of the note is damaged");
    return { name, signature: fromBase64(signature) };
  });
  return { text: `${note.slice(0, at)}\n`, lines };
}

/** The text of a note that the key has signed; null if it has not. */
async function signedText(note, name, key) {
  const { text, lines } = readNote(note), id = hex(await keyId(name, key));
  for (const line of lines) {
    const ours = line.name === name && hex(line.signature.subarray(0, 4)) === id;
    if (ours && await isSignedBy(key, text, line.signature.subarray(4))) return text;
  }
  return null;
}

/** The ledger, the size and the root that the text of a checkpoint names. */
function readCheckpoint(text) {
  const [origin, size, root, end, ...more] = text.split("\n");
  const right = end === "" && more.length === 0 && numberOf(size) !== null && fromBase64(root).length === 32;
  wrongIf(!right, "a checkpoint is an origin, a size and a root, each on a line");
  return { origin, size: Number(size), root: hex(fromBase64(root)) };
}

/** The checkpoints of a text of notes one after another, empty lines between them or not. */
export function readHeld(text) {
  const found = [];
  let rest = text.replace(/^\n+/, "");
  do {
    const at = rest.indexOf("\n\n"), below = at < 0 ? "" : rest.slice(at + 2);
    const signatures = /^(\u2014[^\n]*(\n|$))*/.exec(below)[0];
    found.push(readCheckpoint(readNote(`${at < 0 ? rest : rest.slice(0, at)}\n\n${signatures}`).text));
    rest = below.slice(signatures.length).replace(/^\n+/, "");
  } while (rest);
  return found;
}

/** The name and the key of a public key. */
export async function readKey(given) {
  const [name, id, ...rest] = given.trim().split("+"), key = fromBase64(rest.join("+"));
  const right = key.length === 33 && key[0] === 1 && hex(await keyId(name, key.subarray(1))) === id;
  wrongIf(!right, "a public key is NAME+ID+KEY, as `ktsu evidence key show` prints it");
  return { name, key: toBase64(key.subarray(1)) };
}

/** What the keys and checkpoints of an archive come to. */
export class Signed {
  static async of(evidence, held, wanted) {
    const signed = new Signed(evidence, held, wanted);
    signed.isCovered = await hasEd25519();
    try {
      signed.roots = await signed.findRoots();
    } catch (error) {
      signed.treeWrong = error instanceof Wrong ? error : new Wrong(`the proof is damaged: ${error.message}`);
    }
    if (signed.isCovered) await signed.takeAll();
    return signed;
  }

  constructor(evidence, held, wanted) {
    Object.assign(this, { evidence, held, wanted, origin: evidence.origin });
    this.keys = [];
    this.roots = new Map();
    this.treeWrong = this.wrong = this.keyWrong = null;
    /** The number of checkpoints, the key that signed the last one, and its position. */
    this.count = this.last = 0;
    this.signer = null;
  }

  /** The root of each checkpoint, as the frames give it. */
  async findRoots() {
    const { frames, tree, leaves } = this.evidence, first = frames[0];
    const named = first?.position !== 1 || this.origin === `ktsu/ledger/${first.hash.slice(0, 16)}`;
    wrongIf(!named, "the origin is not made from the first frame");
    const sizes = [...this.evidence.ofTypes("checkpoint.signed")].map(([, body]) => body.data.size);
    const right = sizes.every(isCount) && tree.size === (sizes.at(-1) ?? 0);
    wrongIf(!right, "the proof is not about the last checkpoint");
    return tree.size === 0 ? new Map() : treeRoots(tree.size, leaves, new Set(sizes), tree.hashes);
  }

  async takeAll() {
    const types = ["signing_key.added", "signing_key.revoked", "checkpoint.signed"];
    for (const [frame, { data }] of this.evidence.ofTypes(...types)) {
      try {
        if (frame.type === "signing_key.added") await this.add(data);
        else if (frame.type === "signing_key.revoked") await this.revoke(data);
        else await this.take(frame, data);
      } catch (error) {
        const wrong = new Wrong(error instanceof Wrong ? error.message : `the note is damaged: ${error.message}`, idOf(frame));
        if (frame.type === "checkpoint.signed") this.wrong ??= wrong;
        else this.keyWrong ??= wrong;
      }
    }
  }

  /** The key in force, in base64, if there is one. */
  inForce() {
    const last = this.keys.at(-1);
    return last && !last.isRevoked ? last.key : null;
  }

  /** Checks that a note says this of a key, and is signed. */
  async aboutKey(said, data) {
    const by = fromBase64(data.signed_by);
    check(fromBase64(data.public_key).length === 32 && by.length === 32);
    const text = `${this.origin}\nsigning key ${said}\n${data.public_key}\n`;
    const isSigned = await signedText(data.note, this.origin, by) === text;
    wrongIf(!isSigned, "the note about the key is not signed for it");
  }

  async add(data) {
    await this.aboutKey("added", data);
    const { public_key: key, signed_by: by } = data, id = hex(await keyId(this.origin, fromBase64(key)));
    wrongIf(id !== data.id, "the id of the key is not made from the key");
    wrongIf(by !== key && by !== this.inForce(), "a key that was not in force vouches for the key");
    this.keys.push({ key, id, isVouched: this.keys.length === 0 || by !== key, isRevoked: false });
  }

  async revoke(data) {
    await this.aboutKey("revoked", data);
    wrongIf(data.signed_by !== this.inForce(), "a key that was not in force revokes the key");
    for (const known of this.keys) known.isRevoked ||= known.key === data.public_key;
  }

  async take(frame, data) {
    const key = this.inForce();
    wrongIf(key === null || this.keys.at(-1).id !== data.key, "the checkpoint is signed by a key that was not in force");
    const text = await signedText(data.note, this.origin, fromBase64(key));
    wrongIf(text === null, "the signature of the checkpoint is not that of its key");
    const { origin, size, root } = readCheckpoint(text);
    const same = origin === data.origin && origin === this.origin && size === data.size && root === data.root;
    wrongIf(!same, "the signed note says something else than its frame");
    const peaks = data.frontier.map(fromHex);
    const bits = size.toString(2).replaceAll("0", "").length;
    let top = peaks.pop() ?? await sha256(new Uint8Array());
    const count = size === 0 ? 0 : peaks.length + 1;
    while (peaks.length) top = await above(peaks.pop(), top);
    const isOfRoot = count === bits && hex(top) === root && data.frontier.length === bits;
    wrongIf(!isOfRoot, "the frontier of the checkpoint is not that of its root");
    this.count += 1;
    this.signer = this.keys.length - 1;
    this.last = frame.position;
    const isOfFrames = (this.roots.get(size) ?? root) === root;
    wrongIf(!isOfFrames, `the first ${size} frames are not those that were signed`);
    wrongIf(size >= frame.position, "the checkpoint comes before some of its frames");
  }

  cover() {
    if (!this.isCovered) throw new NotCovered("WebCrypto of this browser has no Ed25519");
  }

  // ---- Claims ----
  inclusionClaim() {
    if (this.treeWrong ?? this.wrong) throw this.treeWrong ?? this.wrong;
    const { frames, tree } = this.evidence;
    if (tree.size === 0) throw new NotCovered(UNSIGNED);
    this.cover();
    const later = frames.find(({ position }) => position > tree.size && position !== this.last);
    if (later) throw new NotCovered("it came after the last checkpoint", idOf(later));
    return `in the tree of ${counted(tree.size, "frame")}; the time of the last checkpoint is not proven`;
  }

  signaturesClaim() {
    this.cover();
    if (this.wrong) throw this.wrong;
    if (this.count === 0) throw new NotCovered(UNSIGNED);
    return counted(this.count, "checkpoint");
  }

  rotationClaim() {
    this.cover();
    if (this.keyWrong) throw this.keyWrong;
    const alone = this.keys.find((known) => !known.isVouched);
    if (alone) throw new NotCovered(`no earlier key vouches for the key ${alone.id}`);
    const more = this.keys.length > 1 ? ", each vouched for by the one before" : "";
    return counted(this.keys.length, "key") + more;
  }

  keyClaim() {
    if (!this.wanted) throw new NotCovered("operator-asserted only: no public key was given");
    this.cover();
    wrongIf(this.signer === null, "nothing is signed");
    const known = this.keys.slice(0, this.signer + 1), { name, key } = this.wanted;
    const first = name === this.origin ? known.findLastIndex((one) => one.key === key) : -1;
    wrongIf(first < 0, "no key up to the one that signed last is the one that was given");
    const line = known.slice(first), revoked = line.find((one) => one.isRevoked);
    wrongIf(revoked, `the key ${revoked?.id} is revoked: it vouches for nothing`);
    const vouched = line.slice(1).every((one) => one.isVouched);
    wrongIf(!vouched, "the key that was given does not vouch for the one that signed");
    return "the key that was given, or one it vouches for, signed";
  }

  heldClaim() {
    if (!this.held.length) throw new NotCovered("no checkpoint kept elsewhere was given");
    for (const { origin, size, root } of this.held) {
      const known = origin === this.origin && this.roots.get(size) === root;
      wrongIf(!known, `the checkpoint over ${size} frames of ${origin} is not of this ledger`);
    }
    return `the ledger continues from ${counted(this.held.length, "given checkpoint")}`;
  }
}
