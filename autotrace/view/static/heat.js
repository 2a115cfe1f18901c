// How often each prompt was solved in each step; the rewards of each data source; and how many rollouts had which reward.
import { go } from "./address.js";
import { Surface, fill, h, ink, visible } from "./dom.js";
import { counted, number } from "./format.js";
import { solving } from "./strip.js";

const [HEAT_ROW, HEAT_LABELS, HEAT_TOP, HEAT_MOST] = [16, 170, 18, 60];
/** Different rewards up to which they are counted one by one. */
const DISCRETE = 12;

/** @typedef {import("./rows.js").Rows} Rows */

/** The name of each row's prompt: one that comes again in other steps. @param {Rows} rows */
function prompts(rows) {
  const texts = rows.texts.sample_index ?? rows.texts.prompt;
  const words = rows.texts.prompt;
  return (/** @type {number} */ row) => {
    const code = texts?.codes[row] ?? -1;
    return code < 0 ? null : { key: texts.words[code], text: words && words.codes[row] >= 0 ? words.words[words.codes[row]] : "" };
  };
}

/** @param {any} box @param {string} run @param {Rows} rows @param {Map<number, number[]>} steps */
export async function showHeat(box, run, rows, steps) {
  const [solved, named, order] = [await solving(rows), prompts(rows), [...steps.keys()]];
  /** Prompt -> step -> solved, judged. @type {Map<string, {text: string, cells: Map<number, [number, number]>}>} */
  const found = new Map();
  for (const [step, members] of steps) {
    for (const row of members) {
      const [prompt, value] = [named(row), solved.of(row)];
      if (!prompt || value !== value) continue;
      const one = found.get(prompt.key) ?? { text: prompt.text, cells: new Map() };
      const cell = one.cells.get(step) ?? [0, 0];
      one.cells.set(step, [cell[0] + value, cell[1] + 1]);
      found.set(prompt.key, one);
    }
  }
  const rate = (/** @type {Map<number, [number, number]>} */ cells) => [...cells.values()].reduce((sum, [a, b]) => sum + a / b, 0) / cells.size;
  const listed = [...found].sort(([, a], [, b]) => rate(a.cells) - rate(b.cells)).slice(0, HEAT_MOST);
  if (!listed.length) { box.replaceChildren(); return; }
  const canvas = h("canvas", { class: "heat", role: "img", style: { height: `${listed.length * HEAT_ROW + HEAT_TOP + 4}px` },
    "aria-label": `share solved of ${counted(listed.length, "prompt")} in ${counted(order.length, "step")}` });
  const said = h("p", { class: "dim", role: "status" }, `Solved: ${solved.words}. The hardest prompts first; a click lists the rollouts.`);
  const surface = new Surface(canvas, ({ context, width }) => {
    const wide = (width - HEAT_LABELS) / order.length;
    const [text, line] = [ink("--dim"), ink("--line")];
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    const every = Math.ceil(34 / wide);
    context.fillStyle = text;
    order.forEach((step, at) => { if (at % every === 0) context.fillText(String(step), HEAT_LABELS + at * wide + 1, HEAT_TOP / 2); });
    listed.forEach(([key, { text: words, cells }], place) => {
      const y = HEAT_TOP + place * HEAT_ROW;
      context.fillStyle = text;
      context.fillText(visible(`${key}  ${words}`).slice(0, 26), 2, y + HEAT_ROW / 2, HEAT_LABELS - 8);
      order.forEach((step, at) => {
        const cell = cells.get(step);
        context.fillStyle = cell ? ink(["--d0", "--d1", "--d2", "--d3", "--s1", "--d5", "--d6", "--d7", "--d8"][Math.round(8 * cell[0] / cell[1])]) : line;
        const inset = cell ? 0 : HEAT_ROW / 2 - 1;
        context.fillRect(HEAT_LABELS + at * wide, y + inset, Math.max(1, wide - 1), HEAT_ROW - 1 - 2 * inset);
      });
    });
  });
  const under = (/** @type {MouseEvent} */ event) => {
    const one = listed[Math.floor((event.offsetY - HEAT_TOP) / HEAT_ROW)];
    const step = order[Math.floor((event.offsetX - HEAT_LABELS) / ((surface.width - HEAT_LABELS) / order.length))];
    const cell = one?.[1].cells.get(step);
    return cell ? { key: one[0], text: one[1].text, step, cell } : null;
  };
  canvas.addEventListener("mousemove", (/** @type {MouseEvent} */ event) => {
    const at = under(event);
    if (at) said.textContent = visible(`step ${at.step} · prompt ${at.key.slice(0, 80)} · ${at.cell[0]} of ${at.cell[1]} solved · ${at.text.slice(0, 120)}`);
  });
  canvas.addEventListener("click", (/** @type {MouseEvent} */ event) => {
    const at = under(event);
    const name = rows.texts.sample_index ? "sample_index" : "prompt";
    if (at) go(["run", run, "table"], { where: `step = ${at.step} and ${name} = '${at.key.replaceAll("'", "''")}'` });
  });
  const rewards = [bySource(rows, steps), strips(rows, steps)];
  fill(box, h("h2", {}, "Prompts by step"), said, h("div", { class: "legend" }, [["d0", "nobody"], ["s1", "half"], ["d8", "all"]].map(([name, word]) =>
    h("span", { class: "key" }, h("i", { class: name }), word))), canvas, rewards);
  surface.draw();
}

/** The mean reward of each source of data, by step: the last and the first. @param {Rows} rows @param {Map<number, number[]>} steps */
function bySource(rows, steps) {
  const { data_source: sources } = rows.texts, { reward } = rows.numbers;
  if (!sources || sources.words.length < 2) return null;
  const order = [...steps.keys()];
  const mean = (/** @type {number} */ code, /** @type {number} */ step) => {
    const values = (steps.get(step) ?? []).filter((row) => sources.codes[row] === code && reward[row] === reward[row]).map((row) => reward[row]);
    return values.length ? values.reduce((a, b) => a + b, 0) / values.length : null;
  };
  const shown = order.filter((_, at) => at === 0 || at === order.length - 1 || at % Math.ceil(order.length / 8) === 0);
  return h("div", { class: "wide" }, h("table", { class: "plain" }, h("caption", {}, "reward by data source and step"),
    h("tr", {}, h("th", {}, "data source"), shown.map((step) => h("th", { class: "n" }, `${step}`))),
    sources.words.slice(0, 20).map((word, code) => h("tr", {}, h("td", {}, word), shown.map((step) => h("td", { class: "n" }, number(mean(code, step), 3)))))));
}

/** Of rewards that have few values: how many rollouts of each step had which. @param {Rows} rows @param {Map<number, number[]>} steps */
function strips(rows, steps) {
  const { reward } = rows.numbers;
  const values = [...new Set([...reward].filter((value) => value === value))].sort((a, b) => b - a);
  if (values.length < 2 || values.length > DISCRETE) return null;
  const order = [...steps.keys()];
  const shown = order.filter((_, at) => at === 0 || at === order.length - 1 || at % Math.ceil(order.length / 8) === 0);
  const count = (/** @type {number} */ value, /** @type {number} */ step) => (steps.get(step) ?? []).filter((row) => reward[row] === value).length;
  return h("div", { class: "wide" }, h("table", { class: "plain" }, h("caption", {}, "rollouts by reward and step"),
    h("tr", {}, h("th", {}, "reward"), shown.map((step) => h("th", { class: "n" }, `${step}`))),
    values.map((value) => h("tr", {}, h("td", {}, number(value)), shown.map((step) => h("td", { class: "n" }, String(count(value, step) || "")))))));
}
