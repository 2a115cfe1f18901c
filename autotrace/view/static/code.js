// Code, JSON, diffs and formulas. Libraries only say how a text is divided; the parts become text nodes here.
import { h, marked, prose, visible } from "./dom.js";
import { library } from "./libraries.js";

/** Characters up to which code is coloured: what is longer would hold up the page. */
const COLOURED = 30_000;
const DIFF = /^(?:diff --git |--- .*\n\+\+\+ |@@ -\d+(?:,\d+)? \+\d+)/m;
/** What is done to an element when it comes near the view. @type {WeakMap<Element, () => void>} */
const waiting = new WeakMap();
const near = new IntersectionObserver((seen) => {
  for (const { target, isIntersecting } of seen) {
    if (!isIntersecting) continue;
    near.unobserve(target);
    waiting.get(target)?.();
  }
}, /** @type {any} */ ({ rootMargin: "600px 0px", scrollMargin: "600px 0px" }));

/** @param {Element} element @param {() => void} work */
function whenNear(element, work) {
  waiting.set(element, work);
  near.observe(element);
}

/** A block of code. @param {string} text @param {string} language @param {string} [sought] */
export function codeBox(text, language, sought) {
  const inner = h("code", [text.length > COLOURED ? prose(text, { sought }) : marked(text, sought)]);
  const box = h("pre.code", { "data-language": language || null, dir: "ltr", tabindex: "0" }, inner);
  if (language && !sought && text.length <= COLOURED) whenNear(box, () => colourCode(inner, text, language));
  return box;
}

/** @param {Element} inner @param {string} text @param {string} language */
async function colourCode(inner, text, language) {
  const hljs = await library("hljs").catch(() => null);
  if (!hljs?.getLanguage(language)) return;
  const { _emitter: tree } = hljs.highlight(text, { language, ignoreIllegals: true });
  if (tree?.root) inner.replaceChildren(...scoped(tree.root.children));
}

/** Elements of the tree of highlight.js: texts, and `{scope, children}`. @param {any[]} nodes @returns {Node[]} */
function scoped(nodes) {
  return nodes.flatMap((node) => {
    if (typeof node === "string") return marked(node);
    const name = String(node.scope ?? "").split(".")[0];
    return [h("span", { class: name ? `hl-${name}` : "" }, scoped(node.children))];
  });
}

/** Whether a text is a unified diff. @param {string} text */
export const isDiff = (text) => DIFF.test(text.slice(0, 20_000));

/** The same JSON with a line for each value, or null: the digits of numbers and the order of names stay.
 * @param {string} text */
export function indented(text) {
  const trimmed = text.trim();
  if (!/^[[{]/.test(trimmed) || trimmed.length > 500_000) return null;
  try {
    JSON.parse(trimmed);
  } catch {
    return null;
  }
  let [written, depth] = ["", 0];
  const line = () => `\n${"  ".repeat(Math.min(depth, 40))}`;
  const parts = trimmed.match(/"(?:\\.|[^"\\])*"|[[\]{},:]|[^\s[\]{},:"]+/g) ?? [];
  parts.forEach((part, at) => {
    if (part === "{" || part === "[") {
      depth += 1;
      written += /[\]}]/.test(parts[at + 1]) && parts[at + 1].length === 1 ? part : part + line();
    } else if (part === "}" || part === "]") {
      depth -= 1;
      written += /^[[{]$/.test(parts[at - 1]) ? part : line() + part;
    } else written += part === "," ? part + line() : part === ":" ? ": " : part;
  });
  return written;
}

/** Elements and attributes of MathML that formulas consist of: none of them asks for anything. */
const MATH = new Set(
  `math mrow mi mn mo ms mtext mspace msub msup msubsup munder mover munderover mfrac msqrt mroot mtable
  mtr mtd mstyle mpadded mphantom menclose semantics`.split(/\s+/),
);
const MATH_ATTRIBUTES = new Set(`mathvariant stretchy fence separator lspace rspace minsize maxsize accent accentunder
  columnalign rowspacing columnspacing linethickness displaystyle scriptlevel width height depth mathcolor notation
  movablelimits display symmetric largeop`.split(/\s+/));

/** What makes more of a formula than its length: definitions, whose expansion KaTeX does not bound by size. */
const DEFINES = /\\(?:[gex]?def|(?:future)?let|(?:re)?newcommand|providecommand|global|long|csname)(?![a-zA-Z])/;
const LONGEST_FORMULA = 4000;

/** A formula: its source until it can be seen, then MathML. @param {string} tex @param {boolean} block */
export function formula(tex, block) {
  if (tex.length > LONGEST_FORMULA || DEFINES.test(tex)) return h("span.formula.source", tex);
  const box = h("span", { class: `formula ${block ? "block" : ""}`, title: tex.slice(0, 500) }, tex);
  whenNear(box, async () => {
    const katex = await library("katex").catch(() => null);
    const limits = { throwOnError: true, trust: false, strict: "ignore", maxExpand: 200, maxSize: 20 };
    const tree = () => mathml(katex.__renderToDomTree(tex, { output: "mathml", displayMode: block, ...limits }));
    try {
      box.replaceChildren(...tree());
    } catch {
      box.classList.add("source");
    }
  });
  return box;
}

/** Elements of the tree that KaTeX makes. @param {any} node @returns {Node[]} */
function mathml(node) {
  if (typeof node.text === "string" && !node.children) return [document.createTextNode(visible(node.text))];
  if (node.type === "annotation") return [];
  const inner = (node.children ?? []).flatMap(mathml);
  if (!node.children && node.width !== undefined) return [document.createTextNode(node.character ?? " ")];
  if (!MATH.has(node.type)) return inner;
  const element = document.createElementNS("http\u003a//www.w3.org/1998/Math/MathML", node.type);
  for (const [name, value] of Object.entries(node.attributes ?? {})) {
    if (MATH_ATTRIBUTES.has(name)) element.setAttribute(name, visible(value));
  }
  element.append(...inner);
  return [element];
}
