// What was said in a trajectory, as a person reads it: messages in Markdown, a card for each call of a tool, and
// sub-agents folded at the place where they were called.
import { codeBox, indented, isDiff } from "./code.js";
import { coded, h, marked, prose } from "./dom.js";
import { counted, seconds } from "./format.js";
import { markdown, PARSED } from "./markdown.js";

/** Characters and lines up to which a text is shown whole, by role. @type {Record<string, [number, number]>} */
const FOLDED = {
  system: [500, 5],
  developer: [500, 5],
  tool: [1600, 24],
  user: [4000, 60],
  prompt: [4000, 60],
  cell: [900, 14],
};
const READ_UNTIL = "all that the model read until here, and what it wrote";
const SCALAR = 100;
/** Characters of a tool's name. */
const TITLE = 300;
/** Names of arguments -> what is usually in them. */
const LANGUAGES = /** @type {[RegExp, string][]} */ ([
  [/^(?:code|python|script|program|source)$/i, "python"],
  [/^(?:cmd|command|bash|shell|keystrokes)$/i, "bash"],
  [/^(?:sql|query_sql)$/i, "sql"],
  [/^(?:patch|diff)$/i, "diff"],
  [/^json$/i, "json"],
]);

/** What the conversation can ask of its page.
 * @typedef {{sought: string, raw: boolean, toCall: (span: string) => void, toTokens: (turn: number) => void,
 * toTurn: (turn: number, ...words: any[]) => HTMLElement, picture: (copy: string) => Promise<string>}} Reading */

/** A text as its kind is read best. @param {string} text @param {string} role @param {Reading} reading */
function readable(text, role, { sought, raw }) {
  let shown = null;
  if (!raw && text.length <= PARSED) {
    const json = indented(text);
    if (json !== null) shown = codeBox(json, "json", sought);
    else if (isDiff(text) && !text.includes("```")) shown = codeBox(text, "diff", sought);
    else if (role !== "tool") shown = markdown(text, sought);
    if (sought && shown && !shown.querySelector("mark") && text.toLowerCase().includes(sought.toLowerCase())) {
      shown = null;
    }
  }
  return folded(shown ?? prose(text, { sought }), text, role, sought);
}

/** A long text begins folded. @param {HTMLElement} shown @param {string} text @param {string} role @param {string}
 * sought */
export function folded(shown, text, role, sought) {
  const [characters, lines] = FOLDED[role] ?? [12_000, 200], count = text.split("\n", lines + 1).length;
  if (sought || (text.length <= characters && count <= lines)) return shown;
  const button = h("button.quiet.unfold", {
    "aria-expanded": "false",
    onclick: () => unfold(box.classList.contains("folded")),
  });
  const box = h("div.folding", [
    h("div.fold", { style: { maxHeight: `${Math.min(lines, 24) * 1.5}em` } }, shown),
    button,
  ]);
  const unfold = (/** @type {boolean} */ whole) => {
    box.classList.toggle("folded", !whole);
    button.textContent = whole ? "fold" : `show all ${counted(text.length, "character")}`;
    button.setAttribute("aria-expanded", String(whole));
  };
  box.firstElementChild?.addEventListener("focusin", () => unfold(true));
  unfold(false);
  return box;
}

/** Arguments by name: of JSON, or of `name=JSON, name=JSON`. @param {string} text
 * @returns {[string, string][] | null} */
function fieldsOf(text) {
  try {
    const given = JSON.parse(text);
    if (given === null || typeof given !== "object" || Array.isArray(given)) return null;
    const written = (/** @type {any} */ value) => typeof value === "string" ? value : JSON.stringify(value);
    return Object.entries(given).map(([name, value]) => [name, written(value)]);
  } catch { /* written otherwise */ }
  const found = /** @type {[string, string][]} */ ([]);
  let rest = text;
  while (rest) {
    const name = /^([\p{L}_][\w.-]*)=/u.exec(rest)?.[1];
    if (!name) return null;
    const end = ended(rest, name.length + 1), value = rest.slice(name.length + 1, end);
    try {
      const read = JSON.parse(value);
      found.push([name, typeof read === "string" ? read : value]);
    } catch {
      return null;
    }
    if (end < rest.length && !rest.startsWith(", ", end)) return null;
    rest = rest.slice(end + 2);
  }
  return found.length ? found : null;
}

