// The rewards of the trajectories that are listed, and any two numbers of them over each other.
import { address, note } from "./address.js";
import { source } from "./data.js";
import { fill, h } from "./dom.js";
import { Histogram } from "./histogram.js";
import { Scatter } from "./scatter.js";

export class Plots {
  /** @param {{noted: (changes: Record<string, any>) => void, narrowed: (condition: string) => void,
   * described: (row: number) => string, opened: (row: number) => void}} on */
  constructor(on) {
    const within = (/** @type {number} */ low, /** @type {number} */ high) =>
      on.narrowed(`reward >= ${low} and reward <= ${high}`);
    this.histogram = new Histogram(source.exported ? null : within);
    this.scatter = new Scatter(on.described, on.opened, (brush) => {
      on.noted({ brush: brush && [...brush.x, ...brush.y].map((value) => Number(value.toPrecision(6))).join(",") });
    });
    /** @type {Record<string, any>} */
    this.axes = Object.fromEntries(["x", "y", "c"].map((name) => {
      const onchange = () => on.noted({ [name]: this.axes[name].value, brush: null });
      return [name, h("select", { "aria-label": `${name} of the scatter`, onchange })];
    }));
    const ontoggle = (/** @type {any} */ { target }) => note({ plot: target.open ? null : "no" });
    const { x, y, c } = this.axes, use = " drag to select; a point opens its trajectory";
    this.element = h("details.scatter-box", { open: address().query.get("plot") !== "no", ontoggle }, [
      h("summary", "rewards and scatter"),
      h("div.plots", [
        this.histogram.element,
        h("div.plot", h("div.axes.dim", y, " over ", x, " coloured by ", c, use), this.scatter.element),
      ]),
    ]);
  }

  /** Offer what there is as axes. @param {string[]} there */
  choices(there) {
    const { query } = address();
    const first = (/** @type {string[]} */ names) => names.find((name) => there.includes(name)) ?? there[0] ?? "start";
    /** @type {Record<string, string>} */
    const chosen = {
      x: query.get("x") ?? first(["response_tokens", "step", "turns"]),
      y: query.get("y") ?? first(["reward", "duration"]),
      c: query.get("c") ?? (there.includes("step") ? "step" : ""),
    };
    for (const [name, select] of Object.entries(this.axes)) {
      const options = [...new Set([...(name === "c" ? [""] : []), chosen[name], ...there])];
      fill(select, options.map((value) => h("option", { value }, value || "nothing")));
      select.value = chosen[name];
    }
  }

  /** The columns that are drawn. @returns {string[]} */
  names = () => Object.values(this.axes).map((axis) => axis.value);

  /** Draw rows, and return those of them that the rectangle of the address selects.
   * @param {import("./rows.js").Rows} rows @param {Uint32Array} passed */
  show(rows, passed) {
    const [x, y, third] = this.names(), brush = brushed(address().query.get("brush"));
    const [xs, ys] = [rows.keys(x), rows.keys(y)];
    const order = brush ? passed.filter((row) => within(xs[row], brush.x) && within(ys[row], brush.y)) : passed;
    this.scatter.show(xs, ys, third ? rows.keys(third) : null, passed, [x, y, third], brush);
    this.histogram.show(rows.numbers.reward, order);
    return order;
  }
}

/** @param {string | null} text @returns {import("./scatter.js").Brush} */
function brushed(text) {
  const [a, b, c, d] = (text ?? "").split(",").map(Number);
  return text && [a, b, c, d].every(Number.isFinite) ? { x: [a, b], y: [c, d] } : null;
}

/** @param {number} value @param {[number, number]} limits */
const within = (value, [low, high]) => value >= low && value <= high;
