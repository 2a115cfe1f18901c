// Elements and texts. What a model wrote only ever becomes text nodes; characters that act on what is read are shown.

/** Letters that are joined or kept apart by a character of no width. */
const JOINS = "Arab Syrc Mong Deva Beng Guru Gujr Orya Taml Telu Knda Mlym Sinh Khmr Mymr".split(" ")
  .map((script) => `\\p{scx=${script}}`).join("");
/** Control characters, marks that reorder what is read, letters that nobody sees, and halves of characters; but not
 * what joins pictures to one, or belongs to how a script is written. */
const HIDDEN = new RegExp(
  [
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u2069\\ufeff]",
    "\\p{Cs}",
    `\\u200c(?<![${JOINS}]\\u200c)`,
    `\\u200d(?!(?<=[${JOINS}]\\u200d)|(?<=[\\p{ExtPict}\\p{EMod}\\ufe0f]\\u200d)\\p{ExtPict})`,
    "(?<!\\u{1f3f4}[\\u{e0020}-\\u{e007e}]{0,6})[\\u{e0000}-\\u{e007f}]",
  ].join("|"),
  "gu",
);

/** How a hidden character is written: `\x1b`, `\u202e`. @param {string} letter */
const spelled = (letter) => {
  const code = letter.codePointAt(0) ?? 0;
  if (code > 0xffff) return `\\u{${code.toString(16)}}`;
  return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
};

/** `text` with its hidden characters spelled. @param {unknown} text @returns {string} */
export const visible = (text) => String(text ?? "").replace(HIDDEN, spelled);

/** An element. `kind`: its tag, and classes behind dots; then, if an object stands there, its props: `class`, `on…`
 * listeners, `style` (an object), anything else is an attribute; then children: elements, lists of them, or values that
 * become text. A value that may be an object stands in a list.
 * @param {string} kind @param {...any} given @returns {any} */
export function h(kind, ...given) {
  const [tag, ...names] = kind.split("."), element = document.createElement(tag);
  if (names.length) element.className = names.join(" ");
  const props = given[0]?.constructor === Object ? given.shift() : {};
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name === "style") Object.assign(element.style, value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : visible(value));
  }
  put(element, ...given);
  return element;
}

/** Append children as `h` does. @param {Element} element @param {...any} children */
function put(element, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(
      child instanceof Node ? child : typeof child === "string" && child.length > FIRST ? prose(child) : visible(child),
    );
  }
}

/** Names, and what is said of each. @param {[any, any][]} pairs */
export const terms = (pairs) => h("dl", pairs.map(([name, said]) => [h("dt", [name]), h("dd", [said])]));

/** A colour, of the style or of a class, and what it stands for. @param {string} colour @param {string} words */
export const legendKey = (colour, words) =>
  h(
    "span.key",
    h("i", colour.startsWith("--") ? { style: { background: `var(${colour})` } } : { class: colour }),
    words,
  );

/** Replace all children. @param {Element} element @param {...any} children */
export function fill(element, ...children) {
  element.replaceChildren();
  put(element, ...children);
}

const FIRST = 20_000;
const MORE = 500_000;

/**
 * A long text: hidden characters marked, places of `sought` highlighted, the rest of a very long one on request.
 * @param {string} text @param {{class?: string, sought?: string, first?: number}} [options] @returns {HTMLElement}
 */
export function prose(text, options = {}) {
  const box = h("div", { class: `prose ${options.class ?? ""}`, dir: "auto" });
  let shown = 0;
  const grow = (/** @type {number} */ count) => {
    const part = text.slice(shown, shown + count);
    shown += part.length;
    put(box, marked(part, options.sought));
    if (shown < text.length) {
      const left = (text.length - shown).toLocaleString("en");
      const button = h("button.quiet", {
        onclick: () => {
          button.remove();
          grow(MORE);
        },
      }, `… ${left} characters more`);
      box.append(button);
    }
  };
  grow(options.first ?? FIRST);
  return box;
}

