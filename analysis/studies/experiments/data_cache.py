"""A data cache from cold to warm: how long each round takes, and where its samples come from.

The scenario ``scenarios/paradigms/data-cache.yaml`` on one worker per data centre, between which there is so fast a
network that a step of 50 ms and loading are all that takes time: without any cache (every batch from the store, nothing
ahead), with the cache from cold, the same again with the disk that the first run has filled, and with samples decoded
in memory from the start.
"""

from __future__ import annotations

import pandas as pd

from analysis.identity import Identity, series
from analysis.studies.claims import Claims, decided
from analysis.studies.study import Panel, Results, Study, StudyRun, StudySweep

LEVELS = ("memory", "disk", "neighbour", "remote")
_CACHE = "kind: cached, rate: 200 kbit/s, latency: 20 ms, decode: 0.2 ms"
_FAST = {"training.rounds": "90", "training.target_accuracy": "null", "topology.data_centers[*].workers": "1",
         "topology.links[*].rate": "10 Gbit/s", "topology.links[*].delay": "1 ms"}  # fmt: skip


def _loading(loading: str, name: str = "data-cache") -> dict[str, str]:
    return {**_FAST, "training.loading": loading, "name": name}


def sweeps(quick: bool) -> tuple[StudySweep, ...]:
    """Return two sweeps: the second finds the disk that the first has filled. Its other name makes it another run."""
    disk = f"{{{_CACHE}, prefetch: 2, folder: '{{out}}/disk'}}"
    none = f"{{{_CACHE}, memory: 1 bytes, disk: 1 bytes, prefetch: 0}}"
    first = {"no cache": _loading(none), "cache, cold": _loading(disk), "all in memory": _loading("in_memory")}
    return (StudySweep("first", first), StudySweep("again", {"cache, warm disk": _loading(disk, "warm-disk")}))


def rounds(each: StudyRun) -> pd.DataFrame:
    """Curve: rounds of the first worker, with the samples that each level of the cache gave."""
    done, loads = each.run.tables["rounds"], each.run.tables["loads"]
    node = done["node"].min()
    mine = done[done["node"] == node].sort_values("round").set_index("round")[["duration_s"]]
    levels = loads[loads["node"] == node].set_index("round")[[*LEVELS]]
    return mine.join(levels).reset_index()


def claims(found: Results) -> Claims:
    alike = found.runs.groupby(["back_end", "seed"])["parameters_sha256"]
    most = int(alike.nunique(dropna=False).max())
    measured = f"at most {most} digest{'s' * (most > 1)} among the {alike.size().max()} runs of a seed"
    known = bool(found.runs["parameters_sha256"].notna().all())  # none where the workers of a run differ
    yield decided("all end with equal bits", measured, most == 1 and known)
    last = found.curves["round"] >= 2 / 3 * found.curves["round"].max()
    late = found.curves[last].groupby("variant")["duration_s"].mean()
    measured = ", ".join(f"{name} {value:.3f} s" for name, value in late.items())
    warm = late["cache, cold"] < 1.1 * late["all in memory"]
    yield decided("once warm, a round is as short as with all samples in memory (10 %)", measured, bool(warm))


STUDY = Study(
    title="A data cache from cold to warm", source="scenarios/paradigms/data-cache.yaml",
    scenario="paradigms/data-cache.yaml", sweeps=sweeps, curves=rounds, claims=claims,
    looks={"no cache": series(0, "no cache"), "cache, cold": series(1, "cache, cold"),
           "cache, warm disk": series(2, "cache, warm disk"),
           "all in memory": Identity("all in memory", "#666666", line="--")},
    panels=(Panel("", "duration_s", "round + 1", kind="curve", x_label="round", y_label="time of a round (s)",
                  y_range=(0, None)),),
    size_in=(7.0, 3.4),
)  # fmt: skip
