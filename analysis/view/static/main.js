// The page of one run, or of several on one clock: it puts the parts together, and moves the clock.

import { Learning, Series } from "view/charts";
import { Lanes } from "view/lanes";
import { look, readLook } from "view/look";
import { Network } from "view/network";
import { moment, rate, seconds, share } from "view/numbers";
import { Run } from "view/store";

const SPEEDS = [0.001, 0.01, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300];
const WHOLE_S = 30; // of a long run, at first
const BEHIND_S = 1.2; // of a run in progress: a message is told when it has arrived, and is to be seen on its way
const DETAIL_MS = 250; // from the last change of a window until more of it is asked for
const DETAIL_LIVE_MS = 1000; // likewise, while a run grows

const byId = (id) => document.getElementById(id);

function copyOf(id) {
  return byId(id).content.firstElementChild.cloneNode(true);
}

class Page {
  constructor(data, source) {
    this.source = source;
    this.runs = data.runs.map((each) => new Run(each, each.label));
    this.live = data.runs.map((each) => each.live);
    this.critical = false;
    this.clock = { t: 0, playing: false, speed: 1, following: this.live[0] };
    const first = this.runs[0];
    document.title = this.runs.map((run) => run.plot.title).join(" and ") + " – testbed";
    byId("title").textContent = first.plot.title;
    byId("subtitle").textContent = this.runs.length > 1 ? `${this.runs.length} runs on one clock` : first.plot.subtitle;
    this.networks = [];
    this.lanes = [];
    this.runs.forEach((run, number) => this.addRun(run, number));
    this.learning = new Learning({ accuracy: byId("accuracy"), loss: byId("loss") }, this.runs, this);
    this.series = new Series(byId("series"), this);
    const isSilent = this.runs.every((run) => run.plot.program);
    byId("learning").hidden = isSilent;
    byId("time").hidden = isSilent;
    this.fillFinder();
    this.listen();
    this.showState();
    this.clock.t = this.clock.following ? this.end : 0;
    this.setSpeed();
    this.drawMarks();
    this.redraw(true);
    requestAnimationFrame((now) => this.tick(now));
    if (source && this.live.some(Boolean)) this.follow();
  }

  get end() {
    return Math.max(1e-3, ...this.runs.map((run) => run.end - this.shiftOf(run)));
  }

  /** What a run's clock is ahead of the page's: of several runs, all begin to train at the same moment. */
  shiftOf(run) {
    return this.runs.length > 1 ? run.start : 0;
  }

  timeOf(run) {
    return this.clock.t + this.shiftOf(run);
  }

  addRun(run, number) {
    const panel = copyOf("network-panel");
    const canvas = panel.querySelector("canvas");
    panel.querySelector("h2").textContent = this.runs.length > 1 ? run.label : "Network";
    canvas.setAttribute("aria-label", this.describe(run));
    byId("networks").append(panel);
    panel.querySelector(".relayed").hidden = run.plot.overlay === "star";
    const network = new Network(canvas, panel.querySelector(".tip"), run, this);
    panel.querySelector(".nearer").addEventListener("click", () => network.magnify(1.4));
    panel.querySelector(".farther").addEventListener("click", () => network.magnify(1 / 1.4));
    panel.querySelector(".all").addEventListener("click", () => network.whole());
    this.networks.push(network);
    const lanesPanel = copyOf("lanes-panel");
    lanesPanel.querySelector("h2").textContent = this.runs.length > 1 ? `Time: ${run.label}` : "Time";
    byId("time").append(lanesPanel);
    const lanes = new Lanes(lanesPanel.querySelector(".scroll"), lanesPanel.querySelector(".tip"), run, this);
    lanesPanel.querySelector(".nearer").addEventListener("click", () => lanes.magnify(2));
    lanesPanel.querySelector(".farther").addEventListener("click", () => lanes.magnify(0.5));
    lanesPanel.querySelector(".all").addEventListener("click", () => lanes.showAll());
    lanesPanel.querySelector(".round").addEventListener("click", () => this.showRound(run, lanes));
    const critical = lanesPanel.querySelector(".critical");
    critical.addEventListener("click", () => {
      this.critical = !this.critical;
      for (const each of document.querySelectorAll(".critical")) each.setAttribute("aria-pressed", this.critical);
      this.redraw(true);
    });
    critical.hidden = !run.tables.paths?.t.length;
    this.lanes.push(lanes);
    run.lanes = lanes;
    run.network = network;
    this.showSigns(lanes);
    if (number === 0) canvas.id = "first-network";
  }

