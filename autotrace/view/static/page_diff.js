// Two runs beside each other: the lines of `autotrace diff`, with links to the rollouts that the lines name.
import { link } from "./address.js";
import { overlaid } from "./curves.js";
import { source } from "./data.js";
import { coded, h } from "./dom.js";

/** @param {import("./main.js").Present} present @param {string} run @returns {Promise<import("./main.js").Page>} */
export async function showDiff(present, run) {
  const { runs, lines } = await source.diff(run, overlaid()[0] ?? run);
  const to = (/** @type {string} */ of, /** @type {string[]} */ page, /** @type {string} */ words) =>
    h("a", { href: link(["run", of, ...page]) }, words);
  const line = (/** @type {Diff["lines"][0]} */ [words, traces]) =>
    h(words.startsWith(" ") ? "p.diff-line" : "h2", [
      coded(words),
      traces.map(([side, id]) => [" ", to(runs[side], ["trace", id], id.slice(0, 12))]),
    ]);
  const names = runs.map((name) => h("p", [to(name, ["overview"], name)]));
  present(h("section.overview-page", h("h1", "Differences"), names, lines.map(line)));
  return { title: "differences" };
}
