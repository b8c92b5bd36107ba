"""``result.json``: the results of a run in one small file, computed from its tables and verified when read.

=====================  ==========  ========================================================================
field                  unit        meaning
=====================  ==========  ========================================================================
schema_version                     of this file
status                             done | reduced (nodes were lost) | diverged | failed | interrupted
message                            the cause, if the status is not ``done``
name, seed, back_end               from the Plan
plan_sha256                        hash of ``plan.json``
resumed_round          rounds      round of another run's checkpoint from which this run goes on; absent if it began
                                   anew. Rounds, steps, samples, round_time_s and bytes count from there
rounds                 rounds      completed by every worker that trains, except workers that were lost or had left
rounds_per_worker      rounds      [least, most] of these workers; absent if all have completed ``rounds``
steps_per_worker       steps       [least, most]: training steps of a worker that trains; absent for a user's program
samples_per_worker     samples     [least, most]: samples in these steps; absent if unknown, as for a user's script. For
                                   a pipeline, steps and samples are those of a replica
accuracy               1           last evaluation on the test set; null if there was none
loss                   1           likewise; absent in earlier releases
parameters_sha256                  hash of the final values if they are identical on all these workers, else null. For a
                                   pipeline, a hash of the hashes of its keys if they are identical on all replicas. It
                                   does not depend on the cut, but differs from that of a run without a pipeline
parameters_agree                   whether they are identical; null if no worker has any
numerics                           the settings on which bits depend: {devices, precision, deterministic, compile};
                                   absent for float32 on processors, where bits are the same everywhere
round_time_s           s           mean over the workers of (time covered by rounds / rounds). An evaluation counts only
                                   if training had to wait for its score. For a pipeline, mean over the replicas, whose
                                   rounds begin at the first stage and end at the last
round_s                s           for a simulated run, if its error is known from exact runs: {mean, low, high}; 95 %
                                   of exact runs have a mean round between low and high. Absent for a job that shared
                                   its network with others
step_time_s            s           as round_time_s, per training step, to compare rounds of several steps
samples_per_s          1/s         training samples of all workers: the sum of their rates, each weighted by the share
                                   of the training in which the worker took part; null if unknown. This and the field
                                   before are absent in earlier releases
training_s             s           from the start of training to the end of the last round, on the run's clock; for a
                                   user's program, to the end of its last process. If the run goes on from another
                                   run's checkpoint, this and the next field include the training before it
time_to_target_s       s           from the start of training to the snapshot that reached the target, the first of two
                                   in a row that meet it; null: never
accuracy_at_target     1           of that snapshot; this and the next field are absent in earlier releases
loss_at_target         1           likewise
evaluations_to_target              number of evaluations up to that snapshot; absent in earlier releases
wan_payload_bytes      B           {data centre: {up, down}}: payload of all training rounds over the WAN; for a user's
                                   program, all bytes that its links carried, by their counters
wan_header_bytes       B           likewise, headers
wan_setup_bytes        B           likewise, payload and headers outside training rounds
stages                             results of a pipeline: waiting, bytes of activations and gradients, memory
                                   (``testbed.results.pipelines``)
faults                             {happened: […], missed: [faults planned after the run's end; absent in earlier
                                   releases], restarts, lost: [nodes that had failed at the end], left: [nodes that
                                   ended on purpose]}
fidelity                           {status: ok | degraded, reasons: […], notes: […]}; more in ``fidelity.json``
duration_s             s           duration of the whole command on the wall clock; for an exact run, in virtual time
volatile                           values that differ between equal runs; outside the hash
content_sha256                     hash of all fields but ``volatile``, ``duration_s`` and itself
=====================  ==========  ========================================================================
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

import msgspec

from testbed.errors import TestbedError
from testbed.ids import data_center_of, link_name
from testbed.results.events import HAS_LEFT
from testbed.results.intervals import union
from testbed.results.pipelines import PipelineResult, pipeline_result, replicas_of, rounds_of_replicas
from testbed.results.rundir import read_json
from testbed.results.samples import counted, successive
from testbed.target import Target, target_in

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

SCHEMA_VERSION = 1
_OUTSIDE_HASH = ("volatile", "duration_s", "content_sha256")

Frames = Mapping[str, "pd.DataFrame"]
IntervalOf = Callable[[float], tuple[float, float]]
Span = Annotated[list[int], msgspec.Meta(min_length=2, max_length=2)]


class Moved(TypedDict):
    up: int
    down: int


class RoundInterval(TypedDict):
    mean: float
    low: float
    high: float


class FidelitySummary(TypedDict):
    status: Literal["ok", "degraded"]
    reasons: NotRequired[list[str]]
    notes: NotRequired[list[str]]
    warnings: NotRequired[list[str]]  # reasons and notes together, in earlier releases


class RunResult(TypedDict):
    """The fields of ``result.json`` and their types; see the module's docstring."""

    schema_version: int
    status: Literal["done", "reduced", "diverged", "failed", "interrupted"]
    message: str
    name: str
    seed: int
    back_end: str  # without a list of its values: the scenario's settings have one, and a second might lack some
    plan_sha256: str
    resumed_round: NotRequired[int]
    rounds: int
    rounds_per_worker: NotRequired[Span]
    steps_per_worker: NotRequired[Span]
    samples_per_worker: NotRequired[Span]
    accuracy: float | None
    loss: NotRequired[float | None]
    parameters_sha256: str | None
    parameters_agree: bool | None
    round_time_s: float | None
    round_s: NotRequired[RoundInterval]
    step_time_s: NotRequired[float | None]
    samples_per_s: NotRequired[float | None]
    training_s: float | None
    time_to_target_s: float | None
    accuracy_at_target: NotRequired[float | None]
    loss_at_target: NotRequired[float | None]
    evaluations_to_target: NotRequired[int | None]
    wan_payload_bytes: dict[str, Moved]
    wan_header_bytes: dict[str, Moved]
    wan_setup_bytes: dict[str, Moved]
    stages: NotRequired[PipelineResult]
    faults: dict[str, Any]
    fidelity: FidelitySummary
    duration_s: float
    volatile: dict[str, Any]
    content_sha256: str


