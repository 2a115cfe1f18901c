// The trajectories of a run as columns, and orders of them.
import { source, table } from "./data.js";

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));
/** Other names of columns, as `--where` has them. @type {Record<string, string>} */
const ALIASES = { sample: "sample_index", llm_calls: "turns", duration_s: "duration", advantage: "facts.advantage",
  mismatch_mean: "facts.mismatch_mean", mismatch_max: "facts.mismatch_max", entropy: "facts.entropy" };

/** @typedef {{words: string[], codes: Int32Array}} Texts */

export class Rows {
  /** @param {import("./data.js").Packed} main @param {string} version */
  constructor(main, version) {
    this.version = version;
    /** @type {number} */
    this.count = main.header.count;
    /** @type {Record<string, Float64Array>} */
    this.numbers = table();
    /** @type {Record<string, Texts>} */
    this.texts = table();
    /** @type {Uint8Array} */
    this.ids = main.arrays.trace_id;
    /** @type {Map<string, Uint32Array>} */
    this.sorted = new Map();
    /** @type {Map<string, Float64Array>} */
    this.ranks = new Map();
    this.complete = false;
    this.add(main);
    this.numbers.group_reward = means(this.texts.group.codes, this.numbers.reward);
  }

  /** @param {import("./data.js").Packed} part */
  add({ header, arrays }) {
    for (const [name, values] of Object.entries(arrays)) {
      if (values instanceof Float64Array) this.numbers[name] = values;
      else if (header.words[name]) this.texts[name] = { words: header.words[name], codes: values };
    }
  }

  /** @param {string} name */
  named(name) { return Object.hasOwn(ALIASES, name) ? ALIASES[name] : name; }

  /** @param {number} row */
  id(row) {
    let text = "";
    for (let at = row * 16; at < row * 16 + 16; at += 1) text += HEX[this.ids[at]];
    return text;
  }

  /** The row of a trajectory, -1: none. @param {string} id a whole one */
  find(id) {
    if (!/^[0-9a-f]{32}$/.test(id)) return -1;
    const wanted = (id.match(/../g) ?? []).map((byte) => parseInt(byte, 16));
    for (let row = 0; row < this.count; row += 1) if (wanted.every((byte, at) => this.ids[row * 16 + at] === byte)) return row;
    return -1;
  }

  /** A number, a text, or null. @param {string} name @param {number} row @returns {any} */
  value(name, row) {
    const column = this.named(name);
    if (column === "trace_id") return this.id(row);
    const numbers = this.numbers[column];
    if (numbers) return Number.isNaN(numbers[row]) ? null : numbers[row];
    const texts = this.texts[column];
    return texts && texts.codes[row] >= 0 ? texts.words[texts.codes[row]] : null;
  }

  /** Names of numbers that differ somewhere, for axes. */
  axes() {
    return Object.keys(this.numbers).filter((name) => {
      const values = this.numbers[name];
      const first = values.find((value) => !Number.isNaN(value));
      return values.some((value) => !Number.isNaN(value) && value !== first);
    });
  }

  /** All rows in the order of a column; what has no value comes last, whichever way. @param {string} name @param {boolean} descending */
  order(name, descending) {
    const key = `${name} ${descending}`;
    let order = this.sorted.get(key);
    if (!order) this.sorted.set(key, (order = sorted(this.keys(this.named(name)), descending)));
    return order;
  }

  /** Numbers that order as the column does. @param {string} column @returns {Float64Array} */
  keys(column) {
    let keys = this.numbers[column] ?? this.ranks.get(column);
    if (!keys) this.ranks.set(column, (keys = this.ranked(this.texts[column])));
    return keys;
  }

  /** @param {Texts | undefined} texts */
  ranked(texts) {
    if (!texts) return new Float64Array(this.count).map((_, row) => row);
    const places = texts.words.map((word, code) => ({ word, code, number: Number(word) })).sort(natural);
    const rank = new Float64Array(places.length);
    places.forEach(({ code }, place) => { rank[code] = place; });
    return Float64Array.from(texts.codes, (code) => (code < 0 ? NaN : rank[code]));
  }

  /** Rows of the same group as `row`. @param {number} row */
  group(row) {
    const { codes } = this.texts.group;
    const found = [];
    for (let at = 0; at < this.count; at += 1) if (codes[at] === codes[row]) found.push(at);
    return found;
  }
}

/** Row numbers in the order of `keys`, equal ones as they stand, NaN last: a radix sort, since calling a comparison a
 * million times takes longer than a frame may. @param {Float64Array} keys @param {boolean} descending */
function sorted(keys, descending) {
  const values = keys.map((value) => value + 0); // -0 becomes 0
  const bits = new Uint32Array(values.buffer);
  for (let row = 0; row < values.length; row += 1) {
    // of positive numbers the bits are in order but for the sign, of negative ones in the opposite order
    const [low, high] = [2 * row, 2 * row + 1];
    const negative = bits[high] >>> 31 !== Number(descending) ? -1 : 0;
    const missing = values[row] !== values[row];
    bits[low] = missing ? -1 : bits[low] ^ negative;
    bits[high] = missing ? -1 : bits[high] ^ negative ^ (bits[high] >>> 31 ? 0 : 0x80000000);
  }
  const digits = new Uint16Array(values.buffer);
  let [order, next] = [new Uint32Array(values.length).map((_, row) => row), new Uint32Array(values.length)];
  for (let digit = 0; digit < 4; digit += 1) {
    const starts = new Uint32Array(65537);
    for (let at = digit; at < digits.length; at += 4) starts[digits[at] + 1] += 1;
    if (starts[digits[digit] + 1] === values.length) continue; // all have the same
    for (let at = 1; at < 65537; at += 1) starts[at] += starts[at - 1];
    for (const row of order) next[starts[digits[4 * row + digit]]++] = row;
    [order, next] = [next, order];
  }
  return order;
}

/** Of each row the mean of its group. @param {Int32Array} groups @param {Float64Array} values */
function means(groups, values) {
  const [sums, counts] = [new Float64Array(groups.length), new Float64Array(groups.length)];
  groups.forEach((group, row) => { if (!Number.isNaN(values[row])) { sums[group] += values[row]; counts[group] += 1; } });
  return values.map((_, row) => sums[groups[row]] / counts[groups[row]]);
}

/** Numbers in texts count as numbers. @typedef {{word: string, number: number}} Word @param {Word} one @param {Word} other */
function natural(one, other) {
  return Number.isNaN(one.number) || Number.isNaN(other.number) ? (one.word < other.word ? -1 : 1) : one.number - other.number;
}

/** @type {Map<string, Promise<Rows>>} */
const loaded = new Map();

/** The rows of a run as they were read last. @param {string} run @returns {Promise<Rows>} */
export function rowsOf(run) {
  let rows = loaded.get(run);
  if (!rows) {
    rows = source.columns(run, "main").then((main) => new Rows(main, main.version));
    rows.catch(() => loaded.delete(run));
    loaded.set(run, rows);
  }
  return rows;
}

/** The same with times, facts and attributes; read again where the run has grown in between. @param {string} run @returns {Promise<Rows>} */
export async function completeRowsOf(run) {
  for (;;) {
    const rows = await rowsOf(run);
    if (rows.complete) return rows;
    const more = await source.columns(run, "more", rows.version);
    if (more.version === rows.version && more.header.count === rows.count) {
      rows.add(more);
      rows.sorted.clear();
      rows.ranks.clear();
      rows.complete = true;
      return rows;
    }
    forget(run);
  }
}

/** Read the run again when it is asked for next. @param {string} run */
export function forget(run) { loaded.delete(run); }
