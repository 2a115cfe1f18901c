// When each rollout of a step did what, by worker; and what each replica of an engine did for them.
import { go, link } from "./address.js";
import { source } from "./data.js";
import { drawBar, fill, h, ink, legendKey, pointed, Surface, visible } from "./dom.js";
import { counted, number, openFor, seconds, ticks, unknown } from "./format.js";

const [LANE, TOP, LONGEST] = [14, 20, 16000];
/** Kind -> colour, words. @type {Record<string, [string, string]>} */
const KIND = {
  queue: ["--phase-queue", "waiting for an engine"],
  prefill: ["--phase-prefill", "prefill"],
  decode: ["--phase-decode", "decode"],
  llm: ["--role-llm", "model"],
  tool: ["--role-tool", "tools"],
  reward: ["--role-reward", "reward"],
  open: ["--bad", "still open"],
  other: ["--line", "own work and waiting"],
};

/** @typedef {{start: number, end: number, parts: TimeParts, one: StepRollout}} Bar */

/** A title, and lanes of bars that do not overlap: what is one after the other shares a lane. @param {string} whose
 * @param {string} what @param {string} name @param {Bar[]} bars @returns {(string | Bar[])[]} */
function block(whose, what, name, bars) {
  /** @type {Bar[][]} */
  const lanes = [];
  for (const bar of bars.sort((a, b) => a.start - b.start)) {
    const free = lanes.find((lane) => lane[lane.length - 1].end <= bar.start);
    free ? free.push(bar) : lanes.push([bar]);
  }
  return [`${whose} ${name}: ${counted(bars.length, what)}`, ...lanes];
}

