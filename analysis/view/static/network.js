// The network of a run at a moment: links by rate and use, nodes by what they do, messages on their way.

import { classOfUse, colourOfMessage, colourOfUse, fitted, LANE_NAMES, look } from "view/look";
import { rate, seconds, share, size } from "view/numbers";

const MARGIN = 46;
const NAME = 18; // the line of text below a data centre
const APART = 3.2; // pixels between the two directions of a link and its middle
const CELL = 34; // pixels: data centres of one cell are drawn as one
const CLUSTERED = 150; // from so many vertices on
const RELAYED = new Set(["merge", "spread"]); // messages that an overlay passes on
const MOST_DOTS = 4000;
const CARRIED = [5, 9]; // pixels of a dash, and between two
const CARRIED_SPEED = 12; // pixels in a second, by the logarithm of what is carried
const NEAR = 12; // pixels from the pointer to what it shows

export class Network {
  constructor(canvas, tip, run, page) {
    this.canvas = canvas;
    this.tip = tip;
    this.run = run;
    this.page = page;
    this.zoom = 1;
    this.panX = 0;
    this.panY = 0;
    this.selected = null; // {kind: "link" | "node" | "site", number}
    this.pointer = null;
    this.broken = new Set();
    const rates = run.plot.links.rate_bps;
    this.lowest = Math.log(Math.min(...rates.slice(0, 50_000), Infinity));
    this.highest = Math.log(Math.max(...rates.slice(0, 50_000), 1));
    this.listen();
  }

