"""The charts of the report. Each fills a figure that it is given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from analysis.breakdown import in_plan_order, per_node
from analysis.figures import panels
from analysis.identity import Identity
from analysis.load import Run
from analysis.metrics import accuracy_curve, utilisation
from analysis.peers import PEER_MESSAGES

if TYPE_CHECKING:
    import pandas as pd

ROUNDS_SHOWN = 3
NODES_SHOWN = 20
LINKS_SHOWN = 10
SITES_SHOWN = 12  # in the matrix of waits
VERTICES_DRAWN = 40
CONFIGURED, ACHIEVED = "#20242C", "#56B4E9"
_SLICES = {"compute": "#009E73", "sending": "#D55E00", "receiving": "#56B4E9", "waiting": "#D9DCE1"}


def accuracy(figure: Figure, runs: list[Run], looks: list[Identity], over: str) -> None:
    """Accuracy over ``time_s`` or over ``wan_bytes``, one line per run."""
    axes = figure.subplots()
    target = runs[0].plan["training"]["target_accuracy"]
    panels.accuracy_axis(axes, target)
    longest = 1e-3
    for run, look in zip(runs, looks, strict=True):
        scores = accuracy_curve(run)
        x = scores["time_s"] if over == "time_s" else scores["wan_bytes"] / 1e6
        panels.curve(axes, x, scores["accuracy"], look)
        longest = max(longest, float(x.max()) if len(x) else 0.0)
    if over == "time_s":
        panels.time_axis(axes, longest * 1.03)
    else:
        axes.set_xlabel("tensors sent over the WAN (MB)")
        axes.set_xlim(0, longest * 1.03)
    axes.legend(loc="lower right", frameon=True, facecolor="white", edgecolor="none", framealpha=0.9)


def time_split(figure: Figure, split: pd.DataFrame, names: list[str]) -> None:
    """A bar per name: compute, LAN, WAN, waiting."""
    axes = figure.subplots()
    panels.stacked_time(axes, names, split)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=4, handlelength=1)


def nodes_of(run: Run) -> pd.DataFrame:
    """The rows of ``time_split`` for the nodes of a run; pictures have room for the first ``NODES_SHOWN``."""
    return in_plan_order(per_node(run.tables), run.plan)


def timeline(figure: Figure, run: Run) -> None:
    """What every node did in a few rounds from the middle of the run."""
    rounds = run.tables["rounds"]
    numbers = sorted(rounds["round"].unique())
    middle = numbers[max(0, len(numbers) // 2 - 1) :][:ROUNDS_SHOWN]
    shown = rounds[rounds["round"].isin(middle)]
    begin, end = float(shown["t0_s"].min()), float(shown["t_s"].max())
    nodes = nodes_of(run)["node"].head(NODES_SHOWN).tolist()
    axes = figure.subplots()
    factor, unit = (1000.0, "ms") if end - begin < 5 else (1.0, "s")
    for place, node in enumerate(nodes):
        for spans, (low, height), color in _tracks(run, node):
            inside = spans[(spans["t_s"] > begin) & (spans["t0_s"] < end)]
            left = (inside["t0_s"].clip(lower=begin) - begin) * factor
            width = (inside["t_s"].clip(upper=end) - begin) * factor - left
            axes.broken_barh(list(zip(left, width, strict=True)), (place + low, height), facecolor=color, linewidth=0)
    for edge in sorted(shown.groupby("round")["t0_s"].min())[1:]:
        axes.axvline((edge - begin) * factor, color=panels.MUTED, linewidth=0.7, linestyle=(0, (2, 2)))
    axes.set_yticks([place + 0.5 for place in range(len(nodes))], nodes)
    axes.set_ylim(len(nodes), 0)
    axes.set_xlim(0, (end - begin) * factor)
    axes.set_xlabel(f"time since the start of round {middle[0]} ({unit})")
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    handles = [Patch(color=color, label=name) for name, color in _SLICES.items()]
    figure.legend(handles=handles, loc="outside upper left", ncols=4, handlelength=1)


def _tracks(run: Run, node: str) -> list[tuple[pd.DataFrame, tuple[float, float], str]]:
    transfers, waits, rounds = (run.tables[name] for name in ("transfers", "waits", "rounds"))
    tensors = transfers[transfers["message"].isin(("push", "value", *PEER_MESSAGES))]
    spans = rounds if (rounds["node"] == node).any() else waits[waits["round"].notna()]
    return [
        (spans[spans["node"] == node], (0.12, 0.76), _SLICES["waiting"]),
        (tensors[tensors["target"] == node], (0.50, 0.38), _SLICES["receiving"]),
        (tensors[tensors["source"] == node], (0.12, 0.38), _SLICES["sending"]),
        (run.tables["computes"].query("node == @node"), (0.12, 0.76), _SLICES["compute"]),
    ]


def links(figure: Figure, run: Run) -> None:
    """Configured and achieved rate of the busiest links over training time, one below the other."""
    samples = run.tables["links"]
    names = busiest(samples)
    end_s = max(float(run.tables["rounds"]["t_s"].max()) - run.start_s, 1e-3)
    top = float(samples[samples["link"].isin(names)]["configured_bps"].max())
    factor, unit = (1e-9, "Gbit/s") if top >= 2e9 else (1e-6, "Mbit/s") if top >= 2e6 else (1e-3, "kbit/s")
    grid = figure.subplots(len(names), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, name in zip(grid, names, strict=True):
        of_link = samples[samples["link"] == name]
        time_s = (of_link["t_s"] - run.start_s).to_numpy()
        achieved = of_link["achieved_bps"].fillna(0).to_numpy() * factor
        axes.fill_between(time_s, achieved, step="pre", color=ACHIEVED, linewidth=0, alpha=0.85)
        axes.step(time_s, of_link["configured_bps"].to_numpy() * factor, where="pre", color=CONFIGURED, linewidth=1.1)
        axes.set_title(name.replace(">", " → "), fontsize=8.5, fontweight="normal", pad=2)
        axes.yaxis.set_major_locator(MaxNLocator(3, steps=(1, 2, 2.5, 5, 10)))
        panels.time_axis(axes, end_s)
        axes.set_xlabel("")
    grid[0].set_ylim(bottom=0)
    grid[-1].set_xlabel(f"training time ({panels.time_unit(end_s)[0]})")
    figure.supylabel(f"rate ({unit})", fontsize=8.5, color="#333333")
    handles = [Line2D([], [], color=CONFIGURED, label="configured"), Patch(color=ACHIEVED, label="achieved")]
    figure.legend(handles=handles, loc="outside upper left", ncols=2)


def busiest(samples: pd.DataFrame) -> list[str]:
    """Links that carried anything, most first."""
    carried = samples.groupby("link")["bytes"].max().sort_values(ascending=False)
    return [str(name) for name in carried[carried > 0].index[:LINKS_SHOWN]]


def most_waiting(table: pd.DataFrame) -> pd.DataFrame:
    """The data centres that waited or were waited for most, in their order, as far as a picture has room."""
    if len(table) <= SITES_SHOWN:
        return table
    sums = table.sum(axis=0) + table.sum(axis=1)
    chosen = set(sums.nlargest(SITES_SHOWN).index)
    names = [name for name in table.index if name in chosen]
    return table.loc[names, names]


def matrix(figure: Figure, table: pd.DataFrame, per: float, unit: str) -> None:
    """Rows waited for columns; values divided by ``per``."""
    axes = figure.subplots()
    values = table.to_numpy() / per
    edges = [place - 0.5 for place in range(len(values) + 1)]  # a mesh stays vectors; an image would be a bitmap
    axes.pcolormesh(edges, edges, values, cmap="Oranges", vmin=0, vmax=max(float(values.max()), 1e-9) * 1.25)
    axes.invert_yaxis()
    names = [str(name) for name in table.index]
    few = len(names) < 5
    axes.set_xticks(range(len(names)), names, rotation=0 if few else 45, ha="center" if few else "right")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("… for")
    axes.set_ylabel("waited …")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    for row in range(len(names)):
        for column in range(len(names)):
            told = "–" if row == column else f"{values[row, column]:.3g}"
            dark = values[row, column] > 0.6 * values.max()
            axes.text(column, row, told, ha="center", va="center", fontsize=9, color="white" if dark else "#20242C")
    axes.set_title(f"mean {unit} per round", fontweight="normal", fontsize=8.5)


def topology(figure: Figure, run: Run) -> None:
    """Data centres and links; an arrow's width and colour say how much of its rate it used on average."""
    axes = figure.subplots()
    axes.set_axis_off()
    places = _layout(run.plan)
    loads = {row["link"]: row["utilisation"] for row in utilisation(run.tables["links"]).to_dict("records")}
    color_of = _colors()
    for link in run.plan["network"]["links"]:
        load = float(loads.get(link["name"], 0.0) or 0.0)
        begin, end = places[link["source"]], places[link["target"]]
        style: dict[str, Any] = {"color": color_of(load), "linewidth": 1.0 + 5.0 * load, "shrinkA": 17, "shrinkB": 17}
        axes.annotate("", end, begin, arrowprops={
            "arrowstyle": "-|>", "connectionstyle": "arc3,rad=0.13", "mutation_scale": 8 + 8 * load, **style,
        })  # fmt: skip
        axes.text(*_beside(begin, end), f"{load:.0%}", fontsize=7.5, ha="center", va="center", color="#333333",
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85})  # fmt: skip
    _vertices(axes, run.plan, places)
    axes.set_xlim(-1.25, 1.25)
    axes.set_ylim(-1.3, 1.3)


