"""``result.json``: the results of a run in one small file, computed from its tables and verified when read.

=====================  ==========  ========================================================================
field                  unit        meaning
=====================  ==========  ========================================================================
schema_version                     of this file
status                             done | reduced (nodes were lost) | diverged | failed | interrupted
message                            cause, unless it is done
name, seed, back_end               from the Plan
plan_sha256                        of ``plan.json``
resumed_round          rounds      of the checkpoint of another run that this one goes on from; absent if it began anew.
                                   Rounds, steps, samples, round_time_s and bytes count from there
rounds                 rounds      completed by every worker that trains and was neither lost nor had left at the end
rounds_per_worker      rounds      [least, most] of such a worker; absent where all have completed ``rounds``
steps_per_worker       steps       [least, most]: training steps computed by a worker that trains; absent of a user's
                                   program
samples_per_worker     samples     [least, most]: in these steps; absent where it is unknown, as of a user's script. Of
                                   a pipeline both are of a replica, whose stages make the same steps together
accuracy               1           on the test set, last evaluation; null if there was none
loss                   1           likewise; absent of earlier releases
parameters_sha256                  of the final values, if they are identical on all these workers; else null. Of a
                                   pipeline, of the digests of its keys, if all replicas have the same: equal with any
                                   cut, and another one than that of whole workers with equal values
parameters_agree                   whether they are; null if no worker has any
numerics                           what bits depend on: {devices, precision, deterministic, compile}; absent for float32
                                   on processors, where they are the same everywhere
round_time_s           s           mean over the workers of (time covered by rounds / rounds); an evaluation
                              is part of it only where training has to wait for its score. Of a pipeline, mean over
                                   the replicas: a round begins at the first stage and ends at the last one
round_s                s           of a simulated run, where exact runs have shown how far such runs are off: {mean,
                                   low, high}; an exact round lies between low and high for 95 % of them. Absent of a
                                   job that shared its network with others
step_time_s            s           likewise for a training step: rounds of several steps compare by this
samples_per_s          1/s         training samples of all workers, each at its own rate, by the share of the training
                                   in which it took part; null where they are unknown. Both are absent of earlier
                                   releases
training_s             s           start of training to the last round's end, on the run's clock; of a user's program,
                                   to the end of its last process. In a run that goes on from a checkpoint of another
                                   one, seconds of training before the checkpoint count; likewise:
time_to_target_s       s           start of training to the snapshot that reached the target: the first of two in a row
                                   that meet it; null: never
accuracy_at_target     1           of that snapshot; absent of earlier releases, as the next one
loss_at_target         1           likewise
wan_payload_bytes      B           {data centre: {up, down}}: payload of all training rounds over the WAN; of a user's
                                   program, all bytes that its links carried, by their counters
wan_header_bytes       B           likewise, headers
wan_setup_bytes        B           likewise, payload and headers outside training rounds
stages                             of a pipeline: how much of a step its stages wait, the bytes of activations and of
                                   gradients by way, and the memory of a stage (``results.pipelines``)
faults                             {happened: […], missed: [those that the run had ended before; absent of earlier
                                   releases], restarts, lost: [nodes that had failed at the end], left: [nodes that
                                   ended on purpose]}
fidelity                           {status: ok | degraded, reasons: […], notes: […]}; more in ``fidelity.json``
duration_s             s           of the whole command, on the wall clock; of an exact run, in virtual time
volatile                           values that differ between equal runs; outside the hash
content_sha256                     of all but ``volatile``, ``duration_s`` and itself
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
    warnings: NotRequired[list[str]]  # both, in earlier releases


class RunResult(TypedDict):
    """The fields of ``result.json`` and their types; see the module's docstring."""

    schema_version: int
    status: Literal["done", "reduced", "diverged", "failed", "interrupted"]
    message: str
    name: str
    seed: int
    back_end: str  # a list of its values, which the scenario has, would be a second one, and could lack some
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
    interval_of  returns between which values the exact time of a round lies, given the simulated one; ``None`` where
                 nothing is claimed
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
    """Return the payload bytes that crossed the WAN, each counted once: in the data centre that sent it."""
    return sum(moved["up"] for moved in result["wan_payload_bytes"].values())