/** @param {any} box @param {string} run @param {number} step */
export async function showLanes(box, run, step) {
  fill(box, h("p.waiting", `Reading the rollouts of step ${step}…`));
  const { kinds, rollouts, left_out: left } = await source.lanes(run, step);
  const total = Math.max(1e-3, ...rollouts.map((one) => one.start + (one.duration ?? one.open?.seconds ?? 0)));
  const bars = rollouts.map((one) => ({
    one,
    start: one.start,
    end: one.start + (one.duration ?? total - one.start),
    parts: one.parts,
  }));
  const requests = rollouts.flatMap((one) =>
    one.requests.map(([replica, parts]) => {
      const [, begin, length] = parts[parts.length - 1];
      return { one, replica, start: one.start + parts[0][1], end: one.start + begin + length, parts };
    })
  );
  const rows = [
    ...[...Map.groupBy(bars, (bar) => bar.one.worker)].flatMap((by) => block("worker", "rollout", ...by)),
    ...[...Map.groupBy(requests, (request) => request.replica)].flatMap((by) => block("replica", "request", ...by)),
  ];
  const sums = kinds.map((_, kind) => rollouts.reduce((sum, one) => sum + one.spent[kind], 0));
  const all = bars.reduce((sum, bar) => sum + bar.end - bar.start, 0) || 1;
  const last = bars.filter((bar) => bar.one.status !== "OPEN").sort((a, b) => b.end - a.end)[0];
  const open = rollouts.filter((one) => one.status === "OPEN");
  const timeline = (/** @type {StepRollout} */ one) =>
    h("a", { href: link(["run", run, "trace", one.id], { view: "timeline" }) }, one.id.slice(0, 8));
  const canvas = h("canvas.lanes-canvas", {
    role: "img",
    "aria-label": `rollouts of step ${step} over time, by worker and replica`,
    style: { height: `${Math.min(rows.length * LANE + TOP + 6, LONGEST)}px` },
  });
  const tip = h("div.pointed", { role: "status" }, [
    "A bar is a rollout, or a request of one; pointing at it says where its time went, a click opens it.",
  ]);
  fill(box, [
    h("div.bar", [
      h("h2", `Step ${step}: ${counted(rollouts.length, "rollout")}, ${seconds(total)}`),
      last &&
      h("span.last", [
        "the last to end, ",
        timeline(last.one),
        `, took ${seconds(last.end - last.start)}: ${told(last.one, kinds)}`,
      ]),
      open.length > 0 &&
      h("span.open", [
        `${open.length} still open; the oldest, `,
        timeline(open[0]),
        `: ${openFor(open[0].open) || "open"}`,
      ]),
      left > 0 && h("span.dim", `${number(left)} shorter ones are not drawn`),
      h("a.button.quiet", { href: link(["run", run, "table"], { where: `step = ${step}` }) }, "list them"),
    ]),
    h("div.legend", [
      kinds.map((kind, place) =>
        sums[place] > 0 && legendKey(KIND[kind][0], `${KIND[kind][1]} ${Math.round((100 * sums[place]) / all)} %`)
      ),
    ]),
    tip,
    canvas,
  ]);
  const surface = new Surface(canvas, ({ context, width, height }) => {
    const colours = kinds.map((kind) => ink(KIND[kind][0]));
    const [dim, line, bad] = [ink("--dim"), ink("--line"), ink("--bad")];
    const x = (/** @type {number} */ time) => 4 + (time / total) * (width - 8);
    context.font = "11px system-ui, sans-serif";
    for (const time of ticks(0, total, 8)) {
      context.fillStyle = dim;
      context.fillText(seconds(time), Math.min(width - 40, x(time) + 2), 10);
      context.fillStyle = line;
      context.fillRect(x(time), 12, 1, height);
    }
    rows.forEach((row, place) => {
      const y = TOP + place * LANE;
      context.fillStyle = dim;
      if (typeof row === "string") {
        context.fillText(visible(row), 6, y + LANE - 3);
        return;
      }
      for (const { one, start, end, parts } of row) {
        context.fillStyle = line;
        context.fillRect(x(start), y, Math.max(1, x(end) - x(start) - 1), LANE - 3);
        const isOpen = (/** @type {number} */ kind) => kinds[kind] === "open";
        if (one.status === "OPEN" && !one.spent[kinds.indexOf("open")]) {
          drawBar(context, x(start), y, x(end) - x(start), LANE - 3, bad, true);
        }
        for (const [kind, begin, length] of parts) {
          const [left, wide] = [x(one.start + begin), Math.max(0.5, x(length) - x(0))];
          drawBar(context, left, y, wide, LANE - 3, colours[kind], isOpen(kind));
        }
        if (one.status !== "OK" && one.status !== "OPEN") {
          context.strokeStyle = bad;
          context.lineWidth = 2;
          context.strokeRect(x(start), y, Math.max(2, x(end) - x(start) - 1), LANE - 3);
        }
      }
    });
  });
  const under = (/** @type {MouseEvent} */ event) => {
    const row = rows[Math.floor((event.offsetY - TOP) / LANE)];
    const time = ((event.offsetX - 4) / (surface.width - 8)) * total;
    return Array.isArray(row)
      ? row.find(({ start, end }) => time >= start && time <= end + total / 300)?.one
      : undefined;
  };
  const tell = (/** @type {StepRollout} */ one) => {
    const took = seconds(one.duration) || openFor(one.open) || unknown(one.status);
    const known = [`sample ${one.sample ?? ""} n ${one.n ?? ""}`, `reward ${number(one.reward)}`, took];
    tip.textContent = visible([one.id.slice(0, 8), ...known, told(one, kinds), one.worker].join("  ·  "));
  };
  pointed(canvas, under, tell, (one) => go(["run", run, "trace", one.id], { view: "timeline" }));
  surface.draw();
}

/** On what its time went, most first. @param {StepRollout} one @param {string[]} kinds */
function told(one, kinds) {
  const most = [...kinds.keys()].filter((kind) => one.spent[kind] > 0).sort((a, b) => one.spent[b] - one.spent[a]);
  return most.map((kind) => `${KIND[kinds[kind]][1]} ${seconds(one.spent[kind])}`).join(", ") ||
    "no call of a model or a tool was traced";
}
