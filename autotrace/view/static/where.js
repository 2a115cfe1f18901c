// The words of `--where`, over columns: `reward < 0.1 and step >= 3`. `ship/store/where.py` is where they are defined;
// a test asks both the same questions. A comparison with what is not there is null: neither true nor false.
import { table } from "./data.js";

/** Columns that can be named, by kind. @type {Record<string, string>} */
const KINDS = table();
for (const name of ("step rollout_n attempt reward advantage turns llm_calls tool_calls spans late_spans prompt_tokens " +
  "mismatch_mean mismatch_max entropy response_tokens duration duration_s start start_ns queue_s prefill_s decode_s way_s llm_s tool_s reward_s other_s").split(" ")) KINDS[name] = "a number";
for (const name of "sample sample_index uid data_source project_name experiment_name trace_id name role status error finding".split(" ")) KINDS[name] = "text";
for (const name of ["validate", "truncated", "tool_error"]) KINDS[name] = "true or false";

const TOKEN = /\s*(?:([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]))|([A-Za-z_][\w-]*(?:\.[\w-]+)*)|('(?:[^']|'')*'|"(?:[^"]|"")*")|(<=|>=|!=|<>|==|[=<>(),])|$)/y;
const WORDS = new Set(["and", "or", "not", "in", "is", "null", "contains", "true", "false"]);
const STATUS_WORDS = ["OK", "OPEN", "ERROR", "TIMEOUT", "INTERRUPTED", "CANCELLED"];

/** @typedef {(row: number) => any} Getter */
/** @typedef {{name: string, kind: string, get: Getter}} Column */

/** The condition cannot be understood; the message is for the person. */
export class WhereError extends Error {}

/**
 * `expression` as a function of a row's number: true, false or null.
 * @param {string} expression @param {import("./rows.js").Rows} rows @returns {Getter}
 */
export function compile(expression, rows) {
  return new Conditions(expression, rows).whole();
}

class Conditions {
  /** @param {string} expression @param {import("./rows.js").Rows} rows */
  constructor(expression, rows) {
    this.rows = rows;
    this.at = 0;
    this.tokens = [];
    TOKEN.lastIndex = 0;
    for (;;) {
      const begin = TOKEN.lastIndex;
      const match = TOKEN.exec(expression);
      if (!match) throw new WhereError(`cannot read "${expression.slice(begin).trim().split(/\s/)[0]}"`);
      const kind = ["number", "name", "text", "mark"].find((_, number) => match[number + 1] !== undefined) ?? "end";
      this.tokens.push({ kind, text: match[0].trim() });
      if (kind === "end") break;
    }
  }

  get token() { return this.tokens[this.at]; }

  /** The next token, taken, if it is one of `words`. @param {...string} words */
  word(...words) {
    const { kind, text } = this.token;
    const found = kind === "name" ? text.toLowerCase() : kind === "mark" ? text : "";
    if (!found || !words.includes(found)) return "";
    this.at += 1;
    return found;
  }

  /** @param {string} what @returns {never} */
  expected(what) {
    throw new WhereError(`expected ${what}, not ${this.token.text ? `"${this.token.text}"` : "the end"}`);
  }

  whole() {
    const condition = this.any();
    if (this.token.kind !== "end") this.expected('"and" or "or"');
    return condition;
  }

  /** @returns {Getter} */
  any() { return this.joined("or", () => this.all(), true); }

  /** @returns {Getter} */
  all() { return this.joined("and", () => this.one(), false); }

  /** Conditions with `word` between them; one that is `deciding` decides. @param {string} word @param {() => Getter} next @param {boolean} deciding @returns {Getter} */
  joined(word, next, deciding) {
    const parts = [next()];
    while (this.word(word)) parts.push(next());
    return parts.length === 1 ? parts[0] : (row) => {
      let unknown = false;
      for (const part of parts) {
        const value = part(row);
        if (value === null) unknown = true;
        else if (Boolean(value) === deciding) return deciding;
      }
      return unknown ? null : !deciding;
    };
  }

  /** @returns {Getter} */
  one() {
    let negated = false;
    while (this.word("not")) negated = !negated;
    const inner = this.comparison();
    return negated ? (row) => { const value = inner(row); return value === null ? null : !value; } : inner;
  }

  /** @returns {Getter} */
  comparison() {
    if (this.word("(")) {
      const inner = this.any();
      if (!this.word(")")) this.expected('")"');
      return inner;
    }
    const column = this.column();
    if (this.word("is")) {
      const wanted = !this.word("not");
      if (!this.word("null")) this.expected('"null"');
      return (row) => (column.get(row) === null) === wanted;
    }
    const mark = this.word("=", "==", "!=", "<>", "<", "<=", ">", ">=");
    if (mark) return this.compared(column, mark);
    const negated = Boolean(this.word("not"));
    if (this.word("contains")) return this.contains(column, negated);
    if (this.word("in")) return this.within(column, negated);
    if (negated || (column.kind !== "true or false" && column.kind !== "")) {
      this.expected(`a comparison of ${column.name} (=, <, in, contains, is null)`);
    }
    return (row) => { const value = column.get(row); return value === null ? null : typeof value === "number" && value !== 0; };
  }

