// Where the data comes from: the server, or this file itself where it was exported.

import { number } from "./format.js";

const ARRAYS = /** @type {Record<string, any>} */ ({
  f64: Float64Array,
  f32: Float32Array,
  i32: Int32Array,
  u32: Uint32Array,
  u16: Uint16Array,
  u8: Uint8Array,
});

/** A table whose names users chose: `constructor` and `__proto__` are names like any other.
 * @returns {Record<string, any>} */
export const table = () => Object.create(null);

/** @typedef {{header: any, arrays: Record<string, any>}} Packed */

/** What the server packed (`pack.py` says how). @param {ArrayBuffer} buffer @returns {Packed} */
function unpack(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size))), arrays = table();
  /** @type {[string, [string, number, number]][]} */
  const parts = Object.entries(header.arrays);
  for (const [name, [type, at, length]] of parts) arrays[name] = new ARRAYS[type](buffer, 4 + size + at, length);
  return { header, arrays };
}

const GONE = "The server does not answer: it was ended, or the connection is gone. Start autotrace view again.";

/** A sentence for the person who reads. */
export class Problem extends Error {}

/** The link's code is exchanged, once, for the session, which is kept for the tabs of this page: no other port sees
 * it. */
const code = new URLSearchParams(location.search).get("open");
const entered = code && fetch("/session", { headers: { authorization: `Bearer ${code}` } }).then(async (answer) => {
  if (answer.ok) localStorage.setItem("autotrace", await answer.text());
});
if (code) history.replaceState(null, "", location.pathname + location.hash);

/** Asks the server. */
class Server {
  exported = false;
  pictures = table();

  /** @param {string} path @param {AbortSignal} [signal] @param {string} [method] */
  async ask(path, signal, method = "GET") {
    await entered;
    const headers = { authorization: `Bearer ${localStorage.getItem("autotrace")}` };
    const answer = await fetch(path, { method, signal, headers }).catch((error) => {
      throw signal?.aborted ? error : new Problem(GONE);
    });
    if (!answer.ok) throw new Problem((await answer.text()) || `The server answered ${answer.status}.`);
    return answer;
  }

  /** @param {...string} parts */
  path = (...parts) => ["/api/runs", ...parts.map(encodeURIComponent)].join("/");
  /** What the server has at `parts`, and an exported file as `name`. @param {string} name @param {...string} parts
   * @returns {Promise<ArrayBuffer>} */
  async bytes(name, ...parts) {
    return (await this.ask(this.path(...parts))).arrayBuffer();
  }
  /** @param {string} name @param {...string} parts @returns {Promise<any>} */
  json = async (name, ...parts) => JSON.parse(new TextDecoder().decode(await this.bytes(name, ...parts)));

  /** @returns {Promise<{runs: RunLine[], version: string}>} */
  runs = () => this.json("runs");
  /** @param {string} run @returns {Promise<RunState>} */
  state = (run) => this.json("state", run);
  /** @param {string} run @param {(words: string) => void} [tell] told, while findings are computed, how far that is
   * @returns {Promise<Findings>} */
  async findings(run, tell = () => {}) {
    let isOver = false;
    const timer = setInterval(async () => {
      const { examined } = await this.state(run).catch(() => /** @type {any} */ ({})), [done, all] = examined ?? [0, 0];
      if (all && !isOver) tell(`Looking for findings… ${number(done)} of ${number(all)} trajectories examined`);
    }, 500);
    return this.json("findings", run, "findings").finally(() => {
      isOver = true;
      clearInterval(timer);
    });
  }
  /** @param {string} run @param {number} step @returns {Promise<StepRollouts>} */
  lanes = (run, step) => this.json(`step ${step}`, run, "steps", String(step));
  /** What `autotrace diff --json` prints. @param {string} run @param {string} other @returns {Promise<Diff>} */
  diff = (run, other) => this.json("diff", run, "diff", other);
  /** @param {string} run @returns {Promise<Tool[]>} */
  tools = (run) => this.json("tools", run, "tools");
  /** The columns that there are. @param {string} run @returns {Promise<import("./rows.js").Names>} */
  names = (run) => this.json("names", run, "names");
  /** @param {string} path @param {Record<string, string>} query @returns {Promise<Packed>} */
  async packed(path, query) {
    return unpack(await (await this.ask(`${path}?${new URLSearchParams(query)}`)).arrayBuffer());
  }
  /** @param {string} run @param {string[]} names none: those that a page needs first */
  columns(run, names) {
    return this.packed(this.path(run, "columns"), { names: names.join(",") });
  }
  /** The ids of those for which a condition is true. @param {string} run @param {string} expression */
  where = (run, expression) => this.packed(this.path(run, "where"), { q: expression });

