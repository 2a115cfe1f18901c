// Pictures of cells over the steps: how often each prompt was solved, how long the outputs are; the rewards of each
// data source; and how many rollouts had which reward.
import { go } from "./address.js";
import { fill, h, ink, legendKey, pointed, Surface, visible } from "./dom.js";
import { counted, number } from "./format.js";
import { solving } from "./strip.js";

const [HEAT_ROW, HEAT_LABELS, HEAT_TOP, HEAT_MOST] = [16, 170, 18, 60];
/** Different rewards up to which they are counted one by one. */
const DISCRETE = 12;
/** Parts into which the tokens up to the limit are divided, and all of them at most. */
const [BANDS, BANDS_MOST] = [10, 15];
/** Colours from nobody to everybody, and from few to many. */
const SOLVED = ["--d0", "--d1", "--d2", "--d3", "--s1", "--d5", "--d6", "--d7", "--d8"];
const MANY = ["--k0", "--k1", "--d6", "--d7", "--d8"];

/** @typedef {import("./rows.js").Rows} Rows @typedef {Map<number, number[]>} Steps */
/** `names`: of the rows, from the top; `cell`: the share 0..1 of a row in a step, null: none; `told`: what the cell is;
 * `chosen`: what a click on it lists; `line`: the row above which a line is drawn.
 * @typedef {{label: string, names: string[], colours: string[], cell: (row: number, step: number) => number | null,
 * told: (row: number, step: number) => string, chosen: (row: number, step: number) => string, line?: number}} Cells */

/** A picture of cells, a column for each step, and the words that it says. @param {string} run @param {number[]} order
 * @param {string} words at first @param {Cells} cells */
function grid(run, order, words, { label, names, colours, cell, told, chosen, line }) {
  const said = h("p.dim", { role: "status" }, words);
  const [high, most] = [names.length * HEAT_ROW + HEAT_TOP + 4, HEAT_LABELS + order.length * 90];
  const canvas = h("canvas.heat", {
    role: "img",
    "aria-label": label,
    style: { height: `${high}px`, maxWidth: `${most}px` },
  });
  const surface = new Surface(canvas, ({ context, width }) => {
    const wide = (width - HEAT_LABELS) / order.length, every = Math.ceil(34 / wide);
    const [text, empty, inks] = [ink("--dim"), ink("--line"), colours.map(ink)];
    context.font = "11px system-ui, sans-serif";
    [context.textBaseline, context.fillStyle] = ["middle", text];
    order.forEach((step, at) => {
      if (at % every === 0) context.fillText(String(step), HEAT_LABELS + at * wide + 1, HEAT_TOP / 2);
    });
    names.forEach((name, row) => {
      const y = HEAT_TOP + row * HEAT_ROW;
      context.fillStyle = text;
      context.fillText(visible(name).slice(0, 26), 2, y + HEAT_ROW / 2, HEAT_LABELS - 8);
      order.forEach((step, at) => {
        const share = cell(row, step), inset = share === null ? HEAT_ROW / 2 - 1 : 0;
        context.fillStyle = share === null ? empty : inks[Math.round((inks.length - 1) * share)];
        context.fillRect(HEAT_LABELS + at * wide, y + inset, Math.max(1, wide - 1), HEAT_ROW - 1 - 2 * inset);
      });
    });
    context.fillStyle = ink("--bad");
    if (line !== undefined) context.fillRect(0, HEAT_TOP + line * HEAT_ROW - 1, width, 2);
  });
  const under = (/** @type {MouseEvent} */ event) => {
    const row = Math.floor((event.offsetY - HEAT_TOP) / HEAT_ROW);
    const step = order[Math.floor((event.offsetX - HEAT_LABELS) / ((surface.width - HEAT_LABELS) / order.length))];
    return names[row] !== undefined && step !== undefined && cell(row, step) !== null ? { row, step } : null;
  };
  pointed(
    canvas,
    under,
    ({ row, step }) => said.textContent = visible(`step ${step} · ${told(row, step)}`),
    ({ row, step }) => go(["run", run, "table"], { where: `step = ${step} and ${chosen(row, step)}` }),
  );
  surface.draw();
  return [said, canvas];
}

/** @param {any} box @param {string} run @param {Rows} rows @param {Steps} steps */
export async function showHeat(box, run, rows, steps) {
  const prompts = await byPrompt(run, rows, steps);
  fill(box, prompts, lengths(run, rows, steps), bySource(rows, steps), strips(rows, steps));
}

/** How often each prompt was solved in each step. @param {string} run @param {Rows} rows @param {Steps} steps */
async function byPrompt(run, rows, steps) {
  const solved = await solving(rows), order = [...steps.keys()];
  const by = rows.texts.sample_index ? "sample_index" : "prompt", [keys, texts] = [rows.texts[by], rows.texts.prompt];
  /** Prompt -> step -> solved, judged. @type {Map<string, {text: string, cells: Map<number, [number, number]>}>} */
  const found = new Map();
  for (const [step, members] of steps) {
    for (const row of members) {
      const code = keys?.codes[row] ?? -1, value = solved.of(row);
      if (code < 0 || value !== value) continue;
      const key = keys.words[code],
        one = found.get(key) ?? { text: texts?.words[texts.codes[row]] ?? "", cells: new Map() };
      const [a, b] = one.cells.get(step) ?? [0, 0];
      one.cells.set(step, [a + value, b + 1]);
      found.set(key, one);
    }
  }
  const rate = (/** @type {Map<number, [number, number]>} */ cells) =>
    [...cells.values()].reduce((sum, [a, b]) => sum + a / b, 0) / cells.size;
  const listed = [...found].sort(([, a], [, b]) => rate(a.cells) - rate(b.cells)).slice(0, HEAT_MOST);
  if (!listed.length) return null;
  const of = (/** @type {number} */ row, /** @type {number} */ step) => listed[row][1].cells.get(step);
  const words = `Solved: ${solved.words}. The hardest prompts first; a click lists the rollouts.`;
  const [said, canvas] = grid(run, order, words, {
    label: `share solved of ${counted(listed.length, "prompt")} in ${counted(order.length, "step")}`,
    names: listed.map(([key, { text }]) => `${key}  ${text}`),
    colours: SOLVED,
    cell: (row, step) => {
      const cell = of(row, step);
      return cell ? cell[0] / cell[1] : null;
    },
    told: (row, step) =>
      `prompt ${listed[row][0].slice(0, 80)} · ${of(row, step)?.join(" of ")} solved` +
      ` · ${listed[row][1].text.slice(0, 120)}`,
    chosen: (row) => `${by} = '${listed[row][0].replaceAll("'", "''")}'`,
  });
  const key = [["d0", "nobody"], ["s1", "half"], ["d8", "all"]];
  return [
    h("h2", "Prompts by step"),
    said,
    h("div.legend", key.map(([name, word]) => legendKey(name, word))),
    canvas,
  ];
}

