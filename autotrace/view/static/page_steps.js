// A run over its training steps: curves, and of one step where its rollouts waited.
import { address, go, link, note } from "./address.js";
import { begun, drawn, overlaid, overlays } from "./curves.js";
import { source } from "./data.js";
import { fill, h } from "./dom.js";
import { counted } from "./format.js";
import { showHeat } from "./heat.js";
import { showLanes } from "./lanes.js";
import { rowsOf } from "./rows.js";
import { rowsBySteps } from "./strip.js";

/** Title, column, how the values of a step become one number, whether it is seconds.
 * @type {[string, string, string, boolean][]} */
const CURVES = [
  ["reward", "reward", "spread", false],
  ["not OK", "status", "failed", false],
  ["output tokens", "response_tokens", "spread", false],
  ["turns", "turns", "spread", false],
  ["duration", "duration", "spread", true],
  ["tools", "tool_s", "spread", true],
  ["waiting for the engine", "queue_s", "spread", true],
  ["decode", "decode_s", "spread", true],
  ["advantage", "advantage", "spread", false],
  ["mismatch, mean of a token", "mismatch_mean", "spread", false],
  ["entropy", "facts.entropy", "spread", false],
  ["trained later, in steps", "staleness", "spread", false],
  ["trajectories", "step", "count", false],
];
const STEPLESS = [
  "No trajectory of this run has a step (attributes: {step: ...} in your list gives it one). ",
  "If only a trainer's metrics are here, the overview shows them.",
];
const READ = [...CURVES.map(([, column]) => column), "trained_in_step", "sample_index", "prompt", "data_source"];

/** @param {import("./main.js").Present} present @param {string} run @returns {Promise<import("./main.js").Page>} */
export async function showSteps(present, run) {
  const { query } = address(), others = source.exported ? [] : overlaid();
  const reading = Promise.all([run, ...others].map((each) => rowsOf(each, READ)));
  const [[rows, ...beside], { runs }] = await Promise.all([reading, source.runs()]);
  const curves = new Curves(run, rows, beside, others);
  present(
    h("section.steps-page", [
      h("div.bar", h("h1", "Steps"), source.exported ? null : overlays(run, runs, "steps"), curves.said),
      curves.found,
      curves.element,
      curves.lanes,
      curves.heat,
    ]),
  );
  curves.draw();
  curves.step(query.get("step"));
  curves.look();
  return {
    title: "steps",
    keys: { j: () => curves.move(1), k: () => curves.move(-1) },
    again: async () => {
      curves.rows = await rowsOf(run, READ);
      curves.draw();
    },
    close: () => drawn(curves.element, []),
    restyle: () => curves.draw(),
  };
}

class Curves {
  /** @param {string} run @param {import("./rows.js").Rows} rows @param {import("./rows.js").Rows[]} beside
   * @param {string[]} others */
  constructor(run, rows, beside, others) {
    this.run = run;
    this.rows = rows;
    this.beside = beside;
    this.others = others;
    /** What diagnose finds: step -> code -> how many trajectories; what the codes mean.
     * @type {Pick<Findings, "steps" | "titles" | "found">} */
    this.findings = { steps: {}, titles: {}, found: [] };
    this.found = h("div.found.bar", { role: "status" });
    /** Rows of each step. @type {Map<number, number[]>} */
    this.steps = new Map();
    /** @type {number | undefined} */
    this.chosen = undefined;
    this.said = h("span.dim", { role: "status" });
    this.element = h("div.curves");
    this.lanes = h("div.lanes");
    this.heat = h("section.heat-box");
    /** @type {any[]} */
    this.charts = [];
  }

  /** Ask what is wrong with the steps, which may take the server a while, and mark it on the curves. */
  look() {
    fill(this.found, h("span.dim", "Looking for findings…"));
    source.findings(this.run, (words) => fill(this.found, h("span.dim", [words]))).then((found) => {
      this.findings = found;
      this.charts.forEach((chart) => chart.redraw());
      this.tellFindings(this.chosen);
    }, (error) => fill(this.found, h("span.problem", [error.message])));
  }