/** Text nodes, with hidden characters and what is sought in elements of their own. @param {string} text
 * @param {string} [sought] */
export function marked(text, sought) {
  const nodes = [];
  let at = 0;
  const words = sought ? new RegExp(sought.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "gi") : null;
  const plain = (/** @type {string} */ part) => {
    let from = 0;
    for (const match of part.matchAll(HIDDEN)) {
      if (match.index > from) nodes.push(document.createTextNode(part.slice(from, match.index)));
      nodes.push(h("span.hidden-mark", { title: "a character that is not shown" }, spelled(match[0])));
      from = match.index + match[0].length;
    }
    if (from < part.length) nodes.push(document.createTextNode(part.slice(from)));
  };
  if (words) {
    for (const match of text.matchAll(words)) {
      plain(text.slice(at, match.index));
      nodes.push(h("mark", [match[0]]));
      at = match.index + match[0].length;
    }
  }
  plain(text.slice(at));
  return nodes;
}

/** A sentence whose `words` in backticks are code. @param {unknown} text */
export const coded = (text) =>
  String(text ?? "").split(/`([^`]+)`/).map((part, at) => (at % 2 ? h("code", [part]) : part));

/** Say of a drawing what the pointer is on, and go where a click leads. @template T @param {HTMLElement} canvas
 * @param {(event: MouseEvent) => T | null | undefined} under @param {(found: T) => void} tell
 * @param {(found: T) => void} chosen */
export function pointed(canvas, under, tell, chosen) {
  for (const [kind, act] of /** @type {const} */ ([["mousemove", tell], ["click", chosen]])) {
    canvas.addEventListener(kind, (event) => {
      const found = under(event);
      if (found) act(found);
    });
  }
}

/** At most once a frame. @param {() => void} work */
export function eachFrame(work) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      work();
    });
  };
}

/** Follow the pointer until it is let go. @param {(event: PointerEvent) => void} move
 * @param {(event: PointerEvent) => void} end */
export function follow(move, end) {
  const listening = new AbortController();
  addEventListener("pointermove", move, listening);
  addEventListener("pointerup", (event) => {
    listening.abort();
    end(event);
  }, listening);
}

/** A drawing surface of the size of its element, in device pixels; drawn again when that changes. */
export class Surface {
  /** @param {HTMLCanvasElement} canvas @param {(surface: Surface) => void} draw */
  constructor(canvas, draw) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    this.width = 0;
    this.height = 0;
    this.ratio = 1;
    this.draw = eachFrame(() => {
      if (this.fit()) draw(this);
    });
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(canvas);
    const restyled = () => {
      if (canvas.isConnected) this.draw();
      else removeEventListener("restyle", restyled);
    };
    addEventListener("restyle", restyled);
  }

  fit() {
    this.ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    const [wide, high] = [Math.round(this.width * this.ratio), Math.round(this.height * this.ratio)];
    if (this.canvas.width !== wide || this.canvas.height !== high) {
      this.canvas.width = wide;
      this.canvas.height = high;
    }
    this.context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    this.context.clearRect(0, 0, this.width, this.height);
    return wide > 0 && high > 0;
  }
}

/** A colour of the page's style. @param {string} name */
export const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A bar over time; hatched where it is still open. @param {CanvasRenderingContext2D} context @param {number} x
 * @param {number} y @param {number} width @param {number} height @param {string} colour @param {boolean} open */
export function drawBar(context, x, y, width, height, colour, open) {
  context.fillStyle = colour;
  context.globalAlpha = open ? 0.3 : 1;
  context.fillRect(x, y, width, height);
  context.globalAlpha = 1;
  if (!open) return;
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.beginPath();
  for (let at = x - height - (x % 8); at < x + width; at += 8) {
    context.moveTo(at, y + height);
    context.lineTo(at + height, y);
  }
  context.stroke();
  context.restore();
}
