// The search in the texts of all trajectories, which the server reads one by one.
import { note } from "./address.js";
import { Problem, source } from "./data.js";
import { h, visible } from "./dom.js";
import { number } from "./format.js";

export class TextSearch {
  /** @param {string} run @param {string} sought at first @param {(words?: string) => void} changed that hits came, and
   * what is to be said of them @param {(words: string) => void} failed */
  constructor(run, sought, changed, failed) {
    this.run = run;
    this.changed = changed;
    this.failed = failed;
    /** Id -> hit; null: nothing is sought. @type {Map<string, Hit> | null} */
    this.hits = null;
    /** @type {AbortController | null} */
    this.running = null;
    this.words = h("input.words", {
      type: "search",
      placeholder: "search in texts",
      "aria-label": "search in the texts of all trajectories",
      onkeydown: (/** @type {KeyboardEvent} */ { key }) => key === "Enter" && this.search(),
      oninput: () => this.words.value || this.search(),
    });
    this.words.value = sought;
    this.further = h("button.quiet.more", { hidden: true }, "more");
  }

  /** Look for what is in the field; nothing: list all again. */
  async search() {
    this.running?.abort();
    const words = this.words.value;
    note({ q: words });
    this.further.hidden = true;
    this.hits = words ? new Map() : null;
    if (words) await this.searchOn(words, this.hits ?? new Map(), 0);
    else this.changed("");
  }

  /** Read hits until the server stops; the reader may ask for more. @param {string} words
   * @param {Map<string, Hit>} hits @param {number} from */
  async searchOn(words, hits, from) {
    const abort = this.running = new AbortController();
    this.further.hidden = true;
    try {
      let [shown, last] = [0, { done: 0, of: 0 }];
      for await (const hit of source.search(this.run, words, abort.signal, from)) {
        if (hit.trace_id) {
          hits.set(hit.trace_id, hit);
          continue;
        }
        last = hit;
        if (performance.now() - shown < 500 && hit.done < hit.of) continue;
        shown = performance.now();
        this.changed(`searched ${number(hit.done)} of ${number(hit.of)}`);
      }
      if (abort.signal.aborted) return;
      const isWhole = last.done >= last.of,
        far = isWhole ? "" : `, searched ${number(last.done)} of ${number(last.of)}`;
      this.changed(`in the texts: “${visible(words)}”${far}`);
      this.further.hidden = isWhole;
      this.further.onclick = () => this.searchOn(words, hits, last.done);
    } catch (error) {
      if (!abort.signal.aborted) this.failed(error instanceof Problem ? error.message : "The search was interrupted.");
    }
  }
}
