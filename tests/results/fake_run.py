"""A small run with a known course, made without any engine: for tests of tables, analysis and the command.

Three data centres around ``virginia``, two workers each, FSA, two keys. In every round a worker computes for 50 ms
(tokyo's for 80 ms), pushes over a 2 ms LAN, and each WAN transfer takes 100 ms of queueing and transmission.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.execution.session import SessionResult
from testbed.plan import model
from testbed.plan.model import LinkPlan, NetworkPlan, NodePlan, Plan, SitePlan
from testbed.results.events import EventLog
from testbed.settings.job import Choice

SITES = ("virginia", "tokyo", "frankfurt")
PAYLOAD = {0: 4_000, 1: 100_000}
HEADER = 90
STEP_S = {"virginia": 0.050, "tokyo": 0.080, "frankfurt": 0.050}
LAN_S, WAN_S, SUM_S, UPDATE_S = 0.002, 0.100, 0.001, 0.005
START_S = 1.0
PROBES_S = 0.05
_MADE: dict[tuple[Any, ...], dict[str, bytes]] = {}  # files of finished runs, by what they were made of


def make_plan(*, back_end: str = "emulate", rounds: int = 8, sync: str = "fsa", seed: int = 1) -> Plan:
    """A Plan as the planner would write it."""
    links = tuple(_link(a, b) for a, b in _pairs())
    return Plan(
        version=model.PLAN_VERSION,
        name="quickstart",
        seed=seed,
        back_end=back_end,
        nodes=tuple(_nodes()),
        network=NetworkPlan(
            sites=tuple(
                SitePlan(name=name, index=i, lan_rate_bps=1e9, lan_delay_s=1e-3, central=i == 0)
                for i, name in enumerate(SITES)
            ),
            routers=(),
            links=links,
            routes={f"{a}>{b}": (f"{a}>{b}",) for a, b in _pairs()},
        ),
        transport=model.Transport(),
        training=model.TrainingPlan(
            model=Choice(kind="geomx-cnn"),
            data=Choice(kind="digits"),
            split=Choice(kind="iid"),
            batch_size=32,
            rounds=rounds,
            evaluate_every=2,
            target_accuracy=0.8,
        ),
        technique=model.TechniquePlan(
            paradigm=Choice(kind="hips"),
            sync_tier1=Choice(kind="fsa"),
            sync_tier2=Choice(kind=sync),
            optimizer=Choice(kind="adam"),
            codec_tier1=Choice(kind="none"),
            codec_tier2=Choice(kind="none"),
            order=Choice(kind="fifo"),
            overlay_tier1=Choice(kind="star"),
            overlay_tier2=Choice(kind="star"),
            shard=Choice(kind="hashed"),
        ),
        timeouts=model.Timeouts(
            heartbeat_s=1,
            dead_after_s=9,
            step_deadline_s=30,
            run_deadline_s=600,
            tcp_user_timeout_s=30,
            rendezvous_s=30,
        ),
        warnings=("network.jitter has no effect here",),
    )


def write_events(plan: Plan, events: Path, *, rate_bps: float = 20e6) -> None:
    """The logs of all nodes and of the back end's monitor."""
    logs = {node.name: EventLog(events, node.name) for node in plan.nodes}
    for node in plan.nodes:
        logs[node.name].write("start", 0.1, role=node.role, data_center=node.data_center, pid=100 + node.rank)
    logs["virginia/worker0"].write("train", START_S, rounds=plan.training.rounds, workers=6)
    now = START_S
    for round_ in range(plan.training.rounds):
        now = _write_round(logs, round_, now)
        if round_ % plan.training.evaluate_every == 1:
            score = {"accuracy": round(1 - math.exp(-(round_ + 1) / 3), 4), "loss": math.exp(-round_ / 3)}
            logs["virginia/worker0"].write("evaluate", now + 0.2, round=round_, snapshot_t=now, **score)
            now += 0.3  # evaluation: between rounds
    for node in plan.nodes:
        digest = {} if node.role == "scheduler" else {"parameters_sha256": "ab" * 32}
        logs[node.name].write("final", now, role=node.role, rounds=plan.training.rounds, **digest)
        logs[node.name].close()
    _write_monitor(plan, events, now, rate_bps)