@dataclass(frozen=True, slots=True)
class Ending:
    """How the run ended. ``started`` and ``ended`` are UTC in ISO 8601."""

    status: str
    message: str
    started: str
    ended: str
    duration_s: float


def summarise(
    frames: Frames,
    plan: Mapping[str, Any],
    fidelity: Mapping[str, Any],
    ending: Ending,
    interval_of: IntervalOf | None = None,
) -> dict[str, Any]:
    """Return the content of ``result.json``.

    plan         the content of ``plan.json``
    interval_of  returns the interval of the exact time of a round, given the simulated time; ``None`` if no claim is
                 made
    """
    wan = _wan if plan.get("program") is None else _wan_of_program
    result = {
        "schema_version": SCHEMA_VERSION,
        "status": ending.status,
        "message": ending.message,
        "name": plan["name"],
        "seed": plan["seed"],
        "back_end": plan["back_end"],
        "plan_sha256": sha256_of(plan),
        **_training(frames, plan, interval_of),
        **wan(frames, [site["name"] for site in plan["network"]["sites"]]),
        **({"stages": pipeline_result(frames)} if plan.get("pipeline") else {}),
        "faults": _faults(frames, plan),
        "fidelity": {name: fidelity[name] for name in ("status", "reasons", "notes")},
        "duration_s": round(ending.duration_s, 3),
        "volatile": {"started": ending.started, "ended": ending.ended},
    }
    return {**result, "content_sha256": _content_sha256(result)}


