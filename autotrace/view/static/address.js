// The state of the page is its address: `#/run/NAME/table?where=reward+%3C+0.5&sort=reward`.

/** @typedef {{path: string[], query: URLSearchParams}} Address */

/** Whatever somebody typed. @param {string} part */
export const decoded = (part) => {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
};

/** @returns {Address} */
export function address() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query ?? "") };
}

/** A link. Values that are null, undefined or empty are left out. @param {string[]} path
 * @param {Record<string, any>} [query] */
export function link(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const words = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${words ? `?${words}` : ""}`;
}

/** Go to another page. @param {string[]} path @param {Record<string, any>} [query] */
export function go(path, query) {
  location.hash = link(path, query);
}

/** Note a change of this page's state in its address, without going anywhere. @param {Record<string, any>} changes */
export function note(changes) {
  const { path, query } = address(), next = link(path, { ...Object.fromEntries(query), ...changes });
  if (next !== location.hash) history.replaceState(null, "", next);
}
