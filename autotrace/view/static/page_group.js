// The rollouts of one prompt beside each other, and where each leaves the one they are compared with.
import { address, go, link, note } from "./address.js";
import { source } from "./data.js";
import { folded } from "./conversation.js";
import { fill, h, marked } from "./dom.js";
import { absent, number, seconds } from "./format.js";
import { library } from "./libraries.js";
import { rowsOf } from "./rows.js";

const PARTS = /** @type {Record<string, string>} */ ({
  prompt: "in the prompt",
  answer: "in the answer",
  end: "where one of them ends",
  result: "in the result",
  tool: "another tool",
  arguments: "other arguments",
  unknown: "cannot be compared further",
});
/** Words that may differ until two texts count as different altogether. */
const MOST_EDITS = 1500;

/** @param {import("./main.js").Present} present @param {string} run @param {string} trace
 * @returns {Promise<import("./main.js").Page>} */
export async function showGroup(present, run, trace) {
  const rows = await rowsOf(run), row = rows.find(trace);
  const ids = row < 0 ? [trace] : rows.group(row).map((each) => rows.id(each));
  const [data] = await Promise.all([source.group(run, ids, address().query.get("base") ?? undefined), library("Diff")]);
  const group = new Group(run, trace, ids, data);
  present(group.element);
  return {
    title: "group",
    keys: {
      j: () => group.move(1),
      k: () => group.move(-1),
      Enter: () => group.open(),
      b: () => group.compare("best"),
      w: () => group.compare("worst"),
    },
  };
}

class Group {
  /** @param {string} run @param {string} trace @param {string[]} ids @param {GroupAnswer} data */
  constructor(run, trace, ids, data) {
    this.run = run;
    this.trace = trace;
    this.ids = ids;
    this.element = h("section.group-page");
    this.data = data;
    this.current = 0;
    /** @type {GroupRollout[]} */
    this.rollouts = [];
    this.base = data.rollouts[0];
    this.take(data);
  }

  /** @param {GroupAnswer} data */
  take(data) {
    this.data = data;
    this.rollouts = [...data.rollouts].sort((a, b) =>
      (b.reward ?? -Infinity) - (a.reward ?? -Infinity) || (a.rollout_n ?? 0) - (b.rollout_n ?? 0)
    );
    this.base = this.rollouts.find((one) => one.trace_id === data.base) ?? this.rollouts[0];
    this.current = Math.max(0, this.rollouts.findIndex((one) => one.trace_id === this.trace));
    this.draw();
  }

  /** @param {GroupRollout} one @returns {Fork} */
  fork = (one) => this.data.forks[this.data.base]?.[one.trace_id] ?? {};

  draw() {
    const turns = Math.max(0, ...this.rollouts.map((one) => one.turns.length));
    const rewards = this.rollouts.map((one) => one.reward).filter((value) => typeof value === "number");
    const mean = rewards.reduce((a, b) => a + b, 0) / rewards.length, most = number(Math.max(...rewards));
    const grid = h("div.beside", {
      style: { gridTemplateColumns: `3.5em repeat(${this.rollouts.length}, minmax(16em, 1fr))` },
    });
    grid.append(h("div.corner"), ...this.rollouts.map((one, place) => this.card(one, place)));
    for (let turn = 0; turn < turns; turn += 1) {
      const parts = this.rollouts.map((one) => this.fork(one).fork).some((fork) =>
        fork?.turn === turn + 1 && fork.known
      );
      grid.append(
        h("div", { class: `turn-name ${parts ? "parts" : ""}` }, parts ? "≠ " : "", `${turn + 1}`),
        ...this.rollouts.map((one) => this.turn(one, turn)),
      );
    }
    fill(this.element, [
      h("div.bar", [
        h("h1", `${this.rollouts.length} rollouts of one prompt`),
        this.data.asked && h("span.dim", { title: this.data.asked }, [short(this.data.asked)]),
        rewards.length > 0 &&
        h("span.dim", [`reward ${number(Math.min(...rewards))} to ${most}, mean ${number(mean, 3)}`]),
        h("button", { title: "key b", onclick: () => this.compare("best") }, "compare with best"),
        h("button", { title: "key w", onclick: () => this.compare("worst") }, "compare with worst"),
        this.data.left_out > 0 && h("span.dim", `${this.data.left_out} more are not shown`),
      ]),
      grid,
    ]);
  }

