"""The fidelity report: whether network and computation matched the Plan, and whether the machine kept up.

``degraded`` means: read the reasons before you publish times. Reasons are links off their planned rate or round trip
before training, links off their configured rate during training, training steps slower than their device model, late
trace changes, a saturated processor, imprecisely known clocks of a deployment's machines, and a run that failed or was
interrupted. The network of a deployment is only reported as it was measured.
In the virtual world, nothing is measured: times are predictions, and the reasons are doubts of the simulation about its
own model. In every world, a run is degraded if no worker made a step, or if workers that should have equal parameters
end with different ones. Notes do not degrade a run: warnings of the Plan and of nodes, and rounds that an evaluation
held up.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from testbed.facilities import facilities_of
from testbed.results import COMPLETED
from testbed.results.events import DOUBT, EVALUATING, NO_STEP, NOT_EXCHANGED, NOT_FINISHED
from testbed.results.samples import counted, successive
from testbed.results.summary import covered_round_time_s, final_digests, gone_nodes

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1

Frames = Mapping[str, "pd.DataFrame"]
_COUNTERS = ["bytes", "dropped_packets", "busy_s", "busy_bytes", "busy_possible_bytes"]
_UNITS = {"rate": (1e-6, "Mbit/s"), "rtt": (1e3, "ms")}


# limits beyond which a run is degraded
RATE_EXCESS = 0.10  # in one sample, a link may carry this share more than its configured rate allows
AT_ONCE_BYTES = 3 * 1514  # in addition, its shaper may pass these frames at once after a pause: much for a slow link
RATE_SHORTFALL = 0.15  # while packets are queued, a link may carry this share less than configured, on average
SHORTEST_SAMPLE_S = 0.05  # timing errors dominate the rate of a shorter sample
BUSY_LINK_S = 1.0  # links that had a queue for less time are not judged
OVERRUN_SHARE = 0.05  # share of training steps that took longer than modelled
LATE_S = 0.1  # delay of trace changes, 99th percentile
BUSY_SHARE = 0.95  # all cores count as busy in a sample above this share
SATURATED_SHARE = 0.10  # share of samples in which all cores were busy
STEAL_SHARE = 0.05  # mean share of the processor time that the hypervisor took
CLOCK_ERROR_S = 1e-3  # uncertainty of the clock of a deployment's machine
HELD_UP_SHARE = 0.01  # share of a worker's round times that it waited for scores; only noted
ROUND_DEVIATION = 0.03  # of the first rounds from the same rounds simulated packet by packet


def assess(
    frames: Frames,
    plan: Mapping[str, Any],
    capabilities: Mapping[str, Any],
    ending: str = "done",
    equal_every: int = 0,
) -> dict[str, Any]:
    """Return the content of ``fidelity.json``. ``reasons`` is empty exactly if ``status`` is ``ok``.

    ending       the status with which the run ended
    equal_every  number of rounds after which all workers must have equal parameters again; 0: never
    """
    measured = _measured(frames["measured"])
    links = _links(frames["links"])
    compute = _compute(frames["computes"])
    replay = _replay(frames["replay"])
    machine = _machine(frames["machine"])
    rounds = _rounds(frames["rounds"], frames["predicted"])
    real = facilities_of(plan).has_processes
    training = [*_training_reasons(frames, plan, equal_every)] if ending in COMPLETED else []
    reasons = [
        *([] if ending in COMPLETED else [f"run: {ending}; times and bytes are those until then"]),
        *(row["problem"] for row in [*measured, *links] if row["problem"]),
        *(_reasons(compute, replay, machine) if real else ()),
        *_round_reasons(rounds, capabilities),
        *_clock_reasons(capabilities),
        *_doubts(frames["warnings"]),
        *training,
    ]
    held_up = _held_up(frames["waits"], frames["rounds"])
    told = {DOUBT, NOT_FINISHED, *({NO_STEP, NOT_EXCHANGED} if training else ())}
    notes = [*held_up, *_network_model(plan), *plan["warnings"], *_node_warnings(frames["warnings"], measured, told)]
    return {
        "schema_version": SCHEMA_VERSION,
        "status": "degraded" if reasons else "ok",
        "reasons": list(dict.fromkeys(reasons)),
        "notes": [note for note in dict.fromkeys(notes) if note not in reasons],
        "measured_before_training": measured,
        "links_while_running": links,
        "compute": compute,
        "paths": _paths(frames["paths"]),
        "replay": replay,
        "machine": machine,
        "first_rounds": rounds,
        "capabilities": dict(capabilities),
    }


def _measured(measured: pd.DataFrame) -> list[dict[str, Any]]:
    rows = measured.astype(object).where(measured.notna(), None).to_dict("records")
    named = [{str(column): value for column, value in row.items()} for row in rows]
    return [{**row, "problem": "" if row["ok"] else _mismatch(row)} for row in named]


def _mismatch(row: Mapping[str, Any]) -> str:
    factor, unit = _UNITS.get(str(row["what"]), (1.0, ""))
    planned, allowed = (f"{row[name] * factor:.4g}" for name in ("planned", "tolerance"))
    found = "nothing arrived" if row["measured"] is None else f"measured {row['measured'] * factor:.4g} {unit}"
    return f"{row['link'] or row['path']}: {row['what']} planned {planned} ± {allowed} {unit}, {found}"


def _links(links: pd.DataFrame) -> list[dict[str, Any]]:
    import numpy as np

    numbers, names = links["link"].factorize(sort=True)
    later, before = successive(numbers)
    columns = ["configured_bps", "highest_bps", "interval_s", "achieved_bps", *_COUNTERS]
    configured_bps, highest_bps, interval_s, achieved_bps, *counters = links[columns].to_numpy(float, na_value=np.nan).T
    # judge a sample by the highest rate that the link had in it; simulated links are sampled before and after each
    # change of the rate
    highest_bps = np.fmax(highest_bps, configured_bps)
    highest_bps[later] = np.fmax(highest_bps[later], configured_bps[before])
    judged = (configured_bps > 0) & (interval_s >= SHORTEST_SAMPLE_S)
    share = np.divide(achieved_bps, highest_bps, out=np.full(len(links), np.nan), where=judged)
    possible_bytes = np.where(judged, highest_bps * interval_s / 8, np.inf)
    excess = share > 1 + RATE_EXCESS + AT_ONCE_BYTES / possible_bytes
    order = np.argsort(numbers, kind="stable")
    first = np.flatnonzero(np.diff(numbers[order], prepend=-1))  # the first sample of each link, in this order
    totals = {
        name: np.add.reduceat(counted(counter, later, before)[order], first)
        for name, counter in zip(_COUNTERS, counters, strict=True)
    }
    totals |= {
        "first_bytes": counters[0][order][first],
        "share": np.fmax.reduceat(share[order], first),
        "excess": np.logical_or.reduceat(excess[order], first),
    }
    rows = zip(*totals.values(), strict=True)
    return [
        _link(str(name), dict(zip(totals, map(_number, row), strict=True)))
        for name, row in zip(names, rows, strict=True)
    ]


def _link(name: str, totals: Mapping[str, Any]) -> dict[str, Any]:
    """Return one link's entry. ``totals`` has the sums of its counters, ``None`` for those not measured."""
    dropped = totals["dropped_packets"]
    share = totals["share"]
    possible = totals["busy_possible_bytes"]
    row = {
        "link": name,
        "bytes": int(totals["bytes"] - totals["first_bytes"]),
        "dropped_packets": None if dropped is None else int(dropped),
        "busy_s": round(totals["busy_s"] or 0.0, 3),
        "achieved_share_when_busy": round((totals["busy_bytes"] or 0.0) / possible, 4) if possible else None,
        "highest_share": None if share is None else round(share, 4),
    }
    return {**row, "problem": _link_problem(row, bool(totals["excess"]))}


