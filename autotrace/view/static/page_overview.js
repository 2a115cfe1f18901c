// What is wrong with a run, most costly first, and what its rewards did: the page on which a run opens.
import { go, link } from "./address.js";
import { begun, drawn, overlaid, overlays } from "./curves.js";
import { source } from "./data.js";
import { coded, fill, h } from "./dom.js";
import { clock, counted, number, percent } from "./format.js";
import { rowsOf } from "./rows.js";
import { showStrip, STRIP } from "./strip.js";

/** @param {import("./main.js").Present} present @param {string} run @returns {Promise<import("./main.js").Page>} */
export async function showOverview(present, run) {
  const [{ runs }, state] = await Promise.all([source.runs(), source.state(run)]);
  const view = new Overview(run, runs, state);
  present(view.element);
  view.read();
  view.summarize();
  return { title: "overview", again: () => view.again(), close: () => view.close(), restyle: () => view.draw() };
}

class Overview {
  /** @param {string} run @param {RunLine[]} runs @param {RunState} state */
  constructor(run, runs, state) {
    this.run = run;
    this.others = source.exported ? [] : overlaid();
    /** Of this run and of those over it. @type {Findings[]} */
    this.all = [];
    this.next = 0; // when a run that grows is diagnosed again
    this.closed = false; // nobody reads this any more
    this.strip = h("div.tiles", { hidden: true });
    this.facts = h("dl.run-facts");
    this.open = h("p.open");
    this.found = h("ol.found-list");
    this.only = h("div.dim");
    this.curves = h("div.curves");
    this.heading = h("h2", "Reward");
    this.begins = h("p.dim.begins");
    this.said = h("p.big", { role: "status" }, "Looking for findings…");
    /** @type {(label: string, page: string, query?: Record<string, any>) => HTMLElement} */
    const to = (label, page, query) => h("a.button", { href: link(["run", run, page], query) }, label);
    this.element = h("section.overview-page", [
      h("h1.unseen", "Overview"),
      this.strip,
      this.open,
      this.said,
      this.found,
      this.only,
      h("div.bar", [this.heading, source.exported ? null : overlays(run, runs, "overview")]),
      this.curves,
      this.begins,
      h("h2", "This run"),
      this.facts,
      h("nav.bar", { "aria-label": "tables of the run" }, [
        to("All trajectories", "table"),
        to("Lowest rewards first", "table", { sort: "reward" }),
        to("Longest first", "table", { sort: "duration", desc: "1" }),
        to("Step by step", "steps"),
        h("a.button", { href: "#/runs" }, "All runs"),
      ]),
    ]);
    this.tell(state);
  }

  /** How the run is, and what was dropped of it. @param {RunState} state */
  tell(state) {
    const where = link(["run", this.run, "table"], { where: "status = 'OPEN'", sort: "open_since" });
    const calls = h("a", { href: where }, "since when, and in which call");
    fill(this.open, state.open > 0 && [`${counted(state.open, "rollout")} still open: `, calls]);
    const facts = {
      state: state.live ? `${state.state}, being written` : state.state,
      trajectories: number(state.trajectories) + (state.open ? `, ${state.open} of them running` : ""),
      dropped: state.losses.length ? state.losses.join("; ") : "nothing",
      error: state.error,
      started: clock(state.created),
      command: state.command,
    };
    const kind = (/** @type {string} */ name) => state.losses.length && name === "dropped" ? "loss" : "";
    const given = Object.entries(facts).filter(([, value]) => value);
    fill(this.facts, given.map(([name, value]) => [h("dt", [name]), h("dd", { class: kind(name) }, value)]));
  }

  /** The run in a row of small pictures. */
  async summarize() {
    try {
      await showStrip(this.strip, await rowsOf(this.run, STRIP));
    } catch (error) {
      if (!this.closed) throw error;
    }
  }

  /** Ask what is wrong, which may take the server a while. */
  async read() {
    const begun = performance.now();
    try {
      const all = await Promise.all([this.run, ...this.others].map((run) =>
        source.findings(run, (words) => {
          if (!this.all.length) this.said.textContent = words;
        })
      ));
      if (this.closed) return;
      this.all = all;
      this.show();
    } catch (error) {
      fill(this.said, h("span.problem", [error instanceof Error ? error.message : String(error)]));
    }
    this.next = performance.now() + 10 * (performance.now() - begun);
  }

  async again() {
    this.tell(await source.state(this.run));
    this.summarize();
    if (performance.now() > this.next) await this.read();
  }

  show() {
    const [{ found, trajectories, metrics }] = this.all;
    const many = metrics ? counted(metrics, "metric") : counted(trajectories, "trajectory", "trajectories");
    const none = trajectories || metrics
      ? `${many}: no problems found`
      : "This run has no trajectory yet; autotrace status says what was bound, called and dropped.";
    fill(this.said, found.length ? `${counted(found.length, "finding")} in ${many}, most costly first` : none);
    fill(this.heading, metrics ? "Metrics" : "Reward");
    fill(this.found, found.map((finding) => this.finding(finding)));
    const known = new Set(found.map((finding) => finding.code));
    fill(this.only, [this.others.map((name, place) => {
      const rest = this.all[place + 1].found.filter((finding) => !known.has(finding.code));
      const codes = rest.map((each) => `${each.code} (${percent(each.share)})`).join(", ");
      return codes && h("p", "only in ", h("a", { href: link(["run", name, "overview"]) }, name), `: ${codes}`);
    })]);
    this.draw();
  }

