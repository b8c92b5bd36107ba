"""The figure of one run: accuracy over time, where the time of a round went, and the rates of WAN links."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from analysis import identity
from analysis.figures import panels
from analysis.load import StoredRun
from analysis.metrics import accuracy_curve
from testbed import numbers
from testbed.results.intervals import union
from testbed.results.summary import at_target
from testbed.target import learning_of, target_in

LINKS_SHOWN = 12
NODES_SHOWN = 24
COLUMNS = 3
_WIDTH_IN = 11.0
_TOP_IN = 2.9
_HEADER_IN = 0.75
_ROW_IN = 1.55
_VERDICT = {"ok": "#00795A", "degraded": "#B34700"}


def draw(run: StoredRun) -> Figure:
    """Return the figure of a run that has completed at least one round."""
    with panels.style():
        links = _busiest(run)
        rows = max(1, math.ceil(len(links) / _columns(len(links))))
        split = run.time_split if run.program is None and run.logs_work else None
        top = _TOP_IN if split is None else max(_TOP_IN, 0.9 + 0.2 * min(len(split), NODES_SHOWN))
        heights = [_HEADER_IN, top, 0.6 + rows * _ROW_IN]
        figure = panels.PaperFigure(figsize=(_WIDTH_IN, sum(heights)), layout="constrained")
        parts: Any = figure.subfigures(3, 1, height_ratios=heights)
        header, upper, lower = parts
        _header(header, run)
        accuracy, time = upper.subplots(1, 2, width_ratios=(1, 1))
        if run.traced is None:
            _accuracy(accuracy, run)
        else:
            _ranks(accuracy, run)
        if run.program is not None:
            _loss(time, run)
        else:
            _time(time, split)
        _links(lower, run, links, rows)
        return figure


def _header(figure: SubFigure, run: StoredRun) -> None:
    plan = run.plan
    result = run.result
    where = identity.of_world(plan).label
    technique = identity.technique(identity.technique_of(plan)).label
    sites = len(plan["network"]["sites"])
    workers = sum(node["role"] == "worker" for node in plan["nodes"])
    figure.text(0.012, 0.84, plan["name"], fontsize=15, fontweight="bold", va="top")
    size = f"{numbers.counted(sites, 'data centre')}, {numbers.counted(workers, 'worker')}"
    about = f"{technique}, {where}: {size}, seed {plan['seed']}"
    figure.text(0.012, 0.36, about, fontsize=9, color=panels.MUTED, va="top")
    if result is None:
        return
    fidelity = result["fidelity"]["status"]
    count = len(result["fidelity"]["reasons"])
    told = f"run {result['status']}, fidelity {fidelity}" + (f" ({numbers.counted(count, 'reason')})" if count else "")
    figure.text(0.988, 0.80, told, fontsize=9.5, fontweight="bold", ha="right", va="top", color=_VERDICT[fidelity])
    commit = (run.manifest.get("testbed", {}).get("git_commit") or "")[:10]
    done = numbers.rounds_of_workers(result)
    rounds = f"{done} round{'s' * (done != '1')} of {numbers.seconds(result['round_time_s'])}"
    if run.program is not None:
        rounds = f"ran {numbers.seconds(result['training_s'])}"
    about = f"{rounds}, commit {commit}" if commit else rounds
    figure.text(0.988, 0.36, about, fontsize=9, color=panels.MUTED, ha="right", va="top")


def _accuracy(axes: Axes, run: StoredRun) -> None:
    target = target_in(run.plan["training"])
    measure = learning_of(target)
    axes.set_title(f"{measure.capitalize()} over time")
    scores = accuracy_curve(run)
    panels.learning_axis(axes, target)
    panels.time_axis(axes, panels.end_of_training_s(run))
    if scores.empty:
        panels.say(axes, "no evaluation in this run")
        return
    panels.curve(
        axes, scores["time_s"], scores[measure], identity.technique(identity.technique_of(run.plan)), f"test {measure}"
    )
    if reached := at_target(run.tables["accuracy"], target):
        _mark(axes, reached.snapshot_s - run.start_s, getattr(reached, measure))
    panels.learning_legend(axes, target, opacity=1.0)


def _ranks(axes: Axes, run: StoredRun) -> None:
    """Draw when the ranks of a traced job computed, and when messages to them were in transit over the WAN."""
    axes.set_title("Ranks over time")
    panels.time_axis(axes, panels.end_of_training_s(run))
    names = [node["name"] for node in run.plan["nodes"] if node["role"] == "worker"]
    shown = names[:NODES_SHOWN]
    transfers = run.tables["transfers"]
    of_wan = transfers[(transfers["tier"] == "wan") & (transfers["round"] >= 0)]
    bars = (("wan", of_wan, "target", 0.35), ("compute", run.tables["computes"], "node", 0.7))
    for part, table, column, height in bars:
        look = identity.PARTS[part]
        for place, name in enumerate(shown):
            edges = union(table.loc[table[column] == name, ["t0_s", "t_s"]].to_numpy()).edges - run.start_s
            spans = [(begin, end - begin) for begin, end in edges if end > 0]
            label = look.label if place == 0 else None
            axes.broken_barh(spans, (place - height / 2, height), color=look.color, linewidth=0, label=label)
    axes.set_yticks(range(len(shown)), shown)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_xlabel(axes.get_xlabel() + _some("ranks", len(shown), len(names)))
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, handlelength=1, borderaxespad=0.2)


def _mark(axes: Axes, time_s: float, score: float) -> None:
    """Mark the time and score at which the target was reached."""
    low = axes.get_ylim()[0]
    axes.set_ylim(bottom=low)
    axes.plot([time_s, time_s], [low, score], color=panels.MUTED, linewidth=0.9, linestyle=":")
    end_s = axes.get_xlim()[1]
    unit, unit_s = panels.time_unit(end_s)
    left = time_s > end_s / 2
    told = f"{numbers.short(time_s / unit_s)} {unit}"
    axes.annotate(
        told,
        (time_s, (low + score) / 2),
        (-4 if left else 4, 0),
        textcoords="offset points",
        ha="right" if left else "left",
        fontsize=8,
        color=panels.MUTED,
    )


def _time(axes: Axes, split: pd.DataFrame | None) -> None:
    axes.set_title("Time of a round")
    if split is None:
        panels.without_split(axes)
        return
    shown = split.head(NODES_SHOWN)
    panels.stacked_time(axes, shown["node"].tolist(), shown)
    axes.set_xlabel(axes.get_xlabel() + _some("nodes", len(shown), len(split)))
    axes.legend(
        loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4, handlelength=1, columnspacing=1.1, borderaxespad=0.2
    )


def _loss(axes: Axes, run: StoredRun) -> None:
    """Draw the loss that a user's program reported, with one line per process."""
    axes.set_title("Loss over time")
    panels.time_axis(axes, panels.end_of_training_s(run))
    rounds = run.tables["rounds"].dropna(subset="loss")
    if rounds.empty:
        panels.say(axes, "the program reported no loss (workload.metrics)")
        return
    for number, (node, own) in enumerate(rounds.groupby("node")):
        panels.curve(axes, own["t_s"] - run.start_s, own["loss"], identity.series(number), str(node))
    axes.set_ylabel("loss")
    axes.legend(loc="upper right")


