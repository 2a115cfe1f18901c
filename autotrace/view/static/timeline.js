// The calls of a trajectory over time, drawn: whatever their number, only the rows in view cost anything.
import { drawBar, follow, h, ink, legendKey, Surface, visible } from "./dom.js";
import { seconds, ticks, unknown } from "./format.js";

const ROW = 20;
const AXIS = 22;
/** Role -> colour of the style. @type {Record<string, string>} */
const ROLE_INK = {
  trajectory: "--role-trajectory",
  agent: "--role-trajectory",
  llm: "--role-llm",
  engine: "--role-engine",
  tool: "--role-tool",
  env: "--role-tool",
  reward: "--role-reward",
  parser: "--role-other",
  trainer: "--role-other",
  span: "--role-other",
};
/** Name, times that make it up, colour. @type {[string, string[], string][]} */
const PHASES = [
  ["queue", ["dispatch_s", "queue_s"], "--phase-queue"],
  ["prefill", ["prefill_s"], "--phase-prefill"],
  ["decode", ["decode_s"], "--phase-decode"],
];

/** Rows in the order of a tree: number of a span, and how deep it is. @param {Spans} spans */
function tree(spans) {
  const count = spans.id.length;
  /** @type {number[][]} */
  const children = Array.from({ length: count }, () => []);
  const tops = /** @type {number[]} */ ([]);
  for (let at = 0; at < count; at += 1) {
    (spans.parent[at] < 0 || spans.parent[at] === at ? tops : children[spans.parent[at]]).push(at);
  }
  const rows = [];
  const left = tops.reverse().map((at) => [at, 0]);
  while (left.length) {
    const [at, depth] = /** @type {[number, number]} */ (left.pop());
    rows.push({ at, depth });
    for (const child of children[at].slice().reverse()) left.push([child, depth + 1]);
  }
  return rows;
}

const isWrong = (/** @type {string} */ status) => status !== "OK" && status !== "OPEN";

export class Timeline {
  /** @param {Spans} spans @param {number | null} duration @param {(at: number) => void} chosen
   * @param {boolean} live whether open calls last until now */
  constructor(spans, duration, chosen, live) {
    this.live = live;
    this.spans = spans;
    this.rows = tree(spans);
    this.chosen = chosen;
    this.current = -1;
    const ends = spans.start.map((start, at) => start + (spans.duration[at] ?? 0));
    this.total = Math.max(duration ?? 0, ends.reduce((a, b) => Math.max(a, b), 0)) || 1e-3;
    this.from = 0;
    this.to = Number(this.total);
    this.canvas = h("canvas.timeline-canvas", { role: "img", "aria-label": `timeline of ${this.rows.length} calls` });
    this.spacer = h("div", { style: { height: `${this.rows.length * ROW + AXIS + 8}px` } });
    this.scroll = h("div.timeline-scroll", { tabindex: "0", "aria-label": "timeline; arrow keys choose a call" }, [
      this.canvas,
      this.spacer,
    ]);
    this.tip = h("div.pointed", { role: "status" }, [
      "Wheel with Ctrl zooms, dragging moves, a click shows the call; double click shows all.",
    ]);
    const keys = [
      ["llm", "--role-llm"],
      ["engine", "--role-engine"],
      ["tool", "--role-tool"],
      ["reward", "--role-reward"],
      ["other", "--role-other"],
      ...PHASES.map(([name, , colour]) => [name, colour]),
    ];
    const legend = h("div.legend", [
      keys.map(([name, colour]) => legendKey(colour, name)),
    ]);
    this.element = h("div.timeline", h("div.bar", [legend]), this.tip, this.scroll);
    this.surface = new Surface(this.canvas, () => this.draw());
    this.listen();
  }

  /** Width of the names. */
  get labels() {
    return Math.min(230, 0.4 * this.surface.width);
  }
  /** @param {number} time */
  x(time) {
    return this.labels + ((time - this.from) / (this.to - this.from)) * (this.surface.width - this.labels - 8);
  }

  draw() {
    const { context, width, height } = this.surface, top = this.scroll.scrollTop;
    const [text, dim, line] = [ink("--text"), ink("--dim"), ink("--line")];
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    const first = Math.max(0, Math.floor((top - AXIS) / ROW));
    const last = Math.min(this.rows.length, first + Math.ceil(height / ROW) + 2);
    const colours = Object.fromEntries(Object.entries(ROLE_INK).map(([role, name]) => [role, ink(name)]));
    const phases = PHASES.map(([, , name]) => ink(name));
    for (let place = first; place < last; place += 1) {
      const { at, depth } = this.rows[place], y = AXIS + place * ROW - top;
      if (at === this.current) {
        context.fillStyle = ink("--chosen");
        context.fillRect(0, y, width, ROW);
      }
      const begin = this.spans.start[at], end = begin + (this.spans.duration[at] ?? this.total - begin);
      const [left, right] = [Math.max(this.labels, this.x(begin)), Math.min(width, this.x(end))];
      if (right >= this.labels && left <= width) {
        const colour = colours[this.spans.role[at]] ?? colours.span, isOpen = this.spans.duration[at] === null;
        drawBar(context, left, y + 4, Math.max(1.5, right - left), ROW - 8, colour, isOpen);
        this.phases(at, y, phases);
        if (isWrong(this.spans.status[at])) {
          context.strokeStyle = ink("--bad");
          context.lineWidth = 2;
          context.strokeRect(left, y + 3, Math.max(3, right - left), ROW - 6);
        }
        const took = this.took(at);
        context.fillStyle = dim;
        if (right + 4 < width - 40) context.fillText(took, right + 4, y + ROW / 2);
        else if (this.spans.status[at] === "OPEN" && right - left > 150) {
          context.fillStyle = text;
          context.fillText(took, right - context.measureText(took).width - 8, y + ROW / 2);
        }
      }
      context.fillStyle = isWrong(this.spans.status[at]) ? ink("--bad") : text;
      const [indent, title] = [6 + Math.min(depth, 8) * 12, visible(this.spans.title[at].slice(0, 60))];
      const fits = Math.floor((this.labels - indent) / 5.5);
      context.fillText(
        title.length > fits ? `${title.slice(0, fits - 1)}…` : title,
        indent,
        y + ROW / 2,
        this.labels - 6 - indent,
      );
    }
    this.axis(context, width, height, dim, line);
  }

