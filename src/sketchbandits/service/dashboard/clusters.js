/** The clusters of a policy that has them, each with its sentinel: the arm with the largest bound. */

import { setText } from "./elements.js";
import { bound, count } from "./numbers.js";
import { Table, barColumn, numberColumn, textColumn } from "./table.js";

export class Clusters {
  #section;
  #table;
  #place = () => 0;
  #mostPulls = 1;

  constructor(section) {
    this.#section = section;
    this.#table = new Table(section.querySelector("tbody"), [
      numberColumn(({ cluster }) => count(cluster)),
      textColumn(({ sentinel }) => sentinel.arm, "id"),
      barColumn(({ sentinel }) => bound(sentinel.bound), ({ sentinel }) => [0, this.#place(sentinel.bound)]),
      numberColumn(({ arms }) => count(arms)),
      numberColumn(({ rank }) => count(rank)),
      barColumn(({ pulls }) => count(pulls), ({ pulls }) => [0, pulls / this.#mostPulls]),
    ]);
  }

  /** `clusters` as the service describes them, null where the policy has none. */
  show(clusters) {
    const find = (name) => this.#section.querySelector(name);
    find(".nothing").hidden = clusters !== null;
    find(".scroll").hidden = clusters === null;
    const shown = clusters?.shown ?? [];
    this.#measure(shown);
    this.#table.fill(shown);
    setText(find(".aside"), clusters === null ? "" : this.#aside(shown.length, clusters.total));
  }

  #aside(shown, total) {
    const some = shown < total ? `${count(shown)} of ${count(total)}` : count(total);
    return `${some}, largest sentinel first`;
  }

  #measure(clusters) {
    const bounds = clusters.map((cluster) => cluster.sentinel.bound).filter((value) => value !== null);
    const low = Math.min(0, ...bounds);
    const width = Math.max(0, ...bounds) - low || 1;
    this.#place = (value) => (value === null ? 1 : (value - low) / width);
    this.#mostPulls = Math.max(1, ...clusters.map((cluster) => cluster.pulls));
  }
}
