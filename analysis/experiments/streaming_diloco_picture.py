"""The picture of ``streaming_diloco``: utilisation by rate, one panel a size, the published rates as open markers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from analysis.experiments import streaming_diloco as experiment
from analysis.figures import panels
from analysis.identity import series


def draw(found: Sequence[experiment.Row], sizes: Sequence[str], path: Path) -> None:
    """Lines are ours, at every third of the paper's rates; markers are published, at the utilisations it names."""
    with panels.style():
        columns = min(3, len(sizes))  # of the legend, which has six entries
        figure = Figure(figsize=(3.6 * len(sizes), 3.2 + 1.2 / columns), layout="constrained")
        row = figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0]
        for axes, size in zip(row, sizes, strict=True):
            _panel(axes, size, [each for each in found if each.size == size])
        row[0].set_ylabel("share of time that accelerators compute (%)")
        figure.legend(*row[0].get_legend_handles_labels(), loc="outside lower center", ncols=columns)
        figure.savefig(path, dpi=150)


def _panel(axes: Axes, size: str, found: Sequence[experiment.Row]) -> None:
    for number, method in enumerate(experiment.METHODS):
        look = series(number)
        places = range(0, len(experiment.RATES_GBPS), 3)
        shares = [experiment.reached(size, method, place) for place in places]
        rates = [experiment.RATES_GBPS[place] for place in places]
        axes.plot(rates, shares, color=look.color, linestyle=look.line, label=method)
        mine = [each for each in found if each.method == method]
        overlay = "published (simulated, arXiv 2501.18512)" if number == len(experiment.METHODS) - 1 else None
        axes.plot(
            [each.published_gbps for each in mine], [each.target for each in mine], look.marker, mfc="white",
            mec=look.color, markersize=5, label=overlay,
        )  # fmt: skip
    about = experiment.SIZES[size]
    axes.set(xscale="log", ylim=(0, 1.03), xlabel="rate between data centres (Gbit/s)")
    axes.set_title(f"{size}: {about.layers} layers, {about.step_s:g} s a step")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * 100:.0f}"))
