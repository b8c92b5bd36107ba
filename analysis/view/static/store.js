// The columns of one run, as analysis/view/history.py makes them, and what the page asks of them at a moment.

const BUCKETS = 1500;
const REACHED = ["network", "nodes", "measured"]; // as analysis/view/history.py numbers them
const MOST_WAYS = 5000; // messages that are looked through for those of a round

/** Spans [from, to] as few as cover the same time, in order. */
function joined(spans) {
  const found = [];
  for (const [from, to] of spans.sort((a, b) => a[0] - b[0])) {
    const last = found.at(-1);
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else found.push([from, to]);
  }
  return found;
}

/** The index of the last value that is at most `t`, or -1. `values` are sorted. */
export function lastBefore(values, t) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= t) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** Spans of time, found by a moment or by a window: each bucket of time lists the spans that touch it. */
export class Spans {
  constructor(begins, ends) {
    this.begins = begins;
    this.ends = ends;
    this.count = begins.length;
    let last = 0;
    for (const end of ends) if (end > last) last = end;
    this.width = Math.max(last / BUCKETS, 1e-6);
    this.buckets = [];
    for (let row = 0; row < this.count; row++) {
      const to = Math.floor(ends[row] / this.width);
      for (let bucket = Math.max(0, Math.floor(begins[row] / this.width)); bucket <= to; bucket++) {
        (this.buckets[bucket] ??= []).push(row);
      }
    }
  }

  at(t) {
    const found = [];
    for (const row of this.buckets[Math.floor(t / this.width)] ?? []) {
      if (this.begins[row] <= t && t < this.ends[row]) found.push(row);
    }
    return found;
  }
}

export class Run {
  constructor(data, label) {
    this.plot = data.plot;
    this.label = label;
    this.state = data.state;
    this.partial = data.partial;
    this.thinned = data.thinned;
    this.texts = [];
    this.tables = {};
    this.links = this.plot.links.name.map(() => ({ t: [], bytes: [], rate: [], backlog: [], dropped: [] }));
    this.end = 0;
    this.nodeNumber = new Map(this.plot.nodes.name.map((name, number) => [name, number]));
    this.linkNumber = new Map(this.plot.links.name.map((name, number) => [name, number]));
    this.siteNumber = new Map(this.plot.vertices.map((name, number) => [name, number]));
    this.nodesOf = this.plot.vertices.map(() => []);
    this.plot.nodes.site.forEach((site, node) => this.nodesOf[site].push(node));
    this.linkBetween = new Map();
    this.plot.links.source.forEach((source, link) => {
      this.linkBetween.set(`${source}>${this.plot.links.target[link]}`, link);
    });
    this.append(data.history, data.texts);
  }

  /** Take further rows; `texts` are those that were not told before. */
  append(history, texts) {
    this.texts.push(...texts);
    for (const [name, columns] of Object.entries(history)) {
      const own = (this.tables[name] ??= Object.fromEntries(Object.keys(columns).map((key) => [key, []])));
      if (name === "carried") {
        const before = own.bytes.at(-1) ?? 0;
        columns.bytes = columns.bytes.map((bytes) => bytes + before);
      }
      for (const [key, values] of Object.entries(columns)) for (const value of values) own[key].push(value);
      for (const t of columns.t) if (t > this.end) this.end = t;
    }
    const samples = history.samples;
    for (let row = 0; row < samples.t.length; row++) {
      const link = this.links[samples.link[row]];
      link.t.push(samples.t[row]);
      link.bytes.push(samples.bytes[row]);
      link.rate.push(samples.rate_bps[row]);
      link.backlog.push(samples.backlog_bytes[row]);
      link.dropped.push(samples.dropped[row]);
    }
    this.flights = null;
    this.ofNode = null;
    this.marks = null;
    this.newest = null; // round, by row of `rounds`: a worker that does not wait for others may be far behind
  }

  get start() {
    return this.tables.training.t[0] ?? 0;
  }