/** Where a value of JSON ends. @param {string} text @param {number} at */
function ended(text, at) {
  const parts = /"(?:\\.|[^"\\])*"|[[{]|[\]}]|,|[^"[\]{},]+/gy;
  parts.lastIndex = at;
  let depth = 0;
  for (let part = parts.exec(text); part; part = parts.exec(text)) {
    if (/^[[{]$/.test(part[0])) depth += 1;
    else if (/^[\]}]$/.test(part[0])) depth -= 1;
    else if (part[0] === "," && depth === 0) return part.index;
  }
  return text.length;
}

/** The arguments of a call: short ones in a line each, long ones as code. @param {string} text @param {Reading}
 * reading */
function called(text, reading) {
  const fields = reading.raw || !text || text.length > PARSED ? null : fieldsOf(text);
  if (!fields) return text && text !== "{}" ? prose(text, { sought: reading.sought, class: "arguments" }) : null;
  return h("dl.fields", [fields.map(([name, value]) => {
    const json = value.length > SCALAR ? indented(value) : null;
    const language = LANGUAGES.find(([names]) => names.test(name))?.[1] ??
      (isDiff(value) ? "diff" : json ? "json" : "");
    const isLong = value.includes("\n") || value.length > SCALAR;
    const shown = isLong ? codeBox(json ?? value, language, reading.sought) : h("code", marked(value, reading.sought));
    return [h("dt", [name]), h("dd", [isLong ? folded(shown, json ?? value, "tool", reading.sought) : shown])];
  })]);
}

/** The whole conversation. @param {Detail} detail @param {Reading} reading */
export function conversation(detail, reading) {
  const root = h("div.conversation"), writer = new Writer(detail, reading, root);
  detail.conversation.forEach((item, at) => writer.add(item, at));
  return root;
}

/** How the chains of a trajectory are called: a sub-agent as the call that it runs in. @param {Detail} detail
 * @returns {string[]} */
export function chainNames(detail) {
  const [{ chains, spans }, outers] = [detail, chainCalls(detail)];
  let number = 0;
  return chains.map((chain, place) => {
    if (chain.kind === null) return "main conversation";
    if (chain.kind !== "sub-agent") return `${chain.kind} after turn ${chain.after}`;
    number += 1;
    return `sub-agent ${number}${outers[place] >= 0 ? ` · ${spans.title[outers[place]]}` : ""}`;
  });
}

/** In which call of a tool or an agent each chain begins; -1: in none. @param {Detail} detail @returns {number[]} */
function chainCalls({ chains, conversation: items, spans }) {
  return chains.map((chain) => {
    const first = items.find((item) => item.turn === chain.first_turn && item.role === "assistant");
    return first ? above(spans, spans.id.indexOf(first.span)) : -1;
  });
}

/** The call of a tool or an agent around a call, below the root; -1: none. @param {Spans} spans @param {number} at */
function above(spans, at) {
  for (let outer = spans.parent[at] ?? -1; outer >= 0; outer = spans.parent[outer]) {
    if (spans.parent[outer] < 0) return -1;
    if (["tool", "agent", "env", "span"].includes(spans.role[outer])) return outer;
  }
  return -1;
}

class Writer {
  /** @param {Detail} detail @param {Reading} reading @param {HTMLElement} root */
  constructor(detail, reading, root) {
    this.detail = detail;
    this.reading = reading;
    this.root = root;
    this.names = chainNames(detail);
    this.outers = chainCalls(detail);
    /** Number of a sub-agent's chain -> where its items are. @type {Map<number, HTMLElement>} */
    this.inside = new Map();
    /** Id of a tool's call -> its card. @type {Map<string, HTMLElement>} */
    this.cards = new Map();
  }

