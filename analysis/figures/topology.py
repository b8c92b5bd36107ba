"""The figure of a network: on a map if its vertices have coordinates, otherwise with computed positions.

The colour of a link shows the rate of its slower direction. If there is room, a label gives rate and one-way delay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, NullFormatter

from analysis.figures import panels
from analysis.layout import Place, coasts, laid_out
from testbed import numbers
from testbed.settings.series import Series
from testbed.units import format_duration, format_rate

LABELLED_LINKS = 16
LABELLED_VERTICES = 60
_LAND = "#E9ECEF"
_SEA = "#FBFCFD"
_SITE = "#20242C"
_ROUTER = "#8A8F98"
_CENTRAL = "#D55E00"
_WORLD_DEGREES = 45.0  # a smaller map has no coasts, as they are too coarse for it
_HALO = [withStroke(linewidth=2.6, foreground="white")]
_RATES = LinearSegmentedColormap.from_list("rates", colormaps["viridis_r"](np.linspace(0.12, 1, 64)))
_WIDTH_IN = 11.0
_FRAME_IN = 1.35  # height of title, subtitle, axis and legend
_BOX = {"boxstyle": "round,pad=0.18", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}


@dataclass(frozen=True, slots=True)
class LinkLook:
    """A link in both directions. ``range_bps``: the lowest and highest rate of its traces; ``None`` without traces."""

    ends: tuple[str, str]
    rates_bps: tuple[float, float]
    delays_s: tuple[float, float]
    range_bps: tuple[float, float] | None = None

    @property
    def text(self) -> str:
        """Rate and delay; both directions if they differ, from the first end to the second one first."""
        rate = " to ".join(map(_short, self.range_bps)) if self.range_bps else _both(self.rates_bps, format_rate)
        return f"{rate}\n{_both(self.delays_s, format_duration)}"


def _short(rate_bps: float) -> str:
    return format_rate(float(f"{rate_bps:.3g}"))


def _both(values: tuple[float, float], write: Any) -> str:
    there, back = (write(float(f"{value:.3g}")) for value in values)
    return there if there == back else f"{there} / {back}"


def draw(graph: nx.DiGraph[str], title: str, subtitle: str = "") -> Figure:
    """Return a figure of an annotated graph (``topologies.graph``)."""
    with panels.style():
        links = _links(graph)
        rates = [min(link.rates_bps) for link in links] or [1.0]
        norm = _norm(rates)
        mapped = all("latitude" in data for _, data in graph.nodes(data=True))
        figure = panels.PaperFigure(figsize=(_WIDTH_IN, _height(graph) if mapped else 6.0), layout="constrained")
        axes = figure.subplots()
        (_map if mapped else _layout)(axes, graph, links, norm)
        subtitle = "; ".join(filter(None, (subtitle, _in_common(links))))
        _legend(axes, graph)
        if len(set(rates)) > 1:
            _colorbar(figure, axes, norm, rates)
        axes.set_title(f"{subtitle}", fontsize=8.5, fontweight="normal", color=panels.MUTED)
        figure.suptitle(title, x=0.012, ha="left", fontsize=14, fontweight="bold")
        return figure


def _in_common(links: list[LinkLook]) -> str:
    """Return the rate and delay, or the rate, that all links have in common, as text; otherwise empty."""
    texts = {link.text for link in links}
    rates = {text.split("\n")[0] for text in texts}
    same = texts if len(texts) == 1 else rates if len(rates) == 1 and len(links) > LABELLED_LINKS else set()
    return f"every link: {same.pop()}".replace("\n", ", ") if same else ""


def _norm(rates: Sequence[float]) -> Normalize:
    low = min(rates)
    high = max(rates)
    return LogNorm(low, high) if high > 1.01 * low else Normalize(0.0, high)


def _links(graph: nx.DiGraph[str]) -> list[LinkLook]:
    found: dict[frozenset[str], LinkLook] = {}
    for a, b, data in graph.edges(data=True):
        back = graph.get_edge_data(b, a) or data
        rates = (data["rate_bps"], back["rate_bps"])
        delays = (data["delay_s"], back["delay_s"])
        look = LinkLook((a, b), rates, delays, _range(data, back))
        found.setdefault(frozenset((a, b)), look)
    return list(found.values())


def _range(*directions: Any) -> tuple[float, float] | None:
    traces = [direction["traces"]["rate"] for direction in directions if "rate" in direction.get("traces", {})]
    values = [value for trace in traces if isinstance(trace, Series) for value in trace.values]
    return (min(values), max(values)) if values else None


# ---- on a map -------------------------------------------------------------------------------------------------------


def _map(axes: Axes, graph: nx.DiGraph[str], links: list[LinkLook], norm: Normalize) -> None:
    places = {name: (data["longitude"], data["latitude"]) for name, data in graph.nodes(data=True)}
    left, right, bottom, top = _extent(list(places.values()))
    axes.set_facecolor(_SEA)
    world = right - left > _WORLD_DEGREES
    if world:
        coast = [np.array(line) for line in coasts()]
        land = PolyCollection(coast, facecolor=_LAND, edgecolor="#D4D8DD", linewidth=0.5, zorder=0)
        axes.add_collection(land)
    middles = []
    for link in links:
        source, target = link.ends
        pieces = _way(places[source], places[target], bent=world)
        middles.append(max(pieces, key=len))
        for piece in pieces:
            color = _RATES(norm(min(link.rates_bps)))
            axes.plot(piece[:, 0], piece[:, 1], color=color, linewidth=1.8, alpha=0.9, zorder=2, solid_capstyle="round")
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    axes.set_aspect(_aspect(bottom, top))
    _vertices(axes, graph, places)
    _labels(axes, links, middles)
    axes.grid(True, linewidth=0.4)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _degrees(x, "EW")))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _degrees(y, "NS")))


def _aspect(bottom: float, top: float) -> float:
    """Return the drawn length of a degree of latitude over that of a degree of longitude."""
    return float(np.clip(1 / math.cos(math.radians((bottom + top) / 2)), 1.0, 2.0))


def _height(graph: nx.DiGraph[str]) -> float:
    """Return the height (inches) of a figure that the map fills."""
    left, right, bottom, top = _extent([(data["longitude"], data["latitude"]) for _, data in graph.nodes(data=True)])
    shown = 0.86 * _WIDTH_IN * (top - bottom) * _aspect(bottom, top) / (right - left)
    return min(8.0, max(3.2, shown + _FRAME_IN))


def _degrees(value: float, sides: str) -> str:
    return f"{abs(value):g}°{'' if value == 0 else sides[0] if value > 0 else sides[1]}"


def _extent(places: list[Place]) -> tuple[float, float, float, float]:
    longitudes, latitudes = zip(*places, strict=True)
    width = max(max(longitudes) - min(longitudes), (max(latitudes) - min(latitudes)) * 1.5, 2.0)
    margin = 0.12 * width + 0.5
    left = max(-180.0, min(longitudes) - margin)
    right = min(180.0, max(longitudes) + margin)
    if right - left > 200:
        left = -180.0
        right = 180.0
    high = max(max(latitudes) - min(latitudes), 0.3 * width)
    middle = (max(latitudes) + min(latitudes)) / 2
    below = middle - 0.62 * high - 0.5
    above = middle + 0.66 * high + 0.5
    if right - left > 200:
        below, above = min(below, -10.0), max(above, 80.0)
    return left, right, max(-60.0, below), min(82.0, above)


def _way(a: Place, b: Place, bent: bool) -> list[Any]:
    """Return points of a line between two positions, in pieces if it crosses the edge of the map.

    bent  follow the shortest path on the globe instead of a straight line
    """
    start, end = (_vector(*place) for place in (a, b))
    angle = math.acos(float(np.clip(start @ end, -1, 1)))
    if not bent or angle < 1e-9:
        return [np.linspace(a, b, 61)]
    share = np.linspace(0, 1, 121)[:, None]
    x, y, z = ((np.sin((1 - share) * angle) * start + np.sin(share * angle) * end) / math.sin(angle)).T
    line = np.degrees(np.column_stack([np.arctan2(y, x), np.arcsin(np.clip(z, -1, 1))]))
    breaks = np.flatnonzero(np.abs(np.diff(line[:, 0])) > 180) + 1
    return [piece for piece in np.split(line, breaks) if len(piece)]


def _vector(longitude: float, latitude: float) -> Any:
    lam = math.radians(longitude)
    phi = math.radians(latitude)
    return np.array([math.cos(phi) * math.cos(lam), math.cos(phi) * math.sin(lam), math.sin(phi)])


# ---- by layout ------------------------------------------------------------------------------------------------------


def _layout(axes: Axes, graph: nx.DiGraph[str], links: list[LinkLook], norm: Normalize) -> None:
    places = _places(graph)
    lines = [np.linspace(places[a], places[b], 61) for a, b in (link.ends for link in links)]
    for link, line in zip(links, lines, strict=True):
        axes.plot(line[:, 0], line[:, 1], color=_RATES(norm(min(link.rates_bps))), linewidth=1.8, zorder=2)
    _vertices(axes, graph, places)
    _labels(axes, links, lines)
    axes.margins(0.12)
    axes.set_axis_off()


def _places(graph: nx.DiGraph[str]) -> dict[str, Place]:
    given = nx.get_node_attributes(graph, "xy")
    if len(given) == len(graph):
        return dict(given)
    return {name: (x, -y) for name, (x, y) in laid_out(list(graph), graph.edges, graph.graph["central"]).items()}


def _labels(axes: Axes, links: list[LinkLook], lines: list[Any]) -> None:
    """Draw a label on each line, at the point of several candidates that is farthest from earlier labels."""
    if len(links) > LABELLED_LINKS or len({link.text for link in links}) == 1:
        return
    low = axes.transLimits.transform((0, 0))
    high = axes.transLimits.transform((1, 1))
    scale = np.abs(high - low)
    taken: list[Any] = []
    for link, line in zip(links, lines, strict=True):
        candidates = [line[int(len(line) * share)] for share in (0.5, 0.4, 0.6, 0.32, 0.68)]
        x, y = max(candidates, key=lambda point: min((_apart(point, other, scale) for other in taken), default=1.0))
        taken.append(np.array([x, y]))
        axes.text(
            x,
            y,
            link.text,
            fontsize=6.8,
            ha="center",
            va="center",
            color="#333333",
            zorder=4,
            bbox=_BOX,
            linespacing=1.05,
            clip_on=True,
        )


def _apart(a: Any, b: Any, scale: Any) -> float:
    """Return the distance as a share of the figure, at most 0.2: labels farther apart are all equally good."""
    return min(0.2, float(np.hypot(*((a - b) * scale * (1.0, 1.6)))))


# ---- common parts ---------------------------------------------------------------------------------------------------


def _vertices(axes: Axes, graph: nx.DiGraph[str], places: dict[str, Place]) -> None:
    central = graph.graph["central"]
    for name, data in graph.nodes(data=True):
        x, y = places[name]
        router = data.get("workers") is None
        color = _CENTRAL if name == central else _ROUTER if router else _SITE
        axes.plot(
            x,
            y,
            marker="s" if router else "o",
            markersize=4.5 if router else 7,
            color=color,
            zorder=5,
            markeredgecolor="white",
            markeredgewidth=0.9,
        )
        if len(graph) <= LABELLED_VERTICES:
            axes.annotate(
                name,
                (x, y),
                (0, 6.5),
                textcoords="offset points",
                zorder=6,
                ha="center",
                va="bottom",
                fontsize=7 if router else 8.5,
                color=color,
                path_effects=_HALO,
                fontweight="normal" if router else "bold",
            )


def _legend(axes: Axes, graph: nx.DiGraph[str]) -> None:
    workers = {data["workers"] for _, data in graph.nodes(data=True) if data.get("workers") is not None}
    each = f", {numbers.counted(workers.pop(), 'worker')} each" if len(workers) == 1 else ""
    marks = [("o", _CENTRAL, 7.0, "central data centre"), ("o", _SITE, 7.0, f"data centre{each}")]
    if any(data.get("workers") is None for _, data in graph.nodes(data=True)):
        marks.append(("s", _ROUTER, 4.5, "router"))
    for marker, color, size, label in marks:
        axes.plot([], [], marker=marker, color=color, markersize=size, linestyle="none", label=label)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=3, handletextpad=0.2)


def _colorbar(figure: Figure, axes: Axes, norm: Normalize, rates: Sequence[float]) -> None:
    bar = figure.colorbar(ScalarMappable(norm, _RATES), ax=axes, shrink=0.6, aspect=28, pad=0.01)
    bar.set_label("rate of the slower direction", fontsize=8)
    ticks = np.geomspace(min(rates), max(rates), 5) if isinstance(norm, LogNorm) else [min(rates), max(rates)]
    bar.set_ticks([float(f"{tick:.2g}") for tick in ticks])
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_rate(float(f"{value:.2g}"))))
    bar.ax.yaxis.set_minor_formatter(NullFormatter())
    bar.minorticks_off()
    bar.outline.set_visible(False)
