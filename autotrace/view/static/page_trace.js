// One trajectory: what was said, its tokens, its calls over time, and what is known about it.
import { address, go, link, note } from "./address.js";
import { source } from "./data.js";
import { coded, fill, h, marked, prose, terms } from "./dom.js";
import { chainNames, conversation } from "./conversation.js";
import { counted, number, openFor, seconds, unknown } from "./format.js";
import { library } from "./libraries.js";
import { listed } from "./page_table.js";
import { rowsOf } from "./rows.js";
import { Timeline } from "./timeline.js";
import { TokensView } from "./tokens_view.js";

const VIEWS = ["conversation", "tokens", "timeline"];
const IDENTITY = ["data_source", "validate"];
const FILES = [["export", "export this", "html"], ["perfetto", "Perfetto", "perfetto.json"]];
/** The keys of the labels used last. */
const LABEL_KEYS = ["4", "5", "6", "7", "8", "9"];
/** Run -> what was labelled here: the labels, the newest first, and which trajectories.
 * @type {Map<string, {words: string[], ids: Set<string>}>} */
const given = new Map();
/** @param {string} run */
const givenIn = (run) => given.get(run) ?? { words: [], ids: new Set() };
/** Whether the reader types labels, so that the next page begins there. */
let typing = false;
/** Where time went: name, colour of the style, words. */
const TIMES = [
  ["queue_s", "--phase-queue", "queue"],
  ["prefill_s", "--phase-prefill", "prefill"],
  ["decode_s", "--phase-decode", "decode"],
  ["way_s", "--role-llm", "way to the engine"],
  ["llm_s", "--role-llm", "llm"],
  ["tool_s", "--role-tool", "tools"],
  ["reward_s", "--role-reward", "reward"],
  ["other_s", "--role-other", "own work and waiting"],
];

/** @param {import("./main.js").Present} present @param {string} run @param {string} trace
 * @returns {Promise<import("./main.js").Page>} */
export async function showTrace(present, run, trace) {
  const [detail] = await Promise.all([source.trace(run, trace), library("markdownit")]);
  const view = new TrajectoryPage(run, detail);
  present(view.element);
  const [begun, first] = [performance.now(), detail.open?.seconds];
  const tick = setInterval(() => {
    if (!view.element.isConnected || source.exported || !view.detail.open) return clearInterval(tick);
    view.later((first ?? 0) + (performance.now() - begun) / 1000);
  }, 1000);
  view.show(address().query.get("view") ?? "conversation");
  view.offered = view.offer();
  if (typing) view.called?.focus();
  typing = false;
  return {
    title: `${trace.slice(0, 8)}`,
    keys: {
      j: () => view.neighbour(1),
      k: () => view.neighbour(-1),
      g: () => go(["run", run, "group", detail.trace_id]),
      "/": () => view.sought.focus(),
      1: () => view.show("conversation"),
      2: () => view.show("tokens"),
      3: () => view.show("timeline"),
      m: () => view.plainly(),
      n: () => view.finding(1),
      p: () => view.finding(-1),
      l: () => view.called?.focus(),
      ...Object.fromEntries(LABEL_KEYS.map((key, place) => [key, async () => {
        await view.offered;
        await view.labelled(view.words[place]);
      }])),
    },
    again: async () => view.refresh(await source.trace(run, trace)),
    close: () => view.close(),
  };
}

