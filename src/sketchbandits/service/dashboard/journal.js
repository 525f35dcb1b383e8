/** Facts about the log and the policy's settings, and a warning where records had to be cut off. */

import { element, setText } from "./elements.js";
import { NONE, bytes, count, date, setting } from "./numbers.js";

function said(value) {
  if (value === null) return NONE;
  if (typeof value === "number") return setting(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** `theta_norm` as "Theta norm". */
function words(name) {
  return (name.charAt(0).toUpperCase() + name.slice(1)).replaceAll("_", " ");
}

function fact() {
  return element("div", {}, element("dt"), element("dd"));
}

/** In place, as `Table` does it. */
function fill(list, facts) {
  while (list.children.length > facts.length) list.lastChild.remove();
  facts.forEach(([name, value], i) => {
    const node = list.children[i] ?? list.appendChild(fact());
    setText(node.firstChild, name);
    setText(node.lastChild, value);
  });
}

function snapshot({ records, snapshot }) {
  return snapshot > 0 ? `at record ${count(snapshot)}, ${count(records - snapshot)} since` : "none yet";
}

export class Journal {
  #log;
  #policy;
  #warning;

  constructor(log, policy, warning) {
    this.#log = log;
    this.#policy = policy;
    this.#warning = warning;
  }

  show(bandit, policy, log) {
    fill(this.#policy, [
      ["Policy", policy.policy],
      ["Memory", bytes(policy.memory_bytes)],
      ["Created", date(bandit.created)],
      ...Object.entries(policy.settings).map(([name, value]) => [words(name), said(value)]),
    ]);
    fill(this.#log, [
      ["Records", count(log.records)],
      ["Last snapshot", snapshot(log)],
      ["Cut records", count(log.cut)],
    ]);
    this.#warn(log.cut);
  }

  #warn(cut) {
    this.#warning.hidden = cut === 0;
    const records = cut === 1 ? "1 damaged record was" : `${count(cut)} damaged records were`;
    const origin = "cut from the end of the log when the service started";
    setText(this.#warning, `${records} ${origin}. What is shown is the state before them.`);
  }
}
