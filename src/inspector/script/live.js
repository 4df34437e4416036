// Keeps what is shown up to date. A page works without it: it is then as old as its last load.
//
// All tabs of a browser share one stream of changes, because browsers open few connections to a server at once: the
// tab that holds the lock reads it, and passes what comes to the others. If that tab is closed, another takes over,
// from the position that all of them know.

const root = new URL(".", import.meta.url);
const name = `ktsu ${root.href}`;
const channel = new BroadcastChannel(name);
const subject = document.querySelector("[data-live]")?.dataset.live ?? "";

const FIRST_WAIT = 500;
const LAST_WAIT = 10_000;
const BETWEEN_REFRESHES = 1_000;
/** The answers to those who may not see it, or not any more. */
const ENDED = [401, 403, 404];

let position = null;
let shownState = "";
let isFollowed = false;

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/** Reads the stream for all tabs for as long as this tab lives, or until it is not wanted. */
async function follow(unwanted) {
  let wait = FIRST_WAIT;
  while (!unwanted?.aborted) {
    let state = "offline";
    try {
      const headers = position === null ? {} : { "Last-Event-ID": position };
      const request = { headers, cache: "no-store", signal: unwanted };
      const response = await fetch(new URL("live", root), request);
      if (ENDED.includes(response.status)) state = "ended";
      if (response.ok) {
        state = "live";
        announce({ state });
        wait = FIRST_WAIT;
        await events(response.body.pipeThrough(new TextDecoderStream()));
      }
    } catch {
      // The connection was lost; the next one begins where this one ended. It is said if that does not succeed.
    }
    if (unwanted?.aborted) return;
    announce({ state });
    if (state === "ended") return;
    await pause(wait);
    wait = Math.min(wait * 2, LAST_WAIT);
  }
}

/** Reads events as they come: lines of `id:` and `data:`, an empty line behind each event. */
async function events(stream) {
  let text = "";
  for await (const piece of stream) {
    text += piece;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const lines = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      const of = (field) => lines.find((line) => line.startsWith(`${field}: `))?.slice(field.length + 2);
      if (of("event") !== undefined || of("data") === undefined) continue;
      announce({ position: of("id"), changes: JSON.parse(of("data")) });
    }
  }
}

function announce(message) {
  channel.postMessage(message);
  take(message);
}

function take({ position: reached, changes, state }) {
  if (state) show(state);
  if (reached) position = reached;
  if (!changes) return;
  badge(changes.asks);
  const named = [...changes.runs.map((run) => run.run_id), ...changes.removed];
  const isConcerned = {
    "": () => false,
    runs: () => named.length > 0 || changes.more,
    inbox: () => named.length > 0 || changes.more,
    kit: () => changes.kit,
  }[subject] ?? (() => changes.more || named.includes(subject));
  if (isConcerned()) refresh();
}

/** How many questions wait for people, beside the link to them. */
function badge(asks) {
  const link = document.querySelector("a[data-badge]");
  if (!link) return;
  let count = link.querySelector(".badge");
  if (!asks) return count?.remove();
  if (!count) {
    count = document.createElement("span");
    count.className = "badge";
    link.append(" ", count);
  }
  count.textContent = asks;
}

/** Whether changes are seen; said aloud where they are not. */
function show(state) {
  if (state === shownState) return;
  // What happened since the page was made and before changes are seen is in none of them.
  // An engine that serves again may serve another kit.
  if (state === "live" && subject && (!isFollowed || subject === "kit")) {
    isFollowed = true;
    refresh();
  }
  shownState = state;
  const place = document.querySelector("[data-state]");
  if (!place || !subject) return;
  const words = { live: "live", offline: "not connected; trying again", ended: "signed out; reload the page" };
  place.textContent = words[state];
  place.className = `state ${state}`;
  place.setAttribute("aria-live", state === "live" ? "off" : "polite");
}

let lastRefresh = 0;
let isStale = false;
let isRefreshing = false;

/**
 * Loads the page again and replaces the parts that changed, not more often than once a second, once it is seen. One
 * load follows the other, and one that failed is tried again: what is shown is never older than what was seen before.
 */
async function refresh() {
  isStale = true;
  if (isRefreshing) return;
  isRefreshing = true;
  let wait = BETWEEN_REFRESHES;
  while (isStale) {
    await pause(Math.max(0, lastRefresh + wait - performance.now()));
    if (document.hidden) {
      await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
    }
    isStale = false;
    lastRefresh = performance.now();
    try {
      replace(await load());
      wait = BETWEEN_REFRESHES;
    } catch (status) {
      isStale = !ENDED.includes(status);
      wait = Math.min(wait * 2, LAST_WAIT);
    }
  }
  isRefreshing = false;
}

/** The same page as it is now. What `XMLHttpRequest` parses runs nothing. */
function load() {
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    request.open("GET", location.href);
    request.responseType = "document";
    request.onload = () => (request.status === 200 ? done(request.response) : failed(request.status));
    request.onerror = failed;
    request.send();
  });
}

/** True where a person types. */
const isEdited = (part) =>
  [...part.querySelectorAll("input, textarea, select")].some(
    (field) =>
      field === document.activeElement ||
      (field.type === "checkbox" || field.type === "radio"
        ? field.checked !== field.defaultChecked
        : field.tagName !== "SELECT" && field.value !== field.defaultValue),
  );

function replace(loaded) {
  for (const part of document.querySelectorAll("[data-part]")) {
    const next = loaded.querySelector(`[data-part="${part.dataset.part}"]`);
    if (!next || isEdited(part)) continue;
    const fresh = document.importNode(next, true);
    const open = [...part.querySelectorAll("details")].map((one) => one.open);
    [...fresh.querySelectorAll("details")].forEach((one, place) => (one.open ||= open[place] ?? false));
    if (!part.isEqualNode(fresh)) keep(part, fresh);
  }
}