  /** What the run does at `t` before training begins, in words; or null. */
  phaseAt(t) {
    const { reached, training } = this.tables;
    if (t >= training.t[0]) return null;
    const has = (what) => reached.t[reached.what.indexOf(REACHED.indexOf(what))] <= t;
    const nodes = has("nodes") ? "nodes connect" : "nodes start";
    if (has("measured")) return `the links have been measured, and ${nodes}`;
    if (has("network")) return `the network is up: its links are being tried and measured, and ${nodes}`;
    return has("nodes") ? nodes : "the run begins";
  }

  /** The first moment from which on a link carried something, or Infinity. */
  firstMove() {
    let first = Infinity;
    for (const { t, bytes } of this.links) {
      const row = bytes.findIndex((each, place) => place > 0 && each > bytes[place - 1]);
      if (row > 0) first = Math.min(first, t[row - 1]);
    }
    return first;
  }

  /** What a link does at `t`: `use` of its configured `rate` (bit/s both), bytes in its queue, packets lost just now. */
  linkAt(link, t) {
    const samples = this.links[link];
    const count = samples.t.length;
    const configured = this.plot.links.rate_bps[link];
    if (!count) return { use: 0, rate: configured, backlog: 0, lost: 0 };
    const before = lastBefore(samples.t, t);
    const from = Math.max(0, Math.min(before, count - 2));
    const to = Math.min(from + 1, count - 1);
    const seconds = samples.t[to] - samples.t[from];
    const moved = samples.bytes[to] - samples.bytes[from];
    const known = before >= 0 && before < count - 1 && seconds > 0 && moved >= 0;
    const rate = samples.rate[Math.max(0, before)] ?? configured;
    return {
      use: known ? (moved * 8) / seconds : 0,
      rate,
      backlog: samples.backlog[to] ?? 0,
      lost: known ? Math.max(0, samples.dropped[to] - samples.dropped[from]) : 0,
    };
  }

  /** The series of a link for a chart: [t, use in Mbit/s, configured rate in Mbit/s, queue in kB]. */
  linkSeries(link) {
    const samples = this.links[link];
    const use = samples.t.map((t, row) => {
      if (!row) return null;
      const seconds = t - samples.t[row - 1];
      return seconds > 0 ? Math.max(0, ((samples.bytes[row] - samples.bytes[row - 1]) * 8) / seconds / 1e6) : null;
    });
    return [samples.t, use, samples.rate.map((rate) => (rate ?? 0) / 1e6), samples.backlog.map((bytes) => bytes / 1e3)];
  }

  /** Rows of `messages` in flight at `t`. */
  inFlight(t) {
    const messages = this.tables.messages;
    this.flights ??= new Spans(messages.t0, messages.t);
    return this.flights.at(t);
  }

  /** Rows of `work` and of `messages` that are sent and received, by node and by begin. */
  rowsOf(node) {
    if (!this.ofNode) {
      this.ofNode = this.plot.nodes.name.map(() => ({ work: [], sent: [], received: [], rounds: [], marks: [] }));
      const { work, messages, rounds, marks } = this.tables;
      const sorted = (begins) => Array.from(begins.keys()).sort((a, b) => begins[a] - begins[b]);
      for (const row of sorted(work.t0)) this.ofNode[work.node[row]].work.push(row);
      for (const row of sorted(messages.t0)) {
        this.ofNode[messages.source[row]].sent.push(row);
        this.ofNode[messages.target[row]].received.push(row);
      }
      for (const row of sorted(rounds.t0)) this.ofNode[rounds.node[row]].rounds.push(row);
      for (const row of marks.t.keys()) this.ofNode[marks.node[row]].marks.push(row);
    }
    return this.ofNode[node];
  }

