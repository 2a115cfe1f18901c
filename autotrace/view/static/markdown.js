// Markdown as elements. The parser says what the parts of a text are; each part is made by `h`, so that no text of a
// model becomes markup. Nothing in a text is fetched, and only links to the web can be followed, by a click.
import { codeBox, formula } from "./code.js";
import { h, marked, visible } from "./dom.js";

/** Characters up to which a text is parsed. */
export const PARSED = 100_000;
/** Type of a token -> element. @type {Record<string, string>} */
const ELEMENTS = {
  paragraph: "p",
  bullet_list: "ul",
  ordered_list: "ol",
  list_item: "li",
  blockquote: "blockquote",
  thead: "thead",
  tbody: "tbody",
  tr: "tr",
  th: "th",
  td: "td",
  em: "em",
  strong: "strong",
  s: "s",
};
const BLOCKS = new Set(["p", "li", "th", "td", "blockquote", "ul", "ol"]);
/** @type {any} */
let parser = null;

/** The parser, made once. @returns {any} */
function markdownParser() {
  if (!parser) {
    parser = /** @type {any} */ (globalThis).markdownit({
      html: false,
      linkify: false,
      typographer: false,
      breaks: true,
    });
    parser.inline.ruler.before("escape", "formula", inlineFormula);
    parser.block.ruler.before("fence", "formulas", blockFormula, { alt: ["paragraph", "blockquote", "list"] });
  }
  return parser;
}

/** Formulas within a line: `$x$`, `$$x$$`, `\(x\)`, `\[x\]`. A price is none.
 * @param {any} state @param {boolean} silent */
function inlineFormula(state, silent) {
  const [letter, end] = [state.src[state.pos], Math.min(state.posMax, state.pos + 2000)];
  if (letter !== "$" && letter !== "\\") return false;
  const rest = state.src.slice(state.pos, end);
  const found = /^\\\(([^]+?)\\\)|^\\\[([^]+?)\\\]|^\$\$([^]+?)\$\$|^\$(?!\s)((?:\\.|[^$\\])+?)(?<![\s\\])\$(?!\d)/
    .exec(rest);
  if (!found) return false;
  if (!silent) {
    const token = state.push("formula", "", 0);
    token.content = found[1] ?? found[2] ?? found[3] ?? found[4];
    token.block = found[2] !== undefined || found[3] !== undefined;
  }
  state.pos += found[0].length;
  return true;
}

/** Formulas of several lines, which begin a line with `$$` or `\[`.
 * @param {any} state @param {number} first line @param {number} last line @param {boolean} silent */
function blockFormula(state, first, last, silent) {
  const line = (/** @type {number} */ at) => state.src.slice(state.bMarks[at] + state.tShift[at], state.eMarks[at]);
  const opening = /^(?:\$\$|\\\[)/.exec(line(first))?.[0];
  if (!opening) return false;
  const closing = opening === "$$" ? "$$" : "\\]", lines = [line(first).slice(2)];
  let at = first;
  while (!lines[lines.length - 1].trimEnd().endsWith(closing)) {
    at += 1;
    if (at >= last || at - first > 60) return false;
    lines.push(line(at));
  }
  if (!silent) {
    const token = state.push("formula", "", 0);
    token.content = lines.join("\n").trimEnd().slice(0, -2);
    token.block = true;
    state.line = at + 1;
  }
  return true;
}

/** A text in Markdown. @param {string} text @param {string} [sought] @returns {HTMLElement} */
export function markdown(text, sought) {
  const box = h("div.markdown", { dir: "auto" });
  build(box, markdownParser().parse(text, {}), sought);
  return box;
}

/** Put the elements of tokens into a box. @param {HTMLElement} box @param {any[]} tokens @param {string} [sought] */
function build(box, tokens, sought) {
  const open = [box];
  for (const token of tokens) {
    const inner = open[open.length - 1];
    if (token.nesting < 0) { if (open.length > 1) open.pop(); }
    else if (token.nesting > 0) {
      const made = token.hidden ? inner : opened(token);
      if (made !== inner) inner.append(made.tagName === "TABLE" ? h("div.wide", [made]) : made);
      open.push(made);
    } else if (token.type === "inline") build(inner, token.children ?? [], sought);
    else inner.append(...leaf(token, sought));
  }
}

/** @param {any} token */
function opened(token) {
  const type = token.type.replace(/_open$/, "");
  if (type === "table") return h("table");
  if (type === "heading") return h("div", { class: `title ${token.tag}`, dir: "auto" });
  if (type === "link") return anchor(token.attrGet("href") ?? "");
  const tag = ELEMENTS[type] ?? "span", align = /text-align:(right|center)/.exec(token.attrGet("style") ?? "")?.[1];
  const start = type === "ordered_list" ? token.attrGet("start") : null;
  return h(tag, { dir: BLOCKS.has(tag) ? "auto" : null, class: align ? `at-${align}` : null, start });
}

/** A link to the web says where it leads; any other cannot be followed. @param {string} address */
function anchor(address) {
  const isWeb = /^https?:\/\/\S+$/i.test(address);
  return isWeb
    ? h("a", { href: address, rel: "noopener noreferrer nofollow", target: "_blank", title: address })
    : h("span.no-link", { title: address });
}

/** @param {any} token @param {string} [sought] @returns {Node[]} */
function leaf(token, sought) {
  switch (token.type) {
    case "softbreak":
    case "hardbreak":
      return [h("br")];
    case "hr":
      return [h("hr")];
    case "code_inline":
      return [h("code", marked(token.content, sought))];
    case "fence":
    case "code_block":
      return [codeBox(token.content.replace(/\n$/, ""), language(token), sought)];
    case "formula":
      return [sought ? h("code", marked(token.content, sought)) : formula(token.content, token.block)];
    case "image":
      return [h("span.dim", `[picture: ${pictured(token)}]`)];
    default:
      return marked(token.content, sought);
  }
}

/** @param {any} token */
const language = (token) => /^[\w+#-]{1,20}/.exec(token.info ?? "")?.[0].toLowerCase() ?? "";
/** @param {any} token */
const pictured = (token) =>
  [token.content, visible(token.attrGet("src") ?? "").slice(0, 100)].filter(Boolean).join(", ");
