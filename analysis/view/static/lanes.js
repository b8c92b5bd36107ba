// The lanes of a run's nodes: what each computes, sends, receives and waits for, from the whole run to a microsecond.

import { colourOfMessage, colourOfWork, fitted, look } from "view/look";
import { moment, seconds, size, steps } from "view/numbers";

const ROW = 34;
const AXIS = 22;
const LOWEST = 120; // pixels
const HIGHEST = 380;
const SHORTEST_S = 2e-5; // a window's
// where in its row each kind of span is: top and height
const WORK = [
  [3, 10],
  [3, 10],
  [14, 4],
  [14, 4],
];
const SENT = [20, 4];
const RECEIVED = [26, 4];
const MARK = [1, 14];
const MARKS = [
  { colour: "stale", told: (count) => `applied ${count} ${count === 1 ? "update" : "updates"} late` },
  { colour: "change", told: (count) => `${count} ${count === 1 ? "block" : "blocks"} came late` },
  { colour: "broken", told: (count) => `${count} ${count === 1 ? "block" : "blocks"} never came` },
];

export class Lanes {
  constructor(scroll, tip, run, page) {
    this.scroll = scroll;
    this.canvas = scroll.querySelector("canvas");
    this.spacer = scroll.querySelector(".spacer");
    this.tip = tip;
    this.run = run;
    this.page = page;
    this.from = 0;
    this.to = Math.max(run.end, 1e-3);
    this.wide = this.canvas.clientWidth;
    this.whole = true;
    this.site = null; // of which alone nodes are shown
    this.detail = null; // a Run with more rows of a part of the time
    this.choose();
    this.listen();
  }

  /** Which nodes have a row: those of which anything is known, workers and servers by data centre. */
  choose() {
    const { nodes } = this.run.plot;
    const order = { global_server: 0, server: 1, replica: 2, worker: 3, scheduler: 4 };
    this.rows = nodes.name
      .map((_, node) => node)
      .filter((node) => nodes.role[node] !== "scheduler")
      .filter((node) => this.site === null || nodes.site[node] === this.site)
      .filter((node) => this.site !== null || !this.run.partial || this.run.partial.includes(nodes.site[node]))
      .sort((a, b) => nodes.site[a] - nodes.site[b] || order[nodes.role[a]] - order[nodes.role[b]] || a - b);
    const whole = this.rows.length * ROW + AXIS + 2;
    const seen = Math.min(HIGHEST, Math.max(LOWEST, whole));
    this.canvas.style.height = `${seen}px`;
    this.spacer.style.height = `${Math.max(0, whole - seen)}px`;
  }

  get left() {
    return this.wide < 560 ? 96 : 168;
  }

  x(t) {
    return this.left + ((t - this.from) / (this.to - this.from)) * (this.wide - this.left - 8);
  }

  time(x) {
    return this.from + ((x - this.left) / (this.wide - this.left - 8)) * (this.to - this.from);
  }

