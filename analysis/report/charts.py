"""The charts of the report. Each fills a figure that it is given; ``svg`` makes it part of the page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from html import escape
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.breakdown import DOWNWARDS, UPWARDS
from analysis.figures import panels
from analysis.identity import Identity
from analysis.load import StoredRun
from analysis.metrics import utilisation
from analysis.peers import PEER_MESSAGES
from testbed.results.summary import training_start_s

NARROW_IN, WIDE_IN = 4.6, 9.4  # widths at which 8.5 pt reads well on a phone, and across a desktop page
ROUNDS_SHOWN = 3
NODES_SHOWN = 20
LINKS_SHOWN = 10
SITES_SHOWN = 12  # in the matrix of waits
VERTICES_DRAWN = 40
_LOAD = LinearSegmentedColormap.from_list("load", ["#C9CDD2", "#56B4E9", "#E69F00", "#D55E00"])
_SLICES = {"compute": "#009E73", "sending": "#D55E00", "receiving": "#56B4E9", "waiting": "#D9DCE1"}


def accuracy(figure: Figure, runs: list[StoredRun], looks: list[Identity], over: str) -> None:
    axes = figure.subplots()
    panels.accuracy_of(axes, runs, looks, over, runs[0].plan["training"]["target_accuracy"])
    axes.legend(loc="lower right", frameon=True, facecolor="white", edgecolor="none", framealpha=0.9)


def time_split(figure: Figure, split: pd.DataFrame, names: list[str]) -> None:
    """A bar per name: compute, LAN, WAN, waiting."""
    axes = figure.subplots()
    panels.stacked_time(axes, names, split)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=4, handlelength=1)


def timeline(figure: Figure, run: StoredRun) -> None:
    """What every node did in a few rounds from the middle of the run."""
    rounds = run.tables["rounds"]
    numbers = sorted(rounds["round"].unique())
    middle = numbers[max(0, len(numbers) // 2 - 1) :][:ROUNDS_SHOWN]
    shown = rounds[rounds["round"].isin(middle)]
    begin, end = float(shown["t0_s"].min()), float(shown["t_s"].max())
    nodes = run.time_split["node"].head(NODES_SHOWN).tolist()
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


def _tracks(run: StoredRun, node: str) -> list[tuple[pd.DataFrame, tuple[float, float], str]]:
    transfers, waits, rounds = (run.tables[name] for name in ("transfers", "waits", "rounds"))
    tensors = transfers[transfers["message"].isin((*UPWARDS, *DOWNWARDS, *PEER_MESSAGES))]
    spans = rounds if (rounds["node"] == node).any() else waits
    return [
        (spans[spans["node"] == node], (0.12, 0.76), _SLICES["waiting"]),
        (tensors[tensors["target"] == node], (0.50, 0.38), _SLICES["receiving"]),
        (tensors[tensors["source"] == node], (0.12, 0.38), _SLICES["sending"]),
        (run.tables["computes"].query("node == @node"), (0.12, 0.76), _SLICES["compute"]),
    ]


def links(figure: Figure, run: StoredRun, names: list[str]) -> None:
    """Configured and achieved rate of links over training time, one below the other."""
    grid = figure.subplots(len(names), 1, sharex=True, sharey=True, squeeze=False)
    handles = panels.rates_of_links(figure, list(grid.flat), run, names)
    figure.legend(handles=handles, loc="outside upper left", ncols=2)


def most_waiting(table: pd.DataFrame) -> pd.DataFrame:
    """Return the data centres that waited or were waited for most, in their order, as far as a picture has room."""
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


def topology(figure: Figure, run: StoredRun) -> None:
    """Data centres and links; an arrow's width and colour say how much of its rate training used on average."""
    import networkx as nx

    axes = figure.subplots()
    axes.set_axis_off()
    begin_s, end_s = training_start_s(run.tables["training"]), run.start_s + panels.end_of_training_s(run)
    used = utilisation(run.tables["links"], begin_s, end_s).set_index("link")["utilisation"]
    network, loads = run.plan["network"], used.to_dict()
    workers = {site["name"]: 0 for site in network["sites"]}
    for node in run.plan["nodes"]:
        workers[node["data_center"]] += node["role"] == "worker"
    graph: Any = nx.DiGraph()
    graph.add_nodes_from([*workers, *network["routers"]])
    for link in network["links"]:
        load = float(loads.get(link["name"], 0.0))
        graph.add_edge(link["source"], link["target"], length=max(link["delay_s"], 1e-3), load=load)
    # about as far apart as their links' delays say
    places = nx.kamada_kawai_layout(graph.to_undirected(), weight="length", pos=nx.circular_layout(graph))
    used = nx.get_edge_attributes(graph, "load")
    curved: dict[str, Any] = {"ax": axes, "connectionstyle": "arc3,rad=0.13"}
    widths, colors = [1 + 5 * load for load in used.values()], [to_hex(tuple(_LOAD(load))) for load in used.values()]
    nx.draw_networkx_edges(graph, places, width=widths, edge_color=colors, node_size=400, arrowsize=13, **curved)
    nx.draw_networkx_edge_labels(
        graph, places, {edge: f"{load:.0%}" for edge, load in used.items()}, font_size=7.5, rotate=False,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85}, **curved,
    )  # fmt: skip
    central = {site["name"] for site in network["sites"] if site["central"]}
    fills = ["#0072B2" if name in central else "#20242C" if name in workers else "#B9BEC6" for name in graph]
    sizes = [400 if name in workers else 80 for name in graph]
    nx.draw_networkx_nodes(graph, places, ax=axes, node_size=sizes, node_color=fills, edgecolors="white")
    nx.draw_networkx_labels(graph, places, workers, ax=axes, font_size=9, font_color="white")
    for name, (x, y) in places.items():
        axes.annotate(name, (x, y), (0, -15 if y <= 0 else 15), textcoords="offset points", ha="center",
                      va="top" if y <= 0 else "bottom", fontsize=8.5, zorder=6)  # fmt: skip
    axes.margins(0.2)


def svg(draw: Callable[[Figure], None], width_in: float, height_in: float, label: str) -> str:
    """``draw`` fills an empty figure; the result has no size of its own and an accessible label.

    Equal figures give equal text: nothing in it depends on the time or on the process.
    """
    with panels.style(), mpl.rc_context({"svg.hashsalt": label, "svg.fonttype": "none"}):
        figure = Figure(figsize=(width_in, height_in), layout="constrained")
        draw(figure)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    return _inline(stream.getvalue(), label)


def _inline(text: str, label: str) -> str:
    body = text[text.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    prefix = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")
    body = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", body)
    body = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', body)
    named = f'role="img" aria-label="{escape(label, quote=True)}" xmlns="http://www.w3.org/2000/svg" '
    named += 'xmlns:xlink="http://www.w3.org/1999/xlink">'
    # a function: in a template, backslashes of the label would be escapes
    return re.sub(r'<svg[^>]*?(viewBox="[^"]+")[^>]*>', lambda found: f"<svg {found[1]} {named}", body, count=1)