class TrajectoryPage {
  /** @param {string} run @param {Detail} detail */
  constructor(run, detail) {
    this.run = run;
    this.detail = detail;
    this.at = -1;
    /** @type {string | undefined} */
    this.saved = undefined;
    /** @type {string[]} */
    this.words = [];
    /** @type {Promise<void> | undefined} */
    this.offered = undefined;
    this.body = h("div.body");
    this.aside = h("aside", { "aria-label": "what is known" });
    this.tabs = VIEWS.map((name, place) =>
      h("button", { role: "tab", "data-view": name, title: `key ${place + 1}`, onclick: () => this.show(name) }, name)
    );
    this.sought = h("input", {
      type: "search",
      class: "words",
      placeholder: "search here",
      "aria-label": "search in this trajectory",
      value: address().query.get("q"),
      oninput: () => {
        note({ q: this.sought.value });
        if (this.view === "conversation") this.conversation();
      },
    });
    const { label, label_why: why } = detail.facts;
    this.called = source.exported ? null : h("input.words", {
      placeholder: "label: why (l)",
      "aria-label": "label of this trajectory",
      title: "a label, such as good, and why after a colon",
      value: [label, why].filter(Boolean).join(": "),
      onkeydown: (/** @type {KeyboardEvent} */ { key }) => key === "Enter" && this.labelled(this.called.value, true),
      onchange: () => this.label(this.called.value),
    });
    this.recent = h("span.recent");
    this.raw = address().query.get("raw") === "1";
    this.rawButton = h("button.quiet", {
      title: "texts as they were written (key m)",
      "aria-pressed": String(this.raw),
      onclick: () => this.plainly(),
    }, "raw text");
    this.head = this.heading();
    this.element = h("section.trace-page", [
      this.head,
      h("div.bar.tabs", [
        h("div", { role: "tablist" }, this.tabs),
        this.rawButton,
        this.sought,
        this.recent,
        this.called,
      ]),
      h("div.columns", [this.body, this.aside]),
    ]);
    this.known();
  }

  heading() {
    const { detail } = this, { step } = detail.attributes;
    const part = (/** @type {string} */ name) => String(detail.attributes[name] ?? "").slice(0, 80);
    /** @type {(word: string, name: string) => any} */
    const named = (word, name) => (part(name) ? [h("b", [word]), ` ${part(name)}`] : null);
    const toGroup = {
      href: link(["run", this.run, "group", detail.trace_id]),
      title: "the rollouts of this prompt (key g)",
    };
    const beside = (
      /** @type {string} */ title,
      /** @type {string} */ key,
      /** @type {number} */ by,
      /** @type {string} */ sign,
    ) =>
      h("button.quiet", {
        title: `${title} in the list (key ${key})`,
        "aria-label": title,
        onclick: () => this.neighbour(by),
      }, sign);
    const crumbs = h("nav.crumbs", { "aria-label": "where this trajectory belongs" }, [
      beside("previous", "k", -1, "‹"),
      beside("next", "j", 1, "›"),
      part("step") && h("a", { href: link(["run", this.run, "steps"], { step }) }, [named("step", "step")]),
      h("a", toGroup, [named("prompt", "sample_index") ?? "prompt"]),
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
      this.took = h("span", [
        h("b", [detail.open ? "" : "took "]),
        seconds(detail.duration) || openFor(detail.open) || unknown(detail.status),
      ]),
      this.timesBar(),
      h("span.dim.spent", [this.spent()]),
      h("a.button", { href: link(["run", this.run, "group", detail.trace_id]), title: "key g" }, "group"),
      h("button.quiet.copy", { onclick: (/** @type {any} */ { target }) => copyLink(target) }, "copy link"),
      !source.exported &&
      FILES.map(([what, words, kind]) =>
        h("button.quiet", { "data-file": what, onclick: () => this.download(what, kind) }, words)
      ),
    ]);
  }

  /** Save what the server makes of this trajectory. @param {string} what @param {string} kind */
  async download(what, kind) {
    const id = this.detail.trace_id;
    const body = await (await source.ask(source.path(this.run, "traces", id, what))).blob();
    h("a", { href: URL.createObjectURL(body), download: `${id.slice(0, 12)}.${kind}` }).click();
  }

  /** Say of an open trajectory how long it has been open by now. @param {number} now seconds */
  later(now) {
    const { open } = this.detail;
    if (open) open.seconds = now;
    this.took.lastChild.data = openFor(open);
    if (this.view === "timeline") this.timeline?.until(now);
  }