  /** Explain the marks and the passes that a run has, and what moves before it trains. */
  showSigns(lanes) {
    const network = lanes.run.network.canvas.closest(".card");
    network.querySelector(".carried").hidden = !lanes.run.tables.reached.t.length;
    const signs = new Set(lanes.run.tables.marks.sign);
    const card = lanes.scroll.closest(".card");
    for (const each of card.querySelectorAll("[data-sign]")) each.hidden = !signs.has(+each.dataset.sign);
    for (const each of card.querySelectorAll("[data-pass]")) {
      each.hidden = !lanes.run.texts.some((text) => text.startsWith(`${each.dataset.pass} `));
    }
  }

  describe(run) {
    const { plot } = run;
    const workers = plot.nodes.role.filter((role) => role === "worker").length;
    return (
      `Network of ${plot.title}: ${plot.sites} data centres, ${workers} workers, ${plot.links.name.length} links. ` +
      "Plus and minus zoom, arrows move, 0 shows all. The field “find” selects one by name."
    );
  }

  listen() {
    byId("play").addEventListener("click", () => this.play(!this.clock.playing));
    byId("slider").addEventListener("input", (event) => this.seek((event.target.value / 10_000) * this.end));
    byId("speed").addEventListener("change", (event) => (this.clock.speed = +event.target.value));
    byId("previous").addEventListener("click", () => this.jump(-1));
    byId("next").addEventListener("click", () => this.jump(1));
    byId("live").addEventListener("click", () => {
      this.play(false);
      this.clock.following = true;
    });
    byId("over").addEventListener("change", (event) => this.learning.show(event.target.value));
    byId("find").addEventListener("change", (event) => this.find(event.target.value.trim()));
    byId("close").addEventListener("click", () => this.select(this.runs[0], null));
    document.addEventListener("keydown", (event) => {
      if (["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName) && event.target.type !== "range") return;
      const span = this.end;
      if (event.key === " " && event.target.tagName !== "BUTTON") this.play(!this.clock.playing);
      else if (event.key === "n") this.jump(1);
      else if (event.key === "p") this.jump(-1);
      else if (event.key === "," || event.key === ".") this.seek(this.clock.t + (event.key === "." ? 1 : -1) * span * 0.001);
      else if (event.key === "Home" && event.target.tagName !== "INPUT") this.seek(0);
      else if (event.key === "End" && event.target.tagName !== "INPUT") this.seek(span);
      else if (event.key === "/") byId("find").focus();
      else return;
      event.preventDefault();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      readLook();
      this.learning.make();
      this.drawMarks();
      this.redraw(true);
    });
    const resized = new ResizeObserver(() => {
      for (const lanes of this.lanes) lanes.choose();
      this.drawMarks();
      this.redraw(true);
    });
    resized.observe(document.body);
    for (const canvas of document.querySelectorAll("canvas")) resized.observe(canvas); // whose height may follow the window's alone
  }

  setSpeed() {
    const select = byId("speed");
    const whole = this.end / WHOLE_S;
    select.replaceChildren(
      ...SPEEDS.map((speed) => new Option(speed < 1 ? `${speed}× (slow motion)` : `${speed}×`, speed)),
      new Option(`whole run in ${WHOLE_S} s`, whole),
    );
    this.clock.speed = this.end > 120 ? whole : 1;
    select.value = String(this.clock.speed);
  }

  play(playing) {
    if (playing && this.clock.t >= this.end - 1e-9) this.clock.t = 0;
    this.clock.playing = playing;
    if (playing) {
      this.clock.following = false;
      byId("told").textContent = "";
    }
    const button = byId("play");
    button.textContent = playing ? "❚❚" : "▶";
    button.setAttribute("aria-label", playing ? "Pause" : "Play");
    this.redraw(true);
  }

  /** Go to a moment, as the user asks for it. */
  seek(t) {
    this.clock.following = false;
    byId("told").textContent = ""; // which was about another moment
    this.seekTo(t);
  }

  seekTo(t) {
    this.clock.t = Math.max(0, Math.min(t, this.end));
    for (const lanes of this.lanes) lanes.follow(this.timeOf(lanes.run));
    this.redraw(true);
  }

  jump(direction) {
    const kind = byId("jump").value;
    const moments = this.runs.flatMap((run) => run.moments().map((mark) => ({ ...mark, t: mark.t - this.shiftOf(run) })));
    if (kind === "round" || kind === "any") {
      const { rounds } = this.runs[0].tables;
      if (kind === "round") {
        rounds.t.forEach((t, row) => {
          if (rounds.node[row] === rounds.node[0]) {
            moments.push({ t: t - this.shiftOf(this.runs[0]), kind: "round", text: `round ${rounds.round[row]} ends` });
          }
        });
      }
    }
    const wanted = moments.filter((mark) => kind === "any" || mark.kind === kind).sort((a, b) => a.t - b.t);
    const found =
      direction > 0
        ? wanted.find((mark) => mark.t > this.clock.t + 1e-6)
        : wanted.findLast((mark) => mark.t < this.clock.t - 1e-6);
    if (found) this.seek(found.t);
    byId("told").textContent = found ? `${moment(found.t, this.end)}: ${found.text}` : "there is none";
  }

  showRound(run, lanes) {
    const { rounds } = run.tables;
    const t = this.timeOf(run);
    const away = (row) => Math.max(rounds.t0[row] - t, t - rounds.t[row], 0);
    const rows = rounds.t0.map((_, row) => row);
    if (!rows.length) return;
    const best = rows.reduce((before, row) => (away(row) < away(before) ? row : before));
    const margin = (rounds.t[best] - rounds.t0[best]) * 0.06;
    lanes.show(rounds.t0[best] - margin, rounds.t[best] + margin);
  }

  fillFinder() {
    const { plot } = this.runs[0];
    const names = [...plot.vertices, ...plot.nodes.name, ...plot.links.name].slice(0, 4000);
    byId("names").replaceChildren(...names.map((name) => new Option(name, name)));
  }

  find(name) {
    const run = this.runs[0];
    const tables = { site: run.siteNumber, node: run.nodeNumber, link: run.linkNumber };
    for (const [kind, numbers] of Object.entries(tables)) {
      if (numbers.has(name)) {
        const number = numbers.get(name);
        const vertex = kind === "site" ? number : kind === "node" ? run.plot.nodes.site[number] : null;
        for (const each of vertex === null ? [] : this.networks) each.visit(vertex);
        this.select(run, { kind, number });
        return;
      }
    }
    if (name) byId("told").textContent = `nothing is called ${name}`;
  }

  /** Show what was chosen: the series of a link or node, the nodes of a data centre. */
  select(run, found) {
    if (found?.kind === "cluster") {
      run.network.magnify(2.2, found.x, found.y);
      return;
    }
    run.selected = found;
    run.network.selected = found;
    const panel = byId("selection");
    panel.hidden = !found;
    this.series.clear();
    byId("members").replaceChildren();
    if (found) {
      const told = run.network.told(found, this.timeOf(run)).split("\n");
      byId("chosen").textContent = told[0];
      const overlap = found.kind === "node" ? run.overlapOf(found.number) : null;
      if (overlap !== null) told.push(`while it sends or receives, it computes ${share(overlap)} of the time`);
      byId("about").textContent = told.slice(1).join(" · ");
      if (found.kind === "link") this.series.showLink(run, found.number);
      if (found.kind === "node") this.series.showNode(run, found.number);
      if (found.kind === "site") this.showSite(run, found.number);
    }
    if (!found || found.kind !== "site") this.showLanesOf(run, null);
    this.redraw(true);
  }

  showSite(run, site) {
    const nodes = run.nodesOf[site];
    byId("members").replaceChildren(
      ...nodes.slice(0, 200).map((node) => {
        const button = document.createElement("button");
        button.textContent = run.plot.nodes.name[node].split("/")[1] ?? run.plot.nodes.name[node];
        button.addEventListener("click", () => this.select(run, { kind: "node", number: node }));
        return button;
      }),
    );
    const apart = run.partial && !run.partial.includes(site);
    if ((run.plot.sites > 12 || apart) && nodes.length) this.showLanesOf(run, site);
  }

  /** Show the lanes of one data centre alone; ask for them where the page has not got them. */
  showLanesOf(run, site) {
    if (run.lanes.site === site) return;
    run.lanes.site = site;
    run.lanes.detail = null; // which may lack the nodes that are shown now
    run.lanes.choose();
    run.lanes.scroll.scrollTop = 0;
    this.windowChanged(run.lanes);
  }

  /** The rows of a moment: those that were asked for, or all that the page has. */
  rowsAt(run, t) {
    const { detail } = run.lanes;
    return detail && !detail.live && detail.from <= t && t <= detail.to ? detail.run : run;
  }

  /** What a node does at a moment: of a data centre that was chosen, the page may know it by that alone. */
  laneOf(run, node, t) {
    const { detail, site } = run.lanes;
    const asked = detail && site === run.plot.nodes.site[node] && detail.from <= t && t <= detail.to;
    return (asked ? detail.run : run).laneAt(node, t);
  }

  /** Ask for all rows of a window of which the page has only some. */
  windowChanged(lanes) {
    const { run } = lanes;
    if (!this.source || !(run.partial || run.thinned)) return;
    clearTimeout(lanes.asking);
    if (lanes.whole && lanes.site === null) return; // which the page began with
    lanes.asking = setTimeout(async () => {
      const number = this.runs.indexOf(run);
      const site = lanes.site === null ? "" : run.plot.vertices[lanes.site];
      const asked = { from: lanes.from, to: lanes.to };
      const part = await this.source.part(number, asked.from, asked.to, site);
      if (!part || (site && site !== run.plot.vertices[lanes.site])) return;
      const reach = part.live ? { from: 0, to: Infinity } : asked; // of a run that grows: all that there is so far
      lanes.detail = { ...reach, live: part.live, run: new Run({ ...part, plot: run.plot }, run.label) };
      this.redraw(true);
      if (part.live) lanes.asking = setTimeout(() => this.windowChanged(lanes), DETAIL_LIVE_MS);
    }, DETAIL_MS);
  }

  showState() {
    byId("partial").textContent = "";
    const badge = byId("state");
    const { state } = this.runs[0];
    badge.textContent = this.live[0] ? "live" : state;
    badge.className = `badge ${this.live[0] ? "live" : state}`;
    byId("live").hidden = !this.live[0];
    const parts = this.runs.filter((run) => run.partial && run.partial.length < run.plot.sites);
    const thinned = this.runs.some((run) => run.thinned);
    if (thinned) {
      byId("partial").textContent =
        "Of so long a run, messages of a round are drawn as one, and some rounds are left out" +
        (this.source ? "; come closer in the time to see all." : " in this file.");
    }
    const silent = this.runs.some((run) => !run.tables.work.t.length && run.tables.rounds.t.length) && !this.live[0];
    if (silent) byId("partial").textContent += " This run has not recorded what each node computes.";
    if (parts.length) {
      byId("partial").textContent +=
        ` Work and local messages are shown of ${parts[0].partial.length} of ${parts[0].plot.sites} data centres` +
        (this.source ? "; choose another one to see its nodes." : " in this file; `testbed view` on the run shows all.");
    }
    byId("partial").hidden = !byId("partial").textContent;
  }

  /** Take what a run in progress writes. */
  follow() {
    this.source.follow((number, part) => {
      const run = this.runs[number];
      const before = run.end;
      run.append(part.history, part.texts);
      this.pace(run.end - before);
      run.state = part.state;
      this.live[number] = part.live;
      this.showState();
      this.learning.refresh();
      this.drawMarks();
      this.lanes[number].choose();
      this.showSigns(this.lanes[number]);
      if (!part.live) {
        this.clock.following = false;
        this.setSpeed();
      }
      this.redraw(true);
      return part.live;
    });
  }

  /** Learn how fast a run in progress is: seconds of its clock in one of ours. */
  pace(came) {
    const now = performance.now();
    if (this.told) {
      const rate = (came / Math.max(1, now - this.told)) * 1000;
      this.rate = this.rate === undefined ? rate : 0.7 * this.rate + 0.3 * rate;
      this.every = 0.7 * (this.every ?? 1) + (0.3 * (now - this.told)) / 1000;
    }
    this.told = now;
  }

  /** Move the clock behind the end of a run in progress: slower when it comes near, faster when it falls behind. */
  glide(passed) {
    const rate = Math.min(this.rate ?? 1, 20);
    const behind = Math.max(BEHIND_S, 1.2 * (this.every ?? 1)) * rate;
    const left = this.end - this.clock.t;
    if (left <= 1e-3) return;
    this.first ||= this.firstMove();
    const next = left > 8 * behind ? this.end - behind : this.clock.t + Math.min(left, (left / behind) * rate * passed);
    this.clock.t = Math.max(next, this.first);
    for (const lanes of this.lanes) lanes.follow(this.timeOf(lanes.run));
    this.due = true;
  }

  /** When a link first carried something, as far as it is known: what precedes it is not worth a wait. */
  firstMove() {
    const [run] = this.runs;
    const { messages } = run.tables;
    const { site } = run.plot.nodes;
    const crosses = (_, row) => site[messages.source[row]] !== site[messages.target[row]];
    const begin = messages.t0.filter(crosses).reduce((first, t) => Math.min(first, t), run.firstMove());
    return begin === Infinity ? 0 : begin - this.shiftOf(run);
  }

  /** Marks above the slider: faults, changes of traces, evaluations. */
  drawMarks() {
    const canvas = byId("marks");
    const ratio = window.devicePixelRatio || 1;
    canvas.width = canvas.clientWidth * ratio;
    canvas.height = canvas.clientHeight * ratio;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    const colours = { fault: look.broken, change: look.change, evaluation: look.evaluation };
    const width = canvas.clientWidth - 16;
    for (const run of this.runs) {
      for (const mark of run.moments()) {
        context.fillStyle = colours[mark.kind];
        const high = mark.kind === "fault" ? 10 : mark.kind === "evaluation" ? 7 : 5;
        context.fillRect(8 + ((mark.t - this.shiftOf(run)) / this.end) * width - 1, 10 - high, 2, high);
      }
    }
  }

  /** Draw at the next frame; `all`: also what does not move with the clock. */
  redraw(all = false) {
    this.due = true;
    this.all ||= all;
  }

  tick(now) {
    const passed = Math.min(0.25, (now - (this.before ?? now)) / 1000);
    this.before = now;
    if (this.clock.playing) {
      this.clock.t = Math.min(this.end, this.clock.t + passed * this.clock.speed);
      for (const lanes of this.lanes) lanes.follow(this.timeOf(lanes.run));
      this.due = true;
      if (this.clock.t >= this.end && !this.live.some(Boolean)) this.play(false);
    }
    if (this.clock.following) this.glide(passed);
    if (this.due) {
      this.due = false;
      this.draw(now);
    }
    requestAnimationFrame((next) => this.tick(next));
  }

  draw(now) {
    const { t } = this.clock;
    for (const network of this.networks) network.draw(this.timeOf(network.run));
    for (const lanes of this.lanes) lanes.draw(this.all);
    if (this.all || now - (this.charted ?? 0) > 120) {
      this.charted = now;
      this.all = false;
      this.learning.redraw();
      this.series.redraw();
      this.tell(t);
    }
    const slider = byId("slider");
    slider.value = Math.round((t / this.end) * 10_000);
    slider.setAttribute("aria-valuetext", moment(t, this.end));
    byId("now").textContent = moment(t, Math.min(this.end, ...this.lanes.map((lanes) => lanes.to - lanes.from)));
  }

  /** What crosses the links, where no message tells: before training, and in a run of a user's program. */
  tellLinks(run, t) {
    const uses = run.links.map((_, link) => run.linkAt(link, t).use);
    const busy = uses.filter((use) => use > 0);
    if (!busy.length) return "nothing crosses a link";
    const most = busy.reduce((before, use) => Math.max(before, use));
    return `${busy.length} of ${uses.length} directions of links carry something, ${rate(most)} at most`;
  }

  tellTraining(run, t) {
    if (run.plot.program) return [];
    const round = run.roundAt(t);
    const score = run.scoreAt(t);
    const words = [round < 0 ? "no round is complete" : `round ${round}`];
    if (score) words.push(score.accuracy === null ? `loss ${score.loss}` : `accuracy ${share(score.accuracy)}`);
    return words;
  }

  /** The moment in words, for everybody who does not see the pictures, and above them. */
  tell(t) {
    const told = this.runs.map((run) => {
      const at = this.timeOf(run);
      const phase = run.phaseAt(at);
      const words = phase ? [phase] : this.tellTraining(run, at);
      const byLinks = phase || run.plot.program; // whose messages do not tell all that crosses them
      if (byLinks) words.push(this.tellLinks(run, at));
      const flying = run.inFlight(at).length;
      if (flying || !byLinks) words.push(flying === 1 ? "1 message in flight" : `${flying} messages in flight`);
      return (this.runs.length > 1 ? `${run.label}: ` : "") + words.join(phase ? "; " : ", ");
    });
    if (this.live[0] && !this.runs[0].end) {
      byId("summary").textContent = "The run begins: its network is being made, and its nodes start.";
      return;
    }
    const then = this.runs.length > 1 ? "." : ":"; // each of several begins with its name
    byId("summary").textContent = `${seconds(t, this.end)} of ${seconds(this.end)}${then} ${told.join("; ")}.`;
  }
}

/** What a saved page holds: JSON, compressed. */
async function embedded() {
  const text = byId("data").textContent.trim();
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

/** The process that serves the page. */
class Source {
  async data() {
    return (await fetch("data")).json();
  }

  async part(run, from, to, site) {
    const query = new URLSearchParams({ run, from, to, site });
    const answer = await fetch(`part?${query}`);
    return answer.ok ? answer.json() : null;
  }

  follow(take) {
    const stream = new EventSource("stream");
    stream.addEventListener("message", (event) => {
      const part = JSON.parse(event.data);
      if (!take(part.run, part)) stream.close();
    });
  }
}

async function begin() {
  readLook();
  const source = byId("data") ? null : new Source();
  const data = source ? await source.data() : await embedded();
  window.page = new Page(data, source);
  document.body.classList.add("ready");
}

begin().catch((error) => {
  byId("summary").textContent = `The page could not be drawn: ${error.message}`;
  throw error;
});
