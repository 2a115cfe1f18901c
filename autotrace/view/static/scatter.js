// Any two numbers of all trajectories as points, coloured by a third. A dragged rectangle selects.
import { follow, h, ink, Surface, visible } from "./dom.js";
import { number, ticks } from "./format.js";

const [LEFT, BOTTOM, PAD] = [56, 22, 8];
/** A scale that colour-blind people can tell, dark to bright (after cividis). */
const SCALE = [[30, 70, 140], [70, 90, 130], [110, 112, 120], [150, 144, 112], [196, 176, 88], [232, 204, 48]];

/** Different values up to which the points of each form a strip, and pixels up to which one is wide. */
const [FEW, STRIP_WIDE] = [12, 60];

/** @typedef {{x: [number, number], y: [number, number]} | null} Brush */

export class Scatter {
  /** @param {(row: number) => string} describe what a point is @param {(row: number) => void} open
   * @param {(brush: Brush) => void} selected */
  constructor(describe, open, selected) {
    this.describe = describe;
    this.open = open;
    this.selected = selected;
    /** The row whose point is described, -1: none. */
    this.at = -1;
    /** @type {Brush} */
    this.brush = null;
    this.xs = /** @type {Float64Array | null} */ (null);
    this.ys = new Float64Array(0);
    this.third = /** @type {Float64Array | null} */ (null);
    this.rows = new Uint32Array(0);
    this.names = ["", "", ""];
    /** @type {[number, number]} */
    this.rangeX = [0, 1];
    this.wholeX = false;
    /** Between two values next to each other; 0: there are more values than form strips. */
    this.gap = 0;
    /** @type {[number, number]} */
    this.rangeY = [0, 1];
    this.canvas = h("canvas.scatter-canvas", {
      role: "application",
      tabindex: "0",
      "aria-label": "scatter: arrow keys go from point to point, Enter opens; the filter can say the same in words",
    });
    this.tip = h("div.tip", { role: "status", hidden: true });
    this.box = h("div.brush", { hidden: true });
    this.key = h("div.legend.scatter-key");
    this.element = h("div.scatter", [this.canvas, this.box, this.tip, this.key]);
    this.surface = new Surface(this.canvas, () => this.draw());
    this.canvas.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => this.drag(event));
    this.canvas.addEventListener(
      "pointermove",
      (/** @type {PointerEvent} */ event) => event.buttons || this.tell(this.near(event)),
    );
    for (const left of ["pointerleave", "blur"]) this.canvas.addEventListener(left, () => this.tell(-1));
    this.canvas.addEventListener("focus", () => {
      if (this.canvas.matches(":focus-visible")) this.step(0);
    });
    this.canvas.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      const by = /** @type {Record<string, number>} */ ({ ArrowRight: 1, ArrowLeft: -1 })[event.key];
      if (by === undefined && (event.key !== "Enter" || this.at < 0)) return;
      event.preventDefault();
      event.stopPropagation();
      if (by === undefined) this.open(this.at);
      else this.step(by);
    });
  }

  /** The row whose point is under the pointer, -1: none. @param {PointerEvent} event */
  near(event) {
    const frame = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - frame.left, event.clientY - frame.top];
    let [found, best] = [-1, 64];
    for (const row of this.xs ? this.rows : []) {
      const [dx, dy] = [
        this.px(/** @type {Float64Array} */ (this.xs)[row]) - x,
        this.py(this.ys[row]) + this.apart(row) - y,
      ];
      if (dx * dx + dy * dy < best) [found, best] = [row, dx * dx + dy * dy];
    }
    return found;
  }

  /** Go on to a point by its place from left to right. @param {number} by */
  step(by) {
    const xs = this.xs ?? new Float64Array(0);
    const order = this.rows.filter((row) => xs[row] === xs[row] && this.ys[row] === this.ys[row]).sort((a, b) =>
      xs[a] - xs[b] || this.ys[a] - this.ys[b]
    );
    this.tell(order[Math.max(0, Math.min(order.length - 1, order.indexOf(this.at) + by))] ?? -1);
  }

  /** Say what a point is, beside it. @param {number} row */
  tell(row) {
    if (row === this.at) return;
    this.at = row;
    this.tip.hidden = row < 0;
    this.canvas.style.cursor = row < 0 ? "" : "pointer";
    if (row < 0 || !this.xs) return;
    const [x, y] = [this.px(this.xs[row]), this.py(this.ys[row]) + this.apart(row)];
    this.tip.textContent = visible(this.describe(row));
    Object.assign(this.tip.style, {
      ...(x > this.surface.width / 2
        ? { left: "auto", right: `${this.surface.width - x + 8}px` }
        : { left: `${x + 8}px`, right: "auto" }),
      top: `${Math.max(0, y - 28)}px`,
    });
  }

  /** @param {Float64Array} xs @param {Float64Array} ys @param {Float64Array | null} third @param {Uint32Array} rows
   * @param {[string, string, string]} names @param {Brush} brush */
  show(xs, ys, third, rows, names, brush) {
    Object.assign(this, { xs, ys, third, rows, names, brush });
    this.rangeX = range(xs, rows);
    this.wholeX = rows.every((row) => Number.isNaN(xs[row]) || Number.isInteger(xs[row]));
    const [low, high] = range(ys, rows, 0);
    this.gap = smallestGap(ys, rows);
    this.rangeY = range(ys, rows, Math.max(0.03, (0.3 * this.gap) / (high - low || 1)));
    this.surface.draw();
  }

  /** @param {number} value */
  px(value) {
    return LEFT + ((value - this.rangeX[0]) / (this.rangeX[1] - this.rangeX[0])) * (this.surface.width - LEFT - PAD);
  }
  /** @param {number} value */
  py(value) {
    return this.surface.height - BOTTOM -
      ((value - this.rangeY[0]) / (this.rangeY[1] - this.rangeY[0])) * (this.surface.height - BOTTOM - PAD);
  }

  /** Pixels of a strip. */
  get wide() {
    return Math.min(STRIP_WIDE, (this.py(0) - this.py(this.gap)) / 2);
  }

  /** Pixels by which a row's point is moved within its strip, the same ones each time. @param {number} row */
  apart(row) {
    return this.gap && ((Math.imul(row + 1, 0x9e3779b1) >>> 0) / 2 ** 32 - 0.5) * this.wide;
  }

  draw() {
    if (!this.xs) return;
    this.points();
    const { context, width, height } = this.surface;
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = ink("--dim");
    context.textBaseline = "middle";
    context.textAlign = "center";
    for (const at of ticks(...this.rangeX, 8, this.wholeX)) {
      context.fillText(number(at, 3), Math.min(width - 20, this.px(at)), height - BOTTOM / 2);
    }
    context.textAlign = "right";
    for (const at of ticks(...this.rangeY, 4)) context.fillText(number(at, 3), LEFT - 6, this.py(at));
    context.textAlign = "left";
    this.place();
  }

  points() {
    const { xs, ys, surface: { context, ratio } } = this;
    if (!xs) return;
    const image = context.createImageData(this.canvas.width, this.canvas.height);
    const pixels = new Uint32Array(image.data.buffer), [wide, high] = [this.canvas.width, this.canvas.height];
    const size = Math.max(2, Math.round((this.rows.length > 5000 ? 2 : this.rows.length > 300 ? 3 : 5) * ratio));
    const plain = packed(...rgb(ink("--accent"))), span = this.third && range(this.third, this.rows, 0);
    const limits = span && span[0] < span[1] ? span : null;
    const [third, colours, scale] = [this.third, SCALED, limits ? (SCALED.length - 1) / (limits[1] - limits[0]) : 0];
    // the same as px and py, without asking for the range and the size a hundred thousand times
    const [[lowX, highX], [lowY, highY]] = [this.rangeX, this.rangeY];
    const [right, up] = [
      (this.px(highX) - LEFT) * ratio / (highX - lowX),
      (this.py(highY) - this.py(lowY)) * ratio / (highY - lowY),
    ];
    const [originX, originY] = [LEFT * ratio - size / 2, this.py(lowY) * ratio - size / 2];
    for (const row of this.rows) {
      const [x, y] = [xs[row], ys[row]];
      if (Number.isNaN(x) || Number.isNaN(y)) continue;
      const colour = !limits || !third
        ? plain
        : third[row] === third[row]
        ? colours[Math.round((third[row] - limits[0]) * scale)]
        : UNKNOWN;
      const [left, top] = [
        Math.round(originX + (x - lowX) * right),
        Math.round(originY + (y - lowY) * up + this.apart(row) * ratio),
      ];
      for (let v = Math.max(0, top); v < Math.min(high, top + size); v += 1) {
        for (let u = Math.max(0, left); u < Math.min(wide, left + size); u += 1) pixels[v * wide + u] = colour;
      }
    }
    context.putImageData(image, 0, 0);
    this.key.replaceChildren();
    if (limits) {
      const stops = SCALE.map((each) => `rgb(${each.join(",")})`).join(",");
      this.key.append(
        `${this.names[2]} ${number(limits[0], 3)} `,
        h("i.wide", { style: { background: `linear-gradient(to right,${stops})` } }),
        ` ${number(limits[1], 3)}`,
      );
    }
  }

  place() {
    this.box.hidden = !this.brush;
    if (!this.brush) return;
    const [left, right] = this.brush.x.map((value) => this.px(value));
    const [bottom, top] = this.brush.y.map((value) => this.py(value));
    Object.assign(this.box.style, {
      left: `${left}px`,
      top: `${top}px`,
      width: `${right - left}px`,
      height: `${bottom - top}px`,
    });
  }

  /** @param {PointerEvent} event */
  drag(event) {
    const frame = this.canvas.getBoundingClientRect();
    const at = (/** @type {PointerEvent} */ each) => [each.clientX - frame.left, each.clientY - frame.top];
    const [x0, y0] = at(event);
    const value = (
      /** @type {number} */ x,
      /** @type {number} */ y,
    ) => [
      this.rangeX[0] + ((x - LEFT) / (this.surface.width - LEFT - PAD)) * (this.rangeX[1] - this.rangeX[0]),
      this.rangeY[0] +
      ((this.surface.height - BOTTOM - y) / (this.surface.height - BOTTOM - PAD)) * (this.rangeY[1] - this.rangeY[0]),
    ];
    const move = (/** @type {PointerEvent} */ next) => {
      const [x1, y1] = at(next);
      const [[left, low], [right, high]] = [
        value(Math.min(x0, x1), Math.max(y0, y1) + this.wide / 2), // a strip is selected whole
        value(Math.max(x0, x1), Math.min(y0, y1) - this.wide / 2),
      ];
      this.brush = Math.abs(x1 - x0) > 3 && Math.abs(y1 - y0) > 3 ? { x: [left, right], y: [low, high] } : null;
      this.place();
    };
    const had = this.brush !== null;
    follow(move, (next) => {
      move(next);
      const row = this.brush || had ? -1 : this.near(next);
      if (row >= 0) this.open(row);
      else this.selected(this.brush);
    });
  }
}

