// Which page is shown, the bar above it, keys, light and dark. Each page is a module with one function `show…`.
import { address, link, note } from "./address.js";
import { Problem, source } from "./data.js";
import { fill, h } from "./dom.js";
import { showDiff } from "./page_diff.js";
import { showGroup } from "./page_group.js";
import { showOverview } from "./page_overview.js";
import { showRuns } from "./page_runs.js";
import { showSteps } from "./page_steps.js";
import { showTable } from "./page_table.js";
import { showTools } from "./page_tools.js";
import { showTrace } from "./page_trace.js";
import { forget } from "./rows.js";

/** @typedef {{title: string, keys?: Record<string, () => any>, again?: () => Promise<any> | any,
 * close?: () => void, restyle?: () => void}}
 * Page */

const [top_, wrong, said, page, help] = ["top", "wrong", "said", "page", "help"]
  .map((id) => /** @type {any} */ (document.getElementById(id)));
/** Seconds between two looks at a run that is being written; longer for many rows. */
const LOOK = 2;

/** Shows elements as the page. @typedef {(...children: any[]) => void} Present */

/** The pages of a run except the one on which it opens; two are of one of its trajectories.
 * @type {Record<string, (present: Present, run: string, trace: string) => Promise<Page>>} */
const PAGES = {
  steps: showSteps,
  trace: showTrace,
  group: showGroup,
  table: showTable,
  tools: showTools,
  diff: showDiff,
};
/** @type {[string, string][]} */
const TABS = [["overview", "Overview"], ["table", "Trajectories"], ["steps", "Steps"], ["tools", "Tools"]];
/** @type {Page | null} */
let shown = null;
let [turn, timer] = [0, /** @type {any} */ (0)];
let [current, version] = ["", -1];
/** Keys that wait. @type {string[]} */
const pressed = [];
/** Whether a key is acted on; which page was asked for last. */
let [acting, routed] = [false, ""];

/** Show the page that the address names. */
async function route() {
  const mine = (turn += 1), { path, query } = address(), [first, run, what, trace] = path;
  routed = path.join("/");
  clearTimeout(timer);
  shown?.close?.();
  shown = null;
  fill(wrong);
  const slow = setTimeout(() => {
    if (mine === turn) fill(page, h("p.waiting", "Reading…"));
  }, 150);
  try {
    if (first !== "run" || !run) {
      current = "";
      const [begun, { runs }] = [location.hash, await source.runs()];
      // the reader went elsewhere, also where that is not announced yet
      if (mine !== turn || location.hash !== begun) return;
      if (runs.length === 1 && first !== "runs") {
        const alone = runs[0].trace ? ["trace", runs[0].trace] : ["overview"]; // a file of one trajectory
        location.replace(link(["run", runs[0].run, ...alone], Object.fromEntries(query)));
        return;
      }
    }
    /** @type {Present} */
    const present = (...children) => {
      if (mine === turn) fill(page, ...children);
      else throw new Problem("The reader went elsewhere while this was read.");
    };
    const isThere = what !== undefined && Object.hasOwn(PAGES, what) && (trace || !["trace", "group"].includes(what));
    const show = isThere ? PAGES[what] : showOverview;
    const next = await (first === "run" && run ? show(present, run, trace ?? "") : showRuns(present));
    clearTimeout(slow);
    if (mine !== turn) return next.close?.();
    shown = next;
    document.title = `${next.title} · ${run ?? ""} · autotrace`;
    bar(run, what);
    act();
    if (run) await look(run);
  } catch (error) {
    clearTimeout(slow);
    if (mine !== turn) return;
    bar(run, what);
    fill(page, h("div.big", { role: "alert" }, sentence(error)), h("p", h("a", { href: "#/runs" }, "the runs")));
  }
}