def write_probes(plan: Plan, events: Path) -> None:
    """What an emulated network's monitor records before training: an echo over each link, then a flood of the last."""
    log = EventLog(events, "network-monitor")
    for sample, (carried, flooded) in enumerate([(0, 0), (98, 0), (98, 200_000), (98, 400_000)]):
        for link in plan.network.links:
            sent = carried + (flooded if link is plan.network.links[-1] else 0)
            log.write(
                "probe",
                PROBES_S + 0.1 * sample,
                link=link.name,
                configured_bps=link.rate_bps,
                bytes=sent,
                dropped_packets=0,
                backlog_bytes=0,
            )
        log.flush()
    log.close()


def fake_session(plan: Plan, directory: Path, on_progress: Callable[[dict[str, Any]], None]) -> SessionResult:
    """Stands in for ``testbed.execution.session.run``: the same run directory and the same kinds of progress."""
    on_progress({"kind": "stage", "name": "network up", "t": 0.0})
    write_events(plan, directory / "events")
    for round_ in range(plan.training.rounds):
        for site in SITES:
            on_progress(
                {
                    "kind": "status",
                    "t": 1.0 + round_,
                    "node": f"{site}/worker0",
                    "round": round_,
                    "loss": 0.5,
                    "wan_up_bytes": 1000 * round_,
                    "wan_down_bytes": 900 * round_,
                    "waiting_for": "round",
                }
            )
    on_progress({"kind": "evaluate", "accuracy": 0.93, "loss": 0.2, "round": 7, "t": 9.0, "snapshot_t": 8.8})
    on_progress({"kind": "warning", "message": "a trace change came 20 ms late"})
    return SessionResult("done", "", 0)


def make_run(path: Path, *, drawn: bool = False, probes: bool = False, **options: Any) -> Path:
    """A finished run directory, by way of the same code that finishes a real one; its figure takes half a second.

    A run of the same options and command line is made once in a process; later ones are copies of its files.
    ``probes``: with what links carried before training.
    """
    key = (drawn, probes, WAN_S, tuple(sorted(options.items())), tuple(sys.argv))
    if key in _MADE:
        for name, content in _MADE[key].items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content)
        return path
    _finish_run(path, make_plan(**options), drawn, probes)
    files = [each for each in path.rglob("*") if each.is_file()]
    _MADE[key] = {str(each.relative_to(path)): each.read_bytes() for each in files}
    return path


def _finish_run(path: Path, plan: Plan, drawn: bool, probes: bool) -> None:
    from testbed.execution.record import prepare
    from testbed.launch import finish

    run = prepare(path, plan, scenario=b"name: quickstart\n", resolved="name: quickstart\n", capabilities={})
    write_events(plan, run.events)
    if probes:
        write_probes(plan, run.events)
    outcome, started = SessionResult("done", "", 0), "2025-03-01T14:05:02+00:00"
    finish(run, plan, outcome, started=started, duration_s=lambda: 12.5, hurry=lambda: not drawn)


