// The tokens of a trajectory, coloured. Blocks of plain text; only blocks near the view have an element per token, so
// that 32,768 tokens cost as much as those that are seen.
import { WAYS } from "./colour.js";
import { fill, h, legendKey, visible } from "./dom.js";
import { number } from "./format.js";

const BLOCK = 256;
const NEAR = "400px 0px";
const WRITERS = ["prompt", "model", "added"];

/** One array of each kind over all tokens. @param {import("./data.js").Packed} packed */
function tokenArrays({ header, arrays }) {
  const count = arrays.id.length;
  const [turn, kind, version] = [new Int32Array(count), new Uint8Array(count), new Float64Array(count).fill(NaN)];
  for (const part of header.parts) {
    turn.fill(part.turn, part.first, part.first + part.count);
    kind.fill(part.kind, part.first, part.first + part.count);
    version.fill(part.version ?? NaN, part.first, part.first + part.count);
  }
  const advantage = typeof header.advantage === "number" ? header.advantage : null;
  return { ids: arrays.id, mask: arrays.mask, logprob: arrays.logprob, turn, kind, version, advantage, extra: arrays };
}

export class TokensView {
  /**
   * @param {import("./data.js").Packed} packed @param {string} way of colouring
   * @param {{chosen: (way: string) => void, pointed: (at: number) => void}} on
   */
  constructor(packed, way, on) {
    /** @type {{turn: number, kind: number, first: number, count: number}[]} */
    this.parts = packed.header.parts;
    this.tokens = tokenArrays(packed);
    this.text = new TextDecoder().decode(packed.arrays.text);
    let end = 0;
    this.ends = Uint32Array.from(packed.arrays.units, (units) => (end += units));
    this.on = on;
    this.way = [way, "logprob"].find((name) => Object.hasOwn(WAYS, name) && WAYS[name].has(this.tokens)) ?? "role";
    this.current = -1;
    /** Class of a token. @type {(at: number) => string} */
    this.classOf = () => "";
    /** @type {Map<any, {first: number, last: number, live: boolean}>} */
    this.blocks = new Map();
    this.watcher = new IntersectionObserver(
      (seen) => seen.forEach((each) => this.turn(each.target, each.isIntersecting)),
      { rootMargin: NEAR, scrollMargin: NEAR },
    );
    this.legend = h("div.legend");
    this.pointed = h("div.pointed", { role: "status" }, "Point at a token, or press the arrow keys.");
    this.body = h("div.tokens.prose", { tabindex: "0", "aria-label": "tokens" });
    this.element = h("div.tokens-view", h("div.tokens-head", [this.bar(), this.pointed]), this.body);
    this.build();
    this.colour(this.way);
    this.listen();
  }

  bar() {
    this.buttons = Object.entries(WAYS).map(([name, way]) =>
      h("button.way", {
        title: way.has(this.tokens) ? way.why : `${way.why}: not recorded of this trajectory`,
        "data-way": name,
        disabled: !way.has(this.tokens),
        onclick: () => {
          this.colour(name);
          this.on.chosen(name);
        },
      }, way.label)
    );
    return h("div.bar", [
      h("span.dim", "colour by "),
      h("span", { role: "group", class: "choices" }, this.buttons),
      this.legend,
      this.unlikely(),
    ]);
  }

  /** The least likely tokens of the model, to jump to. */
  unlikely() {
    if (!WAYS.logprob.has(this.tokens)) return null;
    const rows = this.least(8).map((at) =>
      h("button.chip", { title: `turn ${this.tokens.turn[at]}`, onclick: () => this.go(at) }, [
        `${visible(JSON.stringify(this.piece(at)))} ${number(this.tokens.logprob[at], 3)}`,
      ])
    );
    return h("details.least", { open: true }, h("summary", "least likely"), h("div.chips", [rows]));
  }

  /** The `count` tokens with the lowest log-probability, lowest first. @param {number} count */
  least(count) {
    const { logprob } = this.tokens;
    /** @type {number[]} */
    const found = [];
    for (let at = 0; at < logprob.length; at += 1) {
      if (Number.isNaN(logprob[at]) || (found.length === count && logprob[at] >= logprob[found[count - 1]])) continue;
      const place = found.findIndex((other) => logprob[other] > logprob[at]);
      found.splice(place < 0 ? found.length : place, 0, at);
      found.length = Math.min(found.length, count);
    }
    return found;
  }

  /** What a token says. @param {number} at */
  piece(at) {
    return this.text.slice(at ? this.ends[at - 1] : 0, this.ends[at]);
  }

  /** A token as it is shown: line ends can be seen and pointed at. @param {number} at */
  shown(at) {
    return visible(this.piece(at)).replaceAll("\n", "↵\n");
  }

