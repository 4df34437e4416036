// The frames of an archive: what each is, and whether they make the chains that they say.

import { Archive, Unreadable, Wrong, ascii, check, concat, sha256, unreadableIf, utf8, wrongIf } from "./archive.js";
import { blake3 } from "./blake3.js";
import { hasMembers, isCount, readJson } from "./json.js";

const MAX_BODY = 256 * 1024, MAX_LINE = 1024, MAX_FRAMES = 2_000_000, MAX_FORKS = 10_000;
const ZERO = "0".repeat(64);
const ID = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}";
export const HASH = /^[0-9a-f]{64}$/;
const NUMBER = /^(0|[1-9][0-9]{0,15})$/;
const ACTOR = new RegExp(`^(orchestrator|runtime|gateway|cli|(responder|principal):${ID})$`);
const STREAM = new RegExp(
  `^(store|(run|branch|eval|recompute|kv|subscription|delivery):${ID})$`);
const TIME = /^([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})\.[0-9]{6}Z$/;
/** The types of frames that are about the ledger itself. */
const OF_STORE = [
  "store.opened", "store.recovered", "run.head", "checkpoint.signed", "signing_key.added",
  "signing_key.revoked", "hold.placed", "hold.lifted", "run.removed"];
const MEMBERS = "v stream seq type scope actor cause at data ext prev";
const KINDS = {
  v: "integer", stream: "string", seq: "integer", type: "string", scope: "string", actor: "string",
  cause: "list", at: "string", data: "object", ext: "list", prev: "string" };
const COLUMNS = "position,stream,seq,hash";

/** A frame as reports name it. */
export function idOf(frame) { return `${frame.stream}#${frame.seq}`; }

/** A number below 2^53 in its canonical spelling; else null. */
export function numberOf(text) {
  return NUMBER.test(text) && Number.isSafeInteger(Number(text)) ? Number(text) : null;
}

/** Whether a text is a time that exists. */
function isTime(text) {
  const found = TIME.exec(text);
  const at = found && new Date(`${found[1]}Z`);
  return Boolean(at) && at.getTime() >= 0 && at.toISOString().startsWith(found[1]);
}

/** A cause: the number of a frame of the same stream, or stream and number. */
function causeOf(cause) {
  if (isCount(cause)) return { seq: cause };
  check(typeof cause === "string");
  const at = cause.lastIndexOf("#"), seq = numberOf(cause.slice(at + 1));
  check(at > 0 && STREAM.test(cause.slice(0, at)) && seq !== null);
  return { stream: cause.slice(0, at), seq };
}

function checkBody(body) {
  check(hasMembers(body, KINDS) && Object.keys(body).join(" ") === MEMBERS && body.v === 1);
  check(ACTOR.test(body.actor) && isTime(body.at) && HASH.test(body.prev));
  body.cause.forEach(causeOf);
  for (const external of body.ext) {
    check(hasMembers(external, { bytes: "integer", hash: "string", path: "string" }));
    check(external.bytes >= 0 && HASH.test(external.hash));
  }
}

/** An archive, taken apart, and what it shows of itself. */
export class Evidence {
  /** `progress` is called with the number of frames that were read. */
  static async read(source, progress) {
    const evidence = new Evidence(new Archive(source));
    try {
      for (const [cells, place] of evidence.rows()) {
        await evidence.take(cells, place);
        progress(evidence.frames.length);
      }
      evidence.follow();
    } catch (error) {
      if (!(error instanceof Wrong)) throw error;
      evidence.chainWrong ??= error;
    }
    return evidence;
  }

  constructor(files) {
    this.files = files;
    this.manifest = files.document("manifest.json");
    this.tree = files.document("proofs/tree.json");
    try {
      this.checkManifest();
    } catch (error) {
      throw new Unreadable(`manifest or proof: ${error.message}`);
    }
    this.origin = this.manifest.origin;
    this.streams = this.manifest.streams;
    /** The frames in the order of appending, and the same by stream and number. */
    this.frames = [];
    this.places = new Map();
    /** The hashes of the leaves of the tree, by their numbers. */
    this.leaves = new Map();
    this.parents = new Map();
    this.path = { stream: null, parts: [] };
    /** The blobs that frames name, and the number of causes in streams that are not here. */
    this.blobs = new Set();
    this.outside = 0;
    this.chainWrong = this.causeWrong = this.blobWrong = null;
  }

