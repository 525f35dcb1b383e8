/** Says whether what is shown is true now. Changes alone are announced, not every refresh. */

import { setText } from "./elements.js";
import { clockSeconds, dayAndClock } from "./numbers.js";

const DAY = 86_400;
const NOTEWORTHY = 5; // seconds: shorter waits would make the status flicker

export class Status {
  #node;
  #updated;
  #content;
  #lostAt = null;

  constructor(node, updated, content) {
    this.#node = node;
    this.#updated = updated;
    this.#content = content;
  }

  live(now) {
    this.#lostAt = null;
    this.#say("live", "Live");
    setText(this.#updated, `updated ${clockSeconds(now)}`);
    this.#content.classList.remove("stale");
  }

  /** What is shown stays, in grey. */
  lost(now, reason) {
    this.#lostAt ??= now;
    const when = now - this.#lostAt < DAY ? clockSeconds(this.#lostAt) : dayAndClock(this.#lostAt);
    this.#say("lost", `Not reachable since ${when} (${reason})`);
    this.#content.classList.add("stale");
  }

  /** The key has asked too often: what is shown stays, and is not news any more. */
  limited(now, seconds) {
    if (seconds >= NOTEWORTHY) this.#say("limited", `Waits until ${clockSeconds(now + seconds)}: the key's limit`);
  }

  /** Something else was asked for: what is shown is no longer it. */
  waiting() {
    this.#content.classList.add("stale");
  }

  locked() {
    this.#say("locked", "Key needed");
    setText(this.#updated, "");
  }

  #say(state, words) {
    this.#node.dataset.state = state;
    setText(this.#node, words);
  }
}
