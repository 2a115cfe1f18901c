// A run over its training steps: curves, and of one step where its rollouts waited.
import { address, go, link, note } from "./address.js";
import { source } from "./data.js";
import { fill, h, ink } from "./dom.js";
import { counted, number, seconds } from "./format.js";
import { showLanes } from "./lanes.js";
import { rowsOf } from "./rows.js";

/** Title, column, how the values of a step become one number, whether it is seconds. @type {[string, string, string, boolean][]} */
const CURVES = [
  ["reward", "reward", "spread", false], ["not OK", "status", "failed", false], ["tokens written", "response_tokens", "spread", false], ["turns", "turns", "spread", false],
  ["duration", "duration", "spread", true], ["tools", "tool_s", "spread", true], ["waiting for the engine", "queue_s", "spread", true], ["decode", "decode_s", "spread", true],
  ["advantage", "advantage", "spread", false], ["mismatch, mean of a token", "mismatch_mean", "spread", false], ["entropy", "facts.entropy", "spread", false], ["trained later, in steps", "staleness", "spread", false], ["trajectories", "step", "count", false],
];
const READ = [...CURVES.map(([, column]) => column), "trained_in_step"];
const WHOLE_STEPS = Array.from({ length: 48 }, (_, at) => [1, 2, 5][at % 3] * 10 ** Math.floor(at / 3));

/** @param {import("./main.js").Present} present @param {string} run @returns {Promise<import("./main.js").Page>} */
export async function showSteps(present, run) {
  const { query } = address();
  const other = query.get("with") ?? "";
  const [rows, beside, { runs }] = await Promise.all([rowsOf(run, READ), other ? rowsOf(other, READ) : null, source.runs()]);
  const curves = new Curves(run, rows, beside, other);
  const choice = h("select", { "aria-label": "another run over this one", onchange: () => go(["run", run, "steps"], { with: choice.value }) },
    ["", ...runs.map((/** @type {any} */ each) => each.run).filter((/** @type {string} */ name) => name !== run)].map((value) => h("option", { value, selected: value === other }, value || "no other run")));
  present(h("section", { class: "steps-page" }, h("div", { class: "bar" }, h("h1", {}, "Steps"), source.exported ? null : choice, curves.said), curves.found, curves.element, curves.lanes));
  curves.draw();
  curves.step(query.get("step"));
  curves.look();
  return { title: "steps", keys: { j: () => curves.move(1), k: () => curves.move(-1) }, again: async () => { curves.rows = await rowsOf(run, READ); curves.draw(); }, close: () => curves.close(), restyle: () => curves.draw() };
}

class Curves {
  /** @param {string} run @param {import("./rows.js").Rows} rows @param {import("./rows.js").Rows | null} beside @param {string} other */
  constructor(run, rows, beside, other) {
    this.run = run;
    this.rows = rows;
    this.beside = beside;
    this.other = other;
    /** What diagnose finds: step -> code -> how many trajectories; what the codes mean. @type {{steps: Record<string, Record<string, number>>, titles: Record<string, string>}} */
    this.findings = { steps: {}, titles: {} };
    this.found = h("div", { class: "found bar", role: "status" });
    /** Rows of each step. @type {Map<number, number[]>} */
    this.steps = new Map();
    /** @type {number | undefined} */
    this.chosen = undefined;
    this.said = h("span", { class: "dim", role: "status" });
    this.element = h("div", { class: "curves" });
    this.lanes = h("div", { class: "lanes" });
    /** @type {any[]} */
    this.charts = [];
  }

  /** Rows of training by step. @param {import("./rows.js").Rows} rows @returns {Map<number, number[]>} */
  bySteps(rows) {
    /** @type {Map<number, number[]>} */
    const steps = new Map();
    const [step, validate] = [rows.numbers.step, rows.numbers.validate];
    for (let row = 0; row < rows.count; row += 1) {
      if (Number.isNaN(step[row]) || validate[row] === 1) continue;
      const list = steps.get(step[row]);
      if (list) list.push(row);
      else steps.set(step[row], [row]);
    }
    return new Map([...steps].sort(([a], [b]) => a - b));
  }

  close() { this.charts.forEach((chart) => chart.destroy()); this.charts = []; }