def _link_problem(row: Mapping[str, Any], excess: bool) -> str:
    share = row["achieved_share_when_busy"]
    if excess:
        return f"{row['link']}: carried {row['highest_share']:.0%} of its configured rate in one sample"
    if share is not None and row["busy_s"] >= BUSY_LINK_S and share < 1 - RATE_SHORTFALL:
        return f"{row['link']}: reached {share:.0%} of its configured rate while packets were queued"
    return ""


def _paths(paths: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the measurements between data centres of a deployment, by path: before, during and after training."""
    order = {"before": 0, "during": 1, "after": 2}
    rows = []
    for (path, when), group in paths.groupby(["path", "when"], sort=True):
        packets = int(group["packets"].fillna(0).sum())
        repeated = float((group["loss"].fillna(0.0) * group["packets"].fillna(0)).sum())
        failed = [text for text in group["failed"] if isinstance(text, str)]
        row = {
            "path": path,
            "when": when,
            "rtt_s": _number(group["rtt_s"].median()),
            "min_rtt_s": _number(group["min_rtt_s"].min()),
            "rate_bps": _number(group["rate_bps"].median()),
            "loss": round(repeated / packets, 6) if packets else None,
            "packets": packets,
        }
        rows.append(row | ({"failed": failed[0]} if failed else {}))
    return sorted(rows, key=lambda row: (row["path"], order[row["when"]]))


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _clock_reasons(capabilities: Mapping[str, Any]) -> Iterator[str]:
    for machine in capabilities.get("cluster", {}).get("machines", ()):
        error_s = machine["clock"]["error_s"]
        if error_s is None:
            yield f"{machine['name']}: its clock was never compared with the driver's"
        elif error_s > CLOCK_ERROR_S:
            yield (
                f"{machine['name']}: its clock is known only to {error_s * 1e3:.1f} ms, half of the round trip to it; "
                "times of transfers between machines are no more precise, but durations on one machine are exact"
            )


def _compute(computes: pd.DataFrame) -> dict[str, Any]:
    steps = computes[(computes["work"] == "step") & computes["modelled_s"].notna()]
    over = steps[steps["overrun"].fillna(False).astype(bool)]
    late = (over["t_s"] - over["t0_s"] - over["modelled_s"]).max() if len(over) else 0.0
    return {
        "steps": len(steps),
        "overrun_steps": len(over),
        "overrun_share": round(len(over) / len(steps), 4) if len(steps) else 0.0,
        "worst_overrun_s": round(float(late), 6),
    }


def _replay(replay: pd.DataFrame) -> dict[str, Any]:
    late = replay["late_s"].dropna()
    return {
        "changes": len(replay),
        "late_p99_s": round(float(late.quantile(0.99)), 6) if len(late) else 0.0,
        "late_max_s": round(float(late.max()), 6) if len(late) else 0.0,
    }


def _machine(machine: pd.DataFrame) -> dict[str, Any]:
    """Return a summary of the samples of the machine's processors."""
    if machine.empty:
        return {"samples": 0, "busy_mean": None, "saturated_share": None, "steal_mean": None}
    return {
        "samples": len(machine),
        "busy_mean": round(float(machine["busy_share"].mean()), 4),
        "saturated_share": round(float((machine["busy_share"] > BUSY_SHARE).mean()), 4),
        "steal_mean": round(float(machine["steal_share"].fillna(0.0).mean()), 4),
    }


def _reasons(compute: Mapping[str, Any], replay: Mapping[str, Any], machine: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reasons why the machine slowed a run in real time down."""
    if compute["overrun_share"] > OVERRUN_SHARE:
        yield (
            f"{compute['overrun_steps']} of {compute['steps']} training steps took longer than their device model, "
            f"by up to {compute['worst_overrun_s'] * 1000:.0f} ms; use a longer step time, fewer workers or more cores"
        )
    if replay["late_p99_s"] > LATE_S:
        yield (
            f"link changes of the trace came late: 99th percentile {replay['late_p99_s'] * 1000:.0f} ms, "
            f"worst {replay['late_max_s'] * 1000:.0f} ms"
        )
    if (machine["saturated_share"] or 0.0) > SATURATED_SHARE:
        yield (
            f"all cores were busy (> {BUSY_SHARE:.0%}) in {machine['saturated_share']:.0%} of the samples: "
            "computation may have delayed messages"
        )
    if (machine["steal_mean"] or 0.0) > STEAL_SHARE:
        yield f"the hypervisor took {machine['steal_mean']:.0%} of the processor time (steal)"


def _rounds(rounds: pd.DataFrame, predicted: pd.DataFrame) -> dict[str, Any] | None:
    """Compare the mean duration of the first rounds with that of the same rounds simulated packet by packet."""
    if rounds.empty or predicted.empty:
        return None
    count = int(min(predicted["round"].max(), rounds["round"].max())) + 1  # the run may have ended sooner
    if rounds["round"].min() > 0:
        return None  # the run began with a checkpoint, at which the changes of links began anew
    once = rounds.drop_duplicates(["node", "round"])  # a restart repeats some rounds
    measured_s = covered_round_time_s(once[once["round"] < count])
    first = predicted[predicted["round"] < count]
    predicted_s = covered_round_time_s(first.rename(columns={"worker": "node"}))
    if measured_s is None or predicted_s is None:
        return None
    return {
        "rounds": count,
        "measured_s": round(measured_s, 6),
        "predicted_s": round(predicted_s, 6),
        "deviation": round(measured_s / predicted_s - 1, 4),
    }


def _round_reasons(rounds: Mapping[str, Any] | None, capabilities: Mapping[str, Any]) -> Iterator[str]:
    if rounds is None or abs(rounds["deviation"]) <= ROUND_DEVIATION:
        return
    measured, predicted = (f"{rounds[name] * 1e3:.4g} ms" for name in ("measured_s", "predicted_s"))
    which = "round" if rounds["rounds"] == 1 else f"{rounds['rounds']} rounds"
    compared = f"the first {which} took {measured}, but {predicted} when simulated packet by packet"
    root = "" if capabilities.get("realtime", True) else "root, whose messages wait for no core, "
    cure = f": processes took the rest; use {root}more cores, fewer nodes, or --on exact"
    yield f"{compared} ({rounds['deviation']:+.1%}){cure if rounds['deviation'] > 0 else ''}"


def _held_up(waits: pd.DataFrame, rounds: pd.DataFrame) -> list[str]:
    """Return a note if rounds waited long for evaluations, whose scores decide whether training goes on."""
    held = waits.loc[waits["waiting_for"] == EVALUATING, ["node", "t0_s", "t_s"]]
    if held.empty:
        return []
    import pandas as pd

    spans = rounds[["node", "round", "t0_s", "t_s"]].rename(columns={"t0_s": "begin_s", "t_s": "end_s"})
    within = pd.merge_asof(
        held.sort_values("t0_s"), spans.sort_values("begin_s"), left_on="t0_s", right_on="begin_s", by="node"
    )
    within = within[within["t_s"] <= within["end_s"]]
    seconds = float((within["t_s"] - within["t0_s"]).sum())
    own = rounds[rounds["node"].isin(within["node"])]
    if seconds <= HELD_UP_SHARE * float((own["t_s"] - own["t0_s"]).sum()):
        return []
    count = within["round"].nunique()
    told = f"evaluation held up {count} round{'s' * (count > 1)}, for {seconds:.3g} s in all, which their times include"
    return [f"{told}: raise training.evaluate_every"]


def _network_model(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield the model of the network that a simulation used, and why. Plans of earlier releases do not state it."""
    simulation = plan.get("simulation", {})
    if simulation.get("network_reason"):  # only Plans of simulations have a reason
        yield f"the network was simulated by {simulation['network']}, {simulation['network_reason']}"


def _doubts(warnings: pd.DataFrame) -> list[str]:
    """Return the doubts of a simulation about its own prediction."""
    told: list[str] = warnings.loc[warnings["cause"] == DOUBT, "message"].tolist()
    return told


def _training_reasons(frames: Frames, plan: Mapping[str, Any], equal_every: int) -> Iterator[str]:
    """Yield the reasons why the run did not train as its scenario says: no step, or different models of workers."""
    warnings = frames["warnings"]
    finals = frames["finals"]
    done = frames["rounds"]
    if done.empty and (warnings["cause"] == NO_STEP).any():
        yield "no worker made a step: the script got no batch, or did not enter its loop"
    if (warnings["cause"] == NOT_FINISHED).any():
        later = int((done["t_s"] > frames["accuracy"]["snapshot_t_s"].max()).sum())
        if later:
            yield (
                f"the last score is that of an early model: {later} of {len(done)} rounds came after it; let every "
                "worker call optimizer.finish() (or store.finish()) after its last step, and worker 0 report then"
            )
    rounds = finals["rounds"].max()
    should_be_equal = equal_every and rounds > 0 and rounds % equal_every == 0
    if should_be_equal and len(final_digests(finals, plan, gone_nodes(frames["faults"]))) > 1:
        yield f"the workers end with different parameters: {_why_different(warnings, done)}"


def _why_different(warnings: pd.DataFrame, rounds: pd.DataFrame) -> str:
    not_exchanged: list[str] = warnings.loc[warnings["cause"] == NOT_EXCHANGED, "message"].tolist()
    if not_exchanged:
        return not_exchanged[0]
    told = rounds.dropna(subset=["learning_rates"])
    several = told.groupby("round")["learning_rates"].transform("nunique") > 1
    if several.any():
        first = told[several & (told["round"] == told.loc[several, "round"].min())].drop_duplicates("learning_rates")
        rates = ", ".join(f"{row.learning_rates} at {row.node}" for row in first.itertuples())
        return (
            f"their learning rates differ from round {first['round'].iloc[0]} on ({rates}); let schedulers follow a "
            "number that all workers share"
        )
    return "something on the workers has changed them after the exchange, or outside it"


def _node_warnings(warnings: pd.DataFrame, measured: list[dict[str, Any]], told: Collection[str]) -> list[str]:
    """Return the warnings of nodes, except for mismatches in ``measured`` and for the causes in ``told``."""
    selected = warnings[(warnings["kind"] == "warning") & ~warnings["cause"].isin(list(told))]
    off = tuple(f"{row['link'] or row['path']}: " for row in measured if row["problem"])
    nodes: dict[str, list[str]] = {}  # by message
    for node, message in zip(selected["node"], selected["message"], strict=True):
        if not (off and message.startswith(off) and "planned" in message):
            nodes.setdefault(message, []).append(node)
    return [f"{_first_of(list(dict.fromkeys(told)))}: {message}" for message, told in nodes.items()]


def _first_of(nodes: list[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"{nodes[0]} and {len(nodes) - 1} more"