  /** Keep what this trajectory is to be called. @param {string} text */
  async label(text) {
    const [label, ...why] = text.split(":"), { trace_id: trace } = this.detail;
    if (this.saved === text) return;
    this.saved = text;
    await source.label(this.run, trace, label.trim(), why.join(":").trim());
    const { words, ids } = givenIn(this.run), word = label.trim();
    if (word) ids.add(trace);
    else ids.delete(trace);
    given.set(this.run, { words: word ? [word, ...words.filter((each) => each !== word)] : words, ids });
    this.offer();
    this.refresh(await source.trace(this.run, this.detail.trace_id));
  }

  /** Offer the labels used last, each with its key, and count. */
  async offer() {
    if (source.exported) return;
    const rows = await rowsOf(this.run, ["label"]), { texts: { label }, count } = rows;
    const { words, ids } = givenIn(this.run);
    const others = (label?.words ?? []).filter((word) => word && !words.includes(word));
    this.words = [...words, ...others].slice(0, LABEL_KEYS.length);
    const known =
      [...label?.codes.keys() ?? []].filter((row) => label.codes[row] >= 0 && !ids.has(rows.id(row))).length;
    fill(this.recent, [
      this.words.map((word, place) =>
        h("button.chip", {
          title: `label it ${word} and go on (key ${LABEL_KEYS[place]})`,
          onclick: () => this.labelled(word),
        }, [h("kbd", [LABEL_KEYS[place]]), ` ${word}`])
      ),
      h("span.dim", `${number(known + ids.size)} of ${number(count)} labelled`),
    ]);
  }

  /** Label this one and go on to the next. @param {string | undefined} word @param {boolean} [typed] go on typing
   * there */
  async labelled(word, typed = false) {
    if (word === undefined) return;
    typing = typed;
    await this.label(word);
    await this.neighbour(1);
  }

  /** What most of the time went on. */
  spent() {
    const { times, gap } = this.detail;
    const within = gap ? ` (${seconds(gap.seconds)} of it ${gap.where})` : "";
    const most = TIMES.filter(([name]) => times[name] > 0).sort(([a], [b]) => times[b] - times[a]).slice(0, 3);
    const said = most.map(([name, , word]) => `${word} ${seconds(times[name])}${name === "other_s" ? within : ""}`);
    return said.join(", ");
  }

  timesBar() {
    const given = TIMES.filter(([name]) => this.detail.times[name] > 0);
    const total = given.reduce((sum, [name]) => sum + this.detail.times[name], 0);
    const words = given.map(([name, , word]) => `${word} ${seconds(this.detail.times[name])}`).join(", ");
    return total
      ? h("span.times", { role: "img", title: words, "aria-label": `time: ${words}` }, [
        given.map(([name, colour]) =>
          h("i", { style: { width: `${(100 * this.detail.times[name]) / total}%`, background: `var(${colour})` } })
        ),
      ])
      : null;
  }

  /** The column beside: findings, notes, facts, times, attributes. */
  known() {
    const { facts, attributes, notes, times, findings } = this.detail;
    /** @type {(title: string, values: [string, any][]) => any} */
    const list = (title, values) =>
      values.length > 0 && h("section", h("h2", title), terms(values.map(([name, value]) => [name, worded(value)])));
    const found = findings.map((finding, place) =>
      h("li", [
        h("button.finding", { "data-place": place, onclick: () => this.toFinding(place) }, [
          h("b", [finding.code]),
          " ",
          coded(finding.what),
        ]),
      ])
    );
    fill(this.aside, [
      h("section.call-box", { hidden: true }),
      found.length ? h("section", h("h2", "findings"), h("ul", [found])) : null,
      notes.length ? h("section.notes", h("h2", "notes"), h("ul", notes.map((each) => h("li", coded(each))))) : null,
      list("facts", nested(facts)),
      list(
        "time",
        TIMES.filter(([name]) => times[name] !== undefined).map(([name, , word]) => [word, seconds(times[name])]),
      ),
      list("attributes", nested(attributes)),
    ]);
    this.callBox = this.aside.firstElementChild;
  }

