// Curves: accuracy and loss of all runs over time, steps or bytes, and the series of a link or node. uPlot draws them.

import { lastBefore } from "view/store";
import { look } from "view/look";

const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3]];

function axes(xLabel, yLabel, format) {
  const own = { stroke: () => look.muted, grid: { stroke: () => look.line, width: 1 }, ticks: { stroke: () => look.line } };
  return [
    { ...own, label: xLabel, labelSize: 18, size: 34, labelFont: "11px system-ui", font: "11px system-ui" },
    {
      ...own,
      label: yLabel,
      labelSize: 16,
      size: 46,
      labelFont: "11px system-ui",
      font: "11px system-ui",
      values: format && ((_, values) => values.map(format)),
    },
  ];
}

/** A chart with the moment as a line; `place` gets it, `at()` says where the line is. */
class Chart {
  constructor(place, options, data, at) {
    this.place = place;
    const line = {
      hooks: {
        draw: (plot) => {
          const value = at();
          if (value === null) return;
          const x = Math.round(plot.valToPos(value, "x", true));
          if (x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width) return;
          plot.ctx.save();
          plot.ctx.strokeStyle = look.accent;
          plot.ctx.lineWidth = 1.5 * devicePixelRatio;
          plot.ctx.beginPath();
          plot.ctx.moveTo(x, plot.bbox.top);
          plot.ctx.lineTo(x, plot.bbox.top + plot.bbox.height);
          plot.ctx.stroke();
          plot.ctx.restore();
        },
      },
    };
    const own = {
      width: Math.max(200, place.clientWidth),
      height: options.height ?? 210,
      legend: { show: options.series.length > 2, live: false },
      cursor: { y: false, points: { size: 6 } },
      plugins: [line],
    };
    this.plot = new uPlot({ ...own, ...options, ...(options.height ? {} : { height: own.height }) }, data, place);
    new ResizeObserver(() => {
      const wide = Math.max(200, place.clientWidth);
      if (wide !== this.plot.width) this.plot.setSize({ width: wide, height: this.plot.height });
    }).observe(place);
  }

  redraw() {
    this.plot.redraw(false, false);
  }

  remove() {
    this.plot.destroy();
  }
}

/** The bytes over the WAN, or the steps of the quickest worker, at moments of a run. */
function positions(run, over, moments, shift) {
  if (over === "time") return moments.map((t) => t - shift);
  if (over === "bytes") {
    const { carried } = run.tables;
    return moments.map((t) => (carried.bytes[lastBefore(carried.t, t)] ?? 0) / 1e6);
  }
  const { rounds } = run.tables;
  const first = rounds.node[0];
  const own = rounds.node.map((_, row) => row).filter((row) => rounds.node[row] === first);
  const times = own.map((row) => rounds.t[row]);
  let done = 0;
  const sums = own.map((row) => (done += rounds.steps[row] ?? 1));
  return moments.map((t) => sums[lastBefore(times, t)] ?? 0);
}

const OVER = { time: "time (s)", steps: "steps of a worker", bytes: "tensors over the WAN (MB)" };

export class Learning {
  constructor(places, runs, page) {
    this.places = places;
    this.runs = runs;
    this.page = page;
    this.charts = [];
    this.over = "time";
    this.make();
  }

  show(over) {
    this.over = over;
    this.make();
  }

  make() {
    for (const chart of this.charts) chart.remove();
    const at = () => positions(this.runs[0], this.over, [this.page.timeOf(this.runs[0])], this.page.shiftOf(this.runs[0]))[0];
    const percent = (value) => (value === null ? "" : `${Math.round(value * 100)} %`);
    const short = (value) => (value === null ? "" : String(Math.abs(value) < 1e5 ? +value.toPrecision(4) : value.toExponential(0)));
    this.charts = [
      this.chart(this.places.accuracy, "accuracy", "test accuracy", percent, (run) => this.scores(run), at),
      this.chart(this.places.loss, "loss", "training loss", short, (run) => this.losses(run), at),
    ];
  }

  chart(place, name, label, format, curve, at) {
    const colour = name === "accuracy" ? "evaluation" : "loss";
    const series = this.runs.map((run, number) => ({
      label: this.runs.length > 1 ? run.label : label,
      stroke: () => (this.runs.length > 1 ? look[["accent", "up", "peer", "codec"][number % 4]] : look[colour]),
      width: 2,
      dash: DASHES[number % DASHES.length],
      points: { show: name === "accuracy", size: 5 },
      spanGaps: true,
    }));
    const whole = () => [0, Math.max(...this.runs.map((run) => this.last(run)))];
    const scales = { x: { time: false, range: whole }, ...(name === "accuracy" ? { y: { range: [0, 1.02] } } : {}) };
    const options = { series: [{}, ...series], scales, axes: axes(OVER[this.over], "", format) };
    return new Chart(place, options, this.joined(curve), at);
  }

