// One trajectory: what was said, its tokens, its calls over time, and what is known about it.
import { address, go, note } from "./address.js";
import { source } from "./data.js";
import { fill, h } from "./dom.js";
import { chainNames, conversation } from "./conversation.js";
import { counted, openFor, seconds, unknown } from "./format.js";
import { LABEL_KEYS, Labels } from "./labels.js";
import { library } from "./libraries.js";
import { listed } from "./page_table.js";
import { rowsOf } from "./rows.js";
import { Timeline } from "./timeline.js";
import { TokensView } from "./tokens_view.js";
import { callOf, heading, knownOf } from "./trace_about.js";

const VIEWS = ["conversation", "tokens", "timeline"];
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
  view.labels.begin();
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
      l: () => view.labels.called?.focus(),
      ...Object.fromEntries(LABEL_KEYS.map((key, place) => [key, () => view.labels.again(place)])),
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
    const kept = async () => this.refresh(await source.trace(run, detail.trace_id));
    this.labels = new Labels(run, detail, kept, () => this.neighbour(1));
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
        this.labels.recent,
        this.labels.called,
      ]),
      h("div.columns", [this.body, this.aside]),
    ]);
    this.known();
  }

  heading() {
    const { detail } = this, lasted = seconds(detail.duration) || openFor(detail.open) || unknown(detail.status);
    this.took = h("span", h("b", [detail.open ? "" : "took "]), lasted);
    return heading({ run: this.run, detail, neighbour: (by) => this.neighbour(by) }, this.took);
  }

  known() {
    fill(this.aside, knownOf(this.detail, (place) => this.toFinding(place)));
    this.callBox = this.aside.firstElementChild;
  }

  /** Say of an open trajectory how long it has been open by now. @param {number} now seconds */
  later(now) {
    const { open } = this.detail;
    if (open) open.seconds = now;
    this.took.lastChild.data = openFor(open);
    if (this.view === "timeline") this.timeline?.until(now);
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
    fill(box, callOf(spans, at, told));
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
      const ids = Array.from(rows.order("start", false), (row) => rows.id(row));
      Object.assign(listed, { run: this.run, ids });
    }
    const next = listed.ids[listed.ids.indexOf(this.detail.trace_id) + by];
    const view = this.view === "conversation" ? null : this.view;
    if (next) go(["run", this.run, "trace", next], { view, colour: address().query.get("colour") });
    return Boolean(next);
  }

  close() {
    this.tokens?.close();
    this.tokens = undefined;
  }
}
