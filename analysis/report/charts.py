"""The charts of a report. Each function fills a given figure; ``svg`` turns it into a part of the page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path

from analysis.figures import panels
from analysis.identity import Identity
from analysis.layout import laid_out
from analysis.load import StoredRun
from analysis.metrics import utilisation
from analysis.view.history import LANES, Names, Part, history
from testbed.results.summary import training_start_s
from testbed.target import Target

# widths at which text of 8.5 pt is readable on a phone, and across a desktop page
NARROW_IN = 4.6
WIDE_IN = 9.4
ROUNDS_SHOWN = 3
NODES_SHOWN = 20
LINKS_SHOWN = 10
SITES_SHOWN = 12  # in the matrix of waits
VERTICES_DRAWN = 40
COLUMNS_DRAWN = 1500  # pixels across a timeline: a screen has no more
_LABELLED_LOAD = 5e-3  # a link with a lower load is drawn thin, without a label
_CURVE = 0.13
_ALONG = (0.5, 0.4, 0.6, 0.32, 0.68)
_LABEL_ROOM = 0.13  # smallest distance of labels, as a share of the picture
_ON_WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85}
_TAG = re.compile(r"<[^>]*>")
_DIGITS = re.compile(r"-?\d+\.\d{3,}")
_LOAD = LinearSegmentedColormap.from_list("load", ["#C9CDD2", "#56B4E9", "#E69F00", "#D55E00"])
_SLICES = {"compute": "#009E73", "sending": "#D55E00", "receiving": "#56B4E9", "waiting": "#D9DCE1"}


def learning(figure: Figure, runs: list[StoredRun], looks: list[Identity], over: str, target: Target | None) -> None:
    axes = figure.subplots()
    panels.learning(axes, runs, looks, over, target)
    panels.learning_legend(axes, target, opacity=0.9)


def time_split(figure: Figure, split: pd.DataFrame, names: list[str]) -> None:
    """Draw one bar per name, with a segment for each part of the time."""
    axes = figure.subplots()
    panels.stacked_time(axes, names, split)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=4, handlelength=1)


def timeline(figure: Figure, run: StoredRun) -> None:
    """Draw the activities of every node in a few rounds from the middle of the run."""
    numbers, begin, end = shown_rounds(run)
    nodes = run.time_split["node"].head(NODES_SHOWN).tolist()
    axes = figure.subplots()
    factor, unit = (1000.0, "ms") if end - begin < 5 else (1.0, "s")
    names = Names.of(run.plan)
    columns = history(run.tables, names, Part(from_s=begin, to_s=end))
    tables = {name: pd.DataFrame(columns[name]) for name in ("rounds", "work", "messages")}
    for place, node in enumerate(nodes):
        for rows, (low, height), color in _tracks(tables, names.nodes[node]):
            spans = np.clip(rows[["t0", "t"]].to_numpy(float), begin, end)
            seen = visible(spans, (end - begin) / COLUMNS_DRAWN)
            _bars(axes, (seen - begin) * factor, place + low, height, color)
    rounds = run.tables["rounds"]
    edges = rounds[rounds["round"].isin(numbers[1:])].groupby("round")["t0_s"].min()
    for edge in edges[(edges > begin) & (edges < end)]:
        axes.axvline((edge - begin) * factor, color=panels.MUTED, linewidth=0.7, linestyle=(0, (2, 2)))
    axes.set_yticks([place + 0.5 for place in range(len(nodes))], nodes)
    axes.set_ylim(len(nodes), 0)
    axes.set_xlim(0, (end - begin) * factor)
    axes.set_xlabel(f"time since the start of round {numbers[0]} ({unit})")
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    handles = [Patch(color=color, label=name) for name, color in _SLICES.items()]
    figure.legend(handles=handles, loc="outside upper left", ncols=4, handlelength=1)


def shown_rounds(run: StoredRun) -> tuple[list[int], float, float]:
    """Return the numbers, begin and end of a few rounds of the quickest worker, from the middle of its training.

    If workers do not wait for each other, the times of a round differ between workers.
    """
    rounds = run.tables["rounds"]
    quickest = rounds.groupby("node", sort=False)["round"].nunique().idxmax()
    own = rounds[rounds["node"] == quickest].drop_duplicates("round", keep="last").sort_values("round")
    shown = own.iloc[max(0, len(own) // 2 - 1) :].head(ROUNDS_SHOWN)
    return shown["round"].tolist(), float(shown["t0_s"].min()), float(shown["t_s"].max())


def visible(spans: Any, column_s: float) -> Any:
    """Return the spans that are distinguishable in a picture. Rows of ``spans``: begin and end (s).

    Spans with a gap of less than one column of pixels (``column_s``) are joined. Each is at least half a column wide.
    """
    if not len(spans):
        return spans
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    ends = np.maximum.accumulate(spans[:, 1])
    first = np.append(True, spans[1:, 0] > ends[:-1] + column_s)
    begins = spans[first, 0]
    last = ends[np.append(np.flatnonzero(first)[1:] - 1, len(spans) - 1)]
    return np.stack((begins, np.maximum(last, begins + column_s / 2)), axis=1)


def _bars(axes: Axes, spans: Any, low: float, height: float, color: str) -> None:
    """Draw spans as bars, all in a single path."""
    if not len(spans):
        return
    left = spans[:, 0]
    right = spans[:, 1]
    corners = np.stack((left, left, right, right, left), axis=1)
    heights = np.broadcast_to((low, low + height, low + height, low, low), corners.shape)
    codes = np.tile((Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY), len(spans))
    path = Path(np.stack((corners, heights), axis=2).reshape(-1, 2), codes)
    axes.add_patch(PathPatch(path, facecolor=color, linewidth=0))


def _tracks(tables: Mapping[str, pd.DataFrame], node: int) -> list[tuple[pd.DataFrame, tuple[float, float], str]]:
    """Return groups of a node's rows: the rows, the lower edge and height of their bars in its lane, their colour."""
    rounds, work, messages = (tables[name] for name in ("rounds", "work", "messages"))
    own = work[work["node"] == node]
    waits = own[own["lane"] == LANES.index("wait")]
    computes = own[own["lane"] < LANES.index("wait")]
    spans = rounds[rounds["node"] == node]
    return [
        (spans if len(spans) else waits, (0.12, 0.76), _SLICES["waiting"]),
        (messages[messages["target"] == node], (0.50, 0.38), _SLICES["receiving"]),
        (messages[messages["source"] == node], (0.12, 0.38), _SLICES["sending"]),
        (computes, (0.12, 0.76), _SLICES["compute"]),
    ]


