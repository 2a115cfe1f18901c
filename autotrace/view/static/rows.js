// The trajectories of a run as columns, and orders of them.
import { source, table } from "./data.js";

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

/** @typedef {{words: string[], codes: Int32Array}} Texts */
/** `limit`: of the tokens of a response. @typedef {{numbers: string[], texts: string[], limit: number | null}} Names */

export class Rows {
  /** @param {string} run @param {import("./data.js").Packed} main @param {Names} names the columns that there are */
  constructor(run, main, names) {
    this.run = run;
    this.names = names;
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
    /** Row of each id, by its first bytes. @type {Map<number, number>} */
    this.places = new Map();
    this.add(main);
    this.numbers.group_reward = means(this.texts.group.codes, this.numbers.reward);
  }

  /** Take columns over. They may be of a run that has grown since. @param {import("./data.js").Packed} part */
  add({ header, arrays }) {
    const rows = arrays.trace_id === this.ids ? null : this.locate(arrays.trace_id);
    for (const [name, values] of Object.entries(arrays)) {
      const isNumber = values instanceof Float64Array;
      if (!isNumber && !header.words[name]) continue;
      const placed = rows
        ? (isNumber ? new Float64Array(this.count).fill(NaN) : new Int32Array(this.count).fill(-1))
        : values;
      rows?.forEach((row, at) => row >= 0 && (placed[row] = values[at]));
      if (isNumber) this.numbers[name] = placed;
      else this.texts[name] = { words: header.words[name], codes: placed };
    }
  }

  /** Read those of `names` that are not there yet. @param {string[]} names */
  async need(names) {
    const known = new Set(this.known());
    const missing = [...names, ...(names.includes("duration") ? ["open_since"] : [])].filter((name) =>
      known.has(name) && name !== "trace_id" && !this.numbers[name] && !this.texts[name]
    );
    if (missing.length) this.add(await source.columns(this.run, missing));
    return this;
  }

  /** The rows of some ids; -1 for what is none of them. @param {Uint8Array} ids 16 bytes each @returns {Int32Array} */
  locate(ids) {
    if (!this.places.size) { for (let row = 0; row < this.count; row += 1) this.places.set(first(this.ids, row), row); }
    return Int32Array.from({ length: ids.length / 16 }, (_, at) => {
      const row = this.places.get(first(ids, at)) ?? -1;
      for (let byte = 0; row >= 0 && byte < 16; byte += 1) {
        if (this.ids[row * 16 + byte] !== ids[at * 16 + byte]) return this.find(hex(ids, at));
      }
      return row;
    });
  }

  /** The rows of whole ids. @param {string[]} ids */
  rowsOf = (ids) => this.locate(Uint8Array.from(ids.join("").match(/../g) ?? [], (byte) => parseInt(byte, 16)));

  /** The rows for which a condition is true: the server knows what it means. @param {string} expression
   * @returns {Promise<Set<number>>} */
  async where(expression) {
    const { arrays } = await source.where(this.run, expression);
    return new Set(this.locate(arrays.trace_id));
  }

  /** @param {number} row */
  id = (row) => hex(this.ids, row);

  /** The row of a trajectory, -1: none. @param {string} id a whole one */
  find(id) {
    if (!/^[0-9a-f]{32}$/.test(id)) return -1;
    const wanted = (id.match(/../g) ?? []).map((byte) => parseInt(byte, 16));
    for (let row = 0; row < this.count; row += 1) {
      if (wanted.every((byte, at) => this.ids[row * 16 + at] === byte)) return row;
    }
    return -1;
  }

  /** A number, a text, or null. @param {string} name @param {number} row @returns {any} */
  value(name, row) {
    if (name === "trace_id") return this.id(row);
    const numbers = this.numbers[name];
    if (numbers) return Number.isNaN(numbers[row]) ? null : numbers[row];
    const texts = this.texts[name];
    return texts && texts.codes[row] >= 0 ? texts.words[texts.codes[row]] : null;
  }

  /** Whether there is such a column. @param {string} name */
  knows = (name) => this.known().includes(name);

  /** The names of all columns. */
  known = () => [...this.names.numbers, ...this.names.texts];

  /** Whether a column that was read has a value somewhere. @param {string} name */
  has(name) {
    if (name === "validate") return this.numbers.validate?.some((value) => value === 1) ?? false;
    return this.numbers[name]?.some((value) => value === value) ??
      this.texts[name]?.codes.some((code) => code >= 0 && this.texts[name].words[code] !== "") ?? false;
  }

