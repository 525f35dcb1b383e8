/** The figures that are read first. */

import { element, setText } from "./elements.js";
import { count, decimal, milliseconds, roughly, share, short } from "./numbers.js";

const TILES = [
  {
    name: "decisions",
    label: "Decisions",
    value: ({ bandit }) => short(bandit.decisions),
    note: ({ lastMinute }) => `${count(lastMinute.decisions)} last minute`,
  },
  {
    name: "rewards",
    label: "Rewards",
    value: ({ bandit }) => short(bandit.rewards),
    note: ({ bandit, lastMinute }) => `${count(lastMinute.rewards)} last minute${takenBack(bandit)}`,
  },
  {
    name: "mean",
    label: "Mean reward",
    value: ({ bandit }) => decimal(bandit.mean_reward),
    note: () => "of all rewards",
  },
  {
    name: "outstanding",
    label: "Outstanding",
    value: ({ bandit }) => short(bandit.outstanding),
    note: ({ bandit }) => `${share(bandit.outstanding, bandit.decisions)} of decisions`,
  },
  {
    name: "defaults",
    label: "Defaults at deadline",
    value: ({ bandit }) => short(bandit.defaults),
    note: ({ bandit }) => `${share(bandit.defaults, bandit.rewards)} of rewards`,
  },
  {
    name: "p50",
    label: "Latency, median",
    value: ({ latency }) => milliseconds(latency.p50_ms),
    note: ({ latency }) => `${roughly(latency.count)} requests`,
  },
  {
    name: "p99",
    label: "Latency, 99%",
    value: ({ latency }) => milliseconds(latency.p99_ms),
    note: ({ latency }) => `99.9%: ${milliseconds(latency.p999_ms)}`,
  },
  {
    name: "queue",
    label: "Queue",
    value: ({ queue }) => count(queue.waiting),
    note: ({ queue }) => `at most ${count(queue.limit)} per bandit`,
  },
];

function takenBack({ retracted }) {
  return retracted > 0 ? `, ${short(retracted)} taken back` : "";
}

const NO_MINUTE = { decisions: 0, rewards: 0 };

/** The last minute that is over. */
function lastMinute(minutes, now) {
  const time = (Math.floor(now / 60) - 1) * 60;
  return minutes.findLast((minute) => minute.time === time) ?? NO_MINUTE;
}

export class Tiles {
  #list;

  constructor(list) {
    this.#list = list;
    for (const { name, label } of TILES) {
      const parts = [element("dt", {}, label), element("dd", { class: "value" }), element("dd", { class: "note" })];
      list.append(element("div", { id: `tile-${name}` }, ...parts));
    }
  }

  show(bandit, activity, now) {
    const facts = { ...activity, bandit, lastMinute: lastMinute(activity.minutes, now) };
    TILES.forEach(({ value, note }, i) => {
      const [, valueNode, noteNode] = this.#list.children[i].children;
      setText(valueNode, value(facts));
      setText(noteNode, note(facts));
    });
  }
}