def sha256_of(value: Any) -> str:
    """Return the digest of the canonical JSON of a value: sorted keys, no spaces."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_result(path: Path) -> dict[str, Any]:
    """Read and verify a ``result.json``. Raise ``TestbedError`` if it is damaged, changed, or of a later release."""
    version = read_json(path).get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise TestbedError(f"{path}: schema {version} is later than this release's {SCHEMA_VERSION}")
    result = read_json(path, RunResult)
    if result["content_sha256"] != _content_sha256(result):
        raise TestbedError(f"{path}: was changed after the run wrote it (content_sha256 differs); run it again")
    if result["wan_payload_bytes"].keys() != result["wan_header_bytes"].keys():
        raise TestbedError(f"{path}: wan_payload_bytes and wan_header_bytes have other data centres; run it again")
    return {**result, "fidelity": _reasons_and_notes(result["fidelity"])}


def wan_bytes_of(result: Mapping[str, Any]) -> int:
    """Return the payload bytes that crossed the WAN. Each byte counts once, in the data centre that sent it."""
    return sum(moved["up"] for moved in result["wan_payload_bytes"].values())


def _reasons_and_notes(fidelity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fidelity with separate reasons and notes; earlier releases had one list for both."""
    told = fidelity.get("warnings", [])
    status = fidelity["status"]
    split = {"reasons": [], "notes": told} if status == "ok" else {"reasons": told, "notes": []}
    return {"status": status, **{name: fidelity.get(name, split[name]) for name in split}}


def missed_faults(result: Mapping[str, Any]) -> str:
    """Return, as text, the faults that were due after the end of a run; empty if there are none, or none recorded."""
    return "; ".join(f"{each['fault']} {each['targets']}" for each in result["faults"].get("missed", ()))


def training_start_s(training: pd.DataFrame) -> float:
    """Return the time when training started on the run's clock, in s; 0 if the event is missing."""
    return float(training["t_s"].iloc[0]) if len(training) else 0.0


def first_start_s(training: pd.DataFrame) -> float:
    """Return the start of training, in s, less the time of training before the checkpoint with which the run began."""
    before_s = float(training["trained_s"].fillna(0.0).iloc[0]) if len(training) else 0.0
    return round(training_start_s(training) - before_s, 6)  # rounded as recorded times are, so that equal times match


def stands_for(nodes: pd.DataFrame) -> dict[str, int]:
    """Return the number of equal nodes that each node represents: more than 1 if a simulation has folded workers."""
    return {str(node): int(count) for node, count in zip(nodes["node"], nodes["stands_for"].fillna(1), strict=True)}


def covered_round_time_s(rounds: pd.DataFrame, copies: Mapping[str, int] | None = None) -> float | None:
    """Return the mean over workers of (time covered by its rounds / number of rounds); ``None`` without rounds.

    For consecutive rounds, this is their mean duration. Gaps (evaluation) do not count, and overlaps count once.
    ``copies`` has the number of workers that each node represents (``stands_for``); by default 1.
    """
    workers = 0
    total_s = 0.0
    for node, rows, covered_s in _covered(rounds):
        count = (copies or {}).get(node, 1)
        total_s += count * (covered_s / len(rows))
        workers += count
    return total_s / workers if workers else None


def step_time_s(rounds: pd.DataFrame, copies: Mapping[str, int] | None = None) -> float | None:
    """Return the mean over workers of (time covered by its rounds / its training steps); ``None`` without steps."""
    steps_of_rounds = rounds["steps"].fillna(1).to_numpy(float)
    workers = 0
    total_s = 0.0
    for node, rows, covered_s in _covered(rounds):
        steps = float(steps_of_rounds[rows].sum())
        if steps:
            count = (copies or {}).get(node, 1)
            total_s += count * covered_s / steps
            workers += count
    return total_s / workers if workers else None


