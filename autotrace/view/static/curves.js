// Curves over training steps: the mean and the range of a run, other runs laid over it, and marks where findings are.
import { address, decoded, go, link } from "./address.js";
import { fill, h, ink } from "./dom.js";
import { absent, number, seconds } from "./format.js";

const WHOLE_STEPS = Array.from({ length: 48 }, (_, at) => [1, 2, 5][at % 3] * 10 ** Math.floor(at / 3));
/** Colour and dashes of each run laid over one: people who see few colours tell the dashes apart.
 * @type {[string, number[]][]} */
const OVER = [["--second", [6, 4]], ["--role-reward", [2, 3]], ["--role-tool", [12, 4]], ["--bad", [12, 3, 2, 3]]];

/** `middle` has a value for each of `steps`, and so have `low` and `high`.
 * @typedef {{label: string, steps: number[], middle: (number | null)[],
 * low?: (number | null)[], high?: (number | null)[]}}
 * Line */
/** `marks`: what is marked at a step.
 * @typedef {{isTime?: boolean, isShare?: boolean, marks: () => Map<number, string>,
 * chosen: (step: number) => void, selected?: (from: number, to: number) => void}}
 * How */

/** Draw lines, the run's own first. @param {any} box a figure with a caption @param {Line[]} lines @param {How} how
 * @returns {any} */
export function curve(box, lines, how) {
  const xs = [...new Set(lines.flatMap((line) => line.steps))].sort((a, b) => a - b);
  const on = (/** @type {Line} */ line, /** @type {any[] | undefined} */ values) => {
    const by = new Map(line.steps.map((step, place) => [step, values?.[place]]));
    return xs.map((x) => by.get(x) ?? null);
  };
  const shown = (/** @type {any} */ value) => (how.isTime ? seconds(value) : number(value, 4));
  const [[own, ...others], unseen] = [lines, { stroke: "transparent", points: { show: false } }];
  const series = [
    { label: "step" },
    { label: "high", ...unseen },
    { label: "low", ...unseen },
    { label: own.label, stroke: ink("--accent"), width: 2, points: { show: xs.length < 40 } },
    ...others.map((line, place) => ({
      label: line.label,
      stroke: ink(OVER[place][0]),
      width: 2,
      dash: OVER[place][1],
    })),
  ];
  const axis = {
    stroke: ink("--dim"),
    grid: { stroke: ink("--line"), width: 1 },
    ticks: { stroke: ink("--line") },
    font: "11px system-ui",
  };
  const title = box.querySelector("figcaption").textContent;
  /** @type {UPlotOptions} */
  const options = {
    width: box.clientWidth || 380,
    height: 160,
    series,
    legend: { show: false },
    bands: [{ series: [1, 2], fill: ink("--band") }],
    scales: {
      x: { time: false, range: (_, low, high) => (low === high ? [low - 1, high + 1] : [low, high]) },
      ...(how.isShare ? { y: { range: (_, __, high) => [0, Math.max(0.1, high)] } } : {}),
    },
    axes: [{
      ...axis,
      size: 26,
      incrs: WHOLE_STEPS,
      values: (_, values) => values.map((value) => (value >= xs[0] && value <= xs[xs.length - 1] ? number(value) : "")),
    }, {
      ...axis,
      size: 58,
      values: (_, values, __, ___, step) => values.map((at) => how.isTime ? seconds(at) : ticked(at, step)),
    }],
    cursor: { y: false, sync: { key: "steps" }, drag: { x: how.selected !== undefined, y: false, setScale: false } },
    hooks: {
      draw: [(chart) => mark(chart, xs, how.marks())],
      setSelect: [(chart) => selected(chart, how)],
      setCursor: [(chart) => {
        const at = chart.cursor.idx;
        /** @type {any[]} */
        const there = absent(at) ? [] : chart.data.slice(3).map((/** @type {any} */ each) => each[at]);
        const values = there.filter((value) => !absent(value)).map(shown).join(" / ");
        box.querySelector("figcaption").textContent = values
          ? [`${title}  step ${xs[at]}: ${values}`, how.marks().get(xs[at])].filter(Boolean).join("  ▲ ")
          : title;
      }],
      ready: [(chart) => chart.over.addEventListener("click", () => how.chosen(xs[chart.cursor.idx ?? 0]))],
    },
  };
  return new uPlot(
    options,
    [xs, on(own, own.high), on(own, own.low), ...lines.map((line) => on(line, line.middle))],
    box,
  );
}