  /** @param {string} view */
  show(view) {
    this.view = VIEWS.includes(view) ? view : "conversation";
    note({ view: this.view === "conversation" ? null : this.view });
    this.tabs.forEach((tab) => tab.setAttribute("aria-selected", String(tab.dataset.view === this.view)));
    this.close();
    return this.view === "conversation"
      ? this.conversation()
      : this.view === "tokens"
      ? this.showTokens()
      : this.showTimeline();
  }

  /** Show what came since, at the place that is being read. @param {Detail} detail */
  async refresh(detail) {
    const still = (/** @type {Detail} */ each) => JSON.stringify({ ...each, open: null });
    if (still(detail) === still(this.detail)) return;
    const items = () => /** @type {HTMLElement[]} */ ([...this.body.querySelectorAll(".item")]);
    const [top, heights] = [this.body.scrollTop, items().map((item) => item.offsetHeight)];
    this.detail = detail;
    this.head.replaceWith(this.head = this.heading());
    this.known();
    await this.show(this.view ?? "");
    items().forEach((item, at) => {
      if (heights[at]) item.style.containIntrinsicHeight = `auto ${heights[at]}px`;
    });
    this.body.scrollTop = top;
  }

  conversation() {
    const sought = this.sought.value.trim();
    const said = conversation(this.detail, {
      sought,
      raw: this.raw,
      toCall: (span) => this.toCall(span),
      toTokens: (turn) => {
        note({ turn });
        this.show("tokens");
      },
      toTurn: (turn, ...words) => this.toTurn(turn, ...words),
      picture: (copy) => source.picture(this.run, copy),
    });
    if (!said.childElementCount) said.append(h("p.empty", [this.silent()]));
    fill(this.body, h("div.strip", [this.branches(), said]));
    const turn = address().query.get("turn");
    if (turn) this.reveal(turn);
    if (sought) this.body.querySelector("mark")?.scrollIntoView({ block: "center" });
  }

  /** Scroll to a turn, and unfold the sub-agent that it is in. @param {string} turn */
  reveal(turn) {
    const item = this.body.querySelector(`[data-turn="${CSS.escape(turn)}"]`);
    for (let outer = item?.closest("details"); outer; outer = outer.parentElement?.closest("details")) {
      outer.open = true;
    }
    item?.scrollIntoView({ block: "start" });
  }

  /** Texts as they were written, or as they are read best. */
  plainly() {
    this.raw = !this.raw;
    note({ raw: this.raw ? "1" : null });
    this.rawButton.setAttribute("aria-pressed", String(this.raw));
    if (this.view === "conversation") this.conversation();
  }

  /** The chains of a trajectory that branches, each a place to go to. */
  branches() {
    const { chains } = this.detail, names = chainNames(this.detail);
    const rows = (
      /** @type {Chain} */ chain,
    ) => (chain.row !== null ? `row ${chain.row}` : chain.in_rows === 0 ? "in no row" : "");
    const facts = (
      /** @type {Chain} */ chain,
    ) => [counted(chain.turns, "turn"), chain.tokens === null ? "" : counted(chain.tokens, "token"), rows(chain)];
    return chains.length
      ? h("div.branches", { role: "navigation", "aria-label": "branches" }, [
        chains.map((chain, place) =>
          this.toTurn(
            chain.first_turn,
            h("b", [names[place]]),
            h("span.dim", [facts(chain).filter(Boolean).join(" · ")]),
          )
        ),
      ])
      : null;
  }

  /** @param {number} turn @param {...any} words */
  toTurn(turn, ...words) {
    return h("button.quiet.to", {
      onclick: () => {
        note({ turn });
        this.reveal(String(turn));
      },
    }, words);
  }

  silent() {
    return this.detail.status === "OPEN"
      ? "Nothing was said yet: this trajectory is being written."
      : "No text was recorded: with --content none, or as no call of a model was traced. The timeline has its calls.";
  }

