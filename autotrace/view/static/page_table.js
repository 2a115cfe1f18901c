// All trajectories of a run: filtered, sorted, selected in a scatter, searched. Its state is the address.
import { address, go, link, note } from "./address.js";
import { Problem, source } from "./data.js";
import { fill, h, visible } from "./dom.js";
import { counted, number, seconds } from "./format.js";
import { Histogram } from "./histogram.js";
import { rowsOf } from "./rows.js";
import { Scatter } from "./scatter.js";
import { Scroller } from "./scroller.js";

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
  ["open_in", "in", "minmax(5em, 1fr)", asText],
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
  rowsOf(run, SECOND).then((rows) => {
    rows.tie();
    table.apply();
    return rowsOf(run, ALL);
  }).then(() => table.apply(), () => table.say("Some columns could not be read."));
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
    close: () => table.searching?.abort(),
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
    /** Id -> hit of the search for texts. @type {Map<string, any> | null} */
    this.hits = null;
    /** @type {AbortController | null} */
    this.searching = null;
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
    this.words = h("input", {
      type: "search",
      class: "words",
      placeholder: "search in texts",
      "aria-label": "search in the texts of all trajectories",
      onkeydown: (/** @type {KeyboardEvent} */ { key }) => key === "Enter" && this.search(),
      oninput: () => this.words.value || this.search(),
    });
    this.count = h("span.count", { role: "status" });
    this.further = h("button.quiet.more", { hidden: true }, "more");
    this.problem = h("span.problem", { role: "alert" });
    this.histogram = new Histogram(
      source.exported ? null : (low, high) => {
        this.filter.value = [this.filter.value && `(${this.filter.value})`, `reward >= ${low} and reward <= ${high}`]
          .filter(Boolean).join(" and ");
        this.noted({ where: this.filter.value });
      },
    );
    this.scatter = new Scatter((row) => this.described(row), (row) => this.openRow(row), (brush) => {
      this.noted({ brush: brush && [...brush.x, ...brush.y].map((value) => Number(value.toPrecision(6))).join(",") });
    });
    this.axes = Object.fromEntries(
      ["x", "y", "c"].map((name) => [
        name,
        h("select", {
          "aria-label": `${name} of the scatter`,
          onchange: () => this.noted({ [name]: this.axes[name].value, brush: null }),
        }),
      ]),
    );
    this.head = h("div.row.head", { role: "row" });
    /** The columns that are shown. @type {typeof SHOWN} */
    this.shown = [];
    this.nothing = h("p.empty", { role: "status", hidden: true }, [
      "No trajectory matches. ",
      h("button", { onclick: () => this.clear() }, "clear filter"),
    ]);
    this.chooser = h("details.chooser", h("summary.button", "columns"));
    this.scroller = new Scroller(HEIGHT, () => this.emptyRow(), (element, position) => this.fillRow(element, position));
    this.scroller.element.setAttribute("role", "rowgroup");
    this.scroller.element.setAttribute("aria-label", "trajectories");
    this.choices();
    const { query } = address();
    this.filter.value = query.get("where") ?? "";
    this.words.value = query.get("q") ?? "";
    this.element = h("section.table-page", [
      h("h1.unseen", "Trajectories"),
      h("div.bar", [
        source.exported ? null : [this.filter, this.names, this.words],
        this.chooser,
        this.count,
        this.further,
        this.problem,
      ]),
      h("details.scatter-box", {
        open: query.get("plot") !== "no",
        ontoggle: (/** @type {any} */ { target }) => note({ plot: target.open ? null : "no" }),
      }, [
        h("summary", "rewards and scatter"),
        h("div.plots", [
          this.histogram.element,
          h("div.plot", [
            h("div.axes.dim", [
              this.axes.y,
              " over ",
              this.axes.x,
              " coloured by ",
              this.axes.c,
              " drag to select; a point opens its trajectory",
            ]),
            this.scatter.element,
          ]),
        ]),
      ]),
      this.nothing,
      h("div.grid", { role: "table", "aria-label": "trajectories" }, [
        h("div", { role: "rowgroup" }, this.head),
        this.scroller.element,
      ]),
    ]);
    if (this.words.value) this.search();
  }

  /** Offer what there is as axes. */
  choices() {
    const { query } = address(), axes = this.rows.axes();
    const first = (/** @type {string[]} */ names) => names.find((name) => axes.includes(name)) ?? axes[0] ?? "start";
    const chosen = {
      x: query.get("x") ?? first(["response_tokens", "step", "turns"]),
      y: query.get("y") ?? first(["reward", "duration"]),
      c: query.get("c") ?? (axes.includes("step") ? "step" : ""),
    };
    for (const [name, select] of Object.entries(this.axes)) {
      const options = [...new Set([...(name === "c" ? [""] : []), chosen[/** @type {"x"} */ (name)], ...axes])];
      fill(select, options.map((value) => h("option", { value }, value || "nothing")));
      select.value = chosen[/** @type {"x"} */ (name)];
    }
    const names = this.rows.known().filter((name) => name !== "open_in");
    fill(this.names, names.map((value) => h("option", { value })));
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
      await rows.need([
        query.get("sort") ?? "",
        ...(query.get("cols")?.split(",") ?? []),
        ...Object.values(this.axes).map((axis) => axis.value),
      ]);
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
    const sorted = rows.order(sort, descending), hits = this.hits && new Set(rows.rowsOf([...this.hits.keys()]));
    const passes = (/** @type {number} */ row) => (!wanted || wanted.has(row)) && (!hits || hits.has(row));
    const passed = wanted || hits ? sorted.filter(passes) : sorted;
    const [x, y, third] = [this.axes.x.value, this.axes.y.value, this.axes.c.value];
    const brush = this.brushed(query.get("brush")), [xs, ys] = [this.rows.keys(x), this.rows.keys(y)];
    this.order = brush ? passed.filter((row) => within(xs[row], brush.x) && within(ys[row], brush.y)) : passed;
    this.scatter.show(xs, ys, third ? rows.keys(third) : null, passed, [x, y, third], brush);
    this.histogram.show(rows.numbers.reward, this.order);
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
    const said = shown === all
      ? counted(all, "trajectory", "trajectories")
      : `${number(shown)} of ${counted(all, "trajectory", "trajectories")}`;
    const empty = all ? "" : " — this run has none yet; autotrace status says what was bound, called and dropped";
    this.count.textContent = [said + empty, more].filter(Boolean).join(" · ");
  }

  /** @param {string | null} text @returns {import("./scatter.js").Brush} */
  brushed(text) {
    const [a, b, c, d] = (text ?? "").split(",").map(Number);
    return text && [a, b, c, d].every(Number.isFinite) ? { x: [a, b], y: [c, d] } : null;
  }

  /** @param {string} name */
  sortBy(name) {
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
    fill(this.head, [
      shown.map(([name, label, , value]) =>
        h("div", {
          class: `cell ${RIGHT.has(name) || value === number ? "n" : ""}`,
          role: "columnheader",
          "data-column": name,
        }, [h("button", {
          title: name === "ties" ? TIES : name,
          onclick: (/** @type {MouseEvent} */ event) => {
            if (event.detail) this.scroller.element.focus({ preventScroll: true });
            this.sortBy(name);
          },
        }, label)])
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
    const own = this.rows.known().filter((name) => !ALL.includes(name));
    const box = (/** @type {string} */ name, /** @type {string} */ label) =>
      h("label", h("input", { type: "checkbox", value: name, checked: names.has(name), onchange: choose }), label);
    this.chooser.querySelector("div")?.remove();
    this.chooser.append(h("div", [
      h("button.quiet", { onclick: () => this.noted({ cols: null }) }, "those with values"),
      SHOWN.map(([name, label]) => box(name, label === name ? name : `${label} (${name})`)),
      own.map((name) => box(name, name)),
    ]));
  }

  emptyRow() {
    const open = () => {
      this.current = row.position;
      this.remember();
    };
    const cells = this.shown.map(([name, , , value]) =>
      h("span", { class: `cell c-${name} ${RIGHT.has(name) || value === number ? "n" : ""}` }, "")
    );
    const row = h("a.row", { style: { gridTemplateColumns: this.head.style.gridTemplateColumns }, onclick: open }, [
      cells,
    ]);
    row.texts = cells.map((cell) => cell.firstChild);
    row.append(row.hit = h("span.cell.hit-line", { hidden: true }));
    return row;
  }

  /** @param {any} element @param {number} position */
  fillRow(element, position) {
    const row = this.order[position], id = this.rows.id(row);
    element.position = position;
    const hit = this.hits?.get(id);
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
    this.filter.value = this.words.value = "";
    note({ where: null, brush: null, q: null });
    this.search();
  }

  /** Remember the list for the pages of trajectories. */
  remember() {
    listed.run = this.run;
    listed.ids = Array.from(this.order.subarray(0, 5000), (row) => this.rows.id(row));
  }

  /** @param {number} by */
  move(by) {
    this.current = Math.max(0, Math.min(this.order.length - 1, this.current + by));
    this.scroller.reveal(this.current);
    this.scroller.place(true);
  }

  /** @param {string} [what] */
  open(what = "trace") {
    if (!this.order.length) return;
    this.remember();
    const id = this.rows.id(this.order[this.current]);
    go(["run", this.run, what, id], { q: this.hits?.get(id)?.hit });
  }

  /** What a point of the scatter is. @param {number} row */
  described(row) {
    const { rows } = this;
    const axes = Object.values(this.axes).map((axis) => axis.value);
    const names = [...new Set(["step", "sample_index", "rollout_n", "reward", ...axes])];
    const said = (/** @type {string} */ name) => SHOWN.find(([shown]) => shown === name)?.[1] ?? name;
    const values = names.filter((name) => name && rows.value(name, row) !== null)
      .map((name) => `${said(name)} ${number(rows.value(name, row))}`);
    return [rows.id(row).slice(0, 8), ...values, rows.value("prompt", row)].filter(Boolean).join(" · ");
  }

  /** @param {number} row */
  openRow(row) {
    this.remember();
    go(["run", this.run, "trace", this.rows.id(row)]);
  }

  /** Look for words in the texts, which the server reads one by one. */
  async search() {
    this.searching?.abort();
    const words = this.words.value;
    note({ q: words });
    [this.hits, this.more, this.further.hidden] = [null, "", true];
    if (!words) return this.apply();
    this.hits = new Map();
    await this.searchOn(words, 0);
  }

  /** Read hits until the server stops; the reader may ask for more. @param {string} words @param {number} from */
  async searchOn(words, from) {
    const abort = this.searching = new AbortController(), hits = this.hits ??= new Map();
    this.further.hidden = true;
    try {
      let [shown, last] = [0, { done: 0, of: 0 }];
      for await (const hit of source.search(this.run, words, abort.signal, from)) {
        if (hit.trace_id) {
          hits.set(hit.trace_id, hit);
          continue;
        }
        last = hit;
        if (performance.now() - shown < 500 && hit.done < hit.of) continue;
        shown = performance.now();
        this.apply();
        this.say(`searched ${number(hit.done)} of ${number(hit.of)}`);
      }
      if (abort.signal.aborted) return;
      const isWhole = last.done >= last.of;
      this.apply();
      this.say(
        `in the texts: “${visible(words)}”${isWhole ? "" : `, searched ${number(last.done)} of ${number(last.of)}`}`,
      );
      this.further.hidden = isWhole;
      this.further.onclick = () => this.searchOn(words, last.done);
    } catch (error) {
      if (!abort.signal.aborted) {
        this.problem.textContent = error instanceof Problem ? error.message : "The search was interrupted.";
      }
    }
  }
}

/** @param {number} value @param {[number, number]} limits */
const within = (value, [low, high]) => value >= low && value <= high;
