// Numbers and times as people read them. What is missing is empty.
import { visible } from "./dom.js";

const WHOLE = new Intl.NumberFormat("en"); // made once: that is what takes time
/** @param {any} value @returns {value is null | undefined} */
export const absent = (value) => value === null || value === undefined || Number.isNaN(value);

/** @param {any} value @param {number} [digits] significant digits */
export function number(value, digits = 4) {
  if (absent(value)) return "";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return WHOLE.format(value);
  const short = Number(value.toPrecision(digits));
  return Math.abs(short) >= 1e6 || (short !== 0 && Math.abs(short) < 1e-4) ? short.toExponential(2) : String(short);
}

export const unknown = (/** @type {string} */ status) => status === "OPEN" ? "open" : "not recorded";
/** @param {any} value seconds */
export function seconds(value) {
  if (absent(value)) return "";
  if (value === 0) return "0";
  if (value < 1e-3) return `${Number((value * 1e6).toPrecision(3))} µs`;
  if (value < 1) return `${Number((value * 1e3).toPrecision(3))} ms`;
  if (value < 120) return `${Number(value.toPrecision(3))} s`;
  const minutes = Math.floor(value / 60);
  return minutes < 120
    ? `${minutes} min ${Math.round(value % 60)} s`
    : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** @param {number} share */
export const percent = (share) => `${Number((100 * share).toPrecision(share < 0.1 ? 2 : 3))} %`;

/** "open for 41 s in search". @param {{seconds: number, in: string} | null} open */
export const openFor = (open) => (open ? `open for ${seconds(open.seconds)} in ${visible(open.in)}` : "");

/** @param {number} one @param {string} what @param {string} [many] */
export const counted = (one, what, many) => `${number(one)} ${one === 1 ? what : many ?? `${what}s`}`;

/** @param {string} iso */
export const clock = (iso) => iso.slice(0, 19).replace("T", " ");

/** Round numbers that divide `low`..`high` into about `count` parts. @param {number} low @param {number} high @param {
  number} count
 * @param {boolean} [whole] only whole numbers */
export function ticks(low, high, count, whole = false) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const rough = whole ? Math.max(1, span / count) : span / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough) ?? power * 10;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) {
    found.push(Number(at.toPrecision(12)));
  }
  return found;
}
