/**
 * Reads the service: every request is a GET to where this page came from, with the key if there is one.
 *
 * A key that has asked too often waits for as long as the service says. Requests that wait are sent one after the
 * other, so that a key that may send one request per second sees every part of the page.
 */

const KEY = "sketchbandits-key";
const PATIENCE = 10_000; // milliseconds, for an answer
const LEAST_WAIT = 1000;
// What the service says about itself with status 503.
const REASONS = {
  busy: "it is busy",
  not_ready: "it is starting or stopping",
  stopping: "it is stopping",
  storage: "its log cannot be written",
};

let allowedAt = 0; // by the clock of the page: the key may not ask before
let turn = Promise.resolve(); // of requests that wait
let told = () => {};

/** The service wants a key, or another one. */
export class KeyNeeded extends Error {}

/** No usable answer came; `pause` milliseconds should pass before the next question. */
export class Unreachable extends Error {
  constructor(message, pause = 0) {
    super(message);
    this.pause = pause;
  }
}

// Kept for this tab and no longer: not in localStorage, a cookie or the address.
export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => {
    allowedAt = 0;
    sessionStorage.setItem(KEY, value);
  },
  forget: () => sessionStorage.removeItem(KEY),
};

/** `limited(milliseconds)` is called whenever the key has asked too often. */
export function whenLimited(limited) {
  told = limited;
}

function address(path, query) {
  const url = new URL(`v1/${path}`, document.baseURI);
  url.hash = "";
  url.search = new URLSearchParams(query);
  return url;
}

function send(url, signal) {
  const headers = key.get() === null ? {} : { Authorization: `Bearer ${key.get()}` };
  const limit = AbortSignal.any([signal, AbortSignal.timeout(PATIENCE)]);
  return fetch(url, { headers, signal: limit, cache: "no-store", credentials: "same-origin" });
}

/** Milliseconds for which the service asks; HTTP also allows a date, which it never sends. */
function retryAfter(response) {
  return 1000 * (Number(response.headers.get("Retry-After")) || 0);
}

/** Whether the key's limit refuses this request; then nothing is asked for a while. */
function isLimited(response) {
  if (response.status !== 429) return false;
  const wait = Math.max(retryAfter(response), LEAST_WAIT);
  allowedAt = performance.now() + wait;
  told(wait);
  return true;
}

function allowed(signal) {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const timer = setTimeout(resolve, allowedAt - performance.now());
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

async function sendUntilAllowed(url, signal) {
  for (;;) {
    await allowed(signal);
    const response = await send(url, signal);
    if (!isLimited(response)) return response;
  }
}

/** The answer, which is a refusal for another reason than the key's limit, or none. */
async function ask(url, signal) {
  if (performance.now() >= allowedAt) {
    const response = await send(url, signal);
    if (!isLimited(response)) return response;
  }
  turn = turn.catch(() => {}).then(() => sendUntilAllowed(url, signal));
  return turn;
}

async function reason(response) {
  const otherwise = `it answered ${response.status}`;
  try {
    return REASONS[(await response.json()).error.code] ?? otherwise;
  } catch {
    return otherwise;
  }
}

async function read(response) {
  if (response.status === 401) throw new KeyNeeded();
  if (!response.ok) throw new Unreachable(await reason(response), retryAfter(response));
  return response.json();
}

/** The JSON under `/v1/path`; `KeyNeeded` or `Unreachable` where there is none. */
export async function get(path, query, signal) {
  try {
    return await read(await ask(address(path, query), signal));
  } catch (error) {
    if (error instanceof KeyNeeded || error instanceof Unreachable) throw error;
    throw new Unreachable(error.name === "TimeoutError" ? "it did not answer in time" : "no answer");
  }
}