  async showTokens() {
    fill(this.body, h("p.waiting", "Reading tokens…"));
    const packed = await source.tokens(this.run, this.detail.trace_id).catch((error) => {
      fill(this.body);
      throw error;
    });
    if (this.view !== "tokens") return;
    const { query } = address();
    const view = new TokensView(packed, query.get("colour") ?? "", {
      chosen: (colour) => note({ colour }),
      pointed: (token) => note({ token, turn: null }),
    });
    this.tokens = view;
    fill(this.body, view.element);
    const at = query.get("token")
      ? Number(query.get("token"))
      : query.get("turn")
      ? view.ofTurn(Number(query.get("turn")))
      : -1;
    if (at >= 0) view.go(at);
  }

  showTimeline() {
    this.timeline = new Timeline(
      this.detail.spans,
      this.detail.open?.seconds ?? this.detail.duration,
      (at) => this.call(at),
      Boolean(this.detail.open),
    );
    fill(this.body, this.timeline.element);
    const at = this.detail.spans.id.indexOf(address().query.get("call") ?? "");
    if (at >= 0) requestAnimationFrame(() => this.timeline?.choose(at));
  }

  /** Show in the column beside what a call got and returned. @param {number} at */
  async call(at) {
    const { spans, trace_id: trace } = this.detail;
    note({ call: spans.id[at] });
    const told = await source.call(this.run, trace, spans.id[at]), box = this.callBox;
    box.hidden = false;
    const pairs = [
      ...Object.entries(told.inputs ?? {}),
      ["returned", told.output],
      ...Object.entries(told.attributes ?? {}),
    ].filter(([, value]) => value !== null && value !== undefined);
    fill(box, [
      h("h2", [spans.title[at]]),
      h("p.dim", [
        `${spans.name[at]} · ${spans.role[at]} · ${spans.status[at]} · ${
          seconds(spans.duration[at]) || unknown(spans.status[at])
        } · ${spans.process[at]}`,
      ]),
      told.error ? h("pre.error", marked(told.error)) : null,
      h("dl", pairs.map(([name, value]) => [h("dt", [name]), h("dd", prose(String(value), { first: 4000 }))])),
    ]);
  }

  /** @param {string} span */
  toCall(span) {
    note({ call: span });
    this.show("timeline");
    this.call(this.detail.spans.id.indexOf(span));
  }

  /** @param {number} by */
  finding(by) {
    const count = this.detail.findings.length;
    if (count) this.toFinding((this.at + by + count) % count);
    else if (this.tokens) this.unlikely(by);
  }

  /** Without findings: the next of the least likely tokens. @param {number} by */
  unlikely(by) {
    const least = this.tokens?.least(20) ?? [];
    this.at = (this.at + by + least.length) % Math.max(1, least.length);
    if (least.length) this.tokens?.go(least[this.at]);
  }

  /** @param {number} place */
  toFinding(place) {
    this.at = place;
    note({ turn: this.detail.findings[place].turn });
    if (this.view === "conversation") this.conversation();
    else this.show(this.view ?? "");
  }

  /** The trajectory before or after this one in the list it was opened from. @param {number} by */
  async neighbour(by) {
    if (listed.run !== this.run || !listed.ids.includes(this.detail.trace_id)) {
      const rows = await rowsOf(this.run);
      listed.run = this.run;
      listed.ids = Array.from(rows.order("start", false), (row) => rows.id(row));
    }
    const next = listed.ids[listed.ids.indexOf(this.detail.trace_id) + by];
    if (next) {
      go(["run", this.run, "trace", next], {
        view: this.view === "conversation" ? null : this.view,
        colour: address().query.get("colour"),
      });
    }
  }

  close() {
    this.tokens?.close();
    this.tokens = undefined;
  }
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
function worded(value) {
  return typeof value === "number" ? number(value) : typeof value === "string" ? value : JSON.stringify(value);
}

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
