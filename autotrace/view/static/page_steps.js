// A run over its training steps: curves, and of one step where its rollouts waited.
import { address, go, link, note } from "./address.js";
import { source } from "./data.js";
import { Surface, fill, h, ink, visible } from "./dom.js";
import { counted, number, seconds, ticks } from "./format.js";
import { completeRowsOf } from "./rows.js";

/** Title, column, how the values of a step become one number, whether it is seconds. @type {[string, string, string, boolean][]} */
const CURVES = [
  ["reward", "reward", "spread", false], ["without OK", "status", "failed", false], ["tokens written", "response_tokens", "spread", false], ["turns", "turns", "spread", false],
  ["duration", "duration", "spread", true], ["tools", "tool_s", "spread", true], ["waiting for the engine", "queue_s", "spread", true], ["decode", "decode_s", "spread", true],
  ["advantage", "facts.advantage", "spread", false], ["trained later, in steps", "staleness", "spread", false], ["trajectories", "step", "count", false],
];
const STACK = [["queue_s", "--phase-queue", "queue"], ["prefill_s", "--phase-prefill", "prefill"], ["decode_s", "--phase-decode", "decode"], ["way_s", "--role-engine", "way"], ["llm_s", "--role-llm", "llm"], ["tool_s", "--role-tool", "tools"], ["reward_s", "--role-reward", "reward"], ["other_s", "--role-other", "other"]];

/** @param {any} page @param {string} run @returns {Promise<import("./main.js").Page>} */
export async function showSteps(page, run) {
  const { query } = address();
  const other = query.get("with") ?? "";
  const [rows, beside, { runs }] = await Promise.all([completeRowsOf(run), other ? completeRowsOf(other) : null, source.runs()]);
  const curves = new Curves(run, rows, beside, other);
  const choice = h("select", { "aria-label": "another run over this one", onchange: () => go(["run", run, "steps"], { with: choice.value }) },
    ["", ...runs.map((/** @type {any} */ each) => each.run).filter((/** @type {string} */ name) => name !== run)].map((value) => h("option", { value, selected: value === other }, value || "no other run")));
  fill(page, h("section", { class: "steps-page" }, h("div", { class: "bar" }, h("h1", {}, "Steps"), source.exported ? null : choice, curves.said), curves.element, curves.lanes));
  curves.draw();
  curves.step(query.get("step"));
  return { title: "steps", keys: { j: () => curves.move(1), k: () => curves.move(-1) }, again: async () => { curves.rows = await completeRowsOf(run); curves.draw(); }, close: () => curves.close(), restyle: () => curves.draw() };
}

