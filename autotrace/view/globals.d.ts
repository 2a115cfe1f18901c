// What the page's modules get from elsewhere: the vendored charts, a classic script, and the answers of the server. A
// value that a run's own program made is `any`.
declare const uPlot: {
  new (options: UPlotOptions, data: any[], target: HTMLElement): any;
};
type ChartHook = ((chart: any) => void)[];
type ChartRange = (chart: any, low: number, high: number) => number[];
type ChartAxis = Record<string, any> & {
  values: (chart: any, values: number[], axis: number, space: number, step: number) => string[];
};
interface UPlotOptions {
  [option: string]: any;
  scales: { x: { time: boolean; range: ChartRange }; y?: { range: ChartRange } };
  axes: ChartAxis[];
  hooks: Record<string, ChartHook>;
}

interface RunLine {
  run: string;
  created: string;
  state: string;
  command: string;
  trajectories: number | null;
  /** Of a file of one trajectory. */
  trace?: string;
}
interface RunState extends RunLine {
  version: number;
  live: boolean;
  open: number;
  error: string | null;
  losses: string[];
  warnings: string[];
  notes: string[];
  /** How far the search for findings is. */
  examined: [number, number] | null;
}
interface Cause {
  said: string;
  words: string;
  more: string;
  condition: string | null;
  explains: number | null;
  share: number;
  share_before: number;
}
interface Finding {
  code: string;
  title: string;
  share: number;
  since_step: number | null;
  amount: string;
  lines: [string, string][];
  places: { trace_id: string; turn: number | null; token: number | null; where: string; note: string }[];
  causes: Cause[];
  unexplained: string;
  under: string | null;
  change: string | null;
}
interface Findings {
  found: Finding[];
  trajectories: number;
  metrics: number;
  curves: { title: string; steps: number[]; middle: (number | null)[] }[];
  steps: Record<string, Record<string, number>>;
  titles: Record<string, string>;
}
/** `parts`: kind, begin, length. */
type TimeParts = [number, number, number][];
interface StepRollout {
  id: string;
  worker: string;
  status: string;
  start: number;
  duration: number | null;
  open: { seconds: number; in: string } | null;
  parts: TimeParts;
  spent: number[];
  requests: [string, TimeParts][];
  reward: any;
  sample: any;
  n: any;
}
interface StepRollouts {
  kinds: string[];
  rollouts: StepRollout[];
  left_out: number;
}
interface Tool {
  name: string;
  calls: number;
  failed: number;
  open: number;
  p50: number;
  p99: number;
  slowest: [string, string] | null;
  failing: [string, string] | null;
  steps: number[];
  by_step: Record<"calls" | "failed" | "p50" | "p99", number[]>;
}
interface Diff {
  runs: string[];
  lines: [string, [number, string][]][];
}
interface ToolCall {
  name: string;
  arguments: string;
  text: string;
  status: string;
}
/** `turn: -1`: of no turn. */
interface Item {
  [more: string]: any;
  role: string;
  turn: number;
  text: string;
}
interface Chain {
  chain: number;
  parent: number | null;
  kind: string | null;
  after: number | null;
  first_turn: number;
  own: number[];
  turns: number;
  tokens: number | null;
  row: number | null;
  in_rows: number | null;
}
interface Spans {
  id: string[];
  title: string[];
  name: string[];
  role: string[];
  status: string[];
  process: string[];
  error: (string | null)[];
  parent: number[];
  start: number[];
  duration: (number | null)[];
  phases: (Record<string, number> | null)[];
}
interface Detail {
  trace_id: string;
  status: string;
  duration: number | null;
  open: { seconds: number; in: string } | null;
  facts: Record<string, any>;
  attributes: Record<string, any>;
  times: Record<string, number>;
  gap: { seconds: number; where: string } | null;
  notes: string[];
  findings: { code: string; what: string; turn: number | null }[];
  conversation: Item[];
  chains: Chain[];
  spans: Spans;
}
interface Turn {
  text: string;
  thought: string;
  status: string;
  tokens: number | null;
  calls: ToolCall[];
}
interface GroupRollout {
  trace_id: string;
  rollout_n: number | null;
  status: string;
  reward: any;
  advantage: any;
  tokens: number | null;
  duration: number | null;
  turns: Turn[];
}
interface Fork {
  fork?: { turn: number; token: number | null; part: string; known: boolean; here: string; there: string } | null;
  call_fork?: { number: number; part: string } | null;
}
interface GroupAnswer {
  rollouts: GroupRollout[];
  forks: Record<string, Record<string, Fork>>;
  base: string;
  asked: string;
  left_out: number;
}
interface Hit {
  trace_id?: string;
  before: string;
  hit: string;
  after: string;
  done: number;
  of: number;
}