  /** Draw open calls until `total` seconds. @param {number} total */
  until(total) {
    if (this.to === this.total) this.to = total;
    this.total = total;
    this.surface.draw();
  }

  /** How long a call took, or has been open. @param {number} at */
  took(at) {
    const { duration, start, status } = this.spans, open = this.live && status[at] === "OPEN";
    return open ? `open for ${seconds(this.total - start[at])}` : seconds(duration[at]) || unknown(status[at]);
  }

  /** The engine's own times, within its call. @param {number} at @param {number} y @param {string[]} colours */
  phases(at, y, colours) {
    const given = this.spans.phases[at];
    if (!given) return;
    let from = this.spans.start[at];
    const end = from + (this.spans.duration[at] ?? 0);
    PHASES.forEach(([, names], number) => {
      const length = names.reduce((sum, name) => sum + (given[name] ?? 0), 0);
      const to = Math.min(end, from + length), [left, right] = [Math.max(this.labels, this.x(from)), this.x(to)];
      this.surface.context.fillStyle = colours[number];
      if (right > left) this.surface.context.fillRect(left, y + 8, right - left, ROW - 16);
      from = to;
    });
  }

  /** @param {CanvasRenderingContext2D} context @param {number} width @param {number} height @param {string} dim
   * @param {string} line */
  axis(context, width, height, dim, line) {
    context.fillStyle = ink("--ground");
    context.fillRect(0, 0, width, AXIS);
    context.strokeStyle = line;
    context.lineWidth = 1;
    for (const time of ticks(this.from, this.to, Math.min(8, (width - this.labels) / 70))) {
      const x = Math.round(this.x(time)) + 0.5;
      context.beginPath();
      context.moveTo(x, 14);
      context.lineTo(x, height);
      context.globalAlpha = 0.5;
      context.stroke();
      context.globalAlpha = 1;
      context.fillStyle = dim;
      context.fillText(seconds(time), Math.min(x + 3, width - 48), 10);
    }
  }

  listen() {
    this.scroll.addEventListener("scroll", () => this.surface.draw(), { passive: true });
    this.canvas.addEventListener("wheel", (/** @type {WheelEvent} */ event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const share = Math.min(1, Math.max(0, (event.offsetX - this.labels) / (this.surface.width - this.labels)));
      const middle = this.from + share * (this.to - this.from), factor = event.deltaY > 0 ? 1.25 : 0.8;
      this.zoom(middle - (middle - this.from) * factor, middle + (this.to - middle) * factor);
    }, { passive: false });
    this.canvas.addEventListener("dblclick", () => this.zoom(0, this.total));
    this.canvas.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => this.drag(event));
    this.canvas.addEventListener(
      "pointermove",
      (/** @type {PointerEvent} */ event) => event.buttons || this.say(this.under(event.offsetY)),
    );
    this.scroll.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const place = Math.min(
        this.rows.length - 1,
        Math.max(0, this.rows.findIndex(({ at }) => at === this.current) + step),
      );
      this.choose(this.rows[place].at);
    });
  }

  /** @param {PointerEvent} event */
  drag(event) {
    const [x, from, to] = [event.clientX, this.from, this.to];
    const scale = (to - from) / (this.surface.width - this.labels);
    let moved = false;
    follow((next) => {
      moved ||= Math.abs(next.clientX - x) > 3;
      if (moved) this.zoom(from - (next.clientX - x) * scale, to - (next.clientX - x) * scale);
    }, () => {
      if (!moved) this.choose(this.under(event.offsetY));
    });
  }

  /** @param {number} from @param {number} to */
  zoom(from, to) {
    const length = Math.min(this.total, Math.max(this.total * 1e-6, to - from));
    this.from = Math.min(Math.max(0, from), this.total - length);
    this.to = this.from + length;
    this.surface.draw();
  }

  /** The span at a height. @param {number} y */
  under(y) {
    return this.rows[Math.floor((y + this.scroll.scrollTop - AXIS) / ROW)]?.at ?? -1;
  }

  /** @param {number} at */
  say(at) {
    if (at < 0) return;
    const { title, name, role, start, status, process, phases, error } = this.spans;
    const times = Object.entries(phases[at] ?? {}).map(([phase, value]) =>
      `${phase.replace(/_s$/, "")} ${seconds(value)}`
    );
    const said = [
      title[at],
      name[at] === title[at] ? "" : name[at],
      role[at],
      `+${seconds(start[at])}`,
      this.took(at),
      status[at],
      ...times,
      `in ${process[at]}`,
      error[at] ?? "",
    ];
    this.tip.textContent = visible(said.filter(Boolean).join("  ·  ").slice(0, 400));
  }

  /** @param {number} at */
  choose(at) {
    if (at < 0) return;
    this.current = at;
    const place = this.rows.findIndex((row) => row.at === at);
    const y = place * ROW;
    if (y < this.scroll.scrollTop || y + AXIS + ROW > this.scroll.scrollTop + this.scroll.clientHeight) {
      this.scroll.scrollTop = y - this.scroll.clientHeight / 2;
    }
    this.say(at);
    this.surface.draw();
    this.chosen(at);
  }
}
