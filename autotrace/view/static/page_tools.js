// The tools of a run: how often each was called, how often it failed, and how long it took, over the steps.
import { go, link } from "./address.js";
import { drawn } from "./curves.js";
import { source } from "./data.js";
import { fill, h } from "./dom.js";
import { counted, number, percent, seconds } from "./format.js";

const FAILED = "a call failed if it, or a tool that it called itself, did not end well";
/** Tools that have curves. */
const CURVED = 12;

/** @param {import("./main.js").Present} present @param {string} run @returns {Promise<import("./main.js").Page>} */
export async function showTools(present, run) {
  const table = h("div.contents"), curves = h("div.contents"), element = h("section.steps-page", [table, curves]);
  let tools = await source.tools(run), found = /** @type {Finding[]} */ ([]);
  const draw = () => {
    fill(table, toolTable(run, tools, found));
    fill(curves, []);
    toolCurves(curves, run, tools);
  };
  present(element);
  draw();
  source.findings(run).then((findings) => {
    found = findings.found;
    fill(table, toolTable(run, tools, found));
  });
  return {
    title: "tools",
    again: async () => {
      tools = await source.tools(run);
      draw();
    },
    restyle: draw,
  };
}

/** @param {string} run @param {Tool[]} tools @param {Finding[]} found */
function toolTable(run, tools, found) {
  const heading = h("div.bar", [
    h("h1", "Tools"),
    h("span.dim", [`${counted(tools.length, "tool")} in the training; ${FAILED}`]),
  ]);
  if (!tools.length) return [heading, h("p.empty", "No call of a tool was recorded (role: tool in your list).")];
  const call = (/** @type {string[] | null} */ place, /** @type {string} */ words) => {
    const [trace, span] = place ?? [];
    return trace
      ? h("a", { href: link(["run", run, "trace", trace], { view: "timeline", call: span }) }, [words])
      : words;
  };
  const about = (/** @type {string} */ name) =>
    found.filter((each) => JSON.stringify([each.title, each.lines, each.places]).includes(name)).map((each) =>
      h("a", { href: link(["run", run]), title: `${each.title} (${each.amount})` }, `▲ ${each.code.slice(3)} `)
    );
  const heads = ["tool", "calls", "failed", "share", "still open", "p50", "p99", "findings"];
  return [
    heading,
    h("div.wide.tools", [h("table.plain", [
      h("tr", [heads.map((name, at) => h("th", { class: at ? "n" : "" }, name))]),
      tools.map(({ name, calls, failed, open, p50, p99, slowest, failing }) =>
        h("tr", { "data-tool": name }, [
          h("th", { scope: "row" }, name),
          h("td.n", [number(calls)]),
          h("td.n", [call(failing, number(failed))]),
          h("td", { class: `n ${failed ? "loss" : ""}` }, percent(failed / calls)),
          h("td.n", [open ? number(open) : ""]),
          h("td.n", [seconds(p50)]),
          h("td.n", [call(slowest, seconds(p99))]),
          h("td", about(name)),
        ])
      ),
    ])]),
    h("p.dim.bar", "Click a number of failed calls to see a failed call, a p99 to see the longest call."),
  ];
}

/** Curves of each tool. @param {any} element @param {string} run @param {Tool[]} tools */
function toolCurves(element, run, tools) {
  /** @type {import("./curves.js").How} */
  const how = {
    marks: () => new Map(),
    chosen: (step) => go(["run", run, "steps"], { step }),
    selected: (from, to) => go(["run", run, "table"], { where: `step >= ${from} and step <= ${to}` }),
  };
  for (const { name, steps, by_step: of } of tools.slice(0, CURVED).filter(({ steps }) => steps.length)) {
    const box = h("div.curves", { "data-tool": name });
    element.append(h("h2.bar", [name]), box);
    const line = (/** @type {string} */ label, /** @type {(number | null)[]} */ middle) => ({ label, steps, middle });
    const shares = of.failed.map((failed, at) => failed / of.calls[at]);
    drawn(box, [{ title: "calls", lines: [line(name, of.calls)], how }, {
      title: "share failed",
      lines: [line(name, shares)],
      how: { ...how, isShare: true },
    }, {
      title: "duration, p50 / p99",
      lines: [line("p50", of.p50), line("p99", of.p99)],
      how: { ...how, isTime: true },
    }]);
  }
}
