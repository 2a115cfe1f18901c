// What is known about a trajectory: the line above it, and the column beside it.
import { link } from "./address.js";
import { source } from "./data.js";
import { coded, h, marked, prose, terms } from "./dom.js";
import { absent, number, seconds, unknown } from "./format.js";

const IDENTITY = ["data_source", "validate"];
const FILES = [["export", "export this", "html"], ["perfetto", "Perfetto", "perfetto.json"]];
/** Where time went: name, colour of the style, words. */
const TIMES = [
  ["open_s", "--role-trajectory", "open call"],
  ["queue_s", "--phase-queue", "queue"],
  ["prefill_s", "--phase-prefill", "prefill"],
  ["decode_s", "--phase-decode", "decode"],
  ["way_s", "--role-llm", "way to the engine"],
  ["llm_s", "--role-llm", "llm"],
  ["tool_s", "--role-tool", "tools"],
  ["reward_s", "--role-reward", "reward"],
  ["other_s", "--role-other", "own work and waiting"],
];

/** The line above. @param {{run: string, detail: Detail, neighbour: (by: number) => void}} page
 * @param {HTMLElement} took how long it took */
export function heading({ run, detail, neighbour }, took) {
  const { step } = detail.attributes;
  const part = (/** @type {string} */ name) => String(detail.attributes[name] ?? "").slice(0, 80);
  /** @type {(word: string, name: string) => any} */
  const named = (word, name) => (part(name) ? [h("b", [word]), ` ${part(name)}`] : null);
  const href = link(["run", run, "group", detail.trace_id]);
  /** @type {(words: string, key: string, by: number, sign: string) => HTMLElement} */
  const beside = (words, key, by, sign) => {
    const title = `${words} in the list (key ${key})`;
    return h("button.quiet", { title, "aria-label": words, onclick: () => neighbour(by) }, sign);
  };
  const crumbs = h("nav.crumbs", { "aria-label": "where this trajectory belongs" }, [
    beside("previous", "k", -1, "‹"),
    beside("next", "j", 1, "›"),
    part("step") && h("a", { href: link(["run", run, "steps"], { step }) }, [named("step", "step")]),
    h("a", { href, title: "the rollouts of this prompt (key g)" }, [named("prompt", "sample_index") ?? "prompt"]),
    part("rollout_n") && h("span", [named("rollout", "rollout_n")]),
  ]);
  const who = IDENTITY.filter((name) => detail.attributes[name] !== false && part(name))
    .map((name) => h("span", named(name, name)));
  const { reward, advantage } = detail.facts;
  return h("header.heading", [
    crumbs,
    h("h1", h("code", [detail.trace_id.slice(0, 12)])),
    who,
    h("span.badge", { "data-status": detail.status }, detail.status === "OPEN" ? "being written" : detail.status),
    reward !== undefined && h("span.big", h("b", "reward"), ` ${number(reward)}`),
    advantage !== undefined && h("span", h("b", "advantage"), ` ${number(advantage)}`),
    took,
    timesBar(detail),
    h("span.dim.spent", [spent(detail)]),
    h("a.button", { href, title: "key g" }, "group"),
    h("button.quiet.copy", { onclick: (/** @type {any} */ { target }) => copyLink(target) }, "copy link"),
    !source.exported &&
    FILES.map(([what, words, kind]) =>
      h("button.quiet", {
        "data-file": what,
        onclick: async (/** @type {any} */ { target }) => {
          target.textContent = `saved ${await download(run, detail.trace_id, what, kind)}`;
        },
      }, words)
    ),
  ]);
}

/** Save what the server makes of a trajectory, and return the name of the file. @param {string} run
 * @param {string} id @param {string} what @param {string} kind */
async function download(run, id, what, kind) {
  const name = `${id.slice(0, 12)}.${kind}`;
  const body = await (await source.ask(source.path(run, "traces", id, what))).blob();
  h("a", { href: URL.createObjectURL(body), download: name }).click();
  return name;
}

