/** A line chart over time that is read with the pointer, with the arrow keys, or as a table. */

import { element, shape } from "./elements.js";
import { axisLabel, clock, day, dayAndClock } from "./numbers.js";
import { linear, marks, timeMarks } from "./scale.js";
import { Table, numberColumn, textColumn } from "./table.js";

const HEIGHT = 210;
const MARGIN = { top: 10, right: 10, bottom: 26 };
const LABEL_GAP = 8;
// How many points a key moves the cursor.
const KEYS = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity };
const CHARACTER = 6.6; // width of a digit in a label
const TIME_LABEL = 58; // the space that one takes

function label(x, y, anchor, words) {
  return shape("text", { x, y, "text-anchor": anchor, class: "label" }, words);
}

export class Chart {
  #figure;
  #svg;
  #lines;
  #floor;
  #history = { start: 0, end: 0, points: [] };
  #at = null; // the time under the pointer or the keys
  #table;

  /** `lines`: `{name, label, read(point), show(value)}`; `floor`: a value that the axis always has, or null. */
  constructor(figure, lines, floor) {
    this.#figure = figure;
    this.#svg = figure.querySelector("svg");
    this.#lines = lines;
    this.#floor = floor;
    this.#table = this.#makeTable(figure.querySelector("details"));
    this.#listen();
  }

  show(history) {
    this.#history = history;
    if (!history.points.some((point) => point.time === this.#at)) this.#at = null;
    this.#draw();
    this.#fillTable();
  }

  #draw() {
    const width = this.#svg.clientWidth;
    if (width === 0) return;
    this.#svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    if (this.#history.points.length === 0) {
      this.#svg.replaceChildren(label(width / 2, HEIGHT / 2, "middle", "Nothing yet"));
    } else {
      const frame = this.#frame(width);
      this.#svg.replaceChildren(this.#axes(frame), ...this.#curves(frame), this.#cursor(frame));
    }
    this.#read();
  }

  /** The scales of both axes and what they span. */
  #frame(width) {
    const { start, end, points } = this.#history;
    const values = this.#lines.flatMap((line) => points.map(line.read)).filter((value) => value !== null);
    if (this.#floor !== null || values.length === 0) values.push(this.#floor ?? 0);
    const heights = marks(Math.min(...values), Math.max(...values), 4);
    const labels = heights.map(axisLabel(heights[1] - heights[0]));
    const left = Math.ceil(Math.max(...labels.map((label) => label.length)) * CHARACTER) + LABEL_GAP;
    const right = width - MARGIN.right;
    return {
      left, right, heights, labels,
      times: timeMarks(start, end, (right - left) / TIME_LABEL),
      x: linear([start, Math.max(points.at(-1).time, start + 1)], [left, right]),
      y: linear([heights[0], heights.at(-1)], [HEIGHT - MARGIN.bottom, MARGIN.top]),
    };
  }

