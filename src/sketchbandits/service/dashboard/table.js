/** A table whose rows are changed in place, so that scrolling, hovering and selected text survive each refresh. */

import { element, setText } from "./elements.js";

export class Table {
  #body;
  #columns;

  /** `columns`: `{name, show(cell, item)}`; the first names the row. */
  constructor(body, columns) {
    this.#body = body;
    this.#columns = columns;
  }

  fill(items) {
    while (this.#body.rows.length > items.length) this.#body.deleteRow(-1);
    items.forEach((item, i) => {
      const row = this.#body.rows[i] ?? this.#grow();
      this.#columns.forEach((column, j) => column.show(row.cells[j], item));
    });
  }

  #grow() {
    const row = this.#body.insertRow();
    this.#columns.forEach((column, j) => {
      const attributes = column.name ? { class: column.name } : {};
      row.append(j === 0 ? element("th", { scope: "row", ...attributes }) : element("td", attributes));
    });
    return row;
  }
}

export function textColumn(read, name = "") {
  return { name, show: (cell, item) => setText(cell, read(item)) };
}

export function numberColumn(read) {
  return textColumn(read, "number");
}

/** Text over a bar; `ends(item)` says where the bar starts and stops, from 0 to 1, or null for no bar. */
export function barColumn(read, ends, name = "") {
  return {
    name: `number barred ${name}`.trim(),
    show(cell, item) {
      if (!cell.firstChild) cell.append(element("span"), bar());
      setText(cell.firstChild, read(item));
      const places = ends(item);
      cell.lastChild.classList.toggle("empty", places === null);
      if (places !== null) stretch(cell.lastChild, ...places);
    },
  };
}

/** An empty track with a bar in it; hidden from screen readers, since it only repeats the numbers. */
function bar() {
  return element("div", { class: "track", "aria-hidden": "true" }, element("div"));
}

function stretch(track, from, to) {
  track.firstChild.style.left = `${100 * from}%`;
  track.firstChild.style.width = `${100 * Math.max(to - from, 0)}%`;
}
