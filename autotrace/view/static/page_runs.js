// The runs of the folder, newest first.
import { go, link } from "./address.js";
import { written } from "./curves.js";
import { source } from "./data.js";
import { fill, h } from "./dom.js";
import { clock } from "./format.js";

/** @param {import("./main.js").Present} present @returns {Promise<import("./main.js").Page>} */
export async function showRuns(present) {
  const { runs, version } = await source.runs();
  const chosen = () =>
    [...document.querySelectorAll(".runs input:checked")].map((/** @type {any} */ each) => each.value);
  const over = h("button", {
    disabled: true,
    onclick: () => {
      const [first, ...rest] = chosen();
      go(["run", first, "overview"], { with: written(rest) });
    },
  }, "Lay the chosen runs over each other");
  const choose = () => {
    over.disabled = chosen().length < 2;
  };
  const rows = runs.map((run) =>
    h("tr", [
      h("td", [
        runs.length > 1
          ? h("input", { type: "checkbox", value: run.run, "aria-label": `choose ${run.run}`, onchange: choose })
          : null,
      ]),
      h("td", h("a", { href: link(["run", run.run, "overview"]) }, run.run)),
      h("td", [clock(run.created)]),
      h("td", h("span", { class: `state ${run.state}` }, run.state)),
      h("td.n", [run.trajectories === null ? "" : run.trajectories.toLocaleString("en")]),
      h("td", h("a", { href: link(["run", run.run, "steps"]) }, "curves")),
      h("td.command", [run.command]),
    ])
  );
  present(
    h("section.runs", [
      h("h1", "Runs"),
      runs.length
        ? h("table", [
          h("thead", [
            h("tr", [
              [h("span.unseen", "chosen"), "run", "started", "state", "trajectories", "steps", "command"].map((name) =>
                h("th", [name])
              ),
            ]),
          ]),
          h("tbody", [rows]),
        ])
        : h("p.empty", "This folder holds no run that can be read. autotrace-run makes one."),
      runs.length > 1 ? over : null,
      version ? h("p.dim", `autotrace ${version}`) : null,
    ]),
  );
  return { title: "runs", again: () => showRuns(present) };
}