  /** The findings of a step, or of all, as links to their trajectories. @param {number | undefined} step */
  tellFindings(step) {
    /** @type {Map<string, number>} */
    const counts = new Map();
    for (const [number, codes] of Object.entries(this.findings.steps)) {
      if (step === undefined || Number(number) === step) {
        for (const [code, count] of Object.entries(codes)) counts.set(code, (counts.get(code) ?? 0) + count);
      }
    }
    const chips = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 12).map(([code, count]) =>
      h("a.chip.button", {
        title: this.findings.titles[code],
        href: link(["run", this.run, "table"], {
          where: `finding = '${code}'${step === undefined ? "" : ` and step = ${step}`}`,
        }),
      }, `${code} ×${count}`)
    );
    fill(this.found, [
      h("b", `▲ ${step === undefined ? "findings" : `findings of step ${step}`}`),
      chips.length ? chips : h("span.dim", "none"),
    ]);
  }

  draw() {
    this.steps = rowsBySteps(this.rows);
    const others = this.beside.map((rows) => ({ rows, steps: rowsBySteps(rows) }));
    /** @type {import("./curves.js").How} */
    const all = {
      marks: () => begun(this.findings),
      selected: (from, to) => go(["run", this.run, "table"], { where: `step >= ${from} and step <= ${to}` }),
      chosen: (step) => this.step(step),
    };
    const curves = CURVES.flatMap(([title, column, how, isTime]) => {
      const lines = [{ rows: this.rows, steps: this.steps }, ...others].map(({ rows, steps }, place) => ({
        label: [this.run, ...this.others][place],
        steps: [...steps.keys()],
        ...(figures(rows, steps, column, how) ?? { middle: [] }),
      }));
      const isThere = how === "failed" ? lines[0].middle.length : lines[0].middle.some((value) => value !== null);
      return isThere ? [{ title, lines, how: { isTime, isShare: how === "failed", ...all } }] : [];
    });
    this.charts = drawn(this.element, curves);
    if (!this.steps.size) {
      fill(this.element, h("p.empty", STEPLESS));
    }
    showHeat(this.heat, this.run, this.rows, this.steps);
    const use = "drag over steps to list their trajectories, click a step to see where its time went";
    this.said.textContent = `${counted(this.steps.size, "step")}; ${use}`;
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
    showLanes(this.lanes, this.run, this.chosen).catch((error) => fill(this.lanes, h("p.problem", [error.message])));
  }
}

/** @param {import("./rows.js").Rows} rows @param {Map<number, number[]>} steps @param {string} column
 * @param {string} how */
function figures(rows, steps, column, how) {
  const values = column === "staleness"
    ? late(rows)
    : column === "status" || column === "step"
    ? rows.numbers.step
    : rows.numbers[column];
  if (!values) return null;
  const [middle, low, high] = [[], [], []].map(() => /** @type {(number | null)[]} */ ([]));
  for (const members of steps.values()) {
    if (how !== "spread") {
      const ended = members.map((row) => rows.value("status", row)).filter((status) => status !== "OPEN");
      const failed = ended.length ? ended.filter((status) => status !== "OK").length / ended.length : null;
      middle.push(how === "count" ? members.length : failed);
      low.push(null);
      high.push(null);
      continue;
    }
    const given = members.map((row) => values[row]).filter((value) => !Number.isNaN(value));
    const mean = given.reduce((a, b) => a + b, 0) / given.length;
    middle.push(given.length ? mean : null);
    const error = Math.sqrt(
      given.reduce((sum, value) => sum + (value - mean) ** 2, 0) / Math.max(1, given.length - 1) / given.length,
    );
    low.push(given.length > 1 ? mean - error : null);
    high.push(given.length > 1 ? mean + error : null);
  }
  return { middle, low, high };
}

/** In how many steps after its own each one was trained. @param {import("./rows.js").Rows} rows */
function late(rows) {
  const trained = rows.numbers.trained_in_step;
  return trained ? trained.map((step, row) => step - rows.numbers.step[row]) : undefined;
}
