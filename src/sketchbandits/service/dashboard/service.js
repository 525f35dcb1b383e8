/** Reads the service: every request is a GET to where this page came from, with the key if there is one. */

const KEY = "sketchbandits-key";
const PATIENCE = 10_000; // milliseconds

/** The service wants a key, or another one. */
export class KeyNeeded extends Error {}

/** No usable answer came. */
export class Unreachable extends Error {}

// Kept for this tab and no longer: not in localStorage, a cookie or the address.
export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

function address(path, query) {
  const url = new URL(`v1/${path}`, document.baseURI);
  url.hash = "";
  url.search = new URLSearchParams(query);
  return url;
}

async function ask(url, signal) {
  const headers = key.get() === null ? {} : { Authorization: `Bearer ${key.get()}` };
  const limit = AbortSignal.any([signal, AbortSignal.timeout(PATIENCE)]);
  const response = await fetch(url, { headers, signal: limit, cache: "no-store", credentials: "same-origin" });
  if (response.status === 401) throw new KeyNeeded();
  if (!response.ok) throw new Unreachable(`it answered ${response.status}`);
  return response.json();
}

/** The JSON under `/v1/path`; `KeyNeeded` or `Unreachable` where there is none. */
export async function get(path, query, signal) {
  try {
    return await ask(address(path, query), signal);
  } catch (error) {
    if (error instanceof KeyNeeded || error instanceof Unreachable) throw error;
    throw new Unreachable(error.name === "TimeoutError" ? "it did not answer in time" : "no answer");
  }
}
