/** Facts about the log and the policy's settings, and warnings where the log needs somebody. */

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

/** Of the log as it is now, read again record by record while the service runs. */
function readAgain({ records, scrubbed }) {
  return scrubbed < records ? `${count(scrubbed)} of ${count(records)}` : `${count(scrubbed)} since the start`;
}

function range(limits) {
  return limits ? `${setting(limits[0])} to ${setting(limits[1])}` : "any";
}

/** Said only where there is something to say; the names are those of the log's fields. */
const WARNINGS = {
  refusing:
    "The log cannot be written: decisions and rewards are refused, and nothing changes. The service goes on by " +
    "itself once there is space on its disk, or its database answers.",
  damaged:
    "Parts of the log are damaged. Requests that need them are refused, all others are served. “sketchbandits log” " +
    "says what to do.",
  cut:
    "The end of the log was damaged and was cut off when the service started. What is shown is the state before it; " +
    "what was cut off is kept.",
};

const ASSUMPTIONS = "assumptions";

/** A parameter of the policy that its rewards contradict. */
function tooSmall({ parameter, given, seen, suggestion }) {
  const what = parameter === "noise" ? "rewards of one arm scatter by" : "the rewards imply a norm of at least";
  return (
    `${parameter} = ${setting(given)} looks too small: ${what} ${said(seen)}, so the bounds may not hold. ` +
    `${parameter} = ${said(suggestion)} would fit.`
  );
}

export class Journal {
  #log;
  #policy;
  #warnings;

  constructor(log, policy, warnings) {
    this.#log = log;
    this.#policy = policy;
    this.#warnings = warnings;
    for (const name of [...Object.keys(WARNINGS), ASSUMPTIONS]) warnings.append(element("p", { id: name, class: "warning", hidden: "" }));
  }

  show(bandit, policy, log) {
    fill(this.#policy, [
      ["Policy", policy.policy],
      ["Memory", bytes(policy.memory_bytes)],
      ["Rewards accepted", range(bandit.reward_range)],
      ["Created", date(bandit.created)],
      ...Object.entries(policy.settings).map(([name, value]) => [words(name), said(value)]),
    ]);
    fill(this.#log, [
      ["Records", count(log.records)],
      ["Last snapshot", snapshot(log)],
      ["Read again", readAgain(log)],
      ["Damaged places", log.damaged > 0 ? count(log.damaged) : null],
      ["Cut back", log.cut > 0 ? count(log.cut) : null],
      ["Cannot be written", log.refusing],
    ].filter(([, value]) => value !== null));
    this.#warn(log);
    const violated = bandit.assumptions?.violated ?? []; // an older service says nothing of them
    const node = this.#warnings.querySelector(`#${ASSUMPTIONS}`);
    node.hidden = violated.length === 0;
    setText(node, violated.map(tooSmall).join(" "));
  }

  /** The reason of a refusal is among the facts, since it may change with every attempt: a warning is read out once. */
  #warn(log) {
    for (const [name, text] of Object.entries(WARNINGS)) {
      const node = this.#warnings.querySelector(`#${name}`);
      node.hidden = !log[name];
      setText(node, log[name] ? text : "");
    }
  }
}
