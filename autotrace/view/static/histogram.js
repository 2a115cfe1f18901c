// How the rewards of the trajectories that are listed are distributed.
import { fill, h } from "./dom.js";
import { counted, number } from "./format.js";

const BARS = 20;

export class Histogram {
  /** @param {((low: number, high: number) => void) | null} chosen list those of one bar; null: that cannot be asked
   * here */
  constructor(chosen) {
    this.chosen = chosen;
    this.title = h("figcaption");
    this.bars = h("div.histogram-bars");
    this.element = h("figure.histogram", [this.title, this.bars]);
  }

  /** @param {Float64Array} values @param {Uint32Array} rows */
  show(values, rows) {
    let [low, high, sum, known] = [Infinity, -Infinity, 0, 0];
    for (const row of rows) {
      const value = values[row];
      if (value - value !== 0) continue; // neither missing nor infinite
      [low, high, sum, known] = [Math.min(low, value), Math.max(high, value), sum + value, known + 1];
    }
    this.element.hidden = !known;
    if (!known) return;
    const [counts, width] = [new Array(BARS).fill(0), (high - low) / BARS || 1];
    for (const row of rows) {
      if (values[row] - values[row] === 0) counts[Math.min(BARS - 1, Math.floor((values[row] - low) / width))] += 1;
    }
    const most = Math.max(...counts);
    fill(this.title, [
      `reward: ${number(low, 3)} to ${number(high, 3)}, mean ${number(sum / known, 3)}`,
      known < rows.length ? `, ${number(rows.length - known)} without` : "",
    ]);
    fill(this.bars, [counts.map((count, place) => {
      const [from, to] = [
        Number((low + place * width).toPrecision(9)),
        place === BARS - 1 ? high : Number((low + (place + 1) * width).toPrecision(9)),
      ];
      const said = `${number(from, 3)} to ${number(to, 3)}: ${counted(count, "trajectory", "trajectories")}`;
      return h("button.histogram-bar", {
        title: said,
        "aria-label": said,
        disabled: !count || !this.chosen,
        onclick: () => this.chosen?.(from, to),
      }, h("i", { style: { height: `${(100 * count) / most}%` } }));
    })]);
  }
}