  listen() {
    const { canvas } = this;
    const pointers = new Map();
    let moved = 0;
    canvas.addEventListener("pointerdown", (event) => {
      pointers.set(event.pointerId, event);
      canvas.setPointerCapture(event.pointerId);
      moved = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      this.pointer = { x: event.offsetX, y: event.offsetY };
      const before = pointers.get(event.pointerId);
      if (before && pointers.size === 1) {
        this.panX += event.clientX - before.clientX;
        this.panY += event.clientY - before.clientY;
        moved += Math.abs(event.clientX - before.clientX) + Math.abs(event.clientY - before.clientY);
        this.places = null;
      } else if (before && pointers.size === 2) {
        const [other] = [...pointers.values()].filter((each) => each.pointerId !== event.pointerId);
        const wide = (a, b) => Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
        this.magnify(wide(event, other) / Math.max(1, wide(before, other)), event.offsetX, event.offsetY);
        moved += 10;
      }
      if (before) pointers.set(event.pointerId, event);
      this.page.redraw();
    });
    canvas.addEventListener("pointerup", (event) => {
      pointers.delete(event.pointerId);
      if (moved < 5) this.page.select(this.run, this.under(event.offsetX, event.offsetY));
    });
    canvas.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => {
      this.pointer = null;
      this.page.redraw();
    });
    canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        this.magnify(Math.exp(-event.deltaY * 0.0015), event.offsetX, event.offsetY);
      },
      { passive: false },
    );
    canvas.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [40, 0], ArrowRight: [-40, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] };
      if (event.key === "+" || event.key === "=") this.magnify(1.25);
      else if (event.key === "-") this.magnify(0.8);
      else if (event.key === "0") this.whole();
      else if (event.key in moves) {
        this.panX += moves[event.key][0];
        this.panY += moves[event.key][1];
        this.places = null;
        this.page.redraw();
      } else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  magnify(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const zoom = Math.min(200, Math.max(0.5, this.zoom * factor));
    this.panX = x - ((x - this.panX) * zoom) / this.zoom;
    this.panY = y - ((y - this.panY) * zoom) / this.zoom;
    this.zoom = zoom;
    this.places = null;
    this.page.redraw();
  }

  whole() {
    this.zoom = 1;
    this.panX = 0;
    this.panY = 0;
    this.places = null;
    this.page.redraw();
  }

  /** Put a vertex into the middle, large enough to see its nodes. */
  visit(vertex) {
    const count = this.run.plot.vertices.length;
    this.zoom = count > 12 ? Math.max(this.zoom, Math.min(60, Math.sqrt(count))) : this.zoom;
    if (count > 12) {
      const [x, y] = this.position(vertex, 0, 0);
      this.panX = this.canvas.clientWidth / 2 - x;
      this.panY = this.canvas.clientHeight / 2 - y;
    }
    this.places = null;
  }

  position(vertex, panX = this.panX, panY = this.panY) {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const wide = Math.max(20, Math.min(width - 2 * MARGIN, (height - NAME - 2 * MARGIN) * this.stretch()));
    const tall = wide / this.stretch();
    const { x, y } = this.run.plot;
    const left = (width - wide) / 2;
    const top = (height - NAME - tall) / 2;
    return [(left + x[vertex] * wide) * this.zoom + panX, (top + y[vertex] * tall) * this.zoom + panY];
  }

  /** How much wider than tall the drawing is: a map keeps its shape, a layout fills the place. */
  stretch() {
    if (this.run.plot.land.length) return 1;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    return Math.max(1, Math.min(2, (width - 2 * MARGIN) / Math.max(1, height - NAME - 2 * MARGIN)));
  }

  /** Where everything is, until zoom, pan or size change. */
  arrange() {
    const { plot, nodesOf } = this.run;
    const count = plot.vertices.length;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const at = plot.vertices.map((_, vertex) => this.position(vertex));
    const clusterOf = new Int32Array(count);
    const clusters = [];
    if (count > CLUSTERED) {
      const cells = new Map();
      at.forEach(([x, y], vertex) => {
        const cell = plot.central.includes(plot.vertices[vertex])
          ? "central"
          : `${Math.floor(x / CELL)} ${Math.floor(y / CELL)}`;
        if (!cells.has(cell)) {
          cells.set(cell, clusters.length);
          clusters.push({ x: 0, y: 0, members: [] });
        }
        clusterOf[vertex] = cells.get(cell);
        clusters[clusterOf[vertex]].members.push(vertex);
      });
      for (const cluster of clusters) {
        for (const vertex of cluster.members) {
          cluster.x += at[vertex][0] / cluster.members.length;
          cluster.y += at[vertex][1] / cluster.members.length;
        }
      }
    } else {
      at.forEach(([x, y], vertex) => {
        clusterOf[vertex] = vertex;
        clusters.push({ x, y, members: [vertex] });
      });
    }
    let nearest = Infinity;
    if (clusters.length <= 60) {
      for (let a = 0; a < clusters.length; a++) {
        for (let b = 0; b < a; b++) {
          nearest = Math.min(nearest, Math.hypot(clusters[a].x - clusters[b].x, clusters[a].y - clusters[b].y));
        }
      }
    }
    const dense = clusters.length > 60 ? CELL : Math.min(nearest, 240);
    for (const cluster of clusters) {
      const nodes = cluster.members.length === 1 ? nodesOf[cluster.members[0]] : [];
      cluster.router = cluster.members.length === 1 && cluster.members[0] >= plot.sites;
      cluster.central = cluster.members.some((vertex) => plot.central.includes(plot.vertices[vertex]));
      cluster.nodes = nodes.length && nodes.length <= 24 && dense > 70 ? nodes : [];
      cluster.radius = cluster.router ? 4 : cluster.nodes.length ? Math.min(44, dense * 0.24 + 6) : 7;
      if (cluster.members.length > 1) cluster.radius = Math.min(15, 5 + 2.2 * Math.log2(cluster.members.length));
      cluster.seen = cluster.x > -60 && cluster.x < width + 60 && cluster.y > -60 && cluster.y < height + 60;
    }
    this.nodeAt = new Map();
    for (const cluster of clusters) this.arrangeNodes(cluster);
    const groups = new Map();
    plot.links.source.forEach((source, link) => {
      const from = clusterOf[source];
      const to = clusterOf[plot.links.target[link]];
      if (from === to) return;
      const key = from * clusters.length + to;
      if (!groups.has(key)) groups.set(key, { from, to, links: [], line: this.line(clusters[from], clusters[to]) });
      groups.get(key).links.push(link);
    });
    this.places = { at, clusters, clusterOf, links: [...groups.values()], width, height };
  }

  /** Servers of a data centre in its middle, workers around. */
  arrangeNodes(cluster) {
    const { role } = this.run.plot.nodes;
    const workers = cluster.nodes.filter((node) => role[node] === "worker");
    const others = cluster.nodes.filter((node) => role[node] !== "worker");
    workers.forEach((node, place) => {
      const angle = (2 * Math.PI * place) / workers.length + Math.PI / 2 + (workers.length === 2 ? Math.PI / 2 : 0);
      const away = others.length ? cluster.radius * 0.68 : workers.length > 1 ? cluster.radius * 0.55 : 0;
      this.nodeAt.set(node, [cluster.x + away * Math.cos(angle), cluster.y + away * Math.sin(angle)]);
    });
    others.forEach((node, place) => {
      const y = cluster.y + (place - (others.length - 1) / 2) * Math.min(12, cluster.radius * 0.34);
      this.nodeAt.set(node, [cluster.x, y]);
    });
  }

  /** The line of one direction, beside the middle of the two places, so that the other one has room. */
  line(from, to) {
    const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
    const x = ((to.y - from.y) / length) * -APART;
    const y = ((to.x - from.x) / length) * APART;
    return [from.x + x, from.y + y, to.x + x, to.y + y];
  }

  widthOf(bps) {
    const spread = this.highest - this.lowest;
    return spread > 0.01 ? 1.4 + (4.6 * (Math.log(bps) - this.lowest)) / spread : 3;
  }

  draw(t) {
    const context = fitted(this.canvas);
    if (!context) return;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!this.places || this.places.width !== width || this.places.height !== height) this.arrange();
    this.broken = this.run.brokenAt(t);
    this.drawLand(context);
    this.drawLinks(context, t);
    if (this.run.plot.overlay !== "star") this.drawWays(context, t);
    this.drawVertices(context, t);
    this.drawMessages(context, t);
    this.showTip(t);
  }

  drawLand(context) {
    const { land } = this.run.plot;
    if (!land.length) return;
    const [left, top] = this.between(0, 0);
    const [right, bottom] = this.between(1, 1);
    context.fillStyle = look.land;
    context.beginPath();
    for (const coast of land) {
      coast.forEach(([x, y], place) => {
        const move = place ? "lineTo" : "moveTo";
        context[move](left + (right - left) * x, top + (bottom - top) * y);
      });
      context.closePath();
    }
    context.fill();
  }

  between(x, y) {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const wide = Math.max(20, Math.min(width - 2 * MARGIN, height - 2 * MARGIN));
    return [
      ((width - wide) / 2 + x * wide) * this.zoom + this.panX,
      ((height - wide) / 2 + y * wide) * this.zoom + this.panY,
    ];
  }

  drawLinks(context, t) {
    const { clusters, links } = this.places;
    const strokes = new Map();
    const carrying = [];
    this.lineNow = [];
    for (const group of links) {
      let use = 0;
      let configured = 0;
      let highest = 0;
      let backlog = 0;
      let lost = 0;
      let broken = false;
      for (const link of group.links) {
        const now = this.run.linkAt(link, t);
        use += now.use;
        configured += now.rate;
        highest = Math.max(highest, now.rate ? now.use / now.rate : 0);
        backlog = Math.max(backlog, now.backlog / Math.max(1, this.run.plot.links.queue_bytes[link]));
        lost += now.lost;
        broken ||= now.rate === 0 || (this.broken.size && this.broken.has(this.run.plot.links.name[link]));
      }
      if (!clusters[group.from].seen && !clusters[group.to].seen) continue;
      if (use > 0) carrying.push({ line: group.line, use });
      const kind = broken ? 5 : classOfUse(group.links.length > 1 ? highest : configured ? use / configured : 0);
      const wide = Math.round(2 * this.widthOf(Math.max(configured / group.links.length, 1))) / 2;
      const key = kind * 100 + wide;
      if (!strokes.has(key)) strokes.set(key, { kind, wide, lines: [] });
      strokes.get(key).lines.push(group.line);
      if (backlog > 0.02 && clusters.length < 400) this.lineNow.push({ group, backlog, lost });
    }
    context.lineCap = "round";
    for (const { kind, wide, lines } of [...strokes.values()].sort((a, b) => a.kind - b.kind)) {
      context.strokeStyle = kind === 5 ? look.broken : colourOfUse(kind);
      context.lineWidth = Math.max(0.7, wide * Math.min(1, 80 / this.places.links.length));
      context.globalAlpha = kind === 0 ? 0.75 : 1;
      context.setLineDash(kind === 5 ? [4, 7] : []);
      context.beginPath();
      for (const [x0, y0, x1, y1] of lines) {
        context.moveTo(x0, y0);
        context.lineTo(x1, y1);
      }
      context.stroke();
    }
    context.setLineDash([]);
    context.globalAlpha = 1;
    if (this.run.phaseAt(t)) this.drawCarried(context, t, carrying);
    for (const { group, backlog, lost } of this.lineNow) this.drawQueue(context, group, backlog, lost);
    this.drawSelectedLink(context);
  }

  /** Dashes that move along what carries something, faster the more that is: before training, no message tells of it. */
  drawCarried(context, t, carrying) {
    context.strokeStyle = look.ink;
    context.lineWidth = 2;
    context.lineCap = "butt";
    context.setLineDash(CARRIED);
    for (const { line: [x0, y0, x1, y1], use } of carrying) {
      context.lineDashOffset = -t * CARRIED_SPEED * Math.log2(1 + use / 1000);
      context.beginPath();
      context.moveTo(x0, y0);
      context.lineTo(x1, y1);
      context.stroke();
    }
    context.setLineDash([]);
    context.lineCap = "round";
  }

  /** What waits before a link: a bar at its begin, as long as its queue is full; a cross for packets lost just now. */
  drawQueue(context, group, backlog, lost) {
    const [x0, y0, x1, y1] = group.line;
    const length = Math.hypot(x1 - x0, y1 - y0) || 1;
    const begin = this.places.clusters[group.from].radius + 5;
    const alongX = (x1 - x0) / length;
    const alongY = (y1 - y0) / length;
    const x = x0 + alongX * begin - alongY * 6;
    const y = y0 + alongY * begin + alongX * 6;
    const bar = 4 + 26 * Math.min(1, backlog);
    context.strokeStyle = look.busy4;
    context.lineWidth = 4;
    context.lineCap = "butt";
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x + alongX * bar, y + alongY * bar);
    context.stroke();
    if (lost) {
      const atX = x + alongX * (bar + 8);
      const atY = y + alongY * (bar + 8);
      context.lineWidth = 2;
      context.beginPath();
      context.moveTo(atX - 3, atY - 3);
      context.lineTo(atX + 3, atY + 3);
      context.moveTo(atX + 3, atY - 3);
      context.lineTo(atX - 3, atY + 3);
      context.stroke();
    }
    context.lineCap = "round";
  }

  drawSelectedLink(context) {
    if (this.selected?.kind !== "link") return;
    const group = this.places.links.find((each) => each.links.includes(this.selected.number));
    if (!group) return;
    const [x0, y0, x1, y1] = group.line;
    context.strokeStyle = look.ink;
    context.lineWidth = 1.5;
    context.setLineDash([2, 4]);
    context.beginPath();
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
    context.stroke();
    context.setLineDash([]);
  }

  drawVertices(context, t) {
    const { plot } = this.run;
    const { clusters } = this.places;
    context.textAlign = "center";
    const chosen = this.selected?.kind === "site" ? this.selected.number : -1;
    for (const cluster of clusters) {
      if (!cluster.seen) continue;
      const alone = cluster.members.length === 1;
      const vertex = cluster.members[0];
      context.beginPath();
      if (cluster.router) context.rect(cluster.x - 4, cluster.y - 4, 8, 8);
      else context.arc(cluster.x, cluster.y, cluster.radius, 0, 2 * Math.PI);
      const down = alone && this.broken.size && this.broken.has(plot.vertices[vertex]);
      context.fillStyle = cluster.nodes.length || !alone ? look.paper : this.colourOfSite(vertex, t);
      context.fill();
      context.lineWidth = cluster.central ? 2.5 : 1.25;
      context.strokeStyle = down ? look.broken : cluster.central ? look.accent : look.muted;
      context.stroke();
      if (chosen >= 0 && cluster.members.includes(chosen)) {
        context.beginPath();
        context.arc(cluster.x, cluster.y, cluster.radius + 5, 0, 2 * Math.PI);
        context.setLineDash([3, 3]);
        context.stroke();
        context.setLineDash([]);
      }
      if (!alone) {
        context.fillStyle = look.ink;
        context.font = "11px system-ui, sans-serif";
        context.textBaseline = "middle";
        context.fillText(String(cluster.members.length), cluster.x, cluster.y);
      }
      for (const node of cluster.nodes) this.drawNode(context, node, t);
    }
    if (clusters.length > 70) return;
    context.textBaseline = "top";
    context.lineJoin = "round";
    for (const cluster of clusters) {
      if (cluster.members.length > 1 || !cluster.seen) continue;
      context.font = `${cluster.router ? 10 : 12}px system-ui, sans-serif`;
      context.strokeStyle = look.paper;
      context.lineWidth = 3;
      const name = plot.vertices[cluster.members[0]];
      context.strokeText(name, cluster.x, cluster.y + cluster.radius + 4);
      context.fillStyle = cluster.router ? look.muted : look.ink;
      context.fillText(name, cluster.x, cluster.y + cluster.radius + 4);
    }
  }

  /** A data centre that is drawn as one dot has the colour of what most of its nodes do. */
  colourOfSite(vertex, t) {
    const counts = [0, 0, 0, 0];
    for (const node of this.run.nodesOf[vertex].slice(0, 6)) {
      const lane = this.page.laneOf(this.run, node, t);
      if (lane >= 0) counts[lane] += 1;
    }
    if (counts[0]) return look.compute;
    return counts[2] || counts[3] ? look.wait : look.paper;
  }

  drawNode(context, node, t) {
    const [x, y] = this.nodeAt.get(node);
    const lane = this.page.laneOf(this.run, node, t);
    const { role, name } = this.run.plot.nodes;
    context.fillStyle = lane < 0 ? look.paper : look[LANE_NAMES[lane]];
    context.strokeStyle = this.broken.has(name[node]) ? look.broken : look.ink;
    context.lineWidth = this.selected?.kind === "node" && this.selected.number === node ? 3 : 1;
    context.beginPath();
    if (role[node] === "worker") context.arc(x, y, 5, 0, 2 * Math.PI);
    else if (role[node] === "scheduler") context.arc(x, y, 2.5, 0, 2 * Math.PI);
    else context.rect(x - 5, y - 4, 10, 8);
    context.fill();
    context.stroke();
  }

  /** Who has sent to whom for the newest round so far: an overlay's tree as it forms, an arrow for each pair. */
  drawWays(context, t) {
    const { clusters, clusterOf } = this.places;
    if (clusters.length > 70) return;
    const source = this.page.rowsAt(this.run, t);
    const { messages } = source.tables;
    const { site } = this.run.plot.nodes;
    const told = new Set();
    context.globalAlpha = 0.55;
    for (const row of source.waysOf(t)) {
      const from = clusterOf[site[messages.source[row]]];
      const to = clusterOf[site[messages.target[row]]];
      const colour = colourOfMessage(source.texts[messages.kind[row]]);
      const key = `${from}>${to} ${colour}`;
      if (from === to || told.has(key)) continue;
      told.add(key);
      this.drawArrow(context, this.line(clusters[from], clusters[to]), colour);
    }
    context.globalAlpha = 1;
  }

  drawArrow(context, [x0, y0, x1, y1], colour) {
    const length = Math.hypot(x1 - x0, y1 - y0) || 1;
    const alongX = (x1 - x0) / length;
    const alongY = (y1 - y0) / length;
    const x = x0 + (x1 - x0) * 0.62; // its head is past the middle, where that of the other direction is not
    const y = y0 + (y1 - y0) * 0.62;
    context.strokeStyle = colour;
    context.fillStyle = colour;
    context.lineWidth = 5;
    context.beginPath();
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
    context.stroke();
    context.beginPath();
    context.moveTo(x + 9 * alongX, y + 9 * alongY);
    context.lineTo(x - 6 * alongX - 8 * alongY, y - 6 * alongY + 8 * alongX);
    context.lineTo(x - 6 * alongX + 8 * alongY, y - 6 * alongY - 8 * alongX);
    context.fill();
  }

  drawMessages(context, t) {
    const source = this.page.rowsAt(this.run, t);
    const { messages } = source.tables;
    const byColour = new Map();
    const rings = [];
    const rows = source.inFlight(t);
    const stride = Math.max(1, Math.ceil(rows.length / MOST_DOTS));
    for (let place = 0; place < rows.length; place += stride) {
      const row = rows[place];
      const share = (t - messages.t0[row]) / Math.max(1e-9, messages.t[row] - messages.t0[row]);
      const [x, y] = this.along(row, share, messages) ?? [];
      if (x === undefined) continue;
      const colour = colourOfMessage(source.texts[messages.kind[row]], messages.bytes[row]);
      if (!byColour.has(colour)) byColour.set(colour, []);
      const radius = 2.2 + Math.min(4.5, 1.2 * Math.log10(1 + messages.bytes[row] / 1000));
      byColour.get(colour).push(x, y, radius);
      if (RELAYED.has(source.texts[messages.kind[row]])) rings.push(x, y, radius + 3);
    }
    context.strokeStyle = look.paper;
    context.lineWidth = 2.8; // of which the dots, drawn over it, leave half: those that overlap have one edge
    for (const [colour, dots] of byColour) {
      context.fillStyle = colour;
      context.beginPath();
      for (let place = 0; place < dots.length; place += 3) {
        context.moveTo(dots[place] + dots[place + 2], dots[place + 1]);
        context.arc(dots[place], dots[place + 1], dots[place + 2], 0, 2 * Math.PI);
      }
      if (rows.length < 600) context.stroke();
      context.fill();
    }
    context.strokeStyle = look.ink;
    context.beginPath();
    for (let place = 0; place < rings.length; place += 3) {
      context.moveTo(rings[place] + rings[place + 2], rings[place + 1]);
      context.arc(rings[place], rings[place + 1], rings[place + 2], 0, 2 * Math.PI);
    }
    context.lineWidth = 1;
    context.stroke();
  }

  /** Where a message is when it has come a `share` of its way: along the links between its nodes. */
  along(row, share, messages = this.run.tables.messages) {
    const { plot } = this.run;
    const { clusters, clusterOf } = this.places;
    const source = messages.source[row];
    const target = messages.target[row];
    const from = plot.nodes.site[source];
    const to = plot.nodes.site[target];
    if (from === to) {
      const begin = this.nodeAt.get(source);
      const end = this.nodeAt.get(target);
      return begin && end ? [begin[0] + (end[0] - begin[0]) * share, begin[1] + (end[1] - begin[1]) * share] : null;
    }
    const way = plot.routes[`${from}>${to}`] ?? [from, to];
    const hop = Math.min(way.length - 2, Math.floor(share * (way.length - 1)));
    const start = clusterOf[way[hop]];
    const stop = clusterOf[way[hop + 1]];
    if (start === stop) return null;
    const part = share * (way.length - 1) - hop;
    const [x0, y0, x1, y1] = this.line(clusters[start], clusters[stop]);
    return [x0 + (x1 - x0) * part, y0 + (y1 - y0) * part];
  }

  /** What is at a place of the canvas: a node before a data centre before a link. */
  under(x, y) {
    for (const [node, [nodeX, nodeY]] of this.nodeAt) {
      if (Math.hypot(nodeX - x, nodeY - y) < 8) return { kind: "node", number: node };
    }
    for (const cluster of this.places.clusters) {
      if (cluster.seen && Math.hypot(cluster.x - x, cluster.y - y) < cluster.radius + 3) {
        if (cluster.members.length > 1) return { kind: "cluster", members: cluster.members, x: cluster.x, y: cluster.y };
        return { kind: "site", number: cluster.members[0] };
      }
    }
    let best = null;
    let nearest = NEAR;
    for (const group of this.places.links) {
      const [x0, y0, x1, y1] = group.line;
      const length2 = (x1 - x0) ** 2 + (y1 - y0) ** 2 || 1;
      const share = Math.max(0, Math.min(1, ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / length2));
      const away = Math.hypot(x0 + share * (x1 - x0) - x, y0 + share * (y1 - y0) - y);
      if (away < nearest) {
        nearest = away;
        best = { kind: "link", number: group.links[0], links: group.links };
      }
    }
    return best;
  }

  showTip(t) {
    const found = this.pointer && this.under(this.pointer.x, this.pointer.y);
    this.canvas.style.cursor = found ? "pointer" : "grab";
    this.tip.hidden = !found;
    if (!found) return;
    this.tip.textContent = this.told(found, t);
    const left = Math.min(this.pointer.x + 14, this.canvas.clientWidth - this.tip.offsetWidth - 6);
    this.tip.style.left = `${Math.max(4, left)}px`;
    this.tip.style.top = `${Math.max(4, this.pointer.y - this.tip.offsetHeight - 10)}px`;
  }

  /** A thing at a moment, in words. */
  told(found, t) {
    const { plot } = this.run;
    if (found.kind === "cluster") {
      const some = found.members.slice(0, 4).map((vertex) => plot.vertices[vertex]);
      return `${found.members.length} data centres: ${some.join(", ")}, …\nclick to come closer`;
    }
    if (found.kind === "site") {
      const name = plot.vertices[found.number];
      if (found.number >= plot.sites) return `${name}\nrouter`;
      const workers = this.run.nodesOf[found.number].filter((node) => plot.nodes.role[node] === "worker").length;
      const central = plot.central.includes(name) ? ", central" : "";
      return `${name}\ndata centre${central}, ${workers} ${workers === 1 ? "worker" : "workers"}`;
    }
    if (found.kind === "node") {
      const lane = this.page.laneOf(this.run, found.number, t);
      const role = plot.nodes.role[found.number].replace("_", " ");
      return `${plot.nodes.name[found.number]}\n${role}${lane < 0 ? "" : `: ${LANE_NAMES[lane]}`}`;
    }
    if (found.links?.length > 1) return `${found.links.length} links between these data centres`;
    const now = this.run.linkAt(found.number, t);
    const lines = [
      plot.links.name[found.number].replace(">", " → "),
      `${rate(now.use)} of ${rate(now.rate)} (${share(now.rate ? now.use / now.rate : 0)})`,
      `delay ${seconds(plot.links.delay_s[found.number])}, queue ${size(now.backlog)}`,
    ];
    if (plot.links.loss[found.number]) lines.push(`loss ${share(plot.links.loss[found.number])}`);
    if (now.lost) lines.push(`${now.lost} packets lost just now`);
    return lines.join("\n");
  }
}
