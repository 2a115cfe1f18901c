// Other people's code that only some pages need, read when it is needed first. An exported file has all of it.

/** Global name -> file of `vendor`. @type {Record<string, string>} */
const LIBRARIES = {
  markdownit: "markdown-it.umd.min.js",
  hljs: "highlight.min.js",
  katex: "katex.min.js",
  Diff: "diff.min.js",
};
/** @type {Map<string, Promise<any>>} */
const asked = new Map();

/** A library by its global name. @param {string} name @returns {Promise<any>} */
export function library(name) {
  const there = /** @type {any} */ (globalThis)[name];
  if (there) return Promise.resolve(there);
  let coming = asked.get(name);
  if (!coming) {
    coming = new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = `/static/vendor/${LIBRARIES[name]}`;
      script.onload = () => done(/** @type {any} */ (globalThis)[name]);
      script.onerror = () => {
        asked.delete(name);
        failed(new Error(`${LIBRARIES[name]} could not be read`));
      };
      document.head.append(script);
    });
    asked.set(name, coming);
  }
  return coming;
}