/** A tick with as many digits as tell it from the next. @param {number} value @param {number} step between ticks */
function ticked(value, step) {
  let digits = 0;
  while (digits < 12 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6) digits += 1;
  return Math.abs(value) >= 1e6 || (step < 1e-6 && value)
    ? value.toExponential(2)
    : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** Triangles along the top of a curve. @param {any} chart @param {number[]} xs @param {Map<number, string>} marks */
function mark(chart, xs, marks) {
  const { ctx, bbox } = chart;
  ctx.save();
  ctx.fillStyle = ink("--bad");
  for (const step of marks.keys()) {
    const [x, size] = [chart.valToPos(step, "x", true), 4 * devicePixelRatio];
    if (!xs.includes(step) || x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x + size, bbox.top + 2 * size);
    ctx.lineTo(x - size, bbox.top + 2 * size);
    ctx.fill();
  }
  ctx.restore();
}

/** @param {any} chart @param {How} how */
function selected(chart, how) {
  const { left, width } = chart.select;
  const [from, to] = [Math.ceil(chart.posToVal(left, "x")), Math.floor(chart.posToVal(left + width, "x"))];
  if (width >= 6 && to >= from) how.selected?.(from, to);
}

/** Step -> which findings begin there. @param {{found: Finding[]}} findings @returns {Map<number, string>} */
export function begun({ found }) {
  const steps = Map.groupBy(found.filter((each) => each.since_step !== null), (each) => each.since_step ?? 0);
  return new Map(
    [...steps].sort(([a], [b]) => a - b).map(([step, each]) => [
      step,
      `${each.map(({ code }) => code).join(", ")} ${each.length > 1 ? "begin" : "begins"}`,
    ]),
  );
}

/** The runs that lie over the one that is shown. @returns {string[]} */
export const overlaid = () =>
  (address().query.get("with") ?? "").split(",").filter(Boolean).map(decoded).slice(0, OVER.length);

/** How these are written in an address. @param {string[]} names */
export const written = (names) => names.map(encodeURIComponent).join(",");

/** Which runs lie over this one, to be chosen. @param {string} run @param {RunLine[]} runs all of them @param {string}
 * page */
export function overlays(run, runs, page) {
  const [chosen, others] = [overlaid(), runs.filter((each) => each.run !== run)];
  if (!others.length) return null;
  const box = h("details.with", { open: chosen.length > 0 }, h("summary", "lay other runs over it"));
  const change = () => {
    const now = [...box.querySelectorAll("input:checked")].map((each) => each.value);
    // colours stay
    go(["run", run, page], {
      with: written([...chosen.filter((name) => now.includes(name)), ...now.filter((name) => !chosen.includes(name))]),
    });
  };
  for (const { run: name, trajectories } of others) {
    const place = chosen.indexOf(name), free = place >= 0 || chosen.length < OVER.length;
    const beside = () => h("a", { href: link(["run", run, "diff"], { with: written([name]) }) }, "what differs");
    box.append(
      h("label", [
        h("input", { type: "checkbox", value: name, checked: place >= 0, disabled: !free, onchange: change }),
        name,
        trajectories === null ? "" : ` (${number(trajectories)})`,
        place >= 0 && h("i.line", { style: { background: `var(${OVER[place][0]})` } }),
        place >= 0 && beside(),
      ]),
    );
  }
  return box;
}

/** The charts of each element. @type {Map<HTMLElement, any[]>} */
const charts = new Map();

/** Put figures for curves into an element, instead of those that are there, and draw them; none: those of elements that
 * are shown no more are let go, too. @param {any} element @param {{title: string, lines: Line[], how: How}[]} curves
 * @returns {any[]} */
export function drawn(element, curves) {
  for (const [box, old] of charts) {
    if (box !== element && box.isConnected) continue;
    old.forEach((chart) => chart.destroy());
    charts.delete(box);
  }
  const boxes = curves.map(({ title }) => h("figure.curve", h("figcaption", [title])));
  fill(element, boxes);
  const made = curves.map(({ lines, how }, place) => curve(boxes[place], lines, how));
  charts.set(element, made);
  return made;
}
