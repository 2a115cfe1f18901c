// A run in a row of small pictures: what its steps earned, solved, and lost.
import { h, ink, legendKey, Surface } from "./dom.js";
import { number } from "./format.js";

/** Columns that the strip needs. */
export const STRIP = ["reward", "validate", "tool_error", "tool_calls", "response_tokens", "truncated"];
const RIGHT_ANSWER =
  /^facts\.reward_extra_info\.(?:.*_)?(?:acc|accuracy|correct|is_correct|right|solved|pass|passed|success)$/i;

/** What counts as solved: a part of the reward that says so, else a reward in the upper half of the run's.
 * @param {import("./rows.js").Rows} rows @returns {Promise<{of: (row: number) => number, words: string}>} 1, 0 or
 * NaN of a row */
export async function solving(rows) {
  const part = rows.names.numbers.find((name) => RIGHT_ANSWER.test(name));
  if (part) {
    await rows.need([part]);
    const values = rows.numbers[part];
    return {
      of: (row) => (Number.isNaN(values[row]) ? NaN : Number(values[row] > 0)),
      words: `${part.split(".").pop()} above 0`,
    };
  }
  const { reward } = rows.numbers;
  const [low, high] = reward.reduce(
    ([a, b], each) => (Number.isFinite(each) ? [Math.min(a, each), Math.max(b, each)] : [a, b]),
    [Infinity, -Infinity],
  );
  const half = low < high ? (low + high) / 2 : Math.max(0, low - 1e-9);
  return {
    of: (row) => (Number.isNaN(reward[row]) ? NaN : Number(reward[row] > half)),
    words: `reward above ${number(half, 3)}`,
  };
}

/** Rows of training by step, in order. @param {import("./rows.js").Rows} rows @returns {Map<number, number[]>} */
export function rowsBySteps(rows) {
  const { step, validate } = rows.numbers;
  const known = [...step.keys()].filter((row) => !Number.isNaN(step[row]) && validate?.[row] !== 1);
  return new Map([...Map.groupBy(known, (row) => step[row])].sort(([a], [b]) => a - b));
}

/** @param {number[]} values */
function mean(values) {
  const known = values.filter((value) => value === value);
  return known.length ? known.reduce((a, b) => a + b, 0) / known.length : NaN;
}

/** Shares of groups of a step in which nobody, somebody, everybody solved it. @param {number[]} members
 * @param {Int32Array} groups @param {(row: number) => number} solved */
function shares(members, groups, solved) {
  const of = Map.groupBy(members.filter((row) => !Number.isNaN(solved(row))), (row) => groups[row]);
  const several = [...of.values()].filter((each) => each.length > 1);
  const [wrong, right] = [0, 1].map((what) =>
    several.filter((each) => each.every((row) => solved(row) === what)).length / several.length
  );
  return [wrong, 1 - wrong - right, right];
}

/** @param {any} box @param {import("./rows.js").Rows} rows */
export async function showStrip(box, rows) {
  const solved = await solving(rows), steps = rowsBySteps(rows);
  const { reward, tool_error: failed, tool_calls: calls, response_tokens: tokens, truncated } = rows.numbers;
  const over = (/** @type {(row: number) => number} */ value) =>
    [...steps.values()].map((members) => mean(members.map(value)));
  const groups = [...steps.values()].map((members) => shares(members, rows.texts.group.codes, solved.of));
  const tiles = [
    tile("reward", "mean of the step", over((row) => reward[row]), (value) => number(value, 3)),
    tile("solved", solved.words, over(solved.of), share, true),
    groups.some(([wrong]) => wrong === wrong) ? areas(groups) : null,
    tile(
      "with a tool error",
      "share of the rollouts that called a tool",
      over((row) => (calls?.[row] > 0 ? Number(failed?.[row] === 1) : NaN)),
      share,
      true,
    ),
    tile(
      "output tokens",
      "mean of a rollout",
      over((row) => tokens?.[row] ?? NaN),
      (value) => number(Math.round(value)),
    ),
    tile("truncated", "share of the rollouts", over((row) => truncated?.[row] ?? NaN), share, true),
  ];
  box.replaceChildren(...tiles.filter((each) => each !== null));
  box.hidden = !box.childElementCount;
}

const share = (/** @type {number} */ value) => `${Number((100 * value).toPrecision(3))} %`;

/** A number as it was last, its change, and its line. @param {string} name @param {string} words
 * @param {number[]} values @param {(value: number) => string} shown @param {boolean} [isShare] */
function tile(name, words, values, shown, isShare = false) {
  const known = values.filter((value) => value === value);
  if (!known.length) return null;
  const [last, before] = [known[known.length - 1], known[known.length - 2]], change = last - before;
  const changed = known.length < 2
    ? ""
    : Math.abs(change) < 1e-9
    ? "as the step before"
    : `${change > 0 ? "+" : "−"}${shown(Math.abs(change)).replace(" %", " points")} since the step before`;
  const [low, high] = isShare ? [0, Math.max(0.05, ...known)] : [Math.min(...known), Math.max(...known)];
  return h("figure.tile", { title: words }, [
    h("figcaption", [name]),
    h("b", [shown(last)]),
    h("span.dim", [changed]),
    drawing(`${name} of each step, last ${shown(last)}`, ({ context, width, height }) => {
      const x = (/** @type {number} */ at) => 2 + (at / Math.max(1, values.length - 1)) * (width - 4);
      const y = (/** @type {number} */ value) => height - 3 - ((value - low) / (high - low || 1)) * (height - 6);
      context.strokeStyle = context.fillStyle = ink("--accent");
      context.lineWidth = 1.5;
      context.beginPath();
      values.forEach((value, at) => {
        if (value === value) context.lineTo(x(at), y(value));
      });
      context.stroke();
      const end = values.lastIndexOf(last);
      context.fillRect(x(end) - 2, y(last) - 2, 4, 4);
    }),
  ]);
}

/** @type {[string, string][]} */
const GROUPS = [["all wrong", "--phase-queue"], ["mixed", "--phase-prefill"], ["all right", "--role-reward"]];

/** Which groups teach something. @param {number[][]} groups */
function areas(groups) {
  const last = groups.filter(([wrong]) => wrong === wrong).pop() ?? [0, 0, 0];
  return h("figure.tile", {
    title: "groups in which nobody, somebody, everybody solved the prompt; only mixed ones teach",
  }, [
    h("figcaption", "groups"),
    h("b", `${share(last[1])} mixed`),
    h("span.dim", [
      GROUPS.map(([name, colour], place) => legendKey(colour, `${name} ${share(last[place])}`)),
    ]),
    drawing(
      `groups of each step: ${GROUPS.map(([name], place) => `${name} ${share(last[place])}`).join(", ")}`,
      ({ context, width, height }) => {
        const bar = width / groups.length;
        groups.forEach((shares_, at) => {
          let top = 0;
          shares_.forEach((part, place) => {
            if (part !== part) return;
            context.fillStyle = ink(GROUPS[2 - place][1]);
            const size = shares_[2 - place] * height;
            context.fillRect(at * bar, top, Math.max(1, bar - (bar > 4 ? 1 : 0)), size);
            top += size;
          });
        });
      },
    ),
  ]);
}

/** @param {string} label @param {(surface: Surface) => void} draw */
function drawing(label, draw) {
  const canvas = h("canvas", { role: "img", "aria-label": label });
  new Surface(canvas, draw).draw();
  return canvas;
}
