// The runs of the folder, newest first.
import { go, link } from "./address.js";
import { written } from "./curves.js";
import { source } from "./data.js";
import { h } from "./dom.js";
import { clock, number } from "./format.js";

/** @param {import("./main.js").Present} present @returns {Promise<import("./main.js").Page>} */
export async function showRuns(present) {
  const { runs, version } = await source.runs();
  /** @type {any} */
  const boxes = document.getElementsByClassName("chosen-run");
  const chosen = () => [...boxes].filter((each) => each.checked).map((each) => each.value);
  const onclick = () => go(["run", chosen()[0], "overview"], { with: written(chosen().slice(1)) });
  const over = h("button", { disabled: true, onclick }, "Lay the chosen runs over each other");
  const choose = () => {
    over.disabled = chosen().length < 2;
  };
  const box = (/** @type {string} */ name) =>
    h("input.chosen-run", { type: "checkbox", value: name, "aria-label": `choose ${name}`, onchange: choose });
  const heads = [h("span.unseen", "chosen"), "run", "started", "state", "trajectories", "steps", "command"];
  const rows = runs.map((run) =>
    h("tr", [
      h("td", [runs.length > 1 && box(run.run)]),
      h("td", h("a", { href: link(["run", run.run, "overview"]) }, run.run)),
      h("td", [clock(run.created)]),
      h("td", h("span", { class: `state ${run.state}` }, run.state)),
      h("td.n", [number(run.trajectories)]),
      h("td", h("a", { href: link(["run", run.run, "steps"]) }, "curves")),
      h("td.command", [run.command]),
    ])
  );
  present(
    h("section.runs", [
      h("h1", "Runs"),
      runs.length
        ? h("table", [
          h("thead", h("tr", heads.map((name) => h("th", [name])))),
          h("tbody", [rows]),
        ])
        : h("p.empty", "This folder holds no run that can be read. autotrace-run makes one."),
      runs.length > 1 && over,
      version && h("p.dim", `autotrace ${version}`),
    ]),
  );
  return { title: "runs", again: () => showRuns(present) };
}