  /** Whether manifest and proof have their members, and no others. */
  checkManifest() {
    const { manifest, tree } = this;
    check(hasMembers(manifest, {
      all: "boolean", engine: "string", files: "object", format: "integer", origin: "string",
      runs: "list", streams: "object" }));
    check(hasMembers(tree, { format: "integer", hashes: "list", size: "integer" }));
    check(manifest.format === 1 && tree.format === 1 && tree.size >= 0);
    check(manifest.runs.every((run) => typeof run === "string"));
    check(tree.hashes.every((hash) => HASH.test(hash)));
    for (const file of Object.values(manifest.files)) {
      check(hasMembers(file, { blake3: "string", bytes: "integer", sha256: "string" }, "derived"));
      check(file.bytes >= 0 && typeof (file.derived ?? true) === "boolean");
    }
    for (const part of Object.values(manifest.streams)) {
      check(hasMembers(part, { first: "integer", frames: "integer", head: "string" }));
      check(part.first >= 0 && part.frames >= 0 && HASH.test(part.head));
    }
  }

  /** The lines of both tables, side by side. */
  * rows() {
    const { files } = this;
    for (const name of ["frames.csv", "frames.jsonl"]) wrongIf(!files.has(name), `${name} is missing`);
    const places = files.lines("frames.csv"), bodies = files.lines("frames.jsonl");
    const text = ({ begin, length }) => ascii(files.part(begin, length));
    const columns = places.next().value;
    const right = columns && columns.length === COLUMNS.length && text(columns) === COLUMNS;
    wrongIf(!right, `frames.csv does not begin with ${COLUMNS}`);
    for (const line of places) {
      const body = bodies.next().value;
      wrongIf(!body, "frames.jsonl has fewer lines than frames.csv");
      wrongIf(line.length > MAX_LINE, "frames.csv is damaged");
      const cells = text(line).split(",");
      const [position, seq] = [numberOf(cells[0]), numberOf(cells[2])];
      const read = cells.length === 4 && position > 0 && seq !== null && HASH.test(cells[3]);
      wrongIf(!read, "frames.csv is damaged");
      unreadableIf(this.frames.length >= MAX_FRAMES, "too many frames for a page: use ktsu evidence verify");
      yield [{ position, stream: cells[1], seq, hash: cells[3] }, body];
    }
    wrongIf(!bodies.next().done, "frames.jsonl has more lines than frames.csv");
  }

  /** Takes one frame; one that does not read is reported once, and left out. */
  async take(cells, { begin, length }) {
    const frame = { ...cells, begin, length };
    const id = idOf(frame), last = this.frames.at(-1)?.position ?? 0;
    const body = this.note("chainWrong", () => {
      const read = this.readFrame(frame, id);
      wrongIf(frame.position <= last, "its position is not above the one before", id);
      wrongIf(this.frame(frame.stream, frame.seq), "it is there twice", id);
      return read;
    });
    if (!body) return;
    this.note("causeWrong", () => this.checkCauses(frame, body.cause, id));
    this.note("blobWrong", () => this.checkBlobs(body.ext, id));
    this.frames.push(frame);
    const stream = this.places.get(frame.stream) ?? new Map();
    this.places.set(frame.stream, stream.set(frame.seq, frame));
    if (frame.position > this.tree.size) return;
    const bytes = this.files.part(begin, length);
    this.leaves.set(frame.position - 1, await sha256(concat([0], bytes)));
  }

  /** Does something, and keeps the first thing that speaks against a claim. */
  note(name, act) {
    try {
      return act();
    } catch (error) {
      if (!(error instanceof Wrong)) throw error;
      this[name] ??= error;
      return null;
    }
  }

  checkCauses(frame, causes, id) {
    for (const cause of causes) {
      const { stream, seq } = causeOf(cause);
      const reason = `it names the cause ${cause}, which is not an earlier frame`;
      if (stream === undefined) wrongIf(seq >= frame.seq, reason, id);
      else if (stream in this.streams) wrongIf(!this.frame(stream, seq), reason, id);
      else this.outside += frame.stream === "store" ? 0 : 1;
    }
  }

  checkBlobs(blobs, id) {
    for (const { bytes, hash } of blobs) {
      const name = `blobs/${hash}.json`, { files } = this;
      this.blobs.add(name);
      const right = files.has(name) && files.size(name) === bytes && files.blake3(name) === hash;
      wrongIf(!right, `the blob ${hash} is missing or another`, id);
    }
  }

