"""The first paragraph of a report: turns the numbers of its runs into sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.comparable import coarse, unequal_faults, unequal_steps
from analysis.figures.compare import round_split
from analysis.identity import PARTS
from analysis.load import StoredRun
from testbed.numbers import counted, factor, seconds, share, size
from testbed.results.job_index import neighbours
from testbed.results.summary import wan_bytes_of
from testbed.target import target_in, target_of_row


def of_one(run: StoredRun) -> str:
    """Return sentences about one run: what it reached, in which time, where this time went, and its fidelity."""
    return " ".join([_reached(run), *_time(run), _trust([run])])


def of_several(runs: Sequence[StoredRun], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return sentences about several runs: which one was quickest, by how much, its bytes, and what to doubt.

    rows  the rows of ``analysis.compare.comparison``
    """
    return " ".join(
        [
            *_quickest(rows),
            *_missed(rows),
            *fallen(rows),
            *unequal_steps(rows),
            *unequal_faults(rows),
            *coarse(rows),
            *_seeds(runs),
            _trust(runs),
        ]
    )


def _reached(run: StoredRun) -> str:
    result = run.result
    assert result is not None
    moved = size(wan_bytes_of(result))
    took = f"{seconds(result['training_s'])}, and {moved} crossed the WAN."
    if run.program is not None:
        return f"The program ran for {took}"
    trained = counted(result["rounds"], "round")
    wanted = target_in(run.plan["training"])
    if wanted is not None:
        last_score = result.get(wanted.measure)
        told = wanted.told[0].upper() + wanted.told[1:]
        if result["time_to_target_s"] is None:
            best = f"the last evaluation gave {wanted.shown(last_score)}"
            return f"{told} was not reached: {best}. Training took {trained} in {took}"
        reached = f"{told} was reached after {seconds(result['time_to_target_s'])}."
        is_lost = last_score is not None and not wanted.is_met(last_score)
        lost = f" At the end it was {wanted.missed} that, {wanted.shown(last_score)}." if is_lost else ""
        return f"{reached}{lost} Training took {trained} in {took}"
    last = "" if result["accuracy"] is None else f" The accuracy at the end is {share(result['accuracy'])}."
    return f"Training took {trained} in {took}{last}"


def _time(run: StoredRun) -> Iterator[str]:
    """Yield which part of a round took the most of the workers' time."""
    if run.program is not None or not run.logs_work or run.tables["rounds"].empty:
        return
    parts = round_split([run]).iloc[0]
    total = float(parts.sum())
    if total > 0:
        name = str(parts.idxmax()).removesuffix("_s")
        label = {
            "waiting": "waiting for others",
            "wan": "transfers over the WAN",
            "lan": "transfers inside data centres",
        }
        yield f"Of a round, {share(float(parts.max()) / total)} went to {label.get(name, PARTS[name].label)}."


def _quickest(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    base = rows[0]
    timed = [row for row in rows if row["speed_up"] is not None]
    wanted = target_of_row(base)
    if len(timed) < 2:
        if wanted is not None:
            yield f"Times to {wanted.told} cannot be compared: fewer than two runs reached it."
        return
    what = f"reached {wanted.told}" if wanted is not None else "trained"
    best = max(timed, key=lambda row: row["speed_up"])
    if best is base:
        yield f"{base['label']} {what} soonest."
    else:
        per = " per step" if best["speed_up_of"] == "step_time_s" else ""
        sent = f", with {factor(best['wan_bytes'] / base['wan_bytes'])} its bytes over the WAN" * bool(
            base["wan_bytes"]
        )
        yield f"{best['label']} {what} soonest: {factor(best['speed_up'])} as fast{per} as {base['label']}{sent}."


def _missed(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if rows[0]["target"] is None:
        return
    missed = [row["label"] for row in rows if row["time_to_target_s"] is None]
    if 0 < len(missed) < len(rows):
        yield f"Not reached by {'; '.join(missed)}."


def fallen(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield which runs reached the target but missed it again at the end."""
    target = target_of_row(rows[0])
    if target is None:
        return
    names = [
        f"{row['label']} ({target.shown(row[target.measure])})"
        for row in rows
        if row["time_to_target_s"] is not None
        and row[target.measure] is not None
        and not target.is_met(row[target.measure])
    ]
    if names:
        yield f"{target.missed.capitalize()} the target at the end, after having reached it: {'; '.join(names)}."


def _seeds(runs: Sequence[StoredRun]) -> Iterator[str]:
    if len({run.plan["seed"] for run in runs}) == 1:
        yield "All runs have one seed, so how far another seed would change the order is unknown."


def _trust(runs: Sequence[StoredRun]) -> str:
    shared = " ".join(sharing(runs))
    doubtful = [run for run in runs if run.result and run.result["fidelity"]["status"] != "ok"]
    if not doubtful:
        nothing = "Nothing else speaks" if shared else "Nothing speaks"
        return f"{shared} {nothing} against {'these' if len(runs) > 1 else 'its'} times.".strip()
    which = "The run is" if len(runs) == 1 else f"{len(doubtful)} of {len(runs)} runs are"
    return f"{shared} {which} degraded: read the reasons under Fidelity before using the times.".strip()


def sharing(runs: Sequence[StoredRun]) -> Iterator[str]:
    """Yield which runs shared their network, so that other jobs' bytes affect their times and links."""
    for run in runs:
        if others := neighbours(run.path):
            yield f"{run.name} shared its network with {', '.join(others)}, whose bytes its links carried, too."