def links(figure: Figure, run: StoredRun, names: list[str]) -> None:
    """Draw configured and achieved rates over training time, one panel per link, each with its own scale."""
    grid = figure.subplots(len(names), 1, sharex=True, squeeze=False)
    handles = panels.rates_of_links(figure, list(grid.flat), run, names)
    figure.legend(handles=handles, loc="outside upper left", ncols=2)


def most_waiting(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows and columns of the ``SITES_SHOWN`` data centres with the most waiting, in their order."""
    if len(table) <= SITES_SHOWN:
        return table
    sums = table.sum(axis=0) + table.sum(axis=1)
    chosen = set(sums.nlargest(SITES_SHOWN).index)
    names = [name for name in table.index if name in chosen]
    return table.loc[names, names]


def matrix(figure: Figure, table: pd.DataFrame, per: float, unit: str) -> None:
    """Draw how long data centres (rows) waited for others (columns), in units of ``per`` seconds."""
    axes = figure.subplots()
    values = table.to_numpy() / per
    edges = [place - 0.5 for place in range(len(values) + 1)]  # a mesh is vector graphics; an image would be a bitmap
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
    """Draw data centres and links. Width and colour of an arrow show the mean share of its rate that training used.

    Links without traffic are thin and have no label.
    """
    import networkx as nx

    axes = figure.subplots()
    axes.set_axis_off()
    axes.set_aspect("equal", adjustable="datalim")
    begin_s = training_start_s(run.tables["training"])
    end_s = run.start_s + panels.end_of_training_s(run)
    loads = utilisation(run.tables["links"], begin_s, end_s).set_index("link")["utilisation"].to_dict()
    network = run.plan["network"]
    workers = {site["name"]: 0 for site in network["sites"]}
    for node in run.plan["nodes"]:
        workers[node["data_center"]] += node["role"] == "worker"
    graph: Any = nx.DiGraph()
    graph.add_nodes_from([*workers, *network["routers"]])
    for link in network["links"]:
        load = float(loads.get(link["name"], 0.0))
        graph.add_edge(link["source"], link["target"], load=load)
    central = next(site["name"] for site in network["sites"] if site["central"])
    places = {name: (x, -y) for name, (x, y) in laid_out(list(graph), graph.edges, central).items()}
    used = nx.get_edge_attributes(graph, "load")
    widths = [1 + 5 * load if load > _LABELLED_LOAD else 0.5 for load in used.values()]
    colors = [to_hex(tuple(_LOAD(load))) for load in used.values()]
    nx.draw_networkx_edges(
        graph,
        places,
        width=widths,
        edge_color=colors,
        node_size=400,
        arrowsize=11,
        ax=axes,
        connectionstyle=f"arc3,rad={_CURVE}",
    )
    for (x, y), text in _labels_apart(places, used):
        axes.text(x, y, text, fontsize=7.5, ha="center", va="center", zorder=5, bbox=_ON_WHITE)
    fills = ["#0072B2" if name == central else "#20242C" if name in workers else "#B9BEC6" for name in graph]
    sizes = [400 if name in workers else 80 for name in graph]
    nx.draw_networkx_nodes(graph, places, ax=axes, node_size=sizes, node_color=fills, edgecolors="white")
    nx.draw_networkx_labels(graph, places, workers, ax=axes, font_size=9, font_color="white")
    for name, (x, y) in places.items():
        axes.annotate(
            name,
            (x, y),
            (0, -15 if y <= -0.5 else 15),
            textcoords="offset points",
            ha="center",
            va="top" if y <= -0.5 else "bottom",
            fontsize=8.5,
            zorder=6,
        )
    axes.margins(0.2)


def _labels_apart(places: Mapping[str, Any], loads: Mapping[tuple[str, str], float]) -> Iterator[tuple[Any, str]]:
    """Yield position and text of labels for links with traffic, the busiest first, as far as there is room.

    A label is placed on the curve of its link, as far as possible from data centres and earlier labels.
    """
    taken = [np.asarray(place) for place in places.values()]
    size = max(float(np.ptp(np.stack(taken), axis=0).max()), 1e-9)
    for (source, target), load in sorted(loads.items(), key=lambda each: -each[1]):
        if load <= _LABELLED_LOAD:
            return
        begin = np.asarray(places[source])
        end = np.asarray(places[target])
        dx, dy = end - begin
        middle = (begin + end) / 2
        bend = middle + _CURVE * np.array([dy, -dx])  # the control point of matplotlib's arc3
        along = [(1 - at) ** 2 * begin + 2 * at * (1 - at) * bend + at**2 * end for at in _ALONG]
        place = max(along, key=lambda point: min(_apart(point, other) for other in taken))
        if min(_apart(place, other) for other in taken) >= _LABEL_ROOM * size:
            taken.append(place)
            yield place, f"{100 * load:.0f} %"


def _apart(a: Any, b: Any) -> float:
    """Return the distance of two labels; the vertical one counts double, as labels are wider than high."""
    return float(np.hypot(a[0] - b[0], 2 * (a[1] - b[1])))


def svg(draw: Callable[[Figure], None], width_in: float, height_in: float, label: str) -> str:
    """Return a figure as an SVG element with an accessible label, which scales to its container.

    draw  fills an empty figure

    Equal figures give equal text: it does not depend on the time or the process.
    """
    with panels.style(), mpl.rc_context({"svg.hashsalt": label, "svg.fonttype": "none"}):
        figure = Figure(figsize=(width_in, height_in), layout="constrained")
        draw(figure)
        layout = figure.get_layout_engine()
        if layout is not None:
            layout.execute(figure)  # once; otherwise matplotlib draws the figure an additional time for the layout
            figure.set_layout_engine("none")
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    return _inline(stream.getvalue(), label)


def _hundredths(found: re.Match[str]) -> str:
    """Return a coordinate (points) with two decimals: more cannot be seen."""
    return f"{float(found[0]):.2f}"


def _inline(text: str, label: str) -> str:
    body = text[text.index("<svg") :]
    body = _TAG.sub(lambda tag: _DIGITS.sub(_hundredths, tag[0]), body)
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    prefix = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")
    body = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", body)
    body = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', body)
    named = f'role="img" aria-label="{escape(label, quote=True)}" xmlns="http://www.w3.org/2000/svg" '
    named += 'xmlns:xlink="http://www.w3.org/1999/xlink">'
    # a function, because in a template backslashes of the label would be escapes
    return re.sub(r'<svg[^>]*?(viewBox="[^"]+")[^>]*>', lambda found: f"<svg {found[1]} {named}", body, count=1)
