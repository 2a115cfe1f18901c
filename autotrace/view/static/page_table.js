// All trajectories of a run: filtered, sorted, selected in a scatter, searched. Its state is the address.
import { address, go, link, note } from "./address.js";
import { Problem, source } from "./data.js";
import { fill, h, visible } from "./dom.js";
import { counted, number, seconds } from "./format.js";
import { Plots } from "./plots.js";
import { rowsOf } from "./rows.js";
import { Scroller } from "./scroller.js";
import { TextSearch } from "./text_search.js";

const asText = (/** @type {any} */ value) => value ?? "";
const asFigures = (/** @type {any} */ value) => value ?? "";
/** The columns of the table: name, heading, how wide, how a value is shown.
 * @type {[string, string, string, (value: any) => string][]} */
const SHOWN = [
  ["trace_id", "trace", "5em", (value) => value.slice(0, 8)],
  ["step", "step", "4em", number],
  ["sample_index", "sample", "4em", asFigures],
  ["rollout_n", "n", "3em", number],
  ["prompt", "prompt", "minmax(11em, 4fr)", asText],
  ["status", "status", "5em", asText],
  ["open_since", "open since", "6em", (value) => (value ? new Date(1000 * value).toLocaleTimeString("en-GB") : "")],
  ["open_in", "in", "minmax(9em, 1fr)", asText],
  ["reward", "reward", "4.5em", number],
  ["ties", "ties", "3.5em", asFigures],
  ["group_reward", "group mean", "6em", number],
  ["advantage", "advantage", "5.5em", number],
  ["turns", "turns", "3.2em", number],
  ["tool_calls", "tools", "3.2em", number],
  ["prompt_tokens", "prompt", "4.5em", number],
  ["response_tokens", "output", "4.5em", number],
  ["duration", "duration", "5em", seconds],
  ["validate", "val", "2.5em", (value) => (value ? "val" : "")],
  ["findings", "findings", "minmax(11em, 3fr)", (value) => asText(value).replaceAll("AT-", "")],
  ["label", "label", "7em", asText],
  ["error", "error", "minmax(10em, 3fr)", asText],
];
/** Their names, to be read. */
const ALL = SHOWN.map(([name]) => name);
/** Those whose values stand at the right; the largest comes first where one of them orders the table. */
const RIGHT = new Set(
  SHOWN.filter(([, , , shown]) => [number, seconds, asFigures].includes(shown)).map(([name]) => name),
);
/** @param {string} name @param {(value: any) => string} shown */
const cellClass = (name, shown) => `cell ${RIGHT.has(name) || shown === number ? "n" : ""}`;
/** Pixels of a row, and of one that says what was found in its texts. */
const [HEIGHT, HEIGHT_OF_HIT] = [26, 48];
/** Pixels of an em in the table. */
const EM = 14;
/** What is read second; the other columns come last. */
const SECOND = ["advantage", "findings"];
const TIES = "rollouts of this prompt with the same reward; all: the group teaches nothing";
/** Milliseconds without a key until a condition is asked. */
const TYPED = 150;

/** The rows as they were listed last, so that a trajectory's page knows what comes next.
 * @type {{run: string, ids: string[]}} */
export const listed = { run: "", ids: [] };

/** @param {import("./main.js").Present} present @param {string} run @returns {Promise<import("./main.js").Page>} */
export async function showTable(present, run) {
  const table = new Table(run, await rowsOf(run));
  present(table.element);
  table.apply();
  table.rest().catch(() => table.say("Some columns could not be read."));
  return {
    title: "trajectories",
    keys: {
      j: () => table.move(1),
      k: () => table.move(-1),
      Enter: () => table.open(),
      g: () => table.open("group"),
      "/": () => table.filter.focus(),
    },
    again: async () => {
      table.rows = await rowsOf(run, ALL);
      table.rows.tie();
      table.passing = null;
      table.apply();
    },
    close: () => table.texts.running?.abort(),
  };
}