  #axes({ left, right, heights, labels, times, x, y }) {
    const group = shape("g", { "aria-hidden": "true" });
    const bottom = HEIGHT - MARGIN.bottom;
    heights.forEach((height, i) => {
      const at = y(height);
      group.append(
        shape("line", { x1: left, x2: right, y1: at, y2: at, class: i === 0 ? "axis" : "grid" }),
        label(left - LABEL_GAP, at + 4, "end", labels[i]),
      );
    });
    for (const time of times.filter((each) => x(each) <= right - 12 && x(each) >= left + 12)) {
      const midnight = new Date(time * 1000).getHours() + new Date(time * 1000).getMinutes() === 0;
      group.append(
        shape("line", { x1: x(time), x2: x(time), y1: bottom, y2: bottom + 4, class: "axis" }),
        label(x(time), HEIGHT - 6, "middle", midnight ? day(time) : clock(time)),
      );
    }
    return group;
  }

  /** A value missing is a gap; one alone between gaps is a short dash, for a point could not be seen. */
  #curves({ x, y }) {
    return this.#lines.map((line) => {
      const values = this.#history.points.map(line.read);
      const steps = this.#history.points.map(({ time }, i) => {
        if (values[i] === null) return "";
        const here = `${x(time).toFixed(1)} ${y(values[i]).toFixed(1)}`;
        if ((values[i - 1] ?? null) !== null) return `L${here}`;
        return (values[i + 1] ?? null) === null ? `M${here}m-2 0h4` : `M${here}`;
      });
      return shape("path", { d: steps.join(""), class: `curve ${line.name}` });
    });
  }

  #cursor({ x, y }) {
    const point = this.#history.points.find((each) => each.time === this.#at);
    const group = shape("g", { "aria-hidden": "true" });
    if (point === undefined) return group;
    const at = x(point.time);
    group.append(shape("line", { x1: at, x2: at, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, class: "cursor" }));
    for (const line of this.#lines) {
      const value = line.read(point);
      if (value !== null) group.append(shape("circle", { cx: at, cy: y(value), r: 4, class: `dot ${line.name}` }));
    }
    return group;
  }

  /** The values at the cursor, or else the latest, above the chart and for screen readers. */
  #read() {
    const { points } = this.#history;
    const index = this.#index();
    const parts = points.length === 0 ? [] : this.#lines.map((line) => [line, line.show(line.read(points[index]))]);
    const when = points.length === 0 ? "" : this.#when(points[index]);
    const spans = parts.map(([{ name, label }, value]) => {
      return element("span", { class: `key ${name}` }, `${label} `, element("b", {}, value));
    });
    const time = element("time", {}, this.#at === null && when ? `latest, ${when}` : when);
    this.#figure.querySelector(".readout").replaceChildren(...spans, time);
    this.#speak(index, [when || "Nothing yet", ...parts.map(([line, value]) => `${line.label} ${value}`)]);
  }

  #speak(index, words) {
    const last = Math.max(this.#history.points.length - 1, 0);
    this.#svg.setAttribute("aria-valuemin", 0);
    this.#svg.setAttribute("aria-valuemax", last);
    this.#svg.setAttribute("aria-valuenow", Math.max(index, 0));
    this.#svg.setAttribute("aria-valuetext", words.join(", "));
  }

  #when(point) {
    const from = clock(point.time);
    return point.minutes > 1 ? `${from}–${clock(point.time + point.minutes * 60)}` : from;
  }

  #index() {
    const { points } = this.#history;
    return this.#at === null ? points.length - 1 : points.findIndex((point) => point.time === this.#at);
  }

  #move(index) {
    const { points } = this.#history;
    if (points.length === 0) return;
    this.#at = index === null ? null : points[Math.min(Math.max(index, 0), points.length - 1)].time;
    this.#draw();
  }

  #listen() {
    const svg = this.#svg;
    svg.addEventListener("pointermove", (event) => this.#move(this.#nearest(event.offsetX)));
    svg.addEventListener("pointerleave", () => this.#move(null));
    svg.addEventListener("blur", () => this.#move(null));
    svg.addEventListener("keydown", (event) => {
      if (!(event.key in KEYS)) return;
      event.preventDefault();
      this.#move(this.#index() + KEYS[event.key]);
    });
    new ResizeObserver(() => this.#draw()).observe(svg);
  }

  #nearest(offset) {
    const { points } = this.#history;
    if (points.length === 0) return null;
    const { left, right } = this.#frame(this.#svg.clientWidth);
    return Math.round(linear([left, right], [0, points.length - 1])(offset));
  }

  #makeTable(details) {
    const body = element("tbody");
    const heads = ["Time", ...this.#lines.map((line) => line.label)];
    const classes = (i) => ({ scope: "col", ...(i > 0 && { class: "number" }) });
    const head = element("thead", {}, element("tr", {}, ...heads.map((words, i) => element("th", classes(i), words))));
    const words = `${this.#figure.querySelector("h3").textContent}, as a table`;
    const frame = { class: "scroll", tabindex: "0", role: "region", "aria-label": words };
    details.append(element("div", frame, element("table", {}, head, body)));
    details.addEventListener("toggle", () => this.#fillTable());
    return new Table(body, [
      textColumn((point) => dayAndClock(point.time)),
      ...this.#lines.map((line) => numberColumn((point) => line.show(line.read(point)))),
    ]);
  }

  /** Latest first; a closed table stays as it is. */
  #fillTable() {
    if (this.#figure.querySelector("details").open) this.#table.fill([...this.#history.points].reverse());
  }
}