  /** @param {string} run @param {string} trace @returns {Promise<Detail>} */
  trace = (run, trace) => this.json(`trace ${trace}`, run, "traces", trace);
  /** The copy of a picture, which many messages may name, or why there is none. @param {string} run
   * @param {string} name @returns {Promise<string>} */
  picture = (run, name) => this.pictures[run + name] ??= this.json(`picture ${name}`, run, "pictures", name);
  /** @param {string} run @param {string} trace */
  tokens = async (run, trace) => unpack(await this.bytes(`tokens ${trace}`, run, "traces", trace, "tokens"));
  /** @param {string} run @param {string} trace @param {string} span @returns {Promise<any>} */
  call(run, trace, span) {
    return this.json(`calls ${trace}`, run, "traces", trace, "calls", span);
  }

  /** Keeps what somebody calls a trajectory. @param {string} run @param {string} trace @param {string} label
   * @param {string} why */
  async label(run, trace, label, why) {
    const query = new URLSearchParams({ label, why });
    await this.ask(`${this.path(run, "traces", trace, "label")}?${query}`, undefined, "POST");
  }

  /** @param {string} run @param {string[]} ids @param {string} [base] @returns {Promise<GroupAnswer>} */
  async group(run, ids, base = "") {
    return (await this.ask(`${this.path(run, "group")}?${new URLSearchParams({ ids: ids.join(), base })}`)).json();
  }

  /** Hits one by one, and `{done, of}` in between: the last is short of `of` where there may be more.
   * @param {string} run @param {string} words @param {AbortSignal} signal @param {number} from
   * @returns {AsyncGenerator<Hit>} */
  async *search(run, words, signal, from = 0) {
    const path = `${this.path(run, "search")}?${new URLSearchParams({ q: words, from: String(from) })}`;
    const answer = await this.ask(path, signal);
    const reader = /** @type {ReadableStream} */ (answer.body).pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = "";;) {
      const { done, value } = await reader.read(), lines = (rest + (value ?? "")).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) if (line) yield JSON.parse(line);
      if (done) return;
    }
  }
}

/** Reads what was exported into this file. */
class Embedded extends Server {
  exported = true;
  /** @param {string} name @returns {Promise<ArrayBuffer>} */
  async bytes(name) {
    const element = document.getElementById(`data ${name}`);
    if (!element) throw new Problem("This is not in the exported file. autotrace view shows the whole run.");
    const packed = Uint8Array.from(atob(element.textContent ?? ""), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  }

  async columns() {
    return unpack(await this.bytes("columns"));
  }
  /** @param {string} _ @param {string} trace @param {string} span */
  async call(_, trace, span) {
    return (await this.json(`calls ${trace}`))[span] ?? {};
  }
  /** @param {string} _ @param {string[]} ids @param {string} [base] */
  async group(_, ids, base) {
    const found = await this.json(`group ${[...ids].sort()[0]}`);
    return { ...found, base: base && found.forks[base] ? base : found.base };
  }
}

/** The one that this page reads from. @type {Server} */
export const source = document.getElementById("data runs") ? new Embedded() : new Server();