def _vertices(axes: Any, plan: dict[str, Any], places: dict[str, tuple[float, float]]) -> None:
    central = {site["name"] for site in plan["network"]["sites"] if site["central"]}
    workers = {site["name"]: 0 for site in plan["network"]["sites"]}
    for node in plan["nodes"]:
        workers[node["data_center"]] += node["role"] == "worker"
    for name, (x, y) in places.items():
        site = name in workers
        fill = "#0072B2" if name in central else "#20242C" if site else "#B9BEC6"
        axes.plot([x], [y], "o", markersize=20 if site else 9, color=fill, markeredgecolor="white", zorder=5)
        if site:
            axes.text(x, y, str(workers[name]), color="white", ha="center", va="center", fontsize=9, zorder=6)
        axes.annotate(name, (x, y), (0, -15 if y <= 0 else 15), textcoords="offset points", ha="center",
                      va="top" if y <= 0 else "bottom", fontsize=8.5, zorder=6)  # fmt: skip


def _layout(plan: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Vertices on a plane, about as far apart as their links' delays say."""
    import networkx as nx

    graph: Any = nx.Graph()
    graph.add_nodes_from([*(site["name"] for site in plan["network"]["sites"]), *plan["network"]["routers"]])
    for link in plan["network"]["links"]:
        graph.add_edge(link["source"], link["target"], length=max(link["delay_s"], 1e-3))
    if len(graph) == 1:
        return {next(iter(graph)): (0.0, 0.0)}
    start = nx.circular_layout(graph)
    places = nx.kamada_kawai_layout(graph, weight="length", pos=start) if len(graph) <= 60 else start
    return _filling(places)


def _filling(places: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Moved and stretched into the square from -1 to 1, each direction at most three times as much as the other."""
    spans = [[float(place[axis]) for place in places.values()] for axis in (0, 1)]
    widths = [max(max(span) - min(span), 1e-9) for span in spans]
    widths = [max(width, max(widths) / 3) for width in widths]
    middles = [(max(span) + min(span)) / 2 for span in spans]
    scaled = {name: [2 * (float(place[axis]) - middles[axis]) / widths[axis] for axis in (0, 1)]
              for name, place in places.items()}  # fmt: skip
    return {name: (x, y) for name, (x, y) in scaled.items()}


def _beside(begin: tuple[float, float], end: tuple[float, float]) -> tuple[float, float]:
    """The middle of the arc from ``begin`` to ``end``."""
    (ax, ay), (bx, by) = begin, end
    return (ax + bx) / 2 + 0.065 * (by - ay), (ay + by) / 2 - 0.065 * (bx - ax)


def _colors() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("load", ["#C9CDD2", "#56B4E9", "#E69F00", "#D55E00"])


def rows_in(count: int, each_in: float, around_in: float) -> float:
    """Height of a figure with ``count`` rows."""
    return around_in + each_in * math.ceil(count)