/** How long the outputs of each step are, with the limit. @param {string} run @param {Rows} rows
 * @param {Steps} steps */
function lengths(run, rows, steps) {
  const { response_tokens: tokens } = rows.numbers, { limit } = rows.names;
  const longest = (tokens ?? []).reduce((a, b) => (b > a ? b : a), 0);
  if (!longest) return null;
  const whole = limit ?? Math.max(BANDS, longest);
  const part = (/** @type {number} */ value) => Math.ceil((value * BANDS) / whole);
  const bands = Math.max(BANDS, Math.min(BANDS_MOST, part(longest)));
  const band = (/** @type {number} */ row) => bands - 1 - row;
  const edge = (/** @type {number} */ at) => (at === BANDS_MOST ? longest : Math.floor((at * whole) / BANDS));
  const ends = (/** @type {number} */ row) => [edge(band(row)) + 1, edge(band(row) + 1)];
  /** Step -> rollouts of each row, and all. @type {Map<number, number[]>} */
  const counts = new Map();
  for (const [step, members] of steps) {
    const of = new Array(bands + 1).fill(0);
    for (const row of members) {
      if (!(tokens[row] >= 0)) continue;
      of[band(Math.max(0, Math.min(bands, part(tokens[row])) - 1))] += 1;
      of[bands] += 1;
    }
    counts.set(step, of);
  }
  const at = (/** @type {number} */ step, /** @type {number} */ row) => counts.get(step)?.[row] ?? 0;
  const named = (/** @type {number} */ row) => ends(row).map((end) => number(end)).join(" to ");
  const words = limit ? `The line is the limit of a response, ${number(limit)} tokens with those of tools.` : "";
  return [
    h("h2", "Output tokens by step"),
    ...grid(run, [...steps.keys()], `${words} A click lists rollouts.`, {
      label: `output tokens of the rollouts of ${counted(steps.size, "step")}${
        limit ? `, limit ${number(limit)}` : ""
      }`,
      names: [...new Array(bands).keys()].map(named),
      colours: MANY,
      line: limit ? bands - BANDS : undefined,
      cell: (row, step) => (at(step, row) ? at(step, row) / at(step, bands) : null),
      told: (row, step) => `${named(row)} tokens · ${at(step, row)} of ${counted(at(step, bands), "rollout")}`,
      chosen: (row) => `response_tokens >= ${band(row) ? ends(row)[0] : 0} and response_tokens <= ${ends(row)[1]}`,
    }),
  ];
}

/** Some steps, for the columns of a table: the first and the last are among them. @param {Steps} steps */
function fewSteps(steps) {
  const order = [...steps.keys()];
  return order.filter((_, at) => at === 0 || at === order.length - 1 || at % Math.ceil(order.length / 16) === 0);
}

/** A table with a column for some steps. @param {string} caption @param {string} first @param {Steps} steps
 * @param {[string, (step: number) => string][]} lines */
const byStep = (caption, first, steps, lines) =>
  h("div.wide", [
    h("table.plain", [
      h("caption", [caption]),
      h("tr", [h("th", [first]), fewSteps(steps).map((step) => h("th.n", `${step}`))]),
      lines.map(([name, value]) => h("tr", h("td", [name]), fewSteps(steps).map((step) => h("td.n", [value(step)])))),
    ]),
  ]);

/** The mean reward of each source of data, by step. @param {Rows} rows @param {Steps} steps */
function bySource(rows, steps) {
  const { data_source: sources } = rows.texts, { reward } = rows.numbers;
  if (!sources || sources.words.length < 2) return null;
  return byStep(
    "reward by data source and step",
    "data source",
    steps,
    sources.words.slice(0, 20).map((word, code) => [word, (step) => {
      const values = (steps.get(step) ?? []).filter((row) =>
        sources.codes[row] === code && reward[row] === reward[row]
      );
      return values.length ? number(values.reduce((sum, row) => sum + reward[row], 0) / values.length, 3) : "";
    }]),
  );
}

/** How many rollouts of each step had which reward, if rewards have few values. @param {Rows} rows
 * @param {Steps} steps */
function strips(rows, steps) {
  const { reward } = rows.numbers;
  const values = [...new Set([...reward].filter((value) => value === value))].sort((a, b) => b - a);
  if (values.length < 2 || values.length > DISCRETE) return null;
  const count = (/** @type {number} */ value) => (/** @type {number} */ step) =>
    String((steps.get(step) ?? []).filter((row) => reward[row] === value).length || "");
  return byStep("rollouts by reward and step", "reward", steps, values.map((value) => [number(value), count(value)]));
}
