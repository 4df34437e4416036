// The page: takes an archive and what to check it against, and shows the verdicts.

import { NOT_HERE } from "./claims.js";
import { startWorker } from "./worker.js";

const MAX_SHOWN = 2000;
const VERDICTS = { failed: ["\u2715", "failed"], not_covered: ["\u25cb", "not covered"], proven: ["\u25cf", "proven"] };
const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}]/gu;

/** Text from an archive, with what cannot be seen made visible. */
function visible(text) {
  const shown = text.slice(0, MAX_SHOWN).replace(HIDDEN, (char) => `\\u{${char.codePointAt(0).toString(16)}}`);
  return text.length > MAX_SHOWN ? `${shown}\u2026 (${text.length - MAX_SHOWN} more characters)` : shown;
}

function element(name, className, ...children) {
  const made = document.createElement(name);
  made.className = className;
  made.append(...children);
  return made;
}

function summary(name, { claims, sound, frames, streams, origin }) {
  const named = (verdict) => claims.filter((one) => one.verdict === verdict).map(({ claim }) => claim).join(", ");
  const open = named("not_covered");
  const first = sound ? "nothing failed" : `verification failed: ${named("failed")}`;
  return element("div", sound ? "verdict" : "verdict failed",
    element("h2", "", `${visible(name)}: ${first}`),
    element("p", "", `Proven: ${named("proven") || "nothing"}. `, element("strong", "", `Not covered: ${open || "nothing"}.`)),
    element("p", "dim", `${frames} frames of ${streams} streams, ${visible(origin)}`));
}

/** What failed comes first, and what this page does not check at all comes last. */
function table(claims) {
  const order = Object.keys(VERDICTS);
  const rank = ({ claim, verdict }) => (claim in NOT_HERE ? order.length : order.indexOf(verdict));
  const rows = [...claims].sort((a, b) => rank(a) - rank(b)).map(({ claim, verdict, reason, frame }) => {
    const name = element("th", "", claim);
    name.scope = "row";
    return element("tr", verdict, element("td", "mark", VERDICTS[verdict].join(" ")), name,
      element("td", "", visible(frame ? `${frame}: ${reason}` : reason)));
  });
  return element("table", "", element("tbody", "", ...rows));
}

function startPage() {
  // The worker runs this very script, from memory: the file needs no other, and loads none.
  const url = URL.createObjectURL(new Blob([document.currentScript.textContent], { type: "text/javascript" }));
  const policy = globalThis.trustedTypes?.createPolicy("ktsu-verify", { createScriptURL: () => url });
  const place = (id) => document.getElementById(id);
  place("origin").textContent = location.protocol === "file:"
    ? "This copy was opened from a disk. Compare its SHA-256 before you rely on it."
    : `This copy was served by ${location.host}. It proves nothing against those who run ${location.host}.`;
  let worker = null;
  const show = (status, ...result) => {
    place("status").textContent = status;
    place("result").replaceChildren(...result);
  };
  place("given").addEventListener("submit", async (event) => {
    event.preventDefault();
    const [file, held] = [place("archive").files[0], place("held").files[0]];
    worker?.terminate();
    worker = new Worker(policy?.createScriptURL("") ?? url);
    show("Reading…");
    const end = (status, ...result) => {
      worker.terminate();
      show(status, ...result);
    };
    worker.onerror = (event) => end(`No verdict: ${visible(event.message ?? "the worker stopped")}`);
    worker.onmessage = ({ data: { progress, report, error } }) => {
      if (progress) place("status").textContent = `Reading… ${progress}`;
      else if (error !== undefined) end(`No verdict: ${visible(error)}`);
      else end("Done.", summary(file.name, report), table(report.claims));
    };
    worker.postMessage({ file, held: held ? await held.text() : "", key: place("key").value });
  });
}

if (typeof document !== "undefined") startPage();
else if (typeof FileReaderSync !== "undefined") startWorker();