  /** @param {GroupRollout} one @param {number} place */
  card(one, place) {
    const base = one === this.base, { fork, call_fork: called } = this.fork(one);
    const token = fork?.token === null ? "" : `, token ${fork?.token}`;
    const where = fork
      ? `diverges at turn ${fork.turn}${token} ${PARTS[fork.part] ?? fork.part}`
      : base
      ? "the others are compared with this one"
      : one.tokens
      ? "the same tokens"
      : "the same texts";
    const sides = fork?.known && (fork.here || fork.there)
      ? h("p.sides", [
        h("span.here", { title: "the one compared with" }, short(fork.here)),
        " | ",
        h("span.there", { title: "this one" }, short(fork.there)),
      ])
      : null;
    return h(
      "div",
      { class: `card ${base ? "base" : ""} ${place === this.current ? "now" : ""}`, "data-place": place },
      [
        h("div", [
          h("a", { href: link(["run", this.run, "trace", one.trace_id]) }, h("code", [one.trace_id.slice(0, 8)])),
          one.rollout_n === null ? "" : ` n ${one.rollout_n}`,
          one.status === "OK" ? null : h("span.badge", { "data-status": one.status }, one.status),
        ]),
        h("div.big", [
          absent(one.reward) ? "no reward" : `reward ${number(one.reward)}`,
          this.rollouts.filter((other) => typeof one.reward === "number" && other.reward === one.reward).length > 1
            ? h("span.badge", { title: "another rollout of this prompt has the same reward" }, "tie")
            : null,
        ]),
        h("div.dim", [
          [
            absent(one.advantage) ? "" : `advantage ${number(one.advantage)}`,
            one.tokens ? `${one.tokens} tokens` : "",
            seconds(one.duration),
          ].filter(Boolean).join(" · "),
        ]),
        h("p", { class: fork ? "fork" : "dim" }, where),
        sides,
        called
          ? h("p.fork", [
            `tool call ${called.number}: ${
              called.part === "end" ? "run for only one of them" : PARTS[called.part] ?? called.part
            }`,
          ])
          : null,
        base ? null : h("button.chip", { onclick: () => this.compareWith(one.trace_id) }, "compare with this"),
      ],
    );
  }

  /** @param {GroupRollout} one @param {number} number */
  turn(one, number) {
    const turn = one.turns[number];
    if (!turn) return h("div.cell.none", "—");
    const other = one === this.base ? null : this.base.turns[number], { fork } = this.fork(one);
    const parts = fork?.known && fork.turn === number + 1;
    const calls = turn.calls.map((call, place) => {
      const its = one === this.base ? call : other?.calls[place];
      const differs = !its || its.name !== call.name || its.arguments !== call.arguments || its.text !== call.text;
      return h("div", { class: `called ${differs ? "differs" : ""} ${call.status === "OK" ? "" : "failed"}` }, [
        h("b", `→ ${call.name}`),
        folded(h("span.arguments", "(", compared(call.arguments, its?.arguments), ")"), call.arguments, "cell", ""),
        call.status === "OK" ? null : h("span.badge", { "data-status": call.status }, call.status),
        folded(h("div", [compared(call.text, its?.text)]), call.text, "cell", ""),
      ]);
    });
    return h("div", { class: `cell ${parts ? "parts" : ""}` }, [
      turn.thought
        ? h("details", [
          h("summary.dim", "thinking"),
          h("div.prose", { dir: "auto" }, compared(turn.thought, other?.thought)),
        ])
        : null,
      folded(h("div.prose", { dir: "auto" }, compared(turn.text, other?.text)), turn.text, "cell", ""),
      turn.status === "OK" ? null : h("span.badge", { "data-status": turn.status }, turn.status),
      calls,
      h("div.dim.count", [turn.tokens === null ? "" : `${turn.tokens} tokens`]),
    ]);
  }

  /** @param {"best" | "worst"} which */
  compare(which) {
    const having = this.rollouts.filter((one) => typeof one.reward === "number");
    const chosen = which === "best" ? having[0] : having[having.length - 1];
    if (chosen) this.compareWith(chosen.trace_id);
  }

  /** @param {string} base */
  async compareWith(base) {
    note({ base });
    if (this.data.forks[base]) this.take({ ...this.data, base });
    else this.take(await source.group(this.run, this.ids, base));
  }

  /** @param {number} by */
  move(by) {
    this.current = Math.max(0, Math.min(this.rollouts.length - 1, this.current + by));
    this.trace = this.rollouts[this.current].trace_id;
    /** @type {HTMLElement[]} */
    const cards = [...this.element.querySelectorAll(".card")];
    cards.forEach((card, place) => card.classList.toggle("now", place === this.current));
    cards[this.current]?.scrollIntoView({ inline: "nearest", block: "nearest" });
  }

  open() {
    go(["run", this.run, "trace", this.rollouts[this.current].trace_id]);
  }
}

/** A text in which each word is marked that the other one does not have there; no other: nothing is marked.
 * @param {string} text @param {string | undefined} base */
function compared(text, base) {
  if (base === undefined || base === text) return marked(text);
  /** @type {any[] | undefined} */
  const parts = /** @type {any} */ (globalThis).Diff.diffWordsWithSpace(base, text, { maxEditLength: MOST_EDITS });
  if (!parts) return [h("ins", marked(text))];
  const own = parts.filter((part) => !part.removed);
  const ends = parts.length && parts[parts.length - 1].removed && own.every((part) => !part.added);
  return [
    ...own.map((part) => (part.added ? h("ins", marked(part.value)) : h("span", marked(part.value)))),
    ends ? h("ins", "⟨ends here⟩") : null,
  ];
}

/** @param {string} text */
const short = (text) => (text.length > 60 ? `${text.slice(0, 59)}…` : text || "(nothing)");