  /** Names of numbers, for axes: of those that are there, those that differ somewhere. */
  axes() {
    const constant = new Set(
      Object.entries(this.numbers).filter(([, values]) => {
        const one = values.find((value) => !Number.isNaN(value));
        return !values.some((value) => !Number.isNaN(value) && value !== one);
      }).map(([name]) => name),
    );
    return ["group_reward", ...this.names.numbers].filter((name) => !constant.has(name));
  }

  /** All rows in the order of a column; what has no value comes last, whichever way. @param {string} name
   * @param {boolean} descending */
  order(name, descending) {
    const key = `${name} ${descending}`;
    let order = this.sorted.get(key);
    if (!order) this.sorted.set(key, order = sorted(this.keys(name), descending));
    return order;
  }

  /** Numbers that order as the column does: an open trajectory has lasted longest, the oldest most.
   * @param {string} column @returns {Float64Array} */
  keys(column) {
    const { duration, open_since: since } = this.numbers;
    if (column === "duration" && since) return duration.map((value, row) => (since[row] ? 1e12 - since[row] : value));
    let keys = this.numbers[column] ?? this.ranks.get(column);
    if (!keys) {
      keys = this.ranked(this.texts[column]);
      if (this.texts[column]) this.ranks.set(column, keys);
    }
    return keys;
  }

  /** @param {Texts | undefined} texts */
  ranked(texts) {
    if (!texts) return new Float64Array(this.count).map((_, row) => row);
    const places = texts.words.map((word, code) => ({ word, code, number: Number(word) })).sort(natural);
    const rank = new Float64Array(places.length);
    places.forEach(({ code }, place) => {
      rank[code] = place;
    });
    return Float64Array.from(texts.codes, (code) => (code < 0 ? NaN : rank[code]));
  }

  /** Say of each row how many rewards of its group are the same as its own: `2 of 4`, `all 4`. */
  tie() {
    const [{ codes: groups }, { reward }] = [this.texts.group, this.numbers];
    /** @type {Map<number, number>[]} */
    const counts = [];
    groups.forEach((group, row) => {
      if (Number.isNaN(reward[row])) return;
      const of = (counts[group] ??= new Map());
      of.set(reward[row], (of.get(reward[row]) ?? 0) + 1);
    });
    /** @type {Map<string, number>} */
    const words = new Map();
    const codes = groups.map((group, row) => {
      const [of, same] = [counts[group], counts[group]?.get(reward[row]) ?? 0];
      if (same < 2) return -1;
      const word = of.size === 1 ? `all ${same}` : `${same} of ${[...of.values()].reduce((a, b) => a + b)}`;
      if (!words.has(word)) words.set(word, words.size);
      return words.get(word) ?? -1;
    });
    this.texts.ties = { words: [...words.keys()], codes };
    this.sorted.clear();
  }

  /** Rows of the same group as `row`. @param {number} row */
  group(row) {
    const { codes } = this.texts.group, found = [];
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
    const [low, high] = [2 * row, 2 * row + 1], negative = bits[high] >>> 31 !== Number(descending) ? -1 : 0;
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
  groups.forEach((group, row) => {
    if (!Number.isNaN(values[row])) {
      sums[group] += values[row];
      counts[group] += 1;
    }
  });
  return values.map((_, row) => sums[groups[row]] / counts[groups[row]]);
}

/** Numbers in texts count as numbers. @typedef {{word: string, number: number}} Word @param {Word} one @param {Word}
 * other */
function natural(one, other) {
  return Number.isNaN(one.number) || Number.isNaN(other.number)
    ? (one.word < other.word ? -1 : 1)
    : one.number - other.number;
}

/** @param {Uint8Array} ids @param {number} number */
function hex(ids, number) {
  let text = "";
  for (let at = number * 16; at < number * 16 + 16; at += 1) text += HEX[ids[at]];
  return text;
}

/** The first six bytes of an id. @param {Uint8Array} ids @param {number} number */
function first(ids, number) {
  let value = 0;
  for (let at = number * 16; at < number * 16 + 6; at += 1) value = value * 256 + ids[at];
  return value;
}

/** @type {Map<string, Promise<Rows>>} */
const loaded = new Map();

/** The rows of a run as they were read last, with the columns `names` where there are such. @param {string} run
 * @param {string[]} [names] @returns {Promise<Rows>} */
export function rowsOf(run, names = []) {
  let rows = loaded.get(run);
  if (!rows) {
    rows = Promise.all([source.columns(run, []), source.names(run)]).then(([main, known]) =>
      new Rows(run, main, known)
    );
    rows.catch(() => loaded.delete(run));
    loaded.set(run, rows);
  }
  return names.length ? rows.then((each) => each.need(names)) : rows;
}

/** Read the run again when it is asked for next. @param {string} run */
export function forget(run) {
  loaded.delete(run);
}