class Table {
  /** @param {string} run @param {import("./rows.js").Rows} rows */
  constructor(run, rows) {
    this.run = run;
    this.link = link(["run", run, "trace", ""]);
    this.rows = rows;
    this.current = 0;
    /** @type {Uint32Array} */
    this.order = new Uint32Array(0);
    /** The rows that satisfy a condition. @type {{where: string, rows: Set<number>} | null} */
    this.passing = null;
    this.typed = /** @type {any} */ (0);
    this.turn = 0;
    this.more = "";
    this.filter = h("input", {
      type: "search",
      class: "where",
      placeholder: "reward < 0.5 and turns > 3 and error contains 'Timeout'",
      "aria-label": "filter, in the words of --where",
      list: "where-names",
      spellcheck: "false",
      autocomplete: "off",
      oninput: () => {
        note({ where: this.filter.value });
        clearTimeout(this.typed);
        this.typed = setTimeout(() => this.apply(), TYPED);
      },
    });
    this.names = h("datalist", { id: "where-names" });
    this.count = h("span.count", { role: "status" });
    this.problem = h("span.problem", { role: "alert" });
    const changed = (words = "") => this.apply().then(() => this.say(words));
    const failed = (/** @type {string} */ words) => this.problem.textContent = words;
    this.texts = new TextSearch(run, address().query.get("q") ?? "", changed, failed);
    this.plots = new Plots({
      noted: (changes) => this.noted(changes),
      narrowed: (condition) => {
        this.filter.value = [this.filter.value && `(${this.filter.value})`, condition].filter(Boolean).join(" and ");
        this.noted({ where: this.filter.value });
      },
      described: (row) => this.described(row),
      opened: (row) => this.open("trace", row),
    });
    this.head = h("div.row.head", { role: "row" });
    /** The columns that are shown. @type {typeof SHOWN} */
    this.shown = [];
    this.nothing = h("p.empty", { role: "status", hidden: true }, [
      "No trajectory matches. ",
      h("button", { onclick: () => this.clear() }, "clear filter"),
    ]);
    this.chooser = h("details.chooser", h("summary.button", "columns"));
    this.scroller = new Scroller(HEIGHT, () => this.emptyRow(), (element, position) => this.fillRow(element, position));
    this.plots.choices(rows.axes());
    const names = rows.known().filter((name) => name !== "open_in");
    fill(this.names, names.map((value) => h("option", { value })));
    this.filter.value = address().query.get("where") ?? "";
    this.element = h("section.table-page", [
      h("h1.unseen", "Trajectories"),
      h("div.bar", [
        source.exported ? null : [this.filter, this.names, this.texts.words],
        this.chooser,
        this.count,
        this.texts.further,
        this.problem,
      ]),
      this.plots.element,
      this.nothing,
      h("div.grid", { role: "table", "aria-label": "trajectories" }, [
        h("div", { role: "rowgroup" }, this.head),
        this.scroller.element,
      ]),
    ]);
    if (this.texts.words.value) this.texts.search();
  }

  /** Read the columns that come later. */
  async rest() {
    (await rowsOf(this.run, SECOND)).tie();
    this.apply();
    await rowsOf(this.run, ALL);
    this.apply();
  }

  /** Note something in the address, and show what it says. @param {Record<string, any>} changes */
  noted(changes) {
    note(changes);
    this.apply();
  }

  /** Filter, sort and show what the address says. */
  async apply() {
    const { query } = address(), { rows } = this, mine = (this.turn += 1);
    const where = source.exported ? "" : this.filter.value.trim();
    try {
      await rows.need([query.get("sort") ?? "", ...(query.get("cols")?.split(",") ?? []), ...this.plots.names()]);
      if (where && this.passing?.where !== where) {
        const passing = { where, rows: await rows.where(where) };
        if (mine === this.turn) this.passing = passing;
      }
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (mine !== this.turn) return;
      this.problem.textContent = error.message;
      this.filter.setAttribute("aria-invalid", "true");
      return;
    }
    if (mine !== this.turn) return;
    this.problem.textContent = "";
    this.filter.removeAttribute("aria-invalid");
    const wanted = where ? this.passing?.rows : null;
    const [sort, descending] = [query.get("sort") ?? "start", query.get("desc") === "1"];
    const found = this.texts.hits, hits = found && new Set(rows.rowsOf([...found.keys()]));
    const passes = (/** @type {number} */ row) => (!wanted || wanted.has(row)) && (!hits || hits.has(row));
    const sorted = rows.order(sort, descending), passed = wanted || hits ? sorted.filter(passes) : sorted;
    this.order = this.plots.show(rows, passed);
    this.current = Math.min(this.current, Math.max(0, this.order.length - 1));
    this.columns();
    for (const cell of this.head.children) {
      cell.setAttribute("aria-sort", cell.dataset.column === sort ? (descending ? "descending" : "ascending") : "none");
    }
    this.scroller.height = hits ? HEIGHT_OF_HIT : HEIGHT;
    this.scroller.reset(this.order.length);
    this.nothing.hidden = this.order.length > 0 || !rows.count;
    this.say();
  }

  /** How many are shown, and what else is to be said until something else is. @param {string} [more] */
  say(more = this.more) {
    this.more = more;
    const all = this.rows.count, shown = this.order.length;
    const said = `${shown === all ? "" : `${number(shown)} of `}${counted(all, "trajectory", "trajectories")}`;
    const empty = all ? "" : " — this run has none yet; autotrace status says what was bound, called and dropped";
    this.count.textContent = [said + empty, more].filter(Boolean).join(" · ");
  }

  /** @param {string} name @param {boolean} byPointer: keys are for the rows then */
  sortBy(name, byPointer) {
    if (byPointer) this.scroller.element.focus({ preventScroll: true });
    const { query } = address(), again = query.get("sort") === name;
    const descending = again ? query.get("desc") !== "1" : RIGHT.has(name);
    this.noted({ sort: name, desc: descending ? "1" : null });
  }

