/** Which bandit is shown: kept in the address, so that a link or a reload leads back to it. */

import { element } from "./elements.js";

export class Picker {
  #label;
  #select;

  /** `changed()` is called when another bandit is chosen, here or by the address. */
  constructor(label, changed) {
    this.#label = label;
    this.#select = label.querySelector("select");
    this.#select.addEventListener("change", () => (location.hash = this.#select.value));
    addEventListener("hashchange", changed);
  }

  /** The bandit to show, or null where there are none; an address that names none of them is corrected. */
  choose(bandits) {
    this.#label.hidden = bandits.length === 0;
    if (bandits.length === 0) return null;
    const wanted = location.hash.slice(1);
    const named = (name) => bandits.find((bandit) => bandit.name === name);
    const chosen = named(wanted) ?? named("default") ?? bandits[0];
    if (chosen.name !== wanted) history.replaceState(null, "", `#${chosen.name}`);
    this.#list(bandits.map((bandit) => bandit.name), chosen.name);
    return chosen;
  }

  /** An open list is rebuilt only if its names changed. */
  #list(names, chosen) {
    const listed = Array.from(this.#select.options, (option) => option.value);
    if (names.join("\n") !== listed.join("\n")) {
      this.#select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
    }
    this.#select.value = chosen;
  }
}
