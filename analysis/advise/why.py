"""Why one technique is faster than another: the time to the goal, split into computing, transfers and waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from analysis.advise.estimate import Known
from analysis.advise.pace import rounds_to_sample, sampled
from analysis.breakdown import PARTS, per_node
from testbed.numbers import seconds
from testbed.plan.model import Plan

_ALIKE = 0.02  # differences below this share of the time are ignored

WORDS = {
    "compute": "computing",
    "codec": "encoding and decoding",
    "lan": "transfers inside data centres",
    "wan": "transfers over the WAN",
    "waiting": "waiting for others",
}

Split = Mapping[str, float]
"""Seconds by part of the time (``PARTS``)."""


def splits(found: Sequence[tuple[Known, float]]) -> dict[str, Split]:
    """Return the time to the goal split into parts, by candidate name, for the mean over workers.

    found  candidates with their times to the goal (s)
    """
    shown: dict[str, Split] = {}
    for known, time_s in found:
        shares = _shares(known.candidate.plan)
        shown[known.candidate.name] = {part: share * time_s for part, share in shares.items()}
    return shown


def _shares(plan: Plan) -> Split:
    """Return the share of each part in a round, for the mean over workers."""
    from testbed.engine.roles import make_role
    from testbed.execution.torch_settings import settings_of_a_run
    from testbed.results import tables
    from testbed.simulation.run import simulate

    shown = sampled(plan, rounds_to_sample(plan), 0.0)
    whole = replace(shown, simulation=replace(shown.simulation, events="full", fold=False), checkpoint_every=0)
    with TemporaryDirectory(prefix="testbed-") as folder, settings_of_a_run():
        simulate(whole, partial(make_role, files=None, watch=None), Path(folder), lambda event: None)
        frames = {name: tables.frame(table) for name, table in tables.build(Path(folder) / "events").items()}
    workers = per_node(frames).query("role == 'worker'")
    seconds = {part: float((workers[f"{part}_s"] * workers["rounds"]).sum()) for part in PARTS}
    total = sum(seconds.values()) or 1.0
    return {part: value / total for part, value in seconds.items()}


def why_first(shown: Mapping[str, Split]) -> str:
    """Return a sentence that says in which parts the first of two candidates is faster; empty for fewer than two."""
    if len(shown) < 2:
        return ""
    (first, mine), (second, other), *_ = shown.items()
    gains = {part: other[part] - mine[part] for part in mine}
    ahead_s = sum(gains.values())
    total_s = sum(mine.values())
    if ahead_s <= _ALIKE * total_s:
        return f"{first} and {second} take about the same time."
    by_size = sorted(
        (part for part in gains if abs(gains[part]) > _ALIKE * total_s), key=lambda part: -abs(gains[part])
    )
    less = [f"{seconds(gains[part])} less on {WORDS[part]}" for part in by_size if gains[part] > 0]
    more = [f"{seconds(-gains[part])} more on {WORDS[part]}" for part in by_size if gains[part] < 0]
    return f"{first} is {seconds(ahead_s)} ahead of {second}: it spends {', '.join([*less, *more])}."