/** @param {string | undefined} run @param {string | undefined} what */
function bar(run, what) {
  const tab = (/** @type {string} */ name, /** @type {string} */ label) => {
    const current = name === (what ?? "overview") ? "page" : null;
    return h("a", { href: link(["run", run ?? "", name]), "aria-current": current }, label);
  };
  fill(top_, [
    h("a.brand", { href: "#/runs" }, "autotrace"),
    run && h("span.run", [run]),
    run && h("nav", { "aria-label": "pages of the run" }, TABS.map((each) => tab(...each))),
    h("span.live", { id: "live" }),
    h("button.quiet", { onclick: theme, title: "key d" }, "light / dark"),
    h("button.quiet", { onclick: () => help.showModal(), title: "key ?" }, "keys"),
  ]);
}

/** @param {any} error */
const sentence = (error) => h("p.problem", [error instanceof Error ? error.message : String(error)]);

/** Ask how the run is, say what is odd about it, and show anew what has grown. @param {string} run */
async function look(run) {
  const mine = turn;
  let wait = 5 * LOOK;
  try {
    const state = await source.state(run);
    if (mine !== turn) return;
    tell(state);
    if (current === run && version !== -1 && state.version !== version) {
      forget(run);
      await shown?.again?.();
    }
    [current, version] = [run, state.version];
    wait = state.live ? Math.max(LOOK, (state.trajectories ?? 0) / 5000) : 0;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (mine === turn) fill(said, sentence(error));
  }
  if (wait && mine === turn) timer = setTimeout(() => look(run), 1000 * wait);
}

/** @param {RunState} state */
function tell(state) {
  const live = document.getElementById("live");
  if (live) {
    live.textContent = state.live ? `${state.state}, being written` : state.state;
    live.classList.toggle("on", state.live);
  }
  fill(said, [
    [...state.losses, state.error].filter(Boolean).map((each) => h("p.loss", `! ${each}`)),
    state.warnings.map((each) => h("p.warning", [each])),
    state.notes.map((each) => h("p.note", [each])),
  ]);
}

function theme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("autotrace-theme", root.dataset.theme);
  } catch { /* not kept */ }
  shown?.restyle?.();
  dispatchEvent(new Event("restyle"));
}

/** Go to a page of the run that the address names, also before the run's state is known. @param {string} name */
const to = (name) => () => {
  const [first, run] = address().path;
  if (first === "run" && run) location.hash = link(["run", run, name]);
};

/** @type {Record<string, () => void>} */
const EVERYWHERE = {
  "?": () => help.showModal(),
  d: theme,
  r: () => location.assign("#/runs"),
  o: to("overview"),
  t: to("table"),
  s: to("steps"),
  x: to("tools"),
};

addEventListener("keydown", (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  // a browser would empty the field
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName)) {
    if (event.key === "Escape") {
      event.preventDefault();
      target.blur();
    }
    return;
  }
  if (event.key === "Enter" && /^(A|BUTTON|SUMMARY)$/.test(target.tagName)) return;
  if (!(shown?.keys?.[event.key] ?? EVERYWHERE[event.key]) && shown) return;
  if (event.key.length === 1 || event.key === "Enter") event.preventDefault();
  if (pressed.length < 40) pressed.push(event.key);
  act();
});

/** Act on the keys that were pressed, one after the other: those pressed while a page loads are for that page. */
async function act() {
  while (pressed.length && shown && !acting && routed === address().path.join("/")) {
    const key = pressed.shift() ?? "";
    acting = true;
    try {
      await (shown.keys?.[key] ?? EVERYWHERE[key])?.();
    } finally {
      acting = false;
    }
  }
}
addEventListener("hashchange", route);
addEventListener("unhandledrejection", (event) => {
  if (event.reason instanceof Problem) {
    event.preventDefault();
    fill(wrong, sentence(event.reason));
  }
});
try {
  const kept = localStorage.getItem("autotrace-theme");
  if (kept) document.documentElement.dataset.theme = kept;
} catch { /* none */ }
note({});
route();
