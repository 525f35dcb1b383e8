/** The arms: one page of them, sorted and searched by the service. */

import { setText } from "./elements.js";
import { NONE, count, decimal } from "./numbers.js";
import { Table, barColumn, numberColumn, textColumn } from "./table.js";

const PAGE = 25;
const TYPING = 250; // milliseconds without a key before a search is sent

/** The ends of an arm's confidence interval, which is symmetric around its estimate; null without a finite bound. */
function interval({ estimate, bound }) {
  if (estimate === null || bound === null) return null;
  const half = Math.max(bound - estimate, 0);
  return [estimate - half, estimate + half];
}

/** Without a finite bound, an arm in play is untried and may have any mean; a removed arm has no bound. */
function intervalText(arm) {
  const ends = interval(arm);
  if (ends === null) return arm.active ? "untried" : NONE;
  return `${decimal(ends[0])} to ${decimal(ends[1])}`;
}

/** Where an interval lies between the least and the largest end of all intervals of the page, from 0 to 1; null without one. */
function scaleOf(arms) {
  const ends = arms.map(interval).filter((each) => each !== null).flat();
  const low = Math.min(...ends);
  const width = Math.max(...ends) - low || 1;
  return (arm) => interval(arm)?.map((end) => (end - low) / width) ?? null;
}

function showActivity(cell, arm) {
  setText(cell, arm.active ? "active" : "removed");
  cell.classList.toggle("removed", !arm.active);
}

export class Arms {
  #section;
  #table;
  #search;
  #changed;
  #sort = "estimate";
  #offset = 0;
  #total = 0;
  #scale = () => null;

  /** `changed()` is called when another page, order or search is wanted: `query` says which. */
  constructor(section, changed) {
    this.#section = section;
    this.#search = section.querySelector("input");
    this.#changed = changed;
    this.#table = new Table(section.querySelector("tbody"), this.#columns());
    this.#listen();
    this.#markSort();
  }

  get query() {
    const query = { limit: PAGE, offset: this.#offset, sort: this.#sort };
    return this.#search.value ? { ...query, search: this.#search.value } : query;
  }

  /** Another bandit's arms: from the start, all of them. */
  reset() {
    this.#search.value = "";
    this.#offset = 0;
  }

  show({ arms, total }) {
    this.#total = total;
    if (arms.length === 0 && this.#offset > 0) return this.#go(Math.max(Math.ceil(total / PAGE) - 1, 0) * PAGE);
    this.#scale = scaleOf(arms);
    this.#table.fill(arms);
    this.#showPlace(arms.length);
  }

  #showPlace(shown) {
    const find = (name) => this.#section.querySelector(name);
    const wanted = this.#search.value;
    const last = this.#offset + shown;
    setText(find(".nothing"), wanted ? `No arm has “${wanted}” in its id.` : "This bandit has no arms.");
    find(".nothing").hidden = shown > 0;
    find(".scroll").hidden = shown === 0;
    setText(find(".where"), shown ? `${count(this.#offset + 1)}–${count(last)} of ${count(this.#total)}` : "0 arms");
    find(".previous").disabled = this.#offset === 0;
    find(".next").disabled = last >= this.#total;
  }

  #columns() {
    return [
      textColumn((arm) => arm.id, "id"),
      numberColumn((arm) => count(arm.pulls)),
      numberColumn((arm) => decimal(arm.mean)),
      numberColumn((arm) => decimal(arm.estimate)),
      barColumn(intervalText, (arm) => this.#scale(arm), "interval"),
      numberColumn((arm) => count(arm.pending)),
      { name: "activity", show: showActivity },
    ];
  }

  #listen() {
    let timer;
    this.#search.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.#go(0), TYPING);
    });
    for (const button of this.#section.querySelectorAll("[data-sort]")) {
      button.addEventListener("click", () => this.#order(button.dataset.sort));
    }
    for (const [name, step] of [[".previous", -PAGE], [".next", PAGE]]) {
      this.#section.querySelector(name).addEventListener("click", () => this.#go(Math.max(this.#offset + step, 0)));
    }
  }

  #order(sort) {
    this.#sort = sort;
    this.#markSort();
    this.#go(0);
  }

  #markSort() {
    for (const button of this.#section.querySelectorAll("[data-sort]")) {
      const { sort } = button.dataset;
      if (sort !== this.#sort) button.parentElement.removeAttribute("aria-sort");
      else button.parentElement.setAttribute("aria-sort", sort === "id" ? "ascending" : "descending");
    }
  }

  #go(offset) {
    this.#offset = offset;
    this.#changed();
  }
}
