"""Plans of which only the network matters, for benchmarks and tests of the emulation."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from testbed.plan.model import LinkPlan, NetworkPlan, NodePlan, Plan, SitePlan, TechniquePlan, TrainingPlan
from testbed.settings.job import Choice
from testbed.settings.run import Timeouts, Transport

NONE = Choice(kind="none")


def links(pairs: dict[tuple[str, str], dict[str, Any]]) -> tuple[LinkPlan, ...]:
    """Return the two directions of a link for each pair, with equal values."""
    found = []
    for (a, b), values in pairs.items():
        settings = {"rate_bps": 20e6, "delay_s": 0.01} | values
        settings.setdefault("queue_bytes", max(30_000, int(settings["rate_bps"] / 8 * 0.05)))
        found += [LinkPlan(name=f"{x}>{y}", source=x, target=y, **settings) for x, y in ((a, b), (b, a))]
    return tuple(found)


def plan(
    pairs: dict[tuple[str, str], dict[str, Any]],
    *,
    sites: int = 2,
    workers: int = 1,
    routers: tuple[str, ...] = (),
    routes: dict[str, tuple[str, ...]] | None = None,
    transport: Transport | None = None,
    lan_rate_bps: float = 1e9,
) -> Plan:
    """Return a Plan of sites ``dc0``, …. By default, routes are the direct links, or lead through the only router."""
    names = [f"dc{number}" for number in range(sites)]
    site_plans = tuple(
        SitePlan(name=name, index=number, lan_rate_bps=lan_rate_bps, lan_delay_s=1e-4, subnet=f"10.0.{number}.0/24")
        for number, name in enumerate(names)
    )
    nodes = tuple(
        NodePlan(
            name=f"{name}/worker{worker}",
            role="worker",
            data_center=name,
            rank=number * workers + worker,
            address=f"10.0.{number}.{worker + 1}",
            port=9000,
        )
        for number, name in enumerate(names)
        for worker in range(workers)
    )
    if routes is None:
        routes = {f"{a}>{b}": _path(a, b, routers) for a in names for b in names if a != b}
    network = NetworkPlan(sites=site_plans, routers=routers, links=links(pairs), routes=routes)
    return Plan(
        version=1,
        name="test",
        seed=1,
        back_end="emulate",
        nodes=nodes,
        network=network,
        transport=transport or Transport(),
        training=TrainingPlan(model=NONE, data=NONE, split=NONE, batch_size=1, rounds=1, evaluate_every=1),
        technique=TechniquePlan(**dict.fromkeys(_names(TechniquePlan), NONE)),
        timeouts=Timeouts(**dict.fromkeys(_names(Timeouts), 1.0)),
    )


def _names(kind: type[Any]) -> list[str]:
    """Return the names of the fields without a default."""
    return [each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING]


def _path(a: str, b: str, routers: tuple[str, ...]) -> tuple[str, ...]:
    return (f"{a}>{routers[0]}", f"{routers[0]}>{b}") if routers else (f"{a}>{b}",)


def pairs_of_sites(count: int, transport: Transport | None = None, **link: Any) -> Plan:
    """Return a Plan of ``count`` pairs of sites (dc0 and dc1, dc2 and dc3, …), each pair with its own link."""
    pairs = {(f"dc{2 * number}", f"dc{2 * number + 1}"): link for number in range(count)}
    routes: dict[str, tuple[str, ...]] = {f"{a}>{b}": (f"{a}>{b}",) for pair in pairs for a, b in (pair, pair[::-1])}
    return plan(pairs, sites=2 * count, routes=routes, transport=transport)