def _reasons_and_notes(fidelity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fidelity with reasons and notes apart; earlier releases had one list of both."""
    told = fidelity.get("warnings", [])
    status = fidelity["status"]
    split = {"reasons": [], "notes": told} if status == "ok" else {"reasons": told, "notes": []}
    return {"status": status, **{name: fidelity.get(name, split[name]) for name in split}}


def training_start_s(training: pd.DataFrame) -> float:
    """Return when training started on the run's clock, in s; 0 if the event is missing."""
    return float(training["t_s"].iloc[0]) if len(training) else 0.0


def first_start_s(training: pd.DataFrame) -> float:
    """Return when training would have started without interruption: earlier where it goes on from another run's."""
    before_s = float(training["trained_s"].fillna(0.0).iloc[0]) if len(training) else 0.0
    return round(training_start_s(training) - before_s, 6)  # as times are recorded: equal to that of the first run


def stands_for(nodes: pd.DataFrame) -> dict[str, int]:
    """Return how many equal nodes each node represents: more than one where a simulation has folded workers."""
    return {str(node): int(count) for node, count in zip(nodes["node"], nodes["stands_for"].fillna(1), strict=True)}


def covered_round_time_s(rounds: pd.DataFrame, copies: Mapping[str, int] | None = None) -> float | None:
    """Return the mean over workers of (time covered by its rounds / number of rounds); ``None`` without rounds.

    For consecutive rounds this is their mean duration; gaps (evaluation) do not count, overlaps count once.
    ``copies``: how many workers each node represents (``stands_for``), if any represents more than itself.
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
    """Return training samples per second of all workers: the sum of each one's own rate; evaluation left out.

    ``None`` where no worker says how many samples there were, as in a user's script.
    ``rounds``: of a pipeline, those of its replicas (``results.pipelines``), each of which makes steps as one worker.
    Where workers do not wait for each other, the quick ones are done with their rounds long before the slow ones; what
    the slow ones then do alone must not count as the speed of all. ``faults``, the table, tells who was lost, left or
    joined: such a worker's rate counts by the share of the training in which it took part.
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
    """Return how long each node that was lost, left or joined did not take part between two times, in s."""
    return {node: union(edges).total() for node, edges in absences(faults, begin_s, end_s).items()}


def absences(faults: pd.DataFrame, begin_s: float, end_s: float) -> dict[str, list[tuple[float, float]]]:
    """Return from when to when nodes that were lost, left or joined took no part, between two times, in s."""
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
    """Yield each worker, the numbers of the rows that are its rounds, and the time that these cover (s).

    Rows of arrays, as a frame for each of thousands of workers would take a millisecond.
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
    }


def _interval(round_time_s: float | None, interval_of: IntervalOf | None) -> dict[str, RoundInterval]:
    if round_time_s is None or interval_of is None:
        return {}
    low_s, high_s = interval_of(round_time_s)
    return {"round_s": {"mean": round(round_time_s, 6), "low": round(low_s, 6), "high": round(high_s, 6)}}


def _resumed(training: pd.DataFrame) -> dict[str, int]:
    known = training["resumed_round"].head(1).dropna()  # a restart within this run counts on
    return {"resumed_round": int(known.iloc[0])} if len(known) else {}


def numerics(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the bits of a run's parameters depend on besides its Plan; nothing for float32 on processors."""
    training = plan["training"]
    names = ("precision", "deterministic", "compile")
    chosen = {name: training[name] for name in names if training.get(name, "float32") not in ("float32", False)}
    kinds = {node["device"]["kind"] for node in plan["nodes"] if node["role"] != "scheduler"}
    if kinds <= {"cpu"} and not chosen:
        return {}
    return {"numerics": {"devices": sorted(kinds), **{name: training.get(name) for name in names}}}


def _work(rounds: pd.DataFrame, names: Sequence[str]) -> dict[str, list[int]]:
    """Return the least and the most training steps, and samples, of a worker; a round without a number is one step.

    What no worker tells is left out.
    """
    done = rounds.fillna({"steps": 1}).groupby("node")[[*names]].sum(min_count=1)
    if done.empty:
        return {f"{name}_per_worker": [0, 0] for name in names}
    return {f"{name}_per_worker": [int(each.min()), int(each.max())] for name, each in done.items() if each.any()}


def final_digests(finals: pd.DataFrame, plan: Mapping[str, Any], gone: Iterable[str]) -> list[str]:
    """Return the different digests of the workers that train, but for those ``gone`` before the end.

    Others need not end with a model: a server may hold sums of gradients, a part of the keys, or values that are more
    precise than those that it sends.
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
    """Return the different digests of whole models: of each replica, that of its keys' digests in the model's order.

    So it does not depend on where the model is cut. ``digests``: by worker, as in the table ``finals``.
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
    """Return what of ``rounds`` workers have completed, and its least and most where they differ."""
    least = min(completed, default=0)
    most = max(completed, default=0)
    return {"rounds": least} | ({"rounds_per_worker": [least, most]} if least < most else {})


def _completed_rounds(frames: Frames, plan: Mapping[str, Any]) -> list[int]:
    """Return how many rounds each training worker has completed; a worker without a log has completed none.

    Those do not count that were lost or had left at the end, or have never joined.
    """
    rounds = frames["rounds"]
    nodes = frames["nodes"]
    workers = {node["name"] for node in plan["nodes"] if node["role"] == "worker" and node["trains"]}
    workers -= gone_nodes(frames["faults"]).keys() | (_late_comers(plan) - set(nodes["node"]))
    if plan.get("program") is not None:  # those that report
        counts = rounds.groupby("node")["round"].nunique()
        return [int(count) for count in counts]
    logged = {node: count for node, count in stands_for(nodes).items() if node in workers}
    if sum(logged.values()) < len(workers):
        return [0]
    completed = rounds.groupby("node")["round"].nunique().to_dict()  # after a restart, some are repeated
    return [completed.get(worker, 0) for worker in logged]


@dataclass(frozen=True, slots=True)
class Reached:
    """The evaluation that reached the target: when its values were taken (on the run's clock, in s), and its scores.

    evaluations  how many there were up to this one. If it was the first, the target may have been reached earlier
    """

    snapshot_s: float
    accuracy: float
    loss: float | None
    evaluations: int


def at_target(accuracy: pd.DataFrame, target: Target | None) -> Reached | None:
    """Return the first of two evaluations in a row that meet ``target``; ``None`` if there are none.

    What a restart has trained again counts as it came out then: one round cannot be two evaluations in a row.
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
    """Return the last of some losses; ``None`` if it is unknown, as where a script tells accuracies alone."""
    known = losses.tail(1).dropna()
    return None if known.empty else float(known.iloc[0])


def time_to_target_s(accuracy: pd.DataFrame, target: Target | None, start_s: float) -> float | None:
    """Return the seconds from ``start_s`` to the snapshot that reached ``target``; ``None``: it never was."""
    reached = at_target(accuracy, target)
    return None if reached is None else _rounded(reached.snapshot_s - start_s)


def sent_by_link(links: pd.DataFrame) -> dict[str, int]:
    """Return the bytes that each WAN link has sent by its last sample, frames with their headers."""
    sent = counted(links["bytes"].to_numpy(float), *successive(links["link"].factorize()[0]))
    sums = links[["link"]].assign(bytes=sent).groupby("link")["bytes"].sum()
    return {str(name): int(sent) for name, sent in sums.items()}


def by_site(sent: Mapping[str, int], sites: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return what each data centre's own links carried: ``up`` away from it, ``down`` to it."""
    found = {site: {"up": 0, "down": 0} for site in sites}
    for link, size in sent.items():
        source, _, target = link.partition(">")
        for site, way in ((source, "up"), (target, "down")):
            if site in found:
                found[site][way] += size
    return found


def _wan_of_program(frames: Frames, sites: list[str]) -> dict[str, Any]:
    """Return what the links have carried: the messages of a user's program are not recorded."""
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
    """Return the faults of the Plan that no event tells of, by their targets: the run had ended before them."""
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
    """Return the nodes that were lost or had left at the end, with the cause."""
    gone: dict[str, str] = {}
    for _, node, joins, cause in _changes(events):
        if joins:
            gone.pop(node, None)
        else:
            gone.setdefault(node, cause)
    return gone


def _changes(events: pd.DataFrame) -> Iterator[tuple[float, str, bool, str]]:
    """Yield who joined, was lost or left, in order: when (s), the node, whether it joined, and the cause."""
    epochs = events[events["kind"] == "epoch"]
    columns = (epochs[name] for name in ("t_s", "targets", "begins", "message"))
    for at_s, targets, joins, cause in zip(*columns, strict=True):
        for node in str(targets).split(", "):
            yield float(at_s), node, bool(joins), cause


def _late_comers(plan: Mapping[str, Any]) -> set[str]:
    """Return the nodes that a fault of the Plan lets join later, by themselves or with their server."""
    named = {name for fault in plan.get("faults", ()) if fault["kind"] == "join" for name in fault["targets"]}
    return named | {node["name"] for node in plan["nodes"] if named.intersection(node["parents"])}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)  # the event log keeps microseconds


def _content_sha256(result: Mapping[str, Any]) -> str:
    return sha256_of({key: value for key, value in result.items() if key not in _OUTSIDE_HASH})