def samples_per_s(rounds: pd.DataFrame, faults: pd.DataFrame, copies: Mapping[str, int] | None = None) -> float | None:
    """Return training samples per second of all workers: the sum of their rates, without evaluations.

    The sum of rates is used because workers may not wait for each other: when fast workers have finished, the slow ones
    train alone, and their speed must not count as the speed of all. A worker that was lost, left or joined counts by
    the share of the training in which it took part. Return ``None`` if no worker reports samples, as with a user's
    script.

    rounds  for a pipeline, the rounds of its replicas (``testbed.results.pipelines``), each of which counts as a worker
    faults  the table, which tells the workers that were lost, left or joined
    """
    if not rounds["samples"].any():
        return None
    samples = rounds["samples"].fillna(0).to_numpy(float)
    begin_s = float(rounds["t0_s"].min())
    end_s = float(rounds["t_s"].max())
    absent = _absent_s(faults, begin_s, end_s)
    total = 0.0
    for node, rows, covered_s in _covered(rounds):
        if covered_s:
            rate = float(samples[rows].sum()) / covered_s
            present = 1 - absent.get(node, 0.0) / (end_s - begin_s)
            total += (copies or {}).get(node, 1) * rate * present
    return total


def _absent_s(faults: pd.DataFrame, begin_s: float, end_s: float) -> dict[str, float]:
    """Return the time, in s, between ``begin_s`` and ``end_s`` for which each lost, left or joined node was absent."""
    return {node: union(edges).total() for node, edges in absences(faults, begin_s, end_s).items()}


def absences(faults: pd.DataFrame, begin_s: float, end_s: float) -> dict[str, list[tuple[float, float]]]:
    """Return the intervals, in s, between ``begin_s`` and ``end_s`` in which lost, left or joined nodes were absent."""
    since: dict[str, float] = {}
    absent: dict[str, list[tuple[float, float]]] = {}

    def add(node: str, from_s: float, to_s: float) -> None:
        absent.setdefault(node, []).append((max(from_s, begin_s), min(to_s, end_s)))

    for at_s, node, joins, _ in _changes(faults):
        if joins:
            add(node, since.pop(node, begin_s), at_s)
        else:
            since.setdefault(node, at_s)
    for node, from_s in since.items():
        add(node, from_s, end_s)
    return absent


def _covered(rounds: pd.DataFrame) -> Iterator[tuple[str, NDArray[np.intp], float]]:
    """Yield each worker, the numbers of its rows in ``rounds``, and the time that these rounds cover (s).

    It yields row numbers because a frame for each of thousands of workers would take a millisecond.
    """
    edges = rounds[["t0_s", "t_s"]].to_numpy()
    for node, rows in rounds.groupby("node").indices.items():
        yield str(node), rows, union(edges[rows]).total()


def _training(frames: Frames, plan: Mapping[str, Any], interval_of: IntervalOf | None) -> dict[str, Any]:
    rounds = frames["rounds"]
    accuracy = frames["accuracy"].dropna(subset="accuracy")
    start_s = first_start_s(frames["training"])
    finals = frames["finals"]
    ends = rounds if plan.get("program") is None else finals
    digests = final_digests(finals, plan, gone_nodes(frames["faults"]))
    copies = stands_for(frames["nodes"])
    target = target_in(plan["training"])
    reached = at_target(accuracy, target)
    made = rounds_of_replicas(rounds, plan)
    round_time_s = covered_round_time_s(made, copies)
    return {
        **_resumed(frames["training"]),
        **_rounds(_completed_rounds(frames, plan)),
        **_work(made, ("steps", "samples") if plan.get("program") is None else ("samples",)),
        "accuracy": float(accuracy["accuracy"].iloc[-1]) if len(accuracy) else None,
        "loss": _last(accuracy["loss"]),
        "parameters_sha256": digests[0] if len(digests) == 1 else None,
        "parameters_agree": len(digests) == 1 if digests else None,
        **numerics(plan),
        "round_time_s": _rounded(round_time_s),
        **_interval(round_time_s, interval_of),
        "step_time_s": _rounded(step_time_s(made, copies)) if plan.get("program") is None else None,
        "samples_per_s": _rounded(samples_per_s(made, frames["faults"], copies)),
        "training_s": _rounded(float(ends["t_s"].max()) - start_s) if len(ends) else None,
        "time_to_target_s": time_to_target_s(accuracy, target, start_s),
        "accuracy_at_target": None if reached is None else reached.accuracy,
        "loss_at_target": None if reached is None else reached.loss,
        "evaluations_to_target": None if reached is None else reached.evaluations,
    }