  /** Show the columns that the address names, else those that have values. */
  columns() {
    const { rows } = this, chosen = address().query.get("cols")?.split(",");
    const others = (chosen ?? []).filter((name) => rows.knows(name) && !ALL.includes(name));
    const shown = /** @type {typeof SHOWN} */ ([
      ...SHOWN.filter(([name]) => (chosen ? chosen.includes(name) : name === "trace_id" || rows.has(name))),
      ...others.map((name) => [name, name, "7em", rows.numbers[name] ? number : asText]),
    ]);
    if (shown.length === this.shown.length && shown.every(([name], at) => name === this.shown[at][0])) return;
    this.shown = shown;
    const widths = shown.map(([, , width]) => width);
    const style = {
      gridTemplateColumns: widths.join(" "),
      minWidth: `${widths.reduce((sum, width) => sum + EM * Number(/[\d.]+/.exec(width)?.[0]) + 10, 40)}px`,
    };
    Object.assign(this.head.style, style);
    this.scroller.element.style.minWidth = style.minWidth;
    /** @type {(name: string) => (event: MouseEvent) => void} */
    const sort = (name) => ({ detail: byPointer }) => this.sortBy(name, byPointer > 0);
    fill(this.head, [
      shown.map(([name, label, , value]) =>
        h("div", { class: cellClass(name, value), role: "columnheader", "data-column": name }, [
          h("button", { title: name === "ties" ? TIES : name, onclick: sort(name) }, label),
        ])
      ),
    ]);
    this.scroller.renew();
    this.offer();
  }

  /** Offer the columns that there are. */
  offer() {
    const names = new Set(this.shown.map(([name]) => name));
    const choose = () => {
      const wanted = [...this.chooser.querySelectorAll("input:checked")].map((each) => each.value);
      note({ cols: wanted.join(",") });
      this.rows.need(wanted).then(() => this.apply());
    };
    const box = (/** @type {string} */ name, /** @type {string} */ label) =>
      h("label", h("input", { type: "checkbox", value: name, checked: names.has(name), onchange: choose }), label);
    this.chooser.querySelector("div")?.remove();
    this.chooser.append(h("div", [
      h("button.quiet", { onclick: () => this.noted({ cols: null }) }, "those with values"),
      SHOWN.map(([name, label]) => box(name, label === name ? name : `${label} (${name})`)),
      this.rows.known().filter((name) => !ALL.includes(name)).map((name) => box(name, name)),
    ]));
  }

  emptyRow() {
    const cells = this.shown.map(([name, , , value]) =>
      h("span", { class: `${cellClass(name, value)} c-${name}` }, "")
    );
    const { gridTemplateColumns } = this.head.style;
    const row = h("a.row", { style: { gridTemplateColumns }, onclick: () => this.remember(row.position) }, cells);
    row.texts = cells.map((cell) => cell.firstChild);
    row.append(row.hit = h("span.cell.hit-line", { hidden: true }));
    return row;
  }

  /** @param {any} element @param {number} position */
  fillRow(element, position) {
    const row = this.order[position], id = this.rows.id(row);
    element.position = position;
    const hit = this.texts.hits?.get(id);
    element.href = this.link + id + (hit ? `?${new URLSearchParams({ q: hit.hit })}` : "");
    element.classList.toggle("now", position === this.current);
    element.hit.hidden = !hit;
    if (hit) fill(element.hit, h("bdi", `…${hit.before}`, h("mark", [hit.hit]), `${hit.after}…`));
    this.shown.forEach(([name, , , shown], place) => {
      const [cell, node] = [element.children[place], element.texts[place]];
      const text = visible(shown(this.rows.value(name, row)).slice(0, 300));
      if (node.data === text) return;
      node.data = text;
      if (name === "status") cell.dataset.status = text;
      if (shown === asText || name === "findings") cell.title = text;
      if (name === "ties") {
        cell.title = text && TIES;
        cell.classList.toggle("flat", text.startsWith("all"));
      }
    });
  }

  /** List all again. */
  clear() {
    this.filter.value = this.texts.words.value = "";
    note({ where: null, brush: null, q: null });
    this.texts.search();
  }

  /** Remember the list for the pages of trajectories. @param {number} [current] */
  remember(current = this.current) {
    this.current = current;
    listed.run = this.run;
    listed.ids = Array.from(this.order.subarray(0, 5000), (row) => this.rows.id(row));
  }

  /** @param {number} by */
  move(by) {
    this.current = Math.max(0, Math.min(this.order.length - 1, this.current + by));
    this.scroller.reveal(this.current);
    this.scroller.place(true);
  }

  /** @param {string} [what] @param {number} [row] */
  open(what = "trace", row = this.order[this.current]) {
    if (row === undefined) return;
    this.remember();
    const id = this.rows.id(row);
    go(["run", this.run, what, id], { q: this.texts.hits?.get(id)?.hit });
  }

  /** What a point of the scatter is. @param {number} row @returns {string} */
  described(row) {
    const { rows } = this;
    const names = [...new Set(["step", "sample_index", "rollout_n", "reward", ...this.plots.names()])];
    const said = (/** @type {string} */ name) => SHOWN.find(([shown]) => shown === name)?.[1] ?? name;
    const values = names.filter((name) => name && rows.value(name, row) !== null)
      .map((name) => `${said(name)} ${number(rows.value(name, row))}`);
    return [rows.id(row).slice(0, 8), ...values, rows.value("prompt", row)].filter(Boolean).join(" · ");
  }
}