  build() {
    for (const part of this.parts) {
      const name = part.kind === 1 ? `turn ${part.turn} · model` : part.kind ? `turn ${part.turn} · added` : "prompt";
      const head = h("div", { class: `part-head k${part.kind}`, id: `part-${part.turn}-${part.kind}` }, [
        `${name} · ${number(part.count)} tokens`,
      ]);
      this.body.append(head);
      for (let first = part.first; first < part.first + part.count; first += BLOCK) {
        const block = h("div.block");
        const place = { first, last: Math.min(first + BLOCK, part.first + part.count), live: false };
        this.plain(block, place);
        this.blocks.set(block, place);
        this.body.append(block);
        this.watcher.observe(block);
      }
    }
    if (!this.parts.length) this.body.append("No token ids were recorded for this trajectory.");
  }

  /** @param {any} block @param {{first: number, last: number, live: boolean}} place */
  plain(block, place) {
    const text = this.text.slice(place.first ? this.ends[place.first - 1] : 0, this.ends[place.last - 1]);
    const lines = text.split("\n");
    block.textContent = visible(lines.join("↵\n"));
    // about as high as it will be: blocks out of view are not laid out
    block.style.containIntrinsicHeight = `auto ${
      20 * lines.reduce((sum, line) => sum + Math.ceil((line.length || 1) / 130), 0)
    }px`;
    place.live = false;
  }

  /** Give a block an element per token, or take them away. @param {any} block @param {boolean} near */
  turn(block, near) {
    const place = this.blocks.get(block);
    if (!place || place.live === near) return;
    if (!near) {
      this.plain(block, place);
      return;
    }
    const spans = document.createDocumentFragment();
    for (let at = place.first; at < place.last; at += 1) {
      const span = document.createElement("span");
      span.className = at === this.current ? `${this.classOf(at)} now` : this.classOf(at);
      span.textContent = this.shown(at);
      spans.append(span);
    }
    block.replaceChildren(spans);
    place.live = true;
  }

  /** Colour by another way. @param {string} way */
  colour(way) {
    this.way = way;
    this.classOf = WAYS[way].classes(this.tokens);
    for (const [block, place] of this.blocks) {
      if (!place.live) continue;
      let at = place.first;
      for (const span of block.children) {
        span.className = at === this.current ? `${this.classOf(at)} now` : this.classOf(at);
        at += 1;
      }
    }
    this.buttons?.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.way === way)));
    fill(this.legend, [
      WAYS[way].legend(this.tokens).map(([name, label]) => legendKey(name, label)),
    ]);
  }

  listen() {
    this.body.addEventListener("mouseover", (/** @type {MouseEvent} */ event) => this.point(this.under(event.target)));
    this.body.addEventListener("click", (/** @type {MouseEvent} */ event) => {
      const at = this.under(event.target);
      if (at >= 0) this.select(at);
    });
    this.body.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      this.go(Math.min(this.tokens.ids.length - 1, Math.max(0, this.current + step)));
    });
  }

  /** The token that an element is. @param {any} element */
  under(element) {
    const block = element instanceof HTMLSpanElement ? element.parentElement : null;
    const place = block && this.blocks.get(block);
    return place && place.live ? place.first + Array.prototype.indexOf.call(block.children, element) : -1;
  }

  /** Say all that is known of a token. @param {number} at */
  point(at) {
    if (at < 0) return;
    const { ids, logprob, mask, turn, kind, version, extra } = this.tokens;
    const said = [["token", at], ["id", ids[at]], ["turn", turn[at]], ["written by", WRITERS[kind[at]]]];
    if (!Number.isNaN(logprob[at])) {
      said.push(["log-probability", number(logprob[at], 5)], ["probability", number(Math.exp(logprob[at]), 3)]);
    }
    for (const name of ["mismatch", "entropy", "advantages"]) {
      if (extra[name] && !Number.isNaN(extra[name][at])) said.push([name, number(extra[name][at])]);
    }
    if (mask[at] !== 255) said.push(["mask", mask[at]]);
    if (!Number.isNaN(version[at])) said.push(["weights", version[at]]);
    fill(this.pointed, [
      h("code", [JSON.stringify(this.piece(at))]),
      said.map(([name, value]) => h("span", h("b", [name]), ` ${value}`)),
    ]);
  }

  /** Make a token the current one. @param {number} at */
  select(at) {
    const before = this.current;
    this.current = at;
    for (const [block, place] of this.blocks) {
      for (const each of [before, at]) {
        if (place.live && each >= place.first && each < place.last) {
          block.children[each - place.first].className = this.classOf(each) + (each === at ? " now" : "");
        }
      }
    }
    this.point(at);
    this.on.pointed(at);
  }

  /** Show a token. @param {number} at */
  go(at) {
    for (const [block, place] of this.blocks) {
      if (at < place.first || at >= place.last) continue;
      this.turn(block, true);
      this.select(at);
      block.children[at - place.first].scrollIntoView({ block: "center" });
    }
  }

  /** The token that a turn's answer begins with. @param {number} turn */
  ofTurn(turn) {
    return this.parts.find((each) => each.turn === turn && each.kind === 1)?.first ?? -1;
  }

  close() {
    this.watcher.disconnect();
  }
}