  listen() {
    const { canvas } = this;
    let begin = null;
    canvas.addEventListener("pointerdown", (event) => {
      begin = { x: event.offsetX, from: this.from, to: this.to, moved: 0 };
      if (event.pointerType === "mouse") canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      this.pointer = { x: event.offsetX, y: event.offsetY };
      if (begin) {
        begin.moved = Math.max(begin.moved, Math.abs(event.offsetX - begin.x));
        if (begin.moved > 4) {
          const span = begin.to - begin.from;
          const shift = ((event.offsetX - begin.x) / (canvas.clientWidth - this.left - 8)) * span;
          this.show(begin.from - shift, begin.to - shift);
        }
      }
      this.showTip();
    });
    canvas.addEventListener("pointerup", (event) => {
      if (begin && begin.moved <= 4) {
        if (event.offsetX > this.left) this.page.seek(this.time(event.offsetX));
        else this.page.select(this.run, this.nodeUnder(event.offsetY));
      }
      begin = null;
    });
    canvas.addEventListener("pointercancel", () => {
      begin = null;
    });
    canvas.addEventListener("pointerleave", () => {
      this.tip.hidden = true;
    });
    canvas.addEventListener("dblclick", (event) => this.magnify(4, this.time(event.offsetX)));
    canvas.addEventListener(
      "wheel",
      (event) => {
        if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
          const shift = (event.deltaX / canvas.clientWidth) * (this.to - this.from);
          this.show(this.from + shift, this.to + shift);
        } else if (event.ctrlKey || event.shiftKey || event.altKey) {
          this.magnify(Math.exp(-event.deltaY * 0.003), this.time(event.offsetX));
        } else return; // which scrolls
        event.preventDefault();
      },
      { passive: false },
    );
    this.scroll.addEventListener("scroll", () => this.page.redraw(true));
    canvas.addEventListener("keydown", (event) => {
      const span = this.to - this.from;
      if (event.key === "+" || event.key === "=") this.magnify(2);
      else if (event.key === "-") this.magnify(0.5);
      else if (event.key === "0") this.showAll();
      else if (event.key === "ArrowLeft") this.show(this.from - span / 5, this.to - span / 5);
      else if (event.key === "ArrowRight") this.show(this.from + span / 5, this.to + span / 5);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  magnify(factor, around = this.page.clock.t) {
    const at = Math.min(this.to, Math.max(this.from, around));
    const span = Math.max(SHORTEST_S, (this.to - this.from) / factor);
    const share = (at - this.from) / (this.to - this.from);
    this.show(at - share * span, at - share * span + span);
  }

  showAll() {
    this.whole = true;
    this.show(0, this.run.end, true);
  }

  show(from, to, whole = false) {
    const end = Math.max(this.run.end, 1e-3);
    const span = Math.min(to - from, end);
    this.from = Math.max(0, Math.min(from, end - span));
    this.to = this.from + span;
    this.whole = whole || span >= end;
    this.page.redraw(true);
    this.page.windowChanged(this);
  }

  /** Keep the moment in sight while it moves. */
  follow(t) {
    if (this.whole) {
      if (this.to !== this.run.end) this.show(0, this.run.end, true);
      return;
    }
    if (t < this.from || t > this.to) {
      const span = this.to - this.from;
      this.show(t - span * 0.1, t + span * 0.9);
    }
  }

  /** Draw the lanes, if they may look otherwise than before (`anew`), and the moment over them. */
  draw(anew) {
    const context = fitted(this.canvas);
    if (!context) return;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    this.wide = width; // to ask for it at every span takes longer than to draw them
    if (anew || !this.layer || this.layer.width !== this.canvas.width || this.layer.height !== this.canvas.height) {
      this.layer ??= document.createElement("canvas");
      this.layer.width = this.canvas.width;
      this.layer.height = this.canvas.height;
      const own = this.layer.getContext("2d");
      own.setTransform(context.getTransform());
      this.drawLanes(own, width, height);
    }
    context.drawImage(this.layer, 0, 0, width, height);
    const now = this.x(this.page.timeOf(this.run));
    if (now >= this.left && now <= width) {
      context.strokeStyle = look.accent;
      context.lineWidth = 1.5;
      context.beginPath();
      context.moveTo(now, 0);
      context.lineTo(now, height);
      context.stroke();
    }
  }

  drawLanes(context, width, height) {
    this.drawAxis(context, width, height);
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / ROW));
    context.save();
    context.beginPath();
    context.rect(0, AXIS, width, height - AXIS);
    context.clip();
    for (let place = first; place < this.rows.length; place++) {
      const top = AXIS + place * ROW - this.scroll.scrollTop;
      if (top > height) break;
      this.drawRow(context, this.rows[place], top, width);
    }
    if (this.page.critical) this.drawCritical(context);
    context.restore();
  }

  drawAxis(context, width, height) {
    context.fillStyle = look.muted;
    context.strokeStyle = look.line;
    context.lineWidth = 1;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    const span = this.to - this.from;
    for (const t of steps(this.from, this.to, Math.max(3, Math.floor((width - this.left) / 110)))) {
      const x = this.x(t);
      context.beginPath();
      context.moveTo(x, AXIS - 4);
      context.lineTo(x, height);
      context.stroke();
      if (x < width - 24) context.fillText(moment(t, span), x, AXIS / 2 - 1);
    }
  }

  drawRow(context, node, top, width) {
    const { plot, texts } = this.run;
    context.strokeStyle = look.line;
    context.beginPath();
    context.moveTo(0, top + ROW - 0.5);
    context.lineTo(width, top + ROW - 0.5);
    context.stroke();
    const chosen = this.run.selected?.kind === "node" && this.run.selected.number === node;
    context.fillStyle = chosen ? look.accent : look.ink;
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.font = `${chosen ? "600 " : ""}12px system-ui, sans-serif`;
    const [site, own] = plot.nodes.name[node].split("/");
    if (this.left < 120) {
      context.fillText(own ?? site, 6, top + ROW / 2 + 5, this.left - 12);
      context.font = "9px system-ui, sans-serif";
      context.fillStyle = look.muted;
      context.fillText(site, 6, top + 8, this.left - 12);
    } else context.fillText(plot.nodes.name[node], 6, top + ROW / 2, this.left - 14);
    const source = this.detail && this.from >= this.detail.from && this.to <= this.detail.to ? this.detail.run : this.run;
    const rows = source.rowsOf(node);
    const { work, messages, rounds } = source.tables;
    for (const row of rows.rounds) {
      const x = this.x(rounds.t0[row]);
      if (x < this.left || x > width) continue;
      context.fillStyle = look.muted;
      context.fillRect(x, top + 1, 1, ROW - 3);
    }
    for (let lane = 3; lane >= 0; lane--) {
      const [y, high] = WORK[lane];
      const own = rows.work.filter((row) => work.lane[row] === lane);
      const colour = (row) => colourOfWork(lane, source.texts[work.text[row]]);
      this.drawSpans(context, own, work.t0, work.t, top + y, high, width, colour);
    }
    const colour = (row) => colourOfMessage(source.texts[messages.kind[row]], messages.bytes[row]);
    this.drawSpans(context, rows.sent, messages.t0, messages.t, top + SENT[0], SENT[1], width, colour);
    this.drawSpans(context, rows.received, messages.t0, messages.t, top + RECEIVED[0], RECEIVED[1], width, colour);
    const { marks } = this.run.tables;
    for (const row of this.run.rowsOf(node).marks) {
      const x = this.x(marks.t[row]);
      if (x < this.left || x > width) continue;
      context.fillStyle = look[MARKS[marks.sign[row]].colour];
      context.fillRect(x - 1, top + MARK[0], 2, MARK[1]);
    }
  }

