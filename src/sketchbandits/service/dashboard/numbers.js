/** Numbers and times as people read them: the reader's separators and time zone. */

const WHOLE = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const SHARE = new Intl.NumberFormat(undefined, { style: "percent", maximumFractionDigits: 1 });
const AS_GIVEN = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 6 });
const ROUGH = new Intl.NumberFormat(undefined, { notation: "compact", maximumSignificantDigits: 3 });
const UNITS = ["B", "kB", "MB", "GB", "TB"];

export const NONE = "–";

function digits(least, most = least) {
  const format = new Intl.NumberFormat(undefined, { minimumFractionDigits: least, maximumFractionDigits: most });
  return (value) => format.format(value);
}

const [oneDigit, twoDigits, threeDigits] = [digits(1), digits(2), digits(3)];
const upToOneDigit = digits(0, 1);

/** At most three digits: 9.6M. */
export function roughly(value) {
  return ROUGH.format(value);
}

/** In full where there is space for it. */
export function short(value) {
  return value < 1e8 ? count(value) : roughly(value);
}

export function count(value) {
  return WHOLE.format(value);
}

/** Three decimals for what is near one, fewer for what is large, powers of ten for what is tiny. */
export function decimal(value) {
  if (value === null) return NONE;
  const size = Math.abs(value);
  if (size >= 1e9 || (size < 5e-4 && size > 0)) return value.toExponential(2);
  if (size >= 1000) return count(value);
  return size >= 100 ? oneDigit(value) : threeDigits(value);
}

/** As somebody wrote it into a file of settings. */
export function setting(value) {
  return value !== 0 && Math.abs(value) < 1e-4 ? String(value) : AS_GIVEN.format(value);
}

/** A bound that the service cannot write down is infinite: the arm was never tried. */
export function bound(value) {
  return value === null ? "∞" : decimal(value);
}

/** Labels of an axis with marks `step` apart: all with as many decimals as that needs. */
export function axisLabel(step) {
  const whole = (decimals) => Math.abs(step * 10 ** decimals - Math.round(step * 10 ** decimals)) < 1e-6;
  const decimals = [0, 1, 2, 3, 4, 5, 6].find((each) => step * 10 ** each > 0.5 && whole(each));
  return decimals === undefined || step >= 1e9 ? (value) => value.toExponential(2) : digits(decimals);
}

export function rate(value) {
  return value >= 100 ? count(value) : upToOneDigit(value);
}

export function share(part, whole) {
  return whole > 0 ? SHARE.format(part / whole) : NONE;
}

export function milliseconds(value) {
  if (value === null) return NONE;
  if (value >= 1000) return `${twoDigits(value / 1000)} s`;
  return `${value >= 100 ? count(value) : value >= 10 ? oneDigit(value) : twoDigits(value)} ms`;
}

export function bytes(value) {
  const power = value < 1 ? 0 : Math.min(Math.floor(Math.log10(value) / 3), UNITS.length - 1);
  const scaled = value / 1000 ** power;
  return `${power === 0 || scaled >= 100 ? count(scaled) : oneDigit(scaled)} ${UNITS[power]}`;
}

function timeFormat(options) {
  const format = new Intl.DateTimeFormat(undefined, options);
  return (seconds) => format.format(seconds * 1000);
}

const CLOCK = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const DAY = { day: "numeric", month: "short" };

export const clock = timeFormat(CLOCK);
export const clockSeconds = timeFormat({ ...CLOCK, second: "2-digit" });
export const day = timeFormat(DAY);
export const dayAndClock = timeFormat({ ...DAY, ...CLOCK });
export const date = timeFormat({ ...DAY, ...CLOCK, year: "numeric" });
