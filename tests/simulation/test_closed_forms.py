"""Rounds of the engine's roles on an idle, even network against closed forms, and what must not change a time.

M: bytes of the model (ResNet-18, one key), W workers in each of D data centres, C the LAN's and U the WAN's rate, ε and
δ their one-way delays (a WAN path has a LAN's at each end), c a step. Headers are some 1e-6 of a message.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testbed.engine.roles import make_role
from testbed.plan.build import build_plan
from testbed.scenario.load import loads
from testbed.simulation.run import simulate
from tests.simulation.star import FLUID, read_events

HEADERS = 2e-5  # relative
M = 11_689_512 * 4
CENTRAL = "a"


@dataclass(frozen=True)
class Even:
    """``sites`` data centres beside a central one that does not train; rates in bit/s."""

    sites: int = 3
    workers: int = 2
    wan_bps: float = 1e8
    lan_bps: float = 1e10
    delay_s: float = 0.02
    lan_delay_s: float = 1e-4
    step_s: float = 0.5
    iterations: int = 3
    servers: int = 1
    buckets: int = 1
    settings: tuple[str, ...] = ()

    def text(self) -> str:
        names = [f"b{i}" for i in range(self.sites)]
        sites = [f"{{name: {name}, workers: {self.workers}}}" for name in names]
        links = [
            f"{{between: [{CENTRAL}, {name}], rate: {self.wan_bps:.0f} bit/s, delay: {self.delay_s * 1e6:.0f} us}}"
            for name in names
        ]
        return f"""
version: 1
name: even
seed: 1
run: {{on: simulate}}
topology:
  data_centers: [{{name: {CENTRAL}, central: true, workers: 0, global_servers: {self.servers}}}, {", ".join(sites)}]
  links: [{", ".join(links)}]
  lan: {{rate: {self.lan_bps:.0f} bit/s, delay: {self.lan_delay_s * 1e6:.0f} us}}
training: {{model: {{kind: declared, name: resnet18, buckets: {self.buckets}}}, data: none, batch: 1,
           iterations: {self.iterations}, evaluate_every: 100, compute: modelled}}
device: {{step_time: {self.step_s * 1e6:.0f} us}}
timeouts: {{rendezvous: 1 h, step_deadline: 100 h, run_deadline: 300 h}}
"""

    @property
    def delta_s(self) -> float:
        return self.delay_s + 2 * self.lan_delay_s

    @property
    def lan_s(self) -> float:
        """Up or down inside a data centre."""
        return self.lan_delay_s + M * 8 * self.workers / self.lan_bps

    def wan_s(self, size: float = M) -> float:
        """Up or down between data centres; the global servers' ports may be the bottleneck."""
        return self.delta_s + size * 8 * max(1 / self.wan_bps, self.sites / (self.servers * self.lan_bps))


class Ran:
    """All events, and the lengths of rounds."""

    def __init__(self, even: Even) -> None:
        plan = build_plan(loads(even.text(), overrides=even.settings))
        with tempfile.TemporaryDirectory() as name:
            exits = simulate(plan, make_role, Path(name), lambda event: None, FLUID)
            assert [end.error for end in exits.values() if end.error] == []
            self.events: list[dict[str, Any]] = [
                {"node": node, **event} for node in exits for event in read_events(Path(name), node)
            ]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == kind]

    def rounds_s(self) -> list[float]:
        """Of the first worker that trains; all others wait for the same."""
        return [event["t"] - event["t0"] for event in self.of("round") if event["node"] == "b0/worker0"]

    def wan_payload(self) -> int:
        crossing = [e for e in self.of("transfer") if e["tier"] == "wan" and e["key"] >= 0 and e["round"] >= 0]
        return sum(event["payload_bytes"] for event in crossing)


@pytest.mark.parametrize(
    "even",
    [
        Even(),
        Even(sites=8, wan_bps=1e9, lan_bps=2e9),  # bound by the global server's port
        Even(workers=16, wan_bps=1e9, lan_bps=1e9),  # by the local servers'
    ],
)
def test_fsa(even: Even) -> None:
    """T = c + 2(ε + M·W/C) + 2(δ + M·max(1/U, D/C))."""
    assert Ran(even).rounds_s() == pytest.approx([even.step_s + 2 * even.lan_s + 2 * even.wan_s()] * 3, rel=HEADERS)