  /** Ask what is wrong with the steps, which may take the server a while, and mark it on the curves. */
  look() {
    fill(this.found, h("span", { class: "dim" }, "Looking for findings…"));
    source.findings(this.run).then((found) => {
      this.findings = found;
      this.charts.forEach((chart) => chart.redraw());
      this.tellFindings(this.chosen);
    }, (error) => fill(this.found, h("span", { class: "problem" }, error.message)));
  }

  /** The findings of a step, or of all, as links to their trajectories. @param {number | undefined} step */
  tellFindings(step) {
    /** @type {Map<string, number>} */
    const counts = new Map();
    for (const [number, codes] of Object.entries(this.findings.steps)) if (step === undefined || Number(number) === step) for (const [code, count] of Object.entries(codes)) counts.set(code, (counts.get(code) ?? 0) + count);
    const chips = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 12).map(([code, count]) => h("a", { class: "chip button", title: this.findings.titles[code], href: link(["run", this.run, "table"], { where: `finding = '${code}'${step === undefined ? "" : ` and step = ${step}`}` }) }, `${code} ×${count}`));
    fill(this.found, h("b", {}, `▲ ${step === undefined ? "findings" : `findings of step ${step}`}`), chips.length ? chips : h("span", { class: "dim" }, "none"));
  }

  /** Marks of findings along the top of a curve. @param {any} chart */
  marks(chart) {
    const { ctx, bbox } = chart;
    ctx.save();
    ctx.fillStyle = ink("--bad");
    for (const step of Object.keys(this.findings.steps)) {
      const [x, size] = [chart.valToPos(Number(step), "x", true), 4 * devicePixelRatio];
      if (!this.steps.has(Number(step)) || x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x + size, bbox.top + 2 * size);
      ctx.lineTo(x - size, bbox.top + 2 * size);
      ctx.fill();
    }
    ctx.restore();
  }

  draw() {
    this.close();
    this.steps = this.bySteps(this.rows);
    const second = this.beside ? this.bySteps(this.beside) : null;
    const boxes = CURVES.map(([title, column, how, isTime]) => {
      const own = figures(this.rows, this.steps, column, how);
      if (!own || (how !== "failed" && own.middle.every((value) => value === null))) return null;
      const box = h("figure", { class: "curve" }, h("figcaption", {}, title));
      return { box, own, isTime, isShare: how === "failed", others: second && this.beside ? figures(this.beside, second, column, how) : null, second };
    }).filter(Boolean);
    fill(this.element, boxes.map((each) => /** @type {any} */ (each).box));
    if (!this.steps.size) fill(this.element, h("p", { class: "empty" }, "No trajectory of this run has a step (attributes: {step: ...} in your list gives it one)."));
    this.said.textContent = `${counted(this.steps.size, "step")}; drag over steps to list their trajectories, click a step to see where its time went`;
    for (const each of boxes) this.chart(/** @type {any} */ (each));
  }

  /** @param {any} curve */
  chart({ box, own, isTime, isShare, others, second }) {
    const xs = [...new Set([...this.steps.keys(), ...(second ? second.keys() : [])])].sort((a, b) => a - b);
    const on = (/** @type {Map<number, any>} */ steps, /** @type {any[]} */ values) => { const by = new Map([...steps.keys()].map((step, place) => [step, values[place]])); return xs.map((x) => by.get(x) ?? null); };
    const [accent, second_] = [ink("--accent"), ink("--second")];
    const shown = (/** @type {any} */ _, /** @type {any} */ value) => (isTime ? seconds(value) : number(value, 4));
    const series = [{ label: "step" }, { label: "high", stroke: "transparent", points: { show: false }, value: shown }, { label: "low", stroke: "transparent", points: { show: false }, value: shown }, { label: this.run, stroke: accent, width: 2, value: shown, points: { show: xs.length < 40 } }];
    const data = [xs, on(this.steps, own.high), on(this.steps, own.low), on(this.steps, own.middle)];
    if (others && second) { series.push(/** @type {any} */ ({ label: this.other, stroke: second_, width: 2, dash: [6, 4], value: shown })); data.push(on(second, others.middle)); }
    const axis = { stroke: ink("--dim"), grid: { stroke: ink("--line"), width: 1 }, ticks: { stroke: ink("--line") }, font: "11px system-ui" };
    const options = {
      width: box.clientWidth || 380, height: 160, series, legend: { show: false }, bands: [{ series: [1, 2], fill: ink("--band") }],
      scales: { x: { time: false, range: (/** @type {any} */ _, /** @type {number} */ low, /** @type {number} */ high) => (low === high ? [low - 1, high + 1] : [low, high]) }, ...(isShare ? { y: { range: (/** @type {any} */ _, /** @type {number} */ __, /** @type {number} */ high) => [0, Math.max(0.1, high)] } } : {}) },
      axes: [{ ...axis, size: 26, incrs: WHOLE_STEPS }, { ...axis, size: 58, values: (/** @type {any} */ _, /** @type {number[]} */ values) => values.map((value) => (isTime ? seconds(value) : number(value, 3))) }],
      cursor: { y: false, sync: { key: "steps" }, drag: { x: true, y: false, setScale: false } },
      hooks: {
        draw: [(/** @type {any} */ chart) => this.marks(chart)],
        setSelect: [(/** @type {any} */ chart) => this.selected(chart)],
        setCursor: [(/** @type {any} */ chart) => this.tell(chart, box, own, isTime)],
        ready: [(/** @type {any} */ chart) => chart.over.addEventListener("click", () => this.step(xs[chart.cursor.idx ?? 0]))],
      },
    };
    this.charts.push(new uPlot(options, data, box));
  }

  /** Say the values under the pointer. @param {any} chart @param {any} box @param {any} own @param {boolean} isTime */
  tell(chart, box, own, isTime) {
    const at = chart.cursor.idx;
    const caption = box.querySelector("figcaption");
    caption.dataset.title ??= caption.textContent;
    const values = at === null || at === undefined ? "" : [3, 4].map((series) => chart.data[series]?.[at]).filter((value) => value !== undefined && value !== null).map((value) => (isTime ? seconds(value) : number(value))).join(" / ");
    caption.textContent = values ? `${caption.dataset.title}  step ${chart.data[0][at]}: ${values}` : caption.dataset.title;
  }

  /** @param {any} chart */
  selected(chart) {
    const { left, width } = chart.select;
    if (width < 6) return;
    const [from, to] = [Math.ceil(chart.posToVal(left, "x")), Math.floor(chart.posToVal(left + width, "x"))];
    if (to >= from) go(["run", this.run, "table"], { where: `step >= ${from} and step <= ${to}` });
  }

  /** @param {number} by */
  move(by) {
    const steps = [...this.steps.keys()];
    this.step(steps[Math.max(0, Math.min(steps.length - 1, steps.indexOf(this.chosen ?? NaN) + by))]);
  }

  /** Show the rollouts of a step over time. @param {any} step */
  step(step) {
    const rows = step === null || step === undefined ? undefined : this.steps.get(Number(step));
    if (!rows) return;
    this.chosen = Number(step);
    note({ step });
    this.tellFindings(this.chosen);
    showLanes(this.lanes, this.run, this.chosen).catch((error) => fill(this.lanes, h("p", { class: "problem" }, error.message)));
  }
}

