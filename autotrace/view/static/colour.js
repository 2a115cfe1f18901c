// How tokens are coloured: each way gives every token a class, and says what the classes mean. The colours themselves
// stand at the head of page.css: `s0`..`s7` from nothing to strong, `d0`..`d8` from one side to the other, `k0`..
// kinds.
import { number } from "./format.js";

/** @typedef {{ids: Int32Array, mask: Uint8Array, logprob: Float32Array, turn: Int32Array, kind: Uint8Array,
 *  version: Float64Array, advantage: number | null,
 * extra: Record<string, Float32Array>}}
 * TokenArrays */
/** @typedef {{label: string, why: string, has: (tokens: TokenArrays) => boolean,
 * classes: (tokens: TokenArrays) => (at: number) => string,
 * legend: (tokens: TokenArrays) => [string, string][]}}
 * Way */

const STEPS = 8;
/** Log-probabilities from here down have the strongest colour. */
const UNLIKELY = -6;

/** @param {(at: number) => number} share 0..1, NaN: no colour */
const sequential = (share) => (/** @type {number} */ at) => {
  const value = share(at);
  return Number.isNaN(value) ? "" : `s${Math.min(STEPS - 1, Math.max(0, Math.floor(value * STEPS)))}`;
};

/** @param {(at: number) => number} share -1..1, NaN: no colour */
const diverging = (share) => (/** @type {number} */ at) => {
  const value = share(at);
  return Number.isNaN(value) ? "" : `d${Math.round(4 + 4 * Math.min(1, Math.max(-1, value)))}`;
};

const some = (/** @type {Float32Array | undefined} */ values) =>
  Boolean(values && values.some((value) => !Number.isNaN(value)));

/** @param {Float32Array} values */
function largest(values) {
  let most = 0;
  for (const value of values) if (Math.abs(value) > most) most = Math.abs(value);
  return most || 1;
}

/** @type {Record<string, Way>} */
export const WAYS = {
  role: {
    label: "role",
    why: "who wrote it",
    has: () => true,
    classes: (tokens) => (at) => `k${tokens.kind[at]}`,
    legend: () => [["k0", "prompt"], ["k1", "model"], ["k2", "tools, users, template"]],
  },
  logprob: {
    label: "log-probability",
    why: "how likely the sampler found it",
    has: (tokens) => some(tokens.logprob),
    classes: (tokens) => sequential((at) => tokens.logprob[at] / UNLIKELY),
    legend: () =>
      Array.from({ length: STEPS }, (_, step) => [`s${step}`, step % 2 ? "" : number((UNLIKELY * step) / STEPS || 0)]),
  },
  mask: {
    label: "loss mask",
    why: "what the trainer learns from",
    has: (tokens) => tokens.mask.some((value) => value === 1),
    classes: (tokens) => (at) => (tokens.mask[at] === 255 ? "" : tokens.mask[at] ? "k1" : "k6"),
    legend: () => [["k1", "learned from"], ["k6", "masked out"], ["", "not known"]],
  },
  advantage: {
    label: "advantage",
    why: "which way training pushes it",
    has: (tokens) => tokens.advantage !== null || some(tokens.extra.advantages),
    classes: ({ kind, mask, extra, advantage }) => {
      const of = (/** @type {number} */ at) => extra.advantages?.[at] ?? Number(advantage);
      return diverging((at) => kind[at] === 1 && mask[at] !== 0 ? of(at) / 2 : NaN);
    },
    legend: () => [["d0", "-2: less likely"], ["d2", ""], ["d4", "0"], ["d6", ""], ["d8", "+2: more likely"]],
  },
  mismatch: {
    label: "mismatch",
    why: "trainer's log-probability minus the sampler's",
    has: (tokens) => some(tokens.extra.mismatch),
    classes: ({ extra: { mismatch } }, most = largest(mismatch)) => diverging((at) => mismatch[at] / most),
    legend: ({ extra: { mismatch } }, most = largest(mismatch)) => [
      ["d0", number(-most)],
      ["d4", "0"],
      ["d8", number(most)],
    ],
  },
  entropy: {
    label: "entropy",
    why: "how open the choice was",
    has: (tokens) => some(tokens.extra.entropy),
    classes: ({ extra: { entropy } }, most = largest(entropy)) => sequential((at) => entropy[at] / most),
    legend: (tokens) => [["s0", "0"], ["s4", ""], ["s7", number(largest(tokens.extra.entropy))]],
  },
  version: {
    label: "weight version",
    why: "which weights made it",
    has: (tokens) => versions(tokens).length > 0,
    classes: (tokens) => {
      const known = versions(tokens);
      return (at) => (Number.isNaN(tokens.version[at]) ? "" : `k${1 + (known.indexOf(tokens.version[at]) % 6)}`);
    },
    legend: (tokens) => versions(tokens).slice(0, 6).map((version, place) => [`k${1 + place}`, String(version)]),
  },
  turn: {
    label: "turn",
    why: "in which call of the model",
    has: (tokens) => tokens.turn.length > 0 && tokens.turn[tokens.turn.length - 1] > 1,
    classes: (tokens) => (at) => `k${tokens.turn[at] % 7}`,
    legend: () => [["k1", "1"], ["k2", "2"], ["k3", "3"], ["", "…"]],
  },
};

/** @param {TokenArrays} tokens @returns {number[]} */
function versions(tokens) {
  return [...new Set(tokens.version)].filter((version) => !Number.isNaN(version)).sort((a, b) => a - b);
}