  /** @param {Finding} finding */
  finding({ code, title, share, since_step: since, amount, lines, places, causes, unexplained, under }) {
    const rows = (/** @type {string} */ where) => link(["run", this.run, "table"], { where });
    const places_ = places.map(({ trace_id: id, token, turn, where, note }) => {
      const href = link(["run", this.run, "trace", id], { view: token === null ? null : "tokens", turn });
      return h("div.place", [
        h("a", { href }, h("code", [id.slice(0, 8)]), " ", coded(where)),
        note && h("span.dim", "  ", coded(note)),
      ]);
    });
    const beside = this.others.map((name, at) =>
      `${name}: ${percent(this.all[at + 1].found.find((each) => each.code === code)?.share ?? 0)}`
    );
    const first = `${since === null ? "" : ` · since step ${since}`}${under ? ` · follows from ${under}` : ""}`;
    return h("li", { "data-code": code, class: under ? "follows" : null }, [
      h("details", { open: this.all[0].found[0]?.code === code }, [
        h("summary", [
          h("i.share", { role: "img", "aria-label": percent(share) }, h("i", { style: { width: `${100 * share}%` } })),
          this.all[0].trajectories > 0 && h("span.amount-short", [percent(share)]),
          h("b.loss", [code]),
          " ",
          coded(title),
          h("span.dim", [first]),
        ]),
        h("p.amount", [amount, beside.length > 0 && h("span.dim", ` · ${beside.join(", ")}`)]),
        h("dl", [
          (causes.length > 0 || unexplained) && h("dt", "likely causes"),
          unexplained && h("dd", coded(unexplained)),
          causes.map(({ said, condition, more }) =>
            h("dd.cause", [
              coded(said),
              condition && !source.exported && [
                " ",
                h("a", { href: rows(condition) }, "with it"),
                " · ",
                h("a", { href: rows(`not ${condition}`) }, "without it"),
              ],
              h("div.dim", coded(more)),
            ])
          ),
          lines.map(([name, words]) => [h("dt", [name]), h("dd", coded(words))]),
          h("dt", "e.g."),
          h("dd", [
            places_,
            !source.exported && this.all[0].trajectories > 0 &&
            h("a", { href: rows(`finding = '${code}'`) }, "all of them"),
          ]),
        ]),
      ]),
    ]);
  }

  /** The reward and its parts over steps, with marks where findings begin. */
  draw() {
    if (!this.all.length) return;
    const marks = begun(this.all[0]);
    const how = {
      marks: () => marks,
      chosen: (/** @type {number} */ step) => go(["run", this.run, "steps"], { step }),
    };
    const names = [this.run, ...this.others], { curves, metrics } = this.all[0];
    const known = this.all.map((each) => new Map(each.curves.map((one) => [one.title, one])));
    const lines = (/** @type {string} */ title) =>
      known.map((of, place) => ({ label: names[place], steps: [], middle: [], ...of.get(title) }));
    const charts = drawn(this.curves, curves.map(({ title }) => ({ title, how, lines: lines(title) })));
    const change = this.all[0].found.find((each) => each.change);
    if (change) this.curves.firstElementChild?.after(carried(change));
    if (!charts.length) fill(this.curves, h("p.empty", "No step of this run has a reward."));
    if (metrics > curves.length) this.curves.append(`${curves.length} of ${metrics} metrics; autotrace sql reads all.`);
    fill(this.begins, [...marks].map(([step, words]) => h("span", h("b.loss", "▲"), ` step ${step}: ${words}  `)));
  }

  close() {
    this.closed = true;
    drawn(this.curves, []);
  }
}

/** What carries a change of the reward: how many rollouts have each cause, and had it before.
 * @param {Finding} finding */
function carried({ change, causes, unexplained }) {
  const bar = (/** @type {string} */ when, /** @type {number} */ share) =>
    h("div", { class: `bar-line ${when}` }, [
      h("span.dim", [when]),
      h("i.share", h("i", { style: { width: `${100 * share}%` } })),
      percent(share),
    ]);
  return h("figure.curve.carried", [
    h("figcaption", `what carries it: ${change}`),
    causes.length
      ? h("ol", [
        causes.slice(0, 4).map((cause) =>
          h("li", [
            coded(cause.words),
            cause.explains === null ? null : h("span.dim", ` · explains ${percent(Math.min(1, cause.explains))}`),
            bar("before", cause.share_before),
            bar("after", cause.share),
          ])
        ),
      ])
      : h("p", coded(unexplained)),
  ]);
}