  /** The lane in which a node works at `t`, or -1: what it computes counts before what it waits for. */
  laneAt(node, t) {
    const { work } = this.tables;
    const rows = this.rowsOf(node).work;
    let low = 0;
    let high = rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (work.t0[rows[middle]] <= t) low = middle + 1;
      else high = middle;
    }
    let lane = -1;
    for (let place = low - 1; place >= Math.max(0, low - 12); place--) {
      const row = rows[place];
      if (work.t[row] > t && (lane === -1 || work.lane[row] < lane)) lane = work.lane[row];
    }
    return lane;
  }

  /** The share of the time in which a node sends or receives that it computes as well, or null if it does not send. */
  overlapOf(node) {
    const { work, messages } = this.tables;
    const rows = this.rowsOf(node);
    const computing = joined(rows.work.filter((row) => work.lane[row] === 0).map((row) => [work.t0[row], work.t[row]]));
    const moving = joined([...rows.sent, ...rows.received].map((row) => [messages.t0[row], messages.t[row]]));
    let moved = 0;
    let both = 0;
    let next = 0;
    for (const [from, to] of moving) {
      moved += to - from;
      while (next < computing.length && computing[next][1] <= from) next++;
      for (let place = next; place < computing.length && computing[place][0] < to; place++) {
        both += Math.min(to, computing[place][1]) - Math.max(from, computing[place][0]);
      }
    }
    return moved > 0 ? both / moved : null;
  }

  /** Rows of the messages between data centres that were sent for the newest round at `t`, in the order of `t0`. */
  waysOf(t) {
    const { messages } = this.tables;
    const { site } = this.plot.nodes;
    const rows = [];
    let round = null;
    const last = lastBefore(messages.t0, t);
    for (let row = last; row >= Math.max(0, last - MOST_WAYS); row--) {
      if (messages.round[row] < 0 || !messages.bytes[row] || site[messages.source[row]] === site[messages.target[row]]) continue;
      round ??= messages.round[row];
      if (messages.round[row] === round) rows.push(row);
      else if (messages.round[row] < round - 1) break;
    }
    return rows.reverse();
  }

  /** The number of the newest round that a worker has completed at `t`, or -1. */
  roundAt(t) {
    const { rounds } = this.tables;
    if (!this.newest) {
      let most = -1;
      this.newest = rounds.round.map((round) => (most = Math.max(most, round)));
    }
    return this.newest[lastBefore(rounds.t, t)] ?? -1;
  }

  scoreAt(t) {
    const { scores } = this.tables;
    const before = lastBefore(scores.t, t);
    return before < 0 ? null : { accuracy: scores.accuracy[before], loss: scores.loss[before] };
  }

  /** Places that a fault has taken at `t`: names of data centres, nodes and links. */
  brokenAt(t) {
    const broken = new Set();
    const { faults } = this.tables;
    for (let row = 0; row < faults.t.length && faults.t[row] <= t; row++) {
      for (const place of faults.places[row].split(/[,;]\s*/)) {
        if (faults.begins[row]) broken.add(place);
        else broken.delete(place);
      }
    }
    return broken;
  }

  /** Moments worth a jump, by time: {t, kind, text}. */
  moments() {
    if (this.marks) return this.marks;
    const { faults, changes, scores } = this.tables;
    const marks = [];
    faults.t.forEach((t, row) => {
      const what = `${this.texts[faults.text[row]]}: ${faults.places[row]}`;
      marks.push({ t, kind: "fault", text: faults.begins[row] ? what : `${what} ends` });
    });
    changes.t.forEach((t, row) => {
      const link = this.plot.links.name[changes.link[row]];
      marks.push({ t, kind: "change", text: `${link}: ${this.texts[changes.text[row]]}` });
    });
    scores.t.forEach((t, row) => {
      const accuracy = scores.accuracy[row];
      const text = accuracy === null ? "evaluation" : `accuracy ${(accuracy * 100).toFixed(1)} %`;
      marks.push({ t, kind: "evaluation", text });
    });
    marks.sort((a, b) => a.t - b.t);
    this.marks = marks;
    return marks;
  }
}