  /** What a frame says, if it is one. */
  readFrame(frame, id) {
    wrongIf(!STREAM.test(frame.stream), "it is of no stream", id);
    wrongIf(frame.length > MAX_BODY, "it is larger than a frame may be", id);
    const bytes = this.files.part(frame.begin, frame.length);
    wrongIf(blake3(bytes) !== frame.hash, "its hash is not that of its bytes", id);
    let body;
    try {
      body = readJson(utf8.decode(bytes), true);
      checkBody(body);
    } catch (error) {
      throw new Wrong(`it is not a frame: ${error.message}`, id);
    }
    const same = body.stream === frame.stream && body.seq === frame.seq;
    wrongIf(!same, "its bytes say another stream or number", id);
    const misplaced = OF_STORE.includes(body.type) && frame.stream !== "store";
    wrongIf(misplaced, "it speaks of the ledger, and is not in the stream store", id);
    frame.type = body.type;
    frame.prev = body.prev;
    return body;
  }

  /** What a frame says, read again. */
  body(frame) {
    return readJson(utf8.decode(this.files.part(frame.begin, frame.length)), true);
  }

  /** The frames of some types with what they say. */
  * ofTypes(...types) {
    for (const frame of this.frames) {
      if (types.includes(frame.type)) yield [frame, this.body(frame)];
    }
  }

  frame(stream, seq) { return this.places.get(stream)?.get(seq); }

  /** Where a branch was forked; null for a stream that has no parent. */
  parent(stream) {
    if (!this.parents.has(stream)) this.parents.set(stream, this.readParent(stream));
    return this.parents.get(stream);
  }

  readParent(stream) {
    const first = this.frame(stream, this.streams[stream]?.first);
    if (first?.type !== "branch.created") return null;
    const { parent_run_id: name, fork_position: position } = this.body(first).data;
    wrongIf(typeof name !== "string" || !isCount(position), "it has no parent", idOf(first));
    return { stream: (name.startsWith("branch_") ? "branch:" : "run:") + name, position };
  }

  /** The streams that hold the frames of a stream with all that it shares, its own first, each with
   * the number from which on. */
  parts(stream) {
    const parts = [];
    let until = Infinity;
    for (let forks = 0; forks <= MAX_FORKS && until > 0; forks += 1) {
      const first = this.streams[stream]?.first ?? Infinity;
      if (first < until) {
        until = first;
        parts.push({ first, stream });
      }
      const above = this.parent(stream);
      if (!above) break;
      stream = above.stream;
    }
    return parts;
  }

  /** A frame of a stream with all that it shares, wherever it is kept. */
  shared(stream, seq) {
    if (this.path.stream !== stream) this.path = { stream, parts: this.parts(stream) };
    const part = this.path.parts.find(({ first }) => first <= seq);
    return part && this.frame(part.stream, seq);
  }

  /** Whether each stream is one chain from its beginning. */
  follow() {
    const ranges = new Map();
    for (const frame of this.frames) {
      let seen = ranges.get(frame.stream);
      const next = seen ? { seq: seen.first + seen.frames, hash: seen.head } : this.beginning(frame);
      wrongIf(frame.seq !== next.seq, `its number is not ${next.seq}, which comes next`, idOf(frame));
      wrongIf(frame.prev !== next.hash, "it does not follow from the frame before it", idOf(frame));
      if (!seen) ranges.set(frame.stream, seen = { first: frame.seq, frames: 0 });
      seen.frames += 1;
      seen.head = frame.hash;
    }
    const same = ([stream, range]) => {
      const named = this.streams[stream];
      return named && ["first", "frames", "head"].every((name) => named[name] === range[name]);
    };
    const all = ranges.size === Object.keys(this.streams).length && [...ranges].every(same);
    wrongIf(!all, "the manifest names other streams, or more of them");
  }

  /** The number and the hash that the first frame of a stream follows from. */
  beginning(frame) {
    const parent = frame.type === "branch.created" ? this.parent(frame.stream) : null;
    if (!parent || parent.position === 0) return { seq: 0, hash: ZERO };
    const seq = parent.position, last = this.shared(parent.stream, Number(seq) - 1);
    wrongIf(!last, "the frame it was forked from is not in the archive", idOf(frame));
    return { seq, hash: last.hash };
  }
}
