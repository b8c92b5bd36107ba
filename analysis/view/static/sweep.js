// The page of a sweep, or of a folder of runs: a table, a trade-off plot, parallel coordinates; filters join them.

import { fitted, look, readLook } from "view/look";

const byId = (id) => document.getElementById(id);
const MOST_TOGETHER = 4;
const LIVE = new Set(["pending", "running"]);
const AGAIN_MS = 3000;
const AXIS_PX = 84; // an axis of the parallel coordinates, at least
const LESS_IS_BETTER = new Set(["time_to_target_s", "round_time_s", "wan_mb", "training_s", "rounds"]);

async function embedded() {
  const bytes = Uint8Array.from(atob(byId("data").textContent.trim()), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

function shown(value) {
  if (value === null || value === undefined) return "–";
  return typeof value === "number" ? String(+value.toPrecision(4)) : value;
}

class Sweep {
  constructor(data, served) {
    this.served = served;
    this.data = data;
    this.wanted = new Map(); // values of a setting that are shown; a setting without an entry: all
    this.chosen = new Set();
    this.sorted = { key: null, down: false };
    byId("title").textContent = data.name;
    document.title = `${data.name} – testbed`;
    const known = Object.keys(data.measures).filter((key) => data.rows.some((row) => typeof row[key] === "number"));
    this.measures = known;
    for (const [id, first] of [["x", known.includes("time_to_target_s") ? "time_to_target_s" : "wan_mb"], ["y", "accuracy"]]) {
      byId(id).replaceChildren(...known.map((key) => new Option(data.measures[key], key)));
      if (known.includes(first)) byId(id).value = first;
      byId(id).addEventListener("change", () => this.drawPareto());
    }
    byId("clear").addEventListener("click", () => {
      this.wanted.clear();
      this.refresh();
    });
    byId("compare").addEventListener("click", () => this.open([...this.chosen]));
    byId("compare").hidden = !served;
    this.listenParallel();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      readLook();
      this.refresh();
    });
    new ResizeObserver(() => this.drawParallel()).observe(byId("parallel"));
    new ResizeObserver(() => this.pareto?.setSize({ width: Math.max(200, byId("pareto").clientWidth), height: 300 })).observe(byId("pareto"));
    this.refresh();
    if (served && data.rows.some((row) => LIVE.has(row.state))) setTimeout(() => this.again(), AGAIN_MS);
  }

  async again() {
    this.data = await (await fetch("data")).json();
    this.refresh();
    if (this.data.rows.some((row) => LIVE.has(row.state))) setTimeout(() => this.again(), AGAIN_MS);
  }

  get rows() {
    return this.data.rows.filter((row) => this.passes(row));
  }

  passes(row) {
    return [...this.wanted].every(([column, values]) => values.has(row.settings[column]));
  }

  refresh() {
    const done = this.data.rows.filter((row) => typeof row.accuracy === "number" || row.rounds).length;
    byId("subtitle").textContent = `${this.data.rows.length} runs`;
    byId("summary").textContent = `${this.rows.length} of ${this.data.rows.length} runs shown; ${done} have results.`;
    this.drawFilters();
    this.drawTable();
    this.drawPareto();
    this.drawParallel();
  }

  open(numbers) {
    if (this.served && numbers.length) location.href = `runs/${numbers.join(",")}/`;
  }

  drawFilters() {
    const groups = this.data.settings.map((name, column) => {
      const group = document.createElement("fieldset");
      group.style.cssText = "border:0;padding:0;margin:0 0 8px";
      const legend = document.createElement("legend");
      legend.textContent = name;
      legend.className = "muted";
      const values = [...new Set(this.data.rows.map((row) => row.settings[column]))];
      const buttons = values.slice(0, 40).map((value) => {
        const button = document.createElement("button");
        button.textContent = value;
        button.style.margin = "2px";
        button.setAttribute("aria-pressed", Boolean(this.wanted.get(column)?.has(value)));
        button.addEventListener("click", () => this.toggle(column, value));
        return button;
      });
      group.append(legend, ...buttons);
      return group;
    });
    byId("filters").replaceChildren(...groups);
  }

  toggle(column, value) {
    const values = this.wanted.get(column) ?? new Set();
    if (values.has(value)) values.delete(value);
    else values.add(value);
    if (values.size) this.wanted.set(column, values);
    else this.wanted.delete(column);
    this.refresh();
  }

  drawTable() {
    const head = document.createElement("tr");
    const names = ["", "run", ...this.data.settings, "state", ...this.measures.map((key) => this.data.measures[key])];
    names.forEach((name, place) => {
      const cell = document.createElement("th");
      cell.scope = "col";
      if (place === 0) cell.textContent = "";
      else {
        const button = document.createElement("button");
        button.textContent = name;
        button.addEventListener("click", () => this.sort(place));
        cell.append(button);
        if (this.sorted.key === place) cell.setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending");
      }
      if (place > this.data.settings.length + 2) cell.className = "n";
      head.append(cell);
    });
    byId("runs").tHead.replaceChildren(head);
    const rows = [...this.rows];
    if (this.sorted.key !== null) {
      const value = (row) => this.cells(row)[this.sorted.key - 1];
      const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a ?? "").localeCompare(String(b ?? "")));
      rows.sort((a, b) => order(value(a), value(b)) * (this.sorted.down ? -1 : 1));
    }
    byId("runs").tBodies[0].replaceChildren(...rows.map((row) => this.row(row)));
    byId("compare").disabled = !this.chosen.size;
  }

  cells(row) {
    return [row.label, ...row.settings, row.state, ...this.measures.map((key) => row[key])];
  }

  row(row) {
    const line = document.createElement("tr");
    const first = document.createElement("td");
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = this.chosen.has(row.number);
    box.disabled = !row.can_open || !this.served;
    box.setAttribute("aria-label", `put ${row.label} side by side with others`);
    box.addEventListener("change", () => {
      if (box.checked && this.chosen.size < MOST_TOGETHER) this.chosen.add(row.number);
      else this.chosen.delete(row.number);
      box.checked = this.chosen.has(row.number);
      byId("compare").disabled = !this.chosen.size;
    });
    first.append(box);
    line.append(first);
    this.cells(row).forEach((value, place) => {
      const cell = document.createElement("td");
      if (place === 0 && row.can_open && this.served) {
        const link = document.createElement("a");
        link.href = `runs/${row.number}/`;
        link.textContent = value;
        cell.append(link);
      } else cell.textContent = shown(value);
      if (place > this.data.settings.length + 1) cell.className = "n";
      line.append(cell);
    });
    return line;
  }

  sort(key) {
    this.sorted = { key, down: this.sorted.key === key && !this.sorted.down };
    this.drawTable();
  }

  /** Runs that no other run beats in both measures, by x. */
  best(points, x, y) {
    const lessX = LESS_IS_BETTER.has(x) ? 1 : -1;
    const lessY = LESS_IS_BETTER.has(y) ? 1 : -1;
    const sorted = [...points].sort((a, b) => (a[x] - b[x]) * lessX || (a[y] - b[y]) * lessY);
    let bound = Infinity;
    return sorted.filter((point) => {
      if (point[y] * lessY >= bound) return false;
      bound = point[y] * lessY;
      return true;
    });
  }

  drawPareto() {
    const x = byId("x").value;
    const y = byId("y").value;
    this.pareto?.destroy();
    const place = byId("pareto");
    place.replaceChildren();
    if (!x || !y) return;
    const points = this.rows.filter((row) => typeof row[x] === "number" && typeof row[y] === "number");
    points.sort((a, b) => a[x] - b[x]);
    const front = new Set(this.best(points, x, y));
    const own = { stroke: () => look.muted, grid: { stroke: () => look.line }, ticks: { stroke: () => look.line }, font: "11px system-ui" };
    const dots = { show: true, size: 9 };
    this.pareto = new uPlot(
      {
        width: Math.max(200, place.clientWidth),
        height: 300,
        legend: { show: false },
        cursor: { drag: { x: false, y: false } },
        scales: { x: { time: false, range: padded }, y: { range: padded } },
        axes: [
          { ...own, label: this.data.measures[x], labelSize: 18, labelFont: "11px system-ui" },
          { ...own, label: this.data.measures[y], labelSize: 18, labelFont: "11px system-ui", size: 60 },
        ],
        series: [
          {},
          { stroke: () => look.busy2, paths: () => null, points: { ...dots, fill: () => look.busy2 } },
          { stroke: () => look.accent, width: 2, spanGaps: true, points: { ...dots, fill: () => look.accent } },
        ],
      },
      [points.map((row) => row[x]), points.map((row) => row[y]), points.map((row) => (front.has(row) ? row[y] : null))],
      place,
    );
    const over = this.pareto.over;
    const nearest = () => {
      const { left, top } = this.pareto.cursor;
      let found = null;
      let least = 14;
      for (const row of points) {
        const away = Math.hypot(this.pareto.valToPos(row[x], "x") - left, this.pareto.valToPos(row[y], "y") - top);
        if (away < least) {
          least = away;
          found = row;
        }
      }
      return found;
    };
    over.addEventListener("pointermove", () => {
      const found = nearest();
      over.title = found ? found.label : "";
      over.style.cursor = found ? "pointer" : "";
    });
    over.addEventListener("click", () => {
      const found = nearest();
      if (found?.can_open) this.open([found.number]);
    });
  }

  /** The axes of the parallel coordinates: settings as words, then measures as numbers. */
  get axes() {
    const settings = this.data.settings.map((name, column) => {
      const values = [...new Set(this.data.rows.map((row) => row.settings[column]))];
      return { name, column, values, at: (row) => (values.indexOf(row.settings[column]) + 0.5) / values.length };
    });
    const measures = this.measures.map((key) => {
      const known = this.data.rows.map((row) => row[key]).filter((value) => typeof value === "number");
      const low = Math.min(...known);
      const high = Math.max(...known);
      const at = (row) => (typeof row[key] !== "number" ? null : high > low ? (row[key] - low) / (high - low) : 0.5);
      return { name: this.data.measures[key], low, high, at };
    });
    return [...settings, ...measures];
  }

  drawParallel() {
    const canvas = byId("parallel");
    const { axes } = this;
    canvas.style.minWidth = `${axes.length * AXIS_PX}px`; // a narrow screen scrolls
    const context = fitted(canvas);
    if (!context) return;
    const top = 34;
    const bottom = canvas.clientHeight - 12;
    const gap = (canvas.clientWidth - 120) / Math.max(1, axes.length - 1);
    const x = (place) => 60 + place * gap;
    const y = (share) => bottom - share * (bottom - top);
    this.values = [];
    for (const row of this.data.rows) {
      const passes = this.passes(row);
      context.strokeStyle = passes ? look.busy2 : look.line;
      context.globalAlpha = passes ? Math.max(0.15, Math.min(0.9, 12 / this.data.rows.length)) : 0.4;
      context.lineWidth = passes ? 1.8 : 1;
      context.beginPath();
      let begun = false;
      axes.forEach((axis, place) => {
        const share = axis.at(row);
        if (share === null) {
          begun = false; // a gap: a line through it would read as a value
          return;
        }
        context.fillStyle = context.strokeStyle;
        context.fillRect(x(place) - 2, y(share) - 2, 4, 4);
        if (begun) context.lineTo(x(place), y(share));
        else context.moveTo(x(place), y(share));
        begun = true;
      });
      context.stroke();
    }
    context.globalAlpha = 1;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "center";
    axes.forEach((axis, place) => {
      context.strokeStyle = look.muted;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(x(place), top);
      context.lineTo(x(place), bottom);
      context.stroke();
      context.fillStyle = look.ink;
      context.textBaseline = "top";
      context.fillText(axis.name, x(place), 4, gap - 6);
      context.textBaseline = "middle";
      context.fillStyle = look.muted;
      const labels = axis.values
        ? axis.values.slice(0, 30).map((value, number) => [value, (number + 0.5) / axis.values.length])
        : [[shown(axis.high), 1], [shown(axis.low), 0]];
      for (const [label, share] of labels) {
        if (label === "–" || label === "Infinity" || label === "-Infinity") continue;
        context.strokeStyle = look.paper;
        context.lineWidth = 3;
        context.strokeText(label, x(place), y(share), gap - 6);
        context.fillText(label, x(place), y(share), gap - 6);
        if (axis.values) this.values.push({ x: x(place), y: y(share), column: axis.column, value: label });
      }
    });
  }

  listenParallel() {
    byId("parallel").addEventListener("click", (event) => {
      const near = this.values.find((each) => Math.abs(each.x - event.offsetX) < 40 && Math.abs(each.y - event.offsetY) < 10);
      if (near) this.toggle(near.column, near.value);
    });
  }
}

function padded(_, low, high) {
  const margin = (high - low) * 0.08 || Math.abs(high) * 0.1 || 1;
  return [low - margin, high + margin];
}

async function begin() {
  readLook();
  const served = !byId("data");
  const data = served ? await (await fetch("data")).json() : await embedded();
  window.sweep = new Sweep(data, served);
  document.body.classList.add("ready");
}

begin().catch((error) => {
  byId("summary").textContent = `The page could not be drawn: ${error.message}`;
  throw error;
});
