// The claims about an archive: each is proven, not covered, or failed.

import { NotCovered, Unreadable, Wrong, counted, unreadableIf, wrongIf } from "./archive.js";
import { Evidence, idOf } from "./frames.js";
import { Signed, readHeld, readKey } from "./signed.js";

const ELSEWHERE = "this page does not check it: ktsu evidence verify and verify.py do";
const ONLY_KTSU = "this page does not check it: only ktsu evidence verify does";
/** The claims that this page does not check, and why. */
export const NOT_HERE = {
  extracts: ELSEWHERE, definitions: ELSEWHERE, lock: ELSEWHERE, verifier: ELSEWHERE, derived: ONLY_KTSU,
  outputs: ELSEWHERE, world: ELSEWHERE, replay: ONLY_KTSU, approvals: ELSEWHERE, tools: ELSEWHERE,
  evals: ELSEWHERE };

// In each of these, text is proven; what is wrong or not covered is thrown.
async function manifestClaim({ manifest: { files: listed }, files }, progress) {
  let large = null, done = 0;
  for (const name of files.names()) {
    progress(done += 1);
    if (name === "manifest.json") continue;
    const sha = await files.sha256(name), entry = listed[name];
    const right = entry && entry.bytes === files.size(name) && entry.blake3 === files.blake3(name)
      && (sha === null || entry.sha256 === sha) && (entry.derived ?? false) === name.startsWith("derived/");
    wrongIf(!right, `${name} is not as listed`);
    if (sha === null) large ??= name;
  }
  const missing = Object.keys(listed).find((name) => !files.has(name));
  wrongIf(missing !== undefined, `${missing} is missing`);
  if (large) throw new NotCovered(`${large} is larger than what this page can hash with SHA-256`);
  return counted(Object.keys(listed).length, "file");
}

function chainClaim({ chainWrong, frames, streams }) {
  if (chainWrong) throw chainWrong;
  return `${counted(frames.length, "frame")} of ${counted(Object.keys(streams).length, "stream")}`;
}

function causesClaim({ causeWrong, outside }) {
  if (causeWrong) throw causeWrong;
  if (outside) throw new NotCovered(`in other streams: ${counted(outside, "cause")}`);
  return "every cause is an earlier frame";
}

function blobsClaim({ blobWrong, blobs, files }) {
  if (blobWrong) throw blobWrong;
  for (const name of files.names()) {
    wrongIf(name.startsWith("blobs/") && !blobs.has(name), `no frame names ${name}`);
  }
  return counted(blobs.size, "blob");
}

function completenessClaim(evidence, signed) {
  const { frames, manifest, streams, tree } = evidence, headed = readHeads(evidence);
  const missing = manifest.runs.find((run) => !(run in streams));
  wrongIf(missing !== undefined, `${missing} was asked for and is not here`);
  const ends = new Map(frames.map((frame) => [frame.stream, frame.seq + 1]));
  const runs = [...ends].filter(([stream]) => /^(run|branch):/.test(stream));
  const open = runs.filter(([stream, end]) => headed.get(stream) !== end);
  if (open.length) {
    const which = `${counted(open.length, "run")} without a head after the last frame, such as ${open[0][0]}`;
    throw new NotCovered(`${which}: later frames could be missing`);
  }
  const words = `complete as of their heads: ${counted(headed.size, "run")}`;
  const leftOut = tree.size - frames.filter(({ position }) => position <= tree.size).length;
  if (leftOut > 0) {
    const more = "may include later frames, branches or recomputes of these runs";
    throw new NotCovered(`${words}; of the ledger left out: ${counted(leftOut, "frame")}, which ${more}`);
  }
  signed.cover();
  return words;
}

/** How many frames each run ended with, as the signed part of the ledger says. */
function readHeads(evidence) {
  const { manifest, streams, tree } = evidence, headed = new Map();
  const removed = new Set([...evidence.ofTypes("run.removed")].map(([, { data }]) => data.stream));
  for (const [frame, { data }] of evidence.ofTypes("run.head")) {
    const { stream, frames, hash, status } = data;
    if (!(stream in streams)) {
      const reason = `${stream} ended, and is not in an archive of all runs`;
      wrongIf(manifest.all && !removed.has(stream), reason, idOf(frame));
      continue;
    }
    const last = typeof frames === "number" ? evidence.shared(stream, frames - 1) : undefined;
    const reason = `${stream} does not have the ${frames} frames it ended with`;
    wrongIf(!last || last.hash !== hash, reason, idOf(frame));
    // What is not signed shows nothing, and a run that was resumed has not ended.
    if (frame.position <= tree.size && status !== "open") headed.set(stream, frames);
    else headed.delete(stream);
  }
  return headed;
}

/** A claim, and the verdict on it. */
async function judge(claim, decide) {
  try {
    return { claim, verdict: "proven", reason: await decide() };
  } catch (error) {
    if (error instanceof Unreadable) throw error;
    const verdict = error instanceof NotCovered ? "not_covered" : "failed";
    const known = verdict === "not_covered" || error instanceof Wrong;
    const reason = known ? error.message : `it cannot be read: ${error.message}`;
    return { claim, verdict, reason, ...(error.frame && { frame: error.frame }) };
  }
}

/** Checks an archive against the checkpoints and the key that are known from elsewhere, both perhaps
 * empty. `progress` is called with a text and a number. Throws where there is nothing to check. */
export async function verify(source, { held = "", key = "" }, progress = () => {}) {
  unreadableIf(!globalThis.crypto?.subtle, "this page has no WebCrypto: open verify.html from your disk");
  const given = async (what, read) => {
    try {
      return await read();
    } catch (error) {
      throw new Unreadable(`${what}: ${error.message}`);
    }
  };
  const checkpoints = held === "" ? [] : await given("the checkpoint", () => readHeld(held));
  const wanted = key.trim() === "" ? null : await given("the public key", () => readKey(key));
  const evidence = await Evidence.read(source, (count) => progress("frames", count));
  const signed = await Signed.of(evidence, checkpoints, wanted);
  const all = {
    manifest: () => manifestClaim(evidence, (count) => progress("files", count)),
    chain: () => chainClaim(evidence),
    causes: () => causesClaim(evidence),
    blobs: () => blobsClaim(evidence),
    completeness: () => completenessClaim(evidence, signed),
    inclusion: () => signed.inclusionClaim(),
    signatures: () => signed.signaturesClaim(),
    rotation: () => signed.rotationClaim(),
    key: () => signed.keyClaim(),
    held: () => signed.heldClaim(),
  };
  for (const [claim, reason] of Object.entries(NOT_HERE)) {
    all[claim] = () => { throw new NotCovered(reason); };
  }
  const claims = [];
  for (const [claim, decide] of Object.entries(all)) claims.push(await judge(claim, decide));
  return {
    claims, frames: evidence.frames.length, origin: evidence.origin,
    sound: claims.every(({ verdict }) => verdict !== "failed"), streams: Object.keys(evidence.streams).length };
}
