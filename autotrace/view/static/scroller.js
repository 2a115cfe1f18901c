// A list of any length: as many elements as fit into view, which are filled anew while it scrolls.
import { eachFrame, h } from "./dom.js";

const SPARE = 6;

export class Scroller {
  /**
   * @param {number} height of a row, in pixels @param {() => any} make an empty row
   * @param {(element: any, position: number) => void} show fill it
   */
  constructor(height, make, show) {
    this.height = height;
    this.make = make;
    this.show = show;
    this.count = 0;
    /** What is in view, noted when it changes: asking the element makes the browser lay out all that changed. */
    [this.top, this.view] = [0, 600];
    this.spacer = h("div.spacer");
    this.element = h("div.scroller", { tabindex: "0", role: "rowgroup", "aria-label": "trajectories" }, this.spacer);
    /** @type {{element: any, position: number}[]} */
    this.pool = [];
    this.soon = eachFrame(() => this.place(false));
    this.element.addEventListener("scroll", () => {
      this.top = this.element.scrollTop;
      this.soon();
    }, { passive: true });
    this.watcher = new ResizeObserver(([{ contentRect }]) => {
      this.view = contentRect.height;
      this.soon();
    });
    this.watcher.observe(this.element);
  }

  /** Make the rows anew: they look otherwise. */
  renew() {
    this.spacer.replaceChildren();
    this.pool = [];
  }

  /** Show `count` rows anew. @param {number} count */
  reset(count) {
    this.count = count;
    this.spacer.style.height = `${count * this.height}px`;
    this.place(true);
  }

  /** @param {boolean} anew */
  place(anew) {
    const top = Math.min(this.top, this.count * this.height - this.view);
    const first = Math.max(0, Math.floor(top / this.height) - SPARE);
    const fits = Math.ceil(this.view / this.height) + 2 * SPARE, last = Math.min(this.count, first + fits);
    while (this.pool.length < fits) {
      const element = this.make();
      this.spacer.append(h("div", { role: "row" }, h("div", { role: "cell" }, element)));
      this.pool.push({ element, position: -1 });
    }
    this.pool.forEach((slot, number) => {
      // each element keeps its rows: those whose position leaves the same remainder
      const position = first + ((number - (first % this.pool.length) + this.pool.length) % this.pool.length);
      if (position >= last) {
        slot.element.hidden = true;
        slot.position = -1;
        return;
      }
      if (!anew && slot.position === position) return;
      slot.position = position;
      slot.element.hidden = false;
      slot.element.style.transform = `translateY(${position * this.height}px)`;
      this.show(slot.element, position);
    });
  }

  /** Scroll a row into view. @param {number} position */
  reveal(position) {
    const top = position * this.height;
    if (top < this.top) this.top = this.element.scrollTop = top;
    else if (top + this.height > this.top + this.view) {
      this.top = this.element.scrollTop = top + this.height - this.view;
    }
    this.place(false);
  }
}