  /** @param {Column} column @param {string} mark @returns {Getter} */
  compared(column, mark) {
    const test = COMPARISONS[mark];
    if (this.token.kind === "name" && !WORDS.has(this.token.text.toLowerCase())) {
      const other = this.column();
      return (row) => compared(column.get(row), other.get(row), test);
    }
    const value = this.value(column);
    if (column.name === "finding") {
      if (!/^(=|==|!=|<>)$/.test(mark)) throw new WhereError("finding has no order; compare it with = or !=");
      return found(column, [value], (code, wanted) => code === wanted, /[!<]/.test(mark));
    }
    const get = typeof value === "number" ? asNumber(column) : column.get;
    return (row) => compared(get(row), value, test);
  }

  /** @param {Column} column @param {boolean} negated @returns {Getter} */
  within(column, negated) {
    if (!this.word("(")) this.expected('"("');
    const values = [this.value(column)];
    while (this.word(",")) values.push(this.value(column));
    if (!this.word(")")) this.expected('"," or ")"');
    if (new Set(values.map((value) => typeof value)).size > 1) throw new WhereError(`the values that ${column.name} is compared with must be of one kind`);
    if (column.name === "finding") return found(column, values, (code, wanted) => code === wanted, negated);
    const get = typeof values[0] === "number" ? asNumber(column) : column.get;
    return (row) => { const value = get(row); return value === null ? null : values.includes(value) !== negated; };
  }

  /** @param {Column} column @param {boolean} negated @returns {Getter} */
  contains(column, negated) {
    if (column.kind !== "text" && column.kind !== "") throw new WhereError(`${column.name} is ${column.kind}, so it cannot contain a text`);
    if (this.token.kind !== "text") this.expected("a text in quotes");
    const wanted = lower(String(this.value(column)));
    if (column.name === "finding") return found(column, [wanted], (code, part) => code.startsWith(part), negated);
    return (row) => { const value = column.get(row); return value === null ? null : lower(String(value)).includes(wanted) !== negated; };
  }

  /** @returns {Column} */
  column() {
    const { kind, text } = this.token;
    if (kind !== "name" || WORDS.has(text.toLowerCase())) this.expected("the name of a column");
    const own = /^(facts|attributes)\../.test(text);
    if (!own && KINDS[text] === undefined) throw new WhereError(`there is no column "${text}"; choose from ${Object.keys(KINDS).join(", ")}, facts.NAME, attributes.NAME`);
    this.at += 1;
    const get = this.getter(text);
    return { name: text, kind: own ? "" : KINDS[text], get };
  }

  /** @param {string} name @returns {Getter} */
  getter(name) {
    const { rows } = this;
    if (name === "validate") return (row) => rows.value("validate", row) ?? 0;
    if (name === "start_ns") return (row) => { const value = rows.value("start", row); return value === null ? null : value * 1e9; };
    const column = name.startsWith("attributes.") && !rows.numbers[name] && !rows.texts[name] ? name.slice("attributes.".length) : name;
    return (row) => rows.value(column, row);
  }

  /** @param {Column} column @returns {number | string} */
  value(column) {
    const { kind, text } = this.token;
    let value;
    if (kind === "number") value = Number(text);
    else if (kind === "text") value = text.slice(1, -1).replaceAll(text[0] + text[0], text[0]);
    else if (kind === "name" && /^(true|false)$/i.test(text)) value = /^true$/i.test(text);
    else if (kind === "name") throw new WhereError(`a text is written in quotes: '${text}'`);
    else this.expected("a value");
    const given = typeof value === "boolean" ? "true or false" : typeof value === "string" ? "text" : "a number";
    if (column.kind !== "" && column.kind !== given && !(isSample(column) && given === "a number")) {
      throw new WhereError(`${column.name} is ${column.kind}, but ${text} is ${given}`);
    }
    if (column.name === "status") {
      value = String(value).toUpperCase();
      if (!STATUS_WORDS.includes(value)) throw new WhereError(`there is no status ${text}; choose from ${STATUS_WORDS.join(", ")}`);
    }
    this.at += 1;
    return typeof value === "boolean" ? Number(value) : /** @type {any} */ (value);
  }
}

/** @type {Record<string, (order: number) => boolean>} */
const COMPARISONS = {
  "=": (order) => order === 0, "==": (order) => order === 0, "!=": (order) => order !== 0, "<>": (order) => order !== 0,
  "<": (order) => order < 0, "<=": (order) => order <= 0, ">": (order) => order > 0, ">=": (order) => order >= 0,
};

/** As SQLite orders: numbers before texts. @param {any} a @param {any} b @param {(order: number) => boolean} test */
function compared(a, b, test) {
  if (a === null || b === null) return null;
  if (typeof a !== typeof b) return test(typeof a === "number" ? -1 : 1);
  return test(a < b ? -1 : a > b ? 1 : 0);
}

/** Of several codes, none where nothing was found: whether one fits. @param {Column} column @param {any[]} values @param {(code: string, wanted: string) => boolean} fits @param {boolean} negated @returns {Getter} */
function found(column, values, fits, negated) {
  const wanted = values.map((value) => String(value).toUpperCase());
  return (row) => (column.get(row) ?? "").split(" ").some((/** @type {string} */ code) => wanted.some((each) => fits(code, each))) !== negated;
}

/** @param {Column} column */
const isSample = (column) => column.name === "sample" || column.name === "sample_index";

/** A dataset's index is a text, and compares with a number as one. @param {Column} column @returns {Getter} */
function asNumber(column) {
  if (!isSample(column)) return column.get;
  return (row) => { const value = column.get(row); return value !== null && /^\d+$/.test(value) ? Number(value) : null; };
}

/** As SQLite's lower(). @param {string} text */
const lower = (text) => text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