  /** Draw spans as bars; those that lie on a pixel that is painted already cost nothing. */
  drawSpans(context, rows, begins, ends, top, high, width, colourOf) {
    let painted = -1;
    for (const row of rows) {
      if (ends[row] < this.from || begins[row] > this.to) continue;
      const begin = Math.max(this.left, this.x(begins[row]));
      const right = Math.min(width, Math.max(begin + 0.7, this.x(ends[row])));
      if (right <= painted + 0.3) continue;
      const x = Math.max(begin, painted - 0.5);
      context.fillStyle = colourOf(row);
      context.fillRect(x, top, right - x, high);
      painted = Math.max(painted, right);
    }
  }

  /** The chain of transfers for which the round at the moment was as long as it was. */
  drawCritical(context) {
    const { paths } = this.run.tables;
    if (!paths) return;
    const place = new Map(this.rows.map((node, row) => [node, AXIS + row * ROW - this.scroll.scrollTop]));
    context.save();
    context.beginPath();
    context.rect(this.left, AXIS, this.canvas.clientWidth - this.left, this.canvas.clientHeight);
    context.clip();
    context.strokeStyle = look.accent;
    context.lineWidth = 2;
    context.beginPath();
    let last = null;
    for (let row = 0; row < paths.t.length; row++) {
      if (paths.t[row] < this.from || paths.t0[row] > this.to) continue;
      const from = place.get(paths.source[row]);
      const to = place.get(paths.target[row]);
      if (from === undefined || to === undefined) continue;
      const begin = [this.x(paths.t0[row]), from + 9];
      const end = [this.x(paths.t[row]), to + 9];
      if (last && last.round === paths.round[row]) context.lineTo(...begin);
      else context.moveTo(...begin);
      context.lineTo(...end);
      last = { round: paths.round[row] };
    }
    context.stroke();
    context.restore();
  }

  nodeUnder(y) {
    const node = this.rows[Math.floor((y - AXIS + this.scroll.scrollTop) / ROW)];
    return node === undefined ? null : { kind: "node", number: node };
  }

  showTip() {
    const { x, y } = this.pointer;
    const found = x > this.left && this.under(x, y);
    this.tip.hidden = !found;
    if (!found) return;
    this.tip.textContent = found;
    this.tip.style.left = `${Math.max(4, Math.min(x + 12, this.canvas.clientWidth - this.tip.offsetWidth - 8))}px`;
    this.tip.style.top = `${Math.max(4, y - this.tip.offsetHeight - 10)}px`;
  }

  /** What is under the pointer, in words. */
  under(x, y) {
    const found = this.nodeUnder(y);
    if (!found) return "";
    const inside = (y - AXIS + this.scroll.scrollTop) % ROW;
    const source = this.detail && this.from >= this.detail.from && this.to <= this.detail.to ? this.detail.run : this.run;
    const { work, messages } = source.tables;
    const rows = source.rowsOf(found.number);
    const near = ((this.to - this.from) / this.canvas.clientWidth) * 1.5;
    const t = this.time(x);
    const touches = (table) => (row) => table.t0[row] - near <= t && t <= table.t[row] + near;
    const long = (table, row) => seconds(table.t[row] - table.t0[row]);
    const { marks } = this.run.tables;
    const told = this.run
      .rowsOf(found.number)
      .marks.filter((row) => Math.abs(marks.t[row] - t) < 2 * near)
      .map((row) => `${MARKS[marks.sign[row]].told(marks.count[row])}, round ${marks.round[row]}`);
    if (inside < 19 && told.length) return told.slice(-3).join("\n");
    if (inside < 19) {
      const own = rows.work.filter(touches(work)).filter((row) => (inside < 13.5) === work.lane[row] < 2);
      return own.slice(-3).map((row) => `${source.texts[work.text[row]]}: ${long(work, row)}`).join("\n");
    }
    const sent = inside < 25;
    const moved = (sent ? rows.sent : rows.received).filter(touches(messages));
    const other = sent ? messages.target : messages.source;
    return moved
      .slice(-3)
      .map((row) => {
        const kind = source.texts[messages.kind[row]];
        const key = messages.key[row] < 0 ? "" : ` of key ${messages.key[row]}`;
        const name = source.plot.nodes.name[other[row]];
        const round = messages.round[row] < 0 ? "" : `, round ${messages.round[row]}`;
        return `${kind}${key} ${sent ? "to" : "from"} ${name}: ${size(messages.bytes[row])} in ${long(messages, row)}${round}`;
      })
      .join("\n");
  }
}