/** Puts a part in place of another, with what is focused and scrolled in it. */
function keep(part, fresh) {
  const focused = part.contains(document.activeElement) ? document.activeElement : null;
  const all = [...part.querySelectorAll("a, button, summary, [tabindex]")];
  const place = all.indexOf(focused);
  const scrolls = [...part.querySelectorAll(".scroll, pre")].map((one) => [one.scrollLeft, one.scrollTop]);
  part.replaceWith(fresh);
  [...fresh.querySelectorAll(".scroll, pre")].forEach((one, at) => {
    [one.scrollLeft, one.scrollTop] = scrolls[at] ?? [0, 0];
  });
  if (!focused) return;
  const now = [...fresh.querySelectorAll("a, button, summary, [tabindex]")];
  const link = focused.getAttribute("href");
  const same = link ? now.find((one) => one.getAttribute("href") === link) : null;
  (same ?? now[place])?.focus({ preventScroll: true });
}

// A slider moves the number of its form, and shows the page of it once it is let go.
for (const slider of document.querySelectorAll("input[data-slides]")) {
  const number = slider.form.elements[slider.dataset.slides];
  slider.hidden = false;
  slider.addEventListener("input", () => (number.value = slider.value));
  slider.addEventListener("change", () => slider.form.requestSubmit());
}

// A part of the time of a run is selected on its axis by dragging. The axis says where its parts begin: `MS:PLACE`, in
// thousandths of its width, between which it is even.
let drag = null;
let hasDragged = false;

const placeOn = (axis, event) => {
  const box = axis.getBoundingClientRect();
  return Math.min(1000, Math.max(0, ((event.clientX - box.left) / box.width) * 1000));
};

const timeAt = (axis, place) => {
  const points = axis.dataset.scale.split(" ").map((point) => point.split(":").map(Number));
  const after = Math.max(1, points.findIndex(([, x]) => x >= place));
  const [[from, left], [until, right]] = [points[after - 1], points[after]];
  return Math.round(from + (right > left ? ((place - left) / (right - left)) * (until - from) : 0));
};

document.addEventListener("pointerdown", (event) => {
  const axis = event.target.closest?.("svg[data-scale]");
  hasDragged = false;
  if (!axis || event.button !== 0) return;
  const mark = document.createElementNS(axis.namespaceURI, "rect");
  mark.setAttribute("class", "chosen");
  mark.setAttribute("height", "100%");
  drag = { axis, mark, begin: placeOn(axis, event) };
});
document.addEventListener("pointermove", (event) => {
  if (!drag) return;
  const { axis, mark, begin } = drag;
  const end = placeOn(axis, event);
  const from = Math.min(begin, end);
  drag.range = [from, Math.max(begin, end)];
  if (drag.range[1] - from < 10) return;
  hasDragged = true;
  mark.setAttribute("x", `${from / 10}%`);
  mark.setAttribute("width", `${(drag.range[1] - from) / 10}%`);
  axis.prepend(mark);
});
document.addEventListener("pointerup", () => {
  if (!drag) return;
  const { axis, mark, range } = drag;
  drag = null;
  mark.remove();
  if (!hasDragged) return;
  const [from, until] = range.map((place) => timeAt(axis, place));
  const address = new URL(location.href);
  address.searchParams.set("from", from);
  address.searchParams.set("until", Math.max(until, from + 1));
  location.assign(address);
});
document.addEventListener("pointercancel", () => {
  drag?.mark.remove();
  drag = null;
});
// The end of a drag is no click on what lies below it.
document.addEventListener("click", (event) => hasDragged && event.target.closest?.("svg[data-scale]") && event.preventDefault());
document.addEventListener("dragstart", (event) => event.target.closest?.("svg[data-scale]") && event.preventDefault());

// A form that can be checked says what is wrong with it, or what will follow, once a person stops typing: below the
// field that was typed into.
const BEFORE_CHECK = 350;
for (const form of document.querySelectorAll("form[data-checks]")) {
  let timer;
  let request;
  form.addEventListener("input", ({ target }) => {
    clearTimeout(timer);
    request?.abort();
    timer = setTimeout(() => (request = check(form, target)), BEFORE_CHECK);
  });
}

/** Sends a form to be checked, and shows the answer in it. Nothing is recorded. */
function check(form, field) {
  const fields = new URLSearchParams(new FormData(form));
  fields.set("dry_run:json", "true");
  fields.set("_part", "verdict");
  const request = new XMLHttpRequest();
  request.open("POST", form.action);
  request.responseType = "document";
  request.onload = () => {
    const verdict = request.response?.querySelector("[data-verdict]");
    if (!verdict) return;
    const place = form.querySelector("[data-verdict]");
    if (field.tagName === "TEXTAREA" && field.nextElementSibling !== place) field.after(place);
    place.replaceChildren(...document.importNode(verdict, true).childNodes);
  };
  request.send(fields);
  return request;
}

channel.addEventListener("message", ({ data }) => {
  if (data === "who") {
    if (shownState) channel.postMessage({ state: shownState, position });
  } else {
    take(data);
  }
});
// A tab that opens learns how things are from those that are there.
channel.postMessage("who");
if (navigator.locks) {
  navigator.locks.request(name, () => follow());
} else {
  followWhileSeen();
}

/** Without locks, which browsers have only for safe connections, each tab that is seen reads for itself. */
async function followWhileSeen() {
  for (;;) {
    const changed = () => new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
    if (document.hidden) {
      await changed();
      continue;
    }
    const unwanted = new AbortController();
    const followed = follow(unwanted.signal);
    await changed();
    unwanted.abort();
    await followed;
  }
}