  /** @param {Item} item @param {number} at its place in the conversation */
  add(item, at) {
    const { chains, conversation: items } = this.detail;
    const place = chains.findIndex((each) => each.own.includes(item.turn));
    const chain = chains[place], box = chain?.kind === "sub-agent" ? this.within(place, item) : this.root;
    if (item.role === "assistant" && item.calls) this.pair(item, items, at);
    const article = item.role === "tool" && item.name ? this.tool(item) : this.message(item, chain, place);
    if (chain?.kind && chain.kind !== "sub-agent") article.classList.add("branch");
    box.append(article);
    for (const call of item.role === "assistant" ? item.unpaired ?? [] : []) {
      box.append(this.tool({ ...call, role: "tool", turn: item.turn }));
    }
  }

  /** Find which call of the model each call of a tool is. @param {Item} item @param {Item[]} items
   * @param {number} at */
  pair(item, items, at) {
    const rest = items.slice(at + 1), end = rest.findIndex(({ turn, role }) => turn !== item.turn || role !== "tool");
    const made = end < 0 ? rest : rest.slice(0, end);
    const free = [...item.calls];
    for (const tool of made) {
      const found = free.findIndex((call) => tool.name === call.name || String(tool.name).endsWith(`.${call.name}`));
      const place = found < 0 && made.length === item.calls.length ? 0 : found;
      if (place >= 0) [tool.asked] = free.splice(place, 1);
    }
    item.unpaired = free;
  }

  /** The folding block of a sub-agent. @param {number} place @param {Item} item */
  within(place, item) {
    const there = this.inside.get(place);
    if (there) return there;
    const { chains, spans, conversation: items } = this.detail, chain = chains[place];
    const first = items.find((each) => each.turn === chain.first_turn && each.role === "assistant") ?? item;
    let outer = spans.parent[spans.id.indexOf(first.span)] ?? -1;
    while (outer >= 0 && !this.cards.has(spans.id[outer])) outer = spans.parent[outer];
    const facts = [
      counted(chain.turns, "turn"),
      chain.tokens === null ? "" : counted(chain.tokens, "token"),
      chain.row === null ? "" : `row ${chain.row}`,
    ];
    const asked = items.find((each) => each.turn === chain.first_turn && ["user", "prompt"].includes(each.role));
    const box = h("div.inner");
    const block = h("details.sub-agent", { "data-chain": chain.chain, open: Boolean(this.reading.sought) }, [
      h("summary", [
        h("b", [this.names[place]]),
        h("span.dim", ` ${facts.filter(Boolean).join(" · ")} `),
        h("span.dim", { dir: "auto" }, asked?.text.slice(0, 120) ?? ""),
      ]),
      box,
    ]);
    (this.cards.get(spans.id[outer]) ?? this.around(chain, spans.id.indexOf(first.span)) ?? this.root).append(block);
    this.inside.set(place, box);
    return box;
  }

  /** The block of the sub-agent that a sub-agent was called by: its call is around the other's. @param {Chain} chain
   * @param {number} at */
  around(chain, at) {
    const { chains, spans } = this.detail;
    for (let place = chain.parent ?? 0; place > 0; place = chains[place].parent ?? 0) {
      const its = this.outers[place];
      for (let outer = at; its >= 0 && outer >= 0; outer = spans.parent[outer]) {
        if (outer === its) return this.inside.get(place);
      }
      if (its < 0 && chains[place].kind === "sub-agent") return this.inside.get(place);
    }
    return undefined;
  }