class Curves {
  /** @param {string} run @param {import("./rows.js").Rows} rows @param {import("./rows.js").Rows | null} beside @param {string} other */
  constructor(run, rows, beside, other) {
    this.run = run;
    this.rows = rows;
    this.beside = beside;
    this.other = other;
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
    this.said.textContent = `${counted(this.steps.size, "step")}; drag over steps to list their trajectories, click a step to see where it waited`;
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
      axes: [{ ...axis, size: 26, values: (/** @type {any} */ _, /** @type {number[]} */ values) => values.map((value) => (Number.isInteger(value) ? value : "")) }, { ...axis, size: 58, values: (/** @type {any} */ _, /** @type {number[]} */ values) => values.map((value) => (isTime ? seconds(value) : number(value, 3))) }],
      cursor: { sync: { key: "steps" }, drag: { x: true, y: false, setScale: false } },
      hooks: {
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
    showLanes(this.lanes, this.run, this.rows, this.chosen, rows);
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
  const trained = rows.numbers["facts.trained_in_step"];
  return trained ? trained.map((step, row) => step - rows.numbers.step[row]) : undefined;
}

const [LANE, LANE_TOP] = [14, 20];

/** All rollouts of a step as lanes; what they spent their time on, and how many ran at once. @param {any} box @param {string} run @param {import("./rows.js").Rows} rows @param {number} step @param {number[]} members */
function showLanes(box, run, rows, step, members) {
  const [start, duration] = [rows.numbers.start, rows.numbers.duration];
  const chosen = members.filter((row) => !Number.isNaN(start[row])).sort((a, b) => start[a] - start[b]);
  const zero = Math.min(...chosen.map((row) => start[row]));
  const length = (/** @type {number} */ row) => (Number.isNaN(duration[row]) ? 0 : duration[row]);
  const total = Math.max(1e-3, ...chosen.map((row) => start[row] + length(row) - zero));
  const given = STACK.filter(([name]) => rows.numbers[name]);
  const sums = given.map(([name]) => chosen.reduce((sum, row) => sum + (rows.numbers[name][row] || 0), 0));
  const all = sums.reduce((a, b) => a + b, 0) || 1;
  const last = chosen.reduce((a, b) => (start[a] + length(a) > start[b] + length(b) ? a : b), chosen[0]);
  const slow = link(["run", run, "trace", rows.id(last)], { view: "timeline" });
  const canvas = h("canvas", { class: "lanes-canvas", role: "img", "aria-label": `rollouts of step ${step} over time`, style: { height: `${Math.min(chosen.length * LANE + LANE_TOP + 6, 16000)}px` } });
  const tip = h("div", { class: "pointed", role: "status" }, "Each lane is a rollout; its colours are how its time was spent, not in what order. A click opens it.");
  fill(box, h("div", { class: "bar" }, h("h2", {}, `Step ${step}: ${counted(chosen.length, "rollout")}, ${seconds(total)}`), h("span", { class: "dim" }, "the last to end is ", h("a", { href: slow }, rows.id(last).slice(0, 8)), `, ${seconds(length(last))}`),
    h("a", { class: "button quiet", href: link(["run", run, "table"], { where: `step = ${step}` }) }, "list them")),
    h("div", { class: "legend" }, given.map(([, colour, word], place) => h("span", { class: "key" }, h("i", { style: { background: `var(${colour})` } }), `${word} ${Math.round((100 * sums[place]) / all)} %`))), tip, canvas);
  const surface = new Surface(canvas, ({ context, width, height }) => {
    const colours = given.map(([, name]) => ink(name));
    const x = (/** @type {number} */ time) => 4 + (time / total) * (width - 8);
    context.font = "11px system-ui, sans-serif";
    for (const time of ticks(0, total, 8)) {
      context.fillStyle = ink("--dim");
      context.fillText(seconds(time), Math.min(width - 40, x(time) + 2), 10);
      context.fillStyle = ink("--line");
      context.fillRect(x(time), 12, 1, height);
    }
    chosen.forEach((row, place) => {
      const [y, left, right] = [LANE_TOP + place * LANE, x(start[row] - zero), x(start[row] - zero + (length(row) || total))];
      context.fillStyle = ink("--line");
      context.fillRect(left, y, Math.max(1, right - left), LANE - 3);
      const spent = given.map(([name]) => rows.numbers[name][row] || 0);
      const sum = spent.reduce((a, b) => a + b, 0) || 1;
      let at = left;
      spent.forEach((part, number_) => { const wide = ((right - left) * part) / sum; context.fillStyle = colours[number_]; context.fillRect(at, y, wide, LANE - 3); at += wide; });
      if (rows.value("status", row) !== "OK") { context.strokeStyle = ink("--bad"); context.lineWidth = 2; context.strokeRect(left, y, Math.max(2, right - left), LANE - 3); }
    });
  });
  const under = (/** @type {MouseEvent} */ event) => chosen[Math.floor((event.offsetY - LANE_TOP) / LANE)];
  canvas.addEventListener("click", (/** @type {MouseEvent} */ event) => { const row = under(event); if (row !== undefined) go(["run", run, "trace", rows.id(row)]); });
  canvas.addEventListener("mousemove", (/** @type {MouseEvent} */ event) => {
    const row = under(event);
    if (row === undefined) return;
    const spent = given.filter(([name]) => rows.numbers[name][row] > 0).map(([name, , word]) => `${word} ${seconds(rows.numbers[name][row])}`);
    tip.textContent = visible([rows.id(row).slice(0, 8), `sample ${rows.value("sample_index", row) ?? ""} n ${rows.value("rollout_n", row) ?? ""}`, `reward ${number(rows.value("reward", row))}`, seconds(duration[row]) || "open", ...spent].join("  ·  "));
  });
  surface.draw();
}