/** Smallest and largest of some rows, a little apart. @param {Float64Array} values @param {Uint32Array} rows
 * @param {number} [margin] @returns {[number, number]} */
function range(values, rows, margin = 0.03) {
  let [low, high] = [Infinity, -Infinity];
  for (const row of rows) {
    if (values[row] < low) low = values[row];
    if (values[row] > high) high = values[row];
  }
  if (low > high) return [0, 1];
  const room = low < high ? (high - low) * margin : margin && (Math.abs(low) * 0.1 || 1);
  return [low - room, high + room];
}

/** How far apart values at least are, if few ones for so many rows. @param {Float64Array} values
 * @param {Uint32Array} rows */
function smallestGap(values, rows) {
  /** @type {Set<number>} */
  const found = new Set();
  for (const row of rows) {
    if (Number.isFinite(values[row])) found.add(values[row]);
    if (found.size > FEW) return 0;
  }
  const sorted = [...found].sort((a, b) => a - b), gaps = sorted.slice(1).map((value, at) => value - sorted[at]);
  return rows.length > 3 * found.size ? (gaps.length ? Math.min(...gaps) : Math.abs(sorted[0]) || 1) : 0;
}

/** A pixel. @param {number} red @param {number} green @param {number} blue */
const packed = (red, green, blue) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;

/** `#rrggbb` as numbers. @param {string} hex @returns {[number, number, number]} */
const rgb = (hex) => [parseInt(hex.slice(1, 3), 16), parseInt(hex.slice(3, 5), 16), parseInt(hex.slice(5, 7), 16)];

const UNKNOWN = packed(140, 140, 140);
/** The scale in 256 steps. */
const SCALED = Uint32Array.from({ length: 256 }, (_, step) => {
  const at = (step / 255) * (SCALE.length - 1), [one, other] = [SCALE[Math.floor(at)], SCALE[Math.ceil(at)]];
  return packed(
    ...(/** @type {[number, number, number]} */ (one.map((part, place) =>
      Math.round(part + (other[place] - part) * (at % 1))
    ))),
  );
});