  /** The line above an item. @param {Item} item @param {any} title @param {any[]} more */
  head(item, title, ...more) {
    const { reading } = this;
    const tokens = item.tokens !== undefined && item.tokens !== null ? counted(item.tokens, "token") : "";
    const facts = [tokens, item.finish ?? "", seconds(item.duration)].filter(Boolean).join(" · ");
    return h("div.item-head", [
      h("b", [title]),
      item.status && item.status !== "OK" && h("span.badge", { "data-status": item.status }, [item.status]),
      h("span.dim", [facts]),
      more,
      item.role === "assistant" && item.tokens > 0 &&
      h("button.quiet", { title: READ_UNTIL, onclick: () => reading.toTokens(item.turn) }, "tokens"),
      item.span && ["assistant", "tool"].includes(item.role) &&
      h("button.quiet", { onclick: () => reading.toCall(item.span) }, "timeline"),
    ]);
  }

  /** A call of a tool: name, arguments, result. @param {Item} item */
  tool(item) {
    const { reading } = this, given = item.asked?.arguments || item.arguments;
    const told = item.text === item.error ? "" : item.text;
    const card = h("article.item.tool.called-tool", { "data-turn": item.turn, "data-span": item.span }, [
      this.head(
        item,
        item.name.slice(0, TITLE),
        item.span ? null : h("span.dim", "asked for; no call of it was recorded"),
      ),
      called(given ?? "", reading),
      failure(item, reading),
      told && h("div.result", [readable(told, "tool", reading)]),
      item.read && h("details", h("summary.dim", "what the model read of it"), readable(item.read, "tool", reading)),
    ]);
    if (item.span) this.cards.set(item.span, card);
    return card;
  }

  /** @param {Item} item @param {Chain} chain @param {number} place */
  message(item, chain, place) {
    const { reading, detail } = this, { sought } = reading, isAnswer = item.role === "assistant";
    const findings = detail.findings.filter((each) => each.turn === item.turn && isAnswer);
    const leaving = isAnswer && chain
      ? detail.chains.filter((each) => each.kind !== null && each.after === item.turn && each.parent === chain.chain)
      : [];
    const label = chain?.kind && item.turn === chain.first_turn && chain.kind !== "sub-agent" &&
      h("span.badge", [this.names[place]]);
    const thinks = item.thought
      ? h("details.thought", { open: Boolean(sought) && item.thought.toLowerCase().includes(sought.toLowerCase()) }, [
        h("summary", `thinking (${counted(item.thought.length, "character")})`),
        readable(item.thought, "thought", reading),
      ])
      : null;
    return h("article", { class: `item ${item.role}`, "data-turn": item.turn, "data-span": item.span }, [
      this.head(
        item,
        isAnswer ? `turn ${item.turn}` : item.role,
        label,
        leaving.map((each) => reading.toTurn(each.first_turn, `→ ${this.names[detail.chains.indexOf(each)]}`)),
      ),
      findings.map((each) => h("p.finding", h("b", [each.code]), " ", coded(each.what))),
      failure(item, reading),
      thinks,
      item.text && item.text !== item.error ? readable(item.text, item.role, reading) : null,
      item.ids ? h("p.dim", [item.ids]) : null,
      (item.pictures ?? []).map((/** @type {any} */ each) => picture(each, reading)),
    ]);
  }
}

/** How an item failed. @param {Item} item @param {Reading} reading */
function failure({ error }, { sought }) {
  return error ? h("pre.error", { tabindex: "0" }, prose(error, { sought })) : null;
}

/** A picture that was kept, or in words which it was. @param {string | {what: string, copy: string}} data
 * @param {Reading} reading @returns {HTMLElement} */
function picture(data, reading) {
  const { what, copy } = typeof data === "string" ? { what: data, copy: null } : data;
  if (what.startsWith("data:")) return h("img", { src: what, alt: "a picture of the conversation" });
  const box = h("p.dim", `[a picture: ${what}]`);
  if (copy) reading.picture(copy).then((shown) => box.replaceWith(picture(shown, reading)));
  return box;
}