/** @param {import("./rows.js").Rows} rows @param {Map<number, number[]>} steps @param {string} column @param {string} how */
function figures(rows, steps, column, how) {
  const values = column === "staleness" ? late(rows) : column === "status" || column === "step" ? rows.numbers.step : rows.numbers[column];
  if (!values) return null;
  const [middle, low, high] = [[], [], []].map(() => /** @type {(number | null)[]} */ ([]));
  for (const members of steps.values()) {
    if (how !== "spread") {
      const share = how === "count" ? members.length : members.filter((row) => rows.value("status", row) !== "OK").length / members.length;
      middle.push(share); low.push(null); high.push(null);
      continue;
    }
    const given = members.map((row) => values[row]).filter((value) => !Number.isNaN(value)).sort((a, b) => a - b);
    const mean = given.reduce((a, b) => a + b, 0) / given.length;
    middle.push(given.length ? mean : null);
    low.push(given.length ? given[Math.floor((given.length - 1) * 0.1)] : null);
    high.push(given.length ? given[Math.ceil((given.length - 1) * 0.9)] : null);
  }
  return { middle, low, high };
}

/** In how many steps after its own each one was trained. @param {import("./rows.js").Rows} rows */
function late(rows) {
  const trained = rows.numbers.trained_in_step;
  return trained ? trained.map((step, row) => step - rows.numbers.step[row]) : undefined;
}