def result_of(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((path / "result.json").read_text())
    return result


def _pairs() -> list[tuple[str, str]]:
    hub, *others = SITES
    return [pair for other in others for pair in ((hub, other), (other, hub))]


def _link(source: str, target: str) -> LinkPlan:
    return LinkPlan(
        name=f"{source}>{target}", source=source, target=target, rate_bps=20e6, delay_s=0.05, queue_bytes=250_000
    )


def _nodes() -> list[NodePlan]:
    nodes = [
        NodePlan(name="virginia/scheduler", role="scheduler", data_center="virginia", rank=0),
        NodePlan(
            name="virginia/global0",
            role="global_server",
            data_center="virginia",
            rank=0,
            children=tuple(f"{site}/server0" for site in SITES),
        ),
    ]
    for i, site in enumerate(SITES):
        workers = [f"{site}/worker{j}" for j in range(2)]
        nodes.append(
            NodePlan(
                name=f"{site}/server0",
                role="server",
                data_center=site,
                rank=i,
                parents=("virginia/global0",),
                children=tuple(workers),
            )
        )
        nodes += [
            NodePlan(name=name, role="worker", data_center=site, rank=2 * i + j, parents=(f"{site}/server0",))
            for j, name in enumerate(workers)
        ]
    return nodes


def _write_round(logs: dict[str, EventLog], round_: int, begin: float) -> float:
    """One round of FSA, key after key; returns when the last worker has its values."""
    arrivals: dict[str, float] = {}
    for site in SITES:
        computed = begin + STEP_S[site]
        for worker in (f"{site}/worker0", f"{site}/worker1"):
            logs[worker].write(
                "compute",
                computed,
                t0=begin,
                work="step",
                round=round_,
                modelled_s=STEP_S[site],
                real_s=0.02,
                overrun=False,
            )
            for key in PAYLOAD:
                _transfer(logs, worker, f"{site}/server0", "push", key, round_, computed, LAN_S, "lan")
        summed = computed + LAN_S + SUM_S
        logs[f"{site}/server0"].write(
            "compute",
            summed,
            t0=computed + LAN_S,
            work="sum",
            round=round_,
            modelled_s=None,
            real_s=SUM_S,
            overrun=False,
        )
        for key in PAYLOAD:
            took, tier = (LAN_S, "lan") if site == "virginia" else (WAN_S, "wan")
            arrived = _transfer(logs, f"{site}/server0", "virginia/global0", "push", key, round_, summed, took, tier)
        arrivals[site] = arrived
    complete = max(arrivals.values())
    updated = complete + UPDATE_S
    logs["virginia/global0"].write(
        "compute", updated, t0=complete, work="optimizer", round=round_, modelled_s=None, real_s=UPDATE_S, overrun=False
    )
    last = max(arrivals, key=lambda site: arrivals[site])
    for site in (each for each in SITES if each != last):
        logs["virginia/global0"].write(
            "held",
            updated,
            round=round_,
            member=f"{site}/server0",
            by=f"{last}/server0",
            held_s=round(complete - arrivals[site], 6),
        )
    return max(_write_way_back(logs, site, round_, begin, updated) for site in SITES)


def _write_way_back(logs: dict[str, EventLog], site: str, round_: int, begin: float, updated: float) -> float:
    took, tier = (LAN_S, "lan") if site == "virginia" else (WAN_S, "wan")
    for key in PAYLOAD:
        logs["virginia/global0"].write(
            "update", updated, key=key, round=round_, version=round_ + 1, contributors=3, staleness=0
        )
        there = _transfer(logs, "virginia/global0", f"{site}/server0", "value", key, round_, updated, took, tier)
        for worker in (f"{site}/worker0", f"{site}/worker1"):
            end = _transfer(logs, f"{site}/server0", worker, "value", key, round_, there, LAN_S, "lan")
    for worker in (f"{site}/worker0", f"{site}/worker1"):
        logs[worker].write("round", end, t0=begin, round=round_, loss=math.exp(-round_ / 4), samples=32)
    return end


def _transfer(
    logs: dict[str, EventLog],
    source: str,
    target: str,
    message: str,
    key: int,
    round_: int,
    t0: float,
    took: float,
    tier: str,
) -> float:
    logs[target].write(
        "transfer",
        t0 + took,
        t0=t0,
        source=source,
        target=target,
        message=message,
        key=key,
        round=round_,
        payload_bytes=PAYLOAD[key],
        header_bytes=HEADER,
        tier=tier,
    )
    return t0 + took


def _write_monitor(plan: Plan, events: Path, end: float, rate_bps: float) -> None:
    log = EventLog(events, "monitor")
    sent = dict.fromkeys((link.name for link in plan.network.links), 0)
    for link in plan.network.links:
        log.write("measured", 0.5, link=link.name, what="rate", planned=20e6, measured=19.8e6, tolerance=4e5, ok=True)
    for sample in range(int((end - START_S) / 0.1)):
        t = START_S + 0.1 * sample
        configured = rate_bps if (sample // 10) % 2 == 0 else rate_bps / 2
        for name in sent:
            sent[name] += int(configured / 8 * 0.1 * 0.96) if sample % 3 else 0
            log.write(
                "link",
                t,
                link=name,
                configured_bps=configured,
                bytes=sent[name],
                dropped_packets=2,
                backlog_bytes=1000 if sample % 3 else 0,
                busy_s=0.06 * sample,
                busy_bytes=sent[name],
                busy_possible_bytes=int(sent[name] / 0.96),
            )
        if sample % 10 == 0:
            log.write("machine", t, busy_share=0.5, steal_share=0.0)
            log.write("replay", t, link="virginia>tokyo", planned_t=t, late_s=0.001, what="rate_bps", value=configured)
    log.close()
