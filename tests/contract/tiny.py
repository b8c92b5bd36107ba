"""A Plan of a few nodes in two data centres, small enough to read, for tests of both worlds."""

from __future__ import annotations

from collections.abc import Iterable

from testbed.ids import data_center_of, link_name
from testbed.plan.model import (
    PLAN_VERSION,
    LinkPlan,
    NetworkPlan,
    NodePlan,
    Plan,
    SitePlan,
    TechniquePlan,
    TrainingPlan,
)
from testbed.settings.job import Choice, Device
from testbed.settings.run import Timeouts, Transport

STEP_TIME_S = 0.05
TICK_S = 0.002  # the real clock and the real timers may disagree by this much
WAN_RATE_BPS = 100e6
WAN_DELAY_S = 0.005

# Both in one data centre, and one across the WAN.
WORKER, NEIGHBOUR, REMOTE = "west/worker0", "west/server0", "east/global0"


def tiny_plan(names: Iterable[str], *, step_deadline_s: float = 120.0, dead_after_s: float = 60.0) -> Plan:
    """A Plan whose nodes are ``names``; all their data centres form a full mesh of equal WAN links."""
    names = tuple(names)
    sites = sorted({data_center_of(name) for name in names})
    choice = Choice(kind="none")
    return Plan(
        version=PLAN_VERSION,
        name="tiny",
        seed=1,
        back_end="local",
        nodes=tuple(_node(name, rank) for rank, name in enumerate(names)),
        network=_network(sites),
        transport=Transport(best_effort_channels=3),
        training=TrainingPlan(
            model=Choice(kind="mlp"), data=Choice(kind="digits"), split=choice, batch_size=1, rounds=1, evaluate_every=1
        ),
        technique=TechniquePlan(
            paradigm=choice,
            sync_tier1=Choice(kind="fsa"),
            sync_tier2=Choice(kind="fsa"),
            optimizer=choice,
            codec_tier1=choice,
            codec_tier2=choice,
            order=Choice(kind="fifo"),
            overlay_tier1=choice,
            overlay_tier2=choice,
            shard=choice,
        ),
        timeouts=Timeouts(
            heartbeat_s=0.2,
            dead_after_s=dead_after_s,
            step_deadline_s=step_deadline_s,
            run_deadline_s=600.0,
            tcp_user_timeout_s=60.0,
            rendezvous_s=120.0,
        ),
    )


def _node(name: str, rank: int) -> NodePlan:
    word = name.split("/", 1)[1].rstrip("0123456789")
    role = {"global": "global_server"}.get(word, word)
    device = Device(pace="paced", step_time_s=STEP_TIME_S)
    return NodePlan(name=name, role=role, data_center=data_center_of(name), rank=rank, device=device)


def _network(sites: list[str]) -> NetworkPlan:
    pairs = [(a, b) for a in sites for b in sites if a != b]
    links = tuple(
        LinkPlan(
            name=link_name(a, b), source=a, target=b, rate_bps=WAN_RATE_BPS, delay_s=WAN_DELAY_S, queue_bytes=250_000
        )
        for a, b in pairs
    )
    return NetworkPlan(
        sites=tuple(
            SitePlan(name=site, index=index, lan_rate_bps=1e9, lan_delay_s=0.0001, central=index == 0)
            for index, site in enumerate(sites)
        ),
        routers=(),
        links=links,
        routes={link_name(a, b): (link_name(a, b),) for a, b in pairs},
    )
