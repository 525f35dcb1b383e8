/** The service's minutes as evenly spaced points, few enough to draw. */

const MINUTE = 60;
const SHORTEST = 10 * MINUTE; // a service that started just now is not stretched over the whole chart
const STEPS = [1, 2, 5, 10, 15, 30, 60];
const MOST_POINTS = 150;

const LEAST_ELAPSED = 5; // seconds: a rate of less time than that would jump

/** The current minute is shown as the rate of the part of it that has passed, so that it does not look like a fall. */
function span(minutes, range, now) {
  const first = minutes[0].time;
  const last = minutes[minutes.length - 1].time;
  const current = Math.max(Math.floor(now / MINUTE) * MINUTE, last);
  const full = current + MINUTE; // when the current minute is over
  const start = Math.min(Math.max(full - range, first), full - SHORTEST);
  const end = Math.min(Math.max(now, current + LEAST_ELAPSED), full);
  const step = MINUTE * (STEPS.find((size) => (full - start) / (size * MINUTE) <= MOST_POINTS) ?? STEPS.at(-1));
  return { start, end, step, origin: Math.floor(start / step) * step };
}

/** Steps begin at round times; the first and the last may be shorter. */
function emptyPoints({ start, end, step, origin }) {
  const points = [];
  for (let begin = origin; begin < end; begin += step) {
    const time = Math.max(begin, start);
    points.push({ time, minutes: (Math.min(begin + step, end) - time) / MINUTE, decisions: 0, rewards: 0, sum: 0 });
  }
  return points;
}

function perMinute({ time, minutes, decisions, rewards, sum }) {
  const mean = rewards > 0 ? sum / rewards : null;
  return { time, minutes, decisions: decisions / minutes, rewards: rewards / minutes, mean };
}

/** `{start, end, points}`, a point with `time`, `decisions` and `rewards` per minute, and `mean` or null. */
export function history(minutes, range, now) {
  if (minutes.length === 0) return { start: 0, end: 0, points: [] };
  const window = span(minutes, range, now);
  const points = emptyPoints(window);
  for (const minute of minutes) {
    if (minute.time < window.start || minute.time >= window.end) continue;
    const point = points[Math.floor((minute.time - window.origin) / window.step)];
    point.decisions += minute.decisions;
    point.rewards += minute.rewards;
    point.sum += minute.reward_sum;
  }
  return { start: window.start, end: window.end, points: points.map(perMinute) };
}
