// The label of a trajectory: a field, the labels used last, each with its key, and how many trajectories have one.
import { source } from "./data.js";
import { fill, h } from "./dom.js";
import { number } from "./format.js";
import { rowsOf } from "./rows.js";

/** The keys of the labels used last. */
export const LABEL_KEYS = ["4", "5", "6", "7", "8", "9"];
/** Run -> what was labelled here: the label of each key, the labels used here, the newest last, and which
 * trajectories. A label keeps its key as long as no seventh one needs the key.
 * @type {Map<string, {words: string[], used: string[], ids: Set<string>}>} */
const given = new Map();
/** @param {string} run */
function givenIn(run) {
  const known = given.get(run) ?? { words: [], used: [], ids: new Set() };
  given.set(run, known);
  return known;
}
/** Whether the reader types labels, so that the next page begins there. */
let typing = false;

export class Labels {
  /** @param {string} run @param {Detail} detail @param {() => Promise<void>} kept when a label was kept
   * @param {() => Promise<boolean>} next go on to the next trajectory, if there is one */
  constructor(run, detail, kept, next) {
    this.run = run;
    this.trace = detail.trace_id;
    this.kept = kept;
    this.next = next;
    this.words = /** @type {string[]} */ ([]);
    const { label, label_why: why } = detail.facts;
    this.saved = [label, why].filter(Boolean).join(": ");
    /** Whether the field has the focus because the reader typed on the page before, and nothing was typed yet. */
    this.waits = false;
    this.called = source.exported ? null : h("input.words", {
      placeholder: "label: why (l)",
      "aria-label": "label of this trajectory",
      title: "a label, such as good, and why after a colon",
      value: this.saved,
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.pressed(event),
      onchange: () => this.label(this.called.value),
    });
    this.recent = h("span.recent");
    this.offered = this.offer();
  }

  /** Go on typing where the reader did on the page before. */
  begin() {
    this.waits = typing;
    if (typing) this.called?.focus();
    typing = false;
  }

  /** Enter keeps what was typed, Escape does not. The key of a label gives that label, unless something was typed.
   * @param {KeyboardEvent} event */
  pressed(event) {
    const place = LABEL_KEYS.indexOf(event.key);
    if (event.key === "Escape") this.called.value = this.saved;
    else if (this.called.readOnly) return; // the next page loads
    else if (event.key === "Enter") this.labelled(this.called.value, true);
    else if (this.waits && place >= 0) {
      event.preventDefault();
      this.again(place, true);
    } else this.waits = false;
  }

  /** Keep what this trajectory is to be called. @param {string} text */
  async label(text) {
    const [label, ...why] = text.split(":"), { trace } = this;
    if (this.saved === text) return;
    this.saved = text;
    await source.label(this.run, trace, label.trim(), why.join(":").trim());
    const known = givenIn(this.run), { words, used, ids } = known, word = label.trim();
    if (word) ids.add(trace);
    else ids.delete(trace);
    if (word && !words.includes(word)) {
      const oldest = words.find((each) => !used.includes(each)) ?? used.find((each) => words.includes(each)) ?? "";
      words[words.length < LABEL_KEYS.length ? words.length : words.indexOf(oldest)] = word;
    }
    if (word) known.used = [...used.filter((each) => each !== word), word];
    this.offer();
    await this.kept();
  }

  /** Offer the labels used last, each with its key, and count. */
  async offer() {
    if (source.exported) return;
    const rows = await rowsOf(this.run, ["label"]), { texts: { label }, count } = rows;
    const { words, ids } = givenIn(this.run);
    const others = (label?.words ?? []).filter((word) => word && !words.includes(word));
    words.push(...others.slice(0, LABEL_KEYS.length - words.length));
    this.words = words;
    const known =
      [...label?.codes.keys() ?? []].filter((row) => label.codes[row] >= 0 && !ids.has(rows.id(row))).length;
    fill(this.recent, [
      this.words.map((word, place) =>
        h("button.chip", {
          title: `label it ${word} and go on (key ${LABEL_KEYS[place]})`,
          onclick: () => this.labelled(word),
        }, [h("kbd", [LABEL_KEYS[place]]), ` ${word}`])
      ),
      h("span.dim", `${number(known + ids.size)} of ${number(count)} labelled`),
    ]);
  }

  /** Label this one and go on to the next. @param {string | undefined} word @param {boolean} [typed] go on typing
   * there */
  async labelled(word, typed = false) {
    if (word === undefined) return;
    typing = typed;
    this.called.readOnly = typed; // what is typed while the next page loads is no label of this one
    const going = this.label(word).then(this.next);
    going.catch(() => false).then((isGone) => this.called.readOnly = typed && isGone);
    await going;
  }

  /** Give it the label of a key. @param {number} place @param {boolean} [typed] go on typing there */
  async again(place, typed = false) {
    await this.offered;
    await this.labelled(this.words[place], typed);
  }
}