def _links(figure: SubFigure, run: StoredRun, links: list[str], rows: int) -> None:
    told = "WAN links: configured and achieved rate" + _some("links", len(links), run.tables["links"]["link"].nunique())
    figure.suptitle(told, x=0.012, ha="left", fontsize=9.5, fontweight="bold")
    if not links:
        axes = figure.subplots(1, 1)
        axes.set_axis_off()
        local = not run.facilities.has_wan
        panels.say(
            axes,
            "Local run: nodes talk over loopback, without WAN links."
            if local
            else "No WAN link was sampled in this run.",
        )
        return
    grid = figure.subplots(rows, _columns(len(links)), sharex=True, squeeze=False)
    handles = panels.rates_of_links(figure, list(grid.flat), run, links)
    for place, axes in enumerate(grid.flat):
        axes.tick_params(labelbottom=place + grid.shape[1] >= len(links))
    figure.legend(handles=handles, loc="upper right", ncols=2, bbox_to_anchor=(0.99, 1.0), borderaxespad=0.1)


def _busiest(run: StoredRun) -> list[str]:
    """Return the links with the most bytes, sorted so that the two directions of a pair are below each other."""
    names = sorted(panels.links_by_traffic(run)[:LINKS_SHOWN])
    pairs = sorted({tuple(sorted(name.split(">"))) for name in names})
    if len(names) != 2 * len(pairs):
        return names
    blocks = [pairs[at : at + COLUMNS] for at in range(0, len(pairs), COLUMNS)]
    return [name for block in blocks for way in (1, -1) for name in (">".join(pair[::way]) for pair in block)]


def _columns(links: int) -> int:
    """Return the number of columns of the grid: two for one or two pairs of links, otherwise three."""
    return 2 if links in (2, 4) else COLUMNS


def _some(what: str, shown: int, of: int) -> str:
    """Return a note for a panel that shows only some of its items."""
    return f", {shown} of {of} {what}" if shown < of else ""
