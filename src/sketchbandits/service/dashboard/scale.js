/** Scales and round marks for axes. */

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const TIME_STEPS = [1, 2, 5, 10, 15, 30].map((n) => n * MINUTE).concat([1, 2, 3, 4, 6, 12, 24].map((n) => n * HOUR));

/** The line through `(from[0], to[0])` and `(from[1], to[1])`. */
export function linear(from, to) {
  const slope = (to[1] - to[0]) / (from[1] - from[0] || 1);
  return (value) => to[0] + (value - from[0]) * slope;
}

/** Round numbers, `about` of them, that enclose `low` and `high`. */
export function marks(low, high, about) {
  const width = high - low || Math.abs(high) || 1;
  const power = 10 ** Math.floor(Math.log10(width / about));
  const factor = [1, 2, 2.5, 5, 10].find((each) => each * power >= width / about) ?? 10;
  const step = factor * power;
  const first = Math.floor(low / step + 1e-9);
  const last = Math.max(Math.ceil(high / step - 1e-9), first + 1);
  return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
}

/** Round local times from `start` to `end`, at most `most`. */
export function timeMarks(start, end, most) {
  const step = TIME_STEPS.find((each) => (end - start) / each <= most) ?? TIME_STEPS.at(-1);
  const east = -MINUTE * new Date(end * 1000).getTimezoneOffset();
  const times = [];
  for (let time = Math.ceil((start + east) / step) * step - east; time <= end; time += step) times.push(time);
  return times;
}
