"""Paths between any two of very many data centres: the Plan has those with the central one, others are found.

Very many are more than eight here, not 64: each round of a ring has as many steps as twice its ranks.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from testbed.engine.roles import make_role
from testbed.errors import ScenarioError
from testbed.plan import network
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.scenario.load import loads
from testbed.simulation.run import simulate

SITES = 10
SCENARIO = """
version: 1
name: many
seed: 1
run: {{on: simulate}}
topology: {{generator: {{kind: uneven_star, data_centers: {sites}, workers: 1}}}}
training: {{model: {{kind: declared, name: resnet18, buckets: 1}}, data: none, batch: 8, rounds: 1,
            compute: modelled}}
paradigm: {{kind: allreduce, algorithm: ring}}
"""


@pytest.fixture(autouse=True)
def _few_are_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "ALL_PAIRS_LIMIT", 8)


def plan_of(sites: int, *overrides: str) -> Plan:
    return build_plan(loads(SCENARIO.format(sites=sites), overrides=overrides))


def test_what_is_found_is_what_a_plan_of_few_has() -> None:
    few = plan_of(8).network
    found = replace(few, routes={})
    assert {name: found.between(*name.split(">")) for name in few.routes} == few.routes


def test_real_networks_have_all_paths_beforehand() -> None:
    """A namespace never asks for a path, nor do others' packets."""
    real = (
        "training.data=digits",
        "training.compute=real",
        "training.model=mlp",
        "training.evaluate_every=1",
        "background=[{kind: constant, from: dc1, to: dc2, rate: 1 Mbit/s}]",
    )
    for on in ("emulate", "exact", "local"):
        routes = plan_of(SITES, f"run.on={on}", *real[: -1 if on == "local" else None]).network.routes
        assert len(routes) == SITES * (SITES - 1) and routes["dc1>dc2"] == ("dc1>dc0", "dc0>dc2"), on


def test_others_traffic_may_flow_where_the_plan_has_no_route(tmp_path: Path) -> None:
    """Between two data centres of very many; it takes its rate from the links of the path that is found."""
    traffic = "background=[{kind: constant, from: dc1, to: dc2, rate: 1 Mbit/s}]"
    plan = build_plan(loads(SCENARIO.format(sites=SITES), overrides=(traffic, "paradigm=ps")))
    exits = simulate(plan, make_role, tmp_path, lambda event: None)
    assert not [end.error for end in exits.values() if end.error]
    with pytest.raises(ScenarioError, match="no path from 'dc1' to 'nowhere'"):
        build_plan(loads(SCENARIO.format(sites=SITES), overrides=(traffic.replace("dc2", "nowhere"),)))


def test_a_generated_network_has_the_routing_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "ALL_PAIRS_LIMIT", 64)
    made = "topology.generator={kind: waxman, data_centers: 20, workers: 1}"
    by_delay, by_hops = (
        build_plan(loads(SCENARIO.format(sites=2), overrides=[made, f"topology.routing={routing}"])).network.routes
        for routing in ("delay", "hops")
    )
    assert all(len(by_hops[name]) <= len(path) for name, path in by_delay.items())
    assert any(len(by_hops[name]) < len(path) for name, path in by_delay.items())