  /** Where the axis of a run ends. */
  last(run) {
    return positions(run, this.over, [run.end], this.page.shiftOf(run))[0] || 1;
  }

  joined(curve) {
    const tables = this.runs.map(curve);
    return tables.length > 1 ? uPlot.join(tables) : tables[0];
  }

  scores(run) {
    const { scores } = run.tables;
    const rows = scores.t.map((_, row) => row).filter((row) => scores.accuracy[row] !== null);
    const moments = rows.map((row) => scores.t[row]);
    return [positions(run, this.over, moments, this.page.shiftOf(run)), rows.map((row) => scores.accuracy[row])];
  }

  /**
   * The mean over the workers of their latest losses, as often as there are workers: where they wait for each other, at
   * the end of each round. Where they do not, equal numbers of rounds are far apart in time.
   */
  losses(run) {
    const { rounds } = run.tables;
    const told = rounds.t.map((_, row) => row).filter((row) => rounds.loss[row] !== null);
    const workers = new Set(told.map((row) => rounds.node[row])).size;
    const latest = new Map();
    const means = [];
    told.forEach((row, place) => {
      latest.set(rounds.node[row], rounds.loss[row]);
      if ((place + 1) % workers) return;
      const sum = [...latest.values()].reduce((before, loss) => before + loss, 0);
      means.push({ t: rounds.t[row], loss: sum / latest.size });
    });
    const stride = Math.max(1, Math.ceil(means.length / 3000));
    const shown = means.filter((_, place) => place % stride === 0);
    const moments = shown.map((each) => each.t);
    return [positions(run, this.over, moments, this.page.shiftOf(run)), shown.map((each) => each.loss)];
  }

  /** Take what has come since. */
  refresh() {
    this.charts[0].plot.setData(this.joined((run) => this.scores(run)));
    this.charts[1].plot.setData(this.joined((run) => this.losses(run)));
  }

  redraw() {
    for (const chart of this.charts) chart.redraw();
  }
}

/** The chart of a selected link or node, beneath the network. */
export class Series {
  constructor(place, page) {
    this.place = place;
    this.page = page;
    this.chart = null;
  }

  clear() {
    this.chart?.remove();
    this.chart = null;
    this.place.replaceChildren();
  }

  showLink(run, link) {
    this.clear();
    const [t, use, configured, backlog] = run.linkSeries(link);
    const series = [
      {},
      { label: "configured (Mbit/s)", stroke: () => look.ink, width: 1.5, paths: uPlot.paths.stepped({ align: 1 }) },
      {
        label: "used (Mbit/s)",
        stroke: () => look.busy2,
        fill: () => `${look.busy2}44`,
        width: 1.5,
        paths: uPlot.paths.stepped({ align: -1 }),
      },
      { label: "queue (kB)", stroke: () => look.busy4, width: 1, scale: "queue", dash: [3, 3] },
    ];
    const own = axes("time (s)", "");
    own.push({ ...own[1], scale: "queue", side: 1, grid: { show: false } });
    const scales = { x: { time: false }, y: { range: (_, low, high) => [0, high * 1.05 || 1] } };
    scales.queue = { range: (_, low, high) => [0, high * 1.05 || 1] };
    this.make({ series, scales, axes: own }, [t, configured, use, backlog], run);
  }

  showNode(run, node) {
    this.clear();
    const { rounds } = run.tables;
    const rows = run.rowsOf(node).rounds;
    if (!rows.length) return false;
    const series = [
      {},
      { label: "round (s)", stroke: () => look.busy2, width: 1.5 },
      { label: "loss", stroke: () => look.ink, width: 1.5, scale: "loss", dash: [3, 3] },
    ];
    const own = axes("time (s)", "");
    own.push({ ...own[1], scale: "loss", side: 1, grid: { show: false } });
    const scales = { x: { time: false }, y: { range: (_, low, high) => [0, high * 1.05 || 1] }, loss: {} };
    const data = [
      rows.map((row) => rounds.t[row]),
      rows.map((row) => rounds.t[row] - rounds.t0[row]),
      rows.map((row) => rounds.loss[row]),
    ];
    this.make({ series, scales, axes: own }, data, run);
    return true;
  }

  make(options, data, run) {
    this.chart = new Chart(this.place, { ...options, height: 190 }, data, () => this.page.timeOf(run));
  }

  redraw() {
    this.chart?.redraw();
  }
}