@pytest.mark.parametrize("servers", [1, 2, 4])
def test_multigps_divides_the_servers_port(servers: int) -> None:
    """M·D/(G·C) each way at the port; the ways overlap, but for the bucket that the first values wait for."""
    even = Even(8, 1, wan_bps=2e9, lan_bps=1e9, servers=servers, buckets=8, settings=("shard=multigps",))
    port_s = even.wan_s()
    assert port_s > even.delta_s + M * 8 / even.wan_bps or servers == 4
    times = Ran(even).rounds_s()
    floor = even.step_s + 2 * even.delta_s + (1 + 1 / 8) * M * 8 * 8 / (servers * 1e9)
    assert min(times) >= floor * (1 - HEADERS)
    assert max(times) <= (even.step_s + 2 * even.lan_s + 2 * port_s) * (1 + 0.01)


@pytest.mark.parametrize(("k1", "k2"), [(1, 1), (3, 2), (2, 4)])
def test_hfa(k1: int, k2: int) -> None:
    """K2 rounds take K2(K1·c + 2(ε + M·W/C)) + 2(δ + M/U)."""
    even = Even(iterations=2 * k2, settings=(
        f"sync={{kind: hfa, k1: {k1}, k2: {k2}}}", "optimizer={kind: sgd, learning_rate: 0.1, at: worker}",
    ))  # fmt: skip
    expected = 2 * (k2 * (k1 * even.step_s + 2 * even.lan_s) + 2 * even.wan_s())
    assert sum(Ran(even).rounds_s()) == pytest.approx(expected, rel=HEADERS)


def test_hfa_of_single_steps_takes_fsas_time() -> None:
    hfa = Even(settings=("sync={kind: hfa, k1: 1, k2: 1}", "optimizer={kind: sgd, learning_rate: 0.1, at: worker}"))
    assert Ran(hfa).rounds_s() == pytest.approx(Ran(Even()).rounds_s(), rel=HEADERS)


def test_mixedsync_of_one_data_centre_takes_fsas_time() -> None:
    one = Even(sites=1)
    mixed = Even(sites=1, settings=("sync={tier1: fsa, tier2: mixedsync}",))
    assert Ran(mixed).rounds_s() == pytest.approx(Ran(one).rounds_s(), rel=HEADERS)


@pytest.mark.parametrize("sites", [2, 5, 9])
def test_mixedsync_is_stale_by_all_the_others(sites: int) -> None:
    """Even data centres: between two pushes of one there is one of each other: D - 1."""
    even = Even(sites=sites, iterations=12, settings=("sync={tier1: fsa, tier2: mixedsync}",))
    stale = [event["staleness"] for event in Ran(even).of("update") if event["round"] > 2]
    assert sum(stale) / len(stale) == pytest.approx(sites - 1, rel=0.01)


def test_ssp_of_no_staleness_takes_bsps_time_and_tap_is_never_slower() -> None:
    def total_s(sync: str) -> float:
        even = Even(iterations=5, settings=("paradigm=ps", f"sync={sync}", "device.variation=0.6"))
        ran = Ran(even)
        return max(event["t"] for event in ran.of("round")) - ran.of("train")[0]["t"]

    bsp, ssp0, ssp, tap = map(total_s, ("bsp", "{kind: ssp, staleness: 0}", "{kind: ssp, staleness: 2}", "tap"))
    assert tap <= ssp * (1 + 1e-9)
    assert ssp <= bsp * (1 + 1e-9)
    assert ssp0 <= bsp * (1 + 1e-9)


def test_half_precision_halves_the_payload_on_every_hop() -> None:
    whole, half = Ran(Even()), Ran(Even(settings=("codec=fp16",)))
    assert 2 * half.wan_payload() == whole.wan_payload() == 3 * 3 * 2 * M
    assert max(half.rounds_s()) < max(whole.rounds_s())


# ---- what must not change, or change with the units -----------------------------------------------------------------


def test_even_data_centres_end_their_rounds_together() -> None:
    ends: dict[int, set[float]] = {}
    for event in Ran(Even(sites=6)).of("round"):
        ends.setdefault(event["round"], set()).add(event["t"])
    assert {len(times) for times in ends.values()} == {1}


def test_twice_the_rates_and_twice_the_bytes_take_the_same_time() -> None:
    once = Ran(Even(settings=("codec=fp16",)))
    twice = Ran(Even(wan_bps=2e8, lan_bps=2e10))
    assert twice.rounds_s() == pytest.approx(once.rounds_s(), rel=HEADERS)


def test_all_times_twice_as_long_make_a_round_twice_as_long() -> None:
    slow = Even(wan_bps=5e7, lan_bps=5e9, delay_s=0.04, lan_delay_s=2e-4, step_s=1.0)
    assert Ran(slow).rounds_s() == pytest.approx([2 * each for each in Ran(Even()).rounds_s()], rel=HEADERS)


def test_more_wan_never_delays_a_round() -> None:
    times = [max(Ran(Even(wan_bps=rate)).rounds_s()) for rate in (5e7, 1e8, 4e8, 1e9)]
    assert times == sorted(times, reverse=True)