def _interval(round_time_s: float | None, interval_of: IntervalOf | None) -> dict[str, RoundInterval]:
    if round_time_s is None or interval_of is None:
        return {}
    low_s, high_s = interval_of(round_time_s)
    return {"round_s": {"mean": round(round_time_s, 6), "low": round(low_s, 6), "high": round(high_s, 6)}}


def _resumed(training: pd.DataFrame) -> dict[str, int]:
    known = training["resumed_round"].head(1).dropna()  # only the first start: a restart within the run does not count
    return {"resumed_round": int(known.iloc[0])} if len(known) else {}


def numerics(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings on which the bits of a run's parameters depend; none for float32 on processors."""
    training = plan["training"]
    names = ("precision", "deterministic", "compile")
    chosen = {name: training[name] for name in names if training.get(name, "float32") not in ("float32", False)}
    kinds = {node["device"]["kind"] for node in plan["nodes"] if node["role"] != "scheduler"}
    if kinds <= {"cpu"} and not chosen:
        return {}
    return {"numerics": {"devices": sorted(kinds), **{name: training.get(name) for name in names}}}


def _work(rounds: pd.DataFrame, names: Sequence[str]) -> dict[str, list[int]]:
    """Return the least and the most training steps, and samples, of a worker. A round without a number has one step.

    A quantity that no worker reports is left out.
    """
    done = rounds.fillna({"steps": 1}).groupby("node")[[*names]].sum(min_count=1)
    if done.empty:
        return {f"{name}_per_worker": [0, 0] for name in names}
    return {f"{name}_per_worker": [int(each.min()), int(each.max())] for name, each in done.items() if each.any()}


def final_digests(finals: pd.DataFrame, plan: Mapping[str, Any], gone: Iterable[str]) -> list[str]:
    """Return the different digests of final values on workers that train, except for workers in ``gone``.

    Other nodes need not end with the model: a server may hold sums of gradients, a part of the keys, or values that are
    more precise than those it sends.
    """
    idle = {*gone, *(node["name"] for node in plan["nodes"] if not node["trains"])}
    replicas = replicas_of(plan)
    told = finals["keys_sha256" if replicas else "parameters_sha256"]
    rows = zip(finals["node"], finals["role"], told, strict=True)
    digests = {node: digest for node, role, digest in rows if role == "worker" and node not in idle}
    if replicas:
        return _of_replicas(digests, replicas)
    return list(dict.fromkeys(digest for digest in digests.values() if isinstance(digest, str)))


def _of_replicas(digests: Mapping[str, str | None], replicas: Iterable[Sequence[str]]) -> list[str]:
    """Return the different digests of whole models, one of each replica.

    A replica's digest is that of its keys' digests in the model's order, so it does not depend on where the model is
    cut. ``digests`` has the digests of each worker, as in the table ``finals``.
    """
    found = set()
    for replica in replicas:
        parts = [digests.get(name) for name in replica]
        told = [part for part in parts if isinstance(part, str)]
        if len(told) == len(parts):
            keys = sorted((word.split(":") for part in told for word in part.split()), key=lambda each: int(each[0]))
            found.add(hashlib.sha256(" ".join(sha256 for _, sha256 in keys).encode()).hexdigest())
    return sorted(found)


def _rounds(completed: Sequence[int]) -> dict[str, Any]:
    """Return the rounds that all workers have completed, and the least and the most of a worker if these differ."""
    least = min(completed, default=0)
    most = max(completed, default=0)
    return {"rounds": least} | ({"rounds_per_worker": [least, most]} if least < most else {})


def _completed_rounds(frames: Frames, plan: Mapping[str, Any]) -> list[int]:
    """Return the number of completed rounds of each worker that trains; ``[0]`` if a worker has no log.

    Workers that were lost or had left at the end, or never joined, are left out.
    """
    rounds = frames["rounds"]
    nodes = frames["nodes"]
    workers = {node["name"] for node in plan["nodes"] if node["role"] == "worker" and node["trains"]}
    workers -= gone_nodes(frames["faults"]).keys() | (_late_comers(plan) - set(nodes["node"]))
    if plan.get("program") is not None:  # only processes that report rounds count
        counts = rounds.groupby("node")["round"].nunique()
        return [int(count) for count in counts]
    logged = {node: count for node, count in stands_for(nodes).items() if node in workers}
    if sum(logged.values()) < len(workers):
        return [0]
    completed = rounds.groupby("node")["round"].nunique().to_dict()  # after a restart, some are repeated
    return [completed.get(worker, 0) for worker in logged]


@dataclass(frozen=True, slots=True)
class Reached:
    """The evaluation that reached the target, with its scores.

    snapshot_s   time when the evaluated values were copied, in s on the run's clock
    evaluations  number of evaluations up to this one. If it was the first, the target may have been reached earlier
    """

    snapshot_s: float
    accuracy: float
    loss: float | None
    evaluations: int


def at_target(accuracy: pd.DataFrame, target: Target | None) -> Reached | None:
    """Return the first of two evaluations in a row that meet ``target``; ``None`` if there are none.

    If a restart repeated a round, only its last evaluation counts: one round cannot be two evaluations in a row.
    """
    if target is None:
        return None
    scores = accuracy.dropna(subset="accuracy").sort_values("snapshot_t_s", kind="stable")
    scores = scores.drop_duplicates("round", keep="last")
    met = target.is_met(scores[target.measure])
    first = scores[met & met.shift(-1, fill_value=False)].head(1)
    if first.empty:
        return None
    at_s = float(first["snapshot_t_s"].iloc[0])
    evaluations = int((scores["snapshot_t_s"] <= at_s).sum())
    return Reached(at_s, float(first["accuracy"].iloc[0]), _last(first["loss"]), evaluations)


def _last(losses: pd.Series) -> float | None:
    """Return the last loss; ``None`` if it is unknown, as when a script reports only accuracies."""
    known = losses.tail(1).dropna()
    return None if known.empty else float(known.iloc[0])


def time_to_target_s(accuracy: pd.DataFrame, target: Target | None, start_s: float) -> float | None:
    """Return the seconds from ``start_s`` to the snapshot that reached ``target``; ``None`` if it was never reached."""
    reached = at_target(accuracy, target)
    return None if reached is None else _rounded(reached.snapshot_s - start_s)


def sent_by_link(links: pd.DataFrame) -> dict[str, int]:
    """Return the bytes of frames, headers included, that each WAN link had sent at its last sample."""
    sent = counted(links["bytes"].to_numpy(float), *successive(links["link"].factorize()[0]))
    sums = links[["link"]].assign(bytes=sent).groupby("link")["bytes"].sum()
    return {str(name): int(sent) for name, sent in sums.items()}


def by_site(sent: Mapping[str, int], sites: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return the bytes that each data centre's links carried: ``up`` away from it, ``down`` to it."""
    found = {site: {"up": 0, "down": 0} for site in sites}
    for link, size in sent.items():
        source, _, target = link.partition(">")
        for site, way in ((source, "up"), (target, "down")):
            if site in found:
                found[site][way] += size
    return found


def _wan_of_program(frames: Frames, sites: list[str]) -> dict[str, Any]:
    """Return the bytes that links have carried, as the messages of a user's program are not recorded."""
    nothing = by_site({}, sites)
    moved = by_site(sent_by_link(frames["links"]), sites)
    return {"wan_payload_bytes": moved, "wan_header_bytes": nothing, "wan_setup_bytes": nothing}


def _wan(frames: Frames, sites: list[str]) -> dict[str, Any]:
    transfers = frames["transfers"]
    wan = transfers[transfers["tier"] == "wan"]
    training = ((wan["round"] >= 0) & (wan["key"] >= 0)).rename("training")  # messages of the scheduler have no key
    sums = wan.groupby([training, "source", "target"])[["payload_bytes", "header_bytes"]].sum()
    # bytes by link
    payload = Counter[str]()
    header = Counter[str]()
    setup = Counter[str]()
    for (in_round, source, target), payload_bytes, header_bytes in sums.itertuples():
        link = link_name(data_center_of(source), data_center_of(target))
        if in_round:
            payload[link] += int(payload_bytes)
            header[link] += int(header_bytes)
        else:
            setup[link] += int(payload_bytes) + int(header_bytes)
    return {
        "wan_payload_bytes": by_site(payload, sites),
        "wan_header_bytes": by_site(header, sites),
        "wan_setup_bytes": by_site(setup, sites),
    }


def _faults(frames: Frames, plan: Mapping[str, Any]) -> dict[str, Any]:
    events = frames["faults"]
    begun = events[(events["kind"] == "fault") & events["begins"].fillna(False).astype(bool)]
    gone = gone_nodes(events)
    happened = zip(begun["t_s"], begun["fault"], begun["targets"], strict=True)
    return {
        "happened": [{"t_s": _rounded(t), "fault": kind, "targets": targets} for t, kind, targets in happened],
        "missed": [] if _resumed(frames["training"]) else _missed(begun, plan),
        "restarts": int((events["kind"] == "restart").sum()),
        "lost": [node for node, cause in gone.items() if cause != HAS_LEFT],
        "left": [node for node, cause in gone.items() if cause == HAS_LEFT],
    }


def _missed(begun: pd.DataFrame, plan: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the faults of the Plan without an event, with their targets: the run ended before them."""
    told = Counter(
        (kind, target)
        for kind, targets in zip(begun["fault"], begun["targets"], strict=True)
        for target in str(targets).split(", ")
    )
    missed = []
    for fault in plan.get("faults", ()):
        left = [target for target in fault["targets"] if not told[fault["kind"], target]]
        told.subtract((fault["kind"], target) for target in fault["targets"] if target not in left)
        if left:
            missed.append({"fault": fault["kind"], "targets": ", ".join(left)})
    return missed


def gone_nodes(events: pd.DataFrame) -> dict[str, str]:
    """Return the nodes that were lost or had left at the end, each with the cause."""
    gone: dict[str, str] = {}
    for _, node, joins, cause in _changes(events):
        if joins:
            gone.pop(node, None)
        else:
            gone.setdefault(node, cause)
    return gone


def _changes(events: pd.DataFrame) -> Iterator[tuple[float, str, bool, str]]:
    """Yield the changes of the membership in order: time (s), node, whether it joined, and the cause."""
    epochs = events[events["kind"] == "epoch"]
    columns = (epochs[name] for name in ("t_s", "targets", "begins", "message"))
    for at_s, targets, joins, cause in zip(*columns, strict=True):
        for node in str(targets).split(", "):
            yield float(at_s), node, bool(joins), cause


def _late_comers(plan: Mapping[str, Any]) -> set[str]:
    """Return the nodes that join later by a fault of the Plan, alone or with their server."""
    named = {name for fault in plan.get("faults", ()) if fault["kind"] == "join" for name in fault["targets"]}
    return named | {node["name"] for node in plan["nodes"] if named.intersection(node["parents"])}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)  # the event log keeps microseconds


def _content_sha256(result: Mapping[str, Any]) -> str:
    return sha256_of({key: value for key, value in result.items() if key not in _OUTSIDE_HASH})
