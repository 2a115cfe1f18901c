// The trajectories of a run as columns, and orders of them.
import { source } from "./data.js";

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));
/** Other names of columns, as `--where` has them. @type {Record<string, string>} */
const ALIASES = { sample: "sample_index", llm_calls: "turns", duration_s: "duration", advantage: "facts.advantage" };

/** @typedef {{words: string[], codes: Int32Array}} Texts */

export class Rows {
  /** @param {import("./data.js").Packed} main @param {string} version */
  constructor(main, version) {
    this.version = version;
    /** @type {number} */
    this.count = main.header.count;
    /** @type {Record<string, Float64Array>} */
    this.numbers = {};
    /** @type {Record<string, Texts>} */
    this.texts = {};
    /** @type {Uint8Array} */
    this.ids = main.arrays.trace_id;
    /** @type {Map<string, Uint32Array>} */
    this.sorted = new Map();
    this.complete = false;
    this.add(main);
  }

  /** @param {import("./data.js").Packed} part */
  add({ header, arrays }) {
    for (const [name, values] of Object.entries(arrays)) {
      if (values instanceof Float64Array) this.numbers[name] = values;
      else if (header.words[name]) this.texts[name] = { words: header.words[name], codes: values };
    }
  }

  /** @param {string} name */
  named(name) { return ALIASES[name] ?? name; }

  /** @param {number} row */
  id(row) {
    let text = "";
    for (let at = row * 16; at < row * 16 + 16; at += 1) text += HEX[this.ids[at]];
    return text;
  }

  /** The row of a trajectory, -1: none. @param {string} id a whole one */
  find(id) {
    if (!/^[0-9a-f]{32}$/.test(id)) return -1;
    const wanted = [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30].map((at) => parseInt(id.slice(at, at + 2), 16));
    for (let row = 0; row < this.count; row += 1) {
      let at = 0;
      while (at < 16 && this.ids[row * 16 + at] === wanted[at]) at += 1;
      if (at === 16) return row;
    }
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
      return first !== undefined && values.some((value) => !Number.isNaN(value) && value !== first);
    });
  }

  /** All rows in the order of a column; what has no value comes last, whichever way. @param {string} name @param {boolean} descending */
  order(name, descending) {
    const key = `${name} ${descending}`;
    const known = this.sorted.get(key);
    if (known) return known;
    const keys = this.keys(this.named(name));
    const rows = Array.from({ length: this.count }, (_, row) => row);
    const sign = descending ? -1 : 1;
    const order = Uint32Array.from([
      ...rows.filter((row) => !Number.isNaN(keys[row])).sort((a, b) => sign * (keys[a] - keys[b]) || a - b),
      ...rows.filter((row) => Number.isNaN(keys[row])),
    ]);
    this.sorted.set(key, order);
    return order;
  }

  /** Numbers that order as the column does. @param {string} column */
  keys(column) {
    if (this.numbers[column]) return this.numbers[column];
    const texts = this.texts[column];
    if (!texts) return Float64Array.from({ length: this.count }, (_, row) => row);
    const ranked = texts.words.map((word, code) => ({ word, code })).sort((a, b) => natural(a.word, b.word));
    const rank = new Float64Array(texts.words.length);
    ranked.forEach(({ code }, place) => { rank[code] = place; });
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

/** Numbers in texts count as numbers. @param {string} a @param {string} b */
function natural(a, b) {
  const [one, other] = [Number(a), Number(b)];
  return Number.isNaN(one) || Number.isNaN(other) ? (a < b ? -1 : a > b ? 1 : 0) : one - other;
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
    const more = await source.columns(run, "more");
    if (more.version === rows.version && more.header.count === rows.count) {
      rows.add(more);
      rows.sorted.clear();
      rows.complete = true;
      return rows;
    }
    forget(run);
  }
}

/** Read the run again when it is asked for next. @param {string} run */
export function forget(run) { loaded.delete(run); }