/** On what most of the time went. @param {Detail} detail */
function spent({ times, gap }) {
  const within = gap ? ` (${seconds(gap.seconds)} of it ${gap.where})` : "";
  const most = TIMES.filter(([name]) => times[name] > 0).sort(([a], [b]) => times[b] - times[a]).slice(0, 3);
  const said = most.map(([name, , word]) => `${word} ${seconds(times[name])}${name === "other_s" ? within : ""}`);
  return said.join(", ");
}

/** @param {Detail} detail */
function timesBar({ times }) {
  const given = TIMES.filter(([name]) => times[name] > 0);
  const total = given.reduce((sum, [name]) => sum + times[name], 0);
  const words = given.map(([name, , word]) => `${word} ${seconds(times[name])}`).join(", ");
  const parts = given.map(([name, colour]) =>
    h("i", { style: { width: `${(100 * times[name]) / total}%`, background: `var(${colour})` } })
  );
  return total > 0 && h("span.times", { role: "img", title: words, "aria-label": `time: ${words}` }, [parts]);
}

/** The column beside: findings, notes, facts, times, attributes. @param {Detail} detail
 * @param {(place: number) => void} toFinding */
export function knownOf({ facts, attributes, notes, times, findings }, toFinding) {
  /** @type {(title: string, values: [string, any][]) => any} */
  const list = (title, values) =>
    values.length > 0 && h("section", h("h2", title), terms(values.map(([name, value]) => [name, worded(value)])));
  const found = findings.map(({ code, what }, place) => {
    const words = [h("b", [code]), " ", coded(what)];
    return h("li", h("button.finding", { "data-place": place, onclick: () => toFinding(place) }, words));
  });
  const took = TIMES.filter(([name]) => times[name] !== undefined);
  return [
    h("section.call-box", { hidden: true }),
    found.length > 0 && h("section", h("h2", "findings"), h("ul", found)),
    notes.length > 0 && h("section.notes", h("h2", "notes"), h("ul", notes.map((each) => h("li", coded(each))))),
    list("facts", nested(facts)),
    list("time", took.map(([name, , word]) => [word, seconds(times[name])])),
    list("attributes", nested(attributes)),
  ];
}

/** What a call got and returned. @param {Spans} spans @param {number} at @param {any} told */
export function callOf({ title, name, role, status, duration, process }, at, { inputs, output, attributes, error }) {
  const given = [...Object.entries(inputs ?? {}), ["returned", output], ...Object.entries(attributes ?? {})];
  const there = given.filter(([, value]) => !absent(value));
  const took = seconds(duration[at]) || unknown(status[at]);
  return [
    h("h2", [title[at]]),
    h("p.dim", [[name[at], role[at], status[at], took, process[at]].join(" · ")]),
    error && h("pre.error", marked(error)),
    terms(there.map(([key, value]) => [key, prose(String(value), { first: 4000 })])),
  ];
}

/** The values of a fact that has parts, in a row each: `reward_extra_info.acc`. @param {Record<string, any>} values
 * @param {string} [above] @returns {[string, any][]} */
function nested(values, above = "") {
  return Object.entries(values).flatMap(([name, value]) => {
    const isNested = value !== null && typeof value === "object" && !Array.isArray(value) &&
      above.split(".").length < 5;
    return isNested ? nested(value, `${above}${name}.`) : [[above + name, value]];
  });
}

/** A value that somebody's program made. @param {any} value */
const worded = (value) =>
  typeof value === "number" ? number(value) : typeof value === "string" ? value : JSON.stringify(value);

/** Copy the address of what is shown. @param {HTMLElement} button */
async function copyLink(button) {
  const shown = button.textContent;
  try {
    await navigator.clipboard.writeText(location.href);
    button.textContent = "copied";
  } catch {
    button.textContent = location.href;
  } // a browser that keeps its clipboard: to be copied by hand
  setTimeout(() => {
    button.textContent = shown;
  }, 4000);
}
