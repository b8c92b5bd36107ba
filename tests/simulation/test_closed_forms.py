"""Rounds of the engine's roles on an idle, even network against closed forms, and what must not change a time.

Symbols: see ``tests.simulation.even``. What the orders, codecs and overlays add: ``test_closed_forms_techniques``.
"""

from __future__ import annotations

import pytest

from tests.for_each import for_each
from tests.simulation.even import HEADERS, Even, M, Ran


@for_each(
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


@for_each("servers", [1, 2, 4])
def test_multigps_divides_the_servers_port(servers: int) -> None:
    """M·D/(G·C) each way at the port; the ways overlap, but for the bucket that the first values wait for."""
    even = Even(8, 1, wan_bps=2e9, lan_bps=1e9, servers=servers, buckets=8, settings=("shard=multigps",))
    port_s = even.wan_s()
    assert port_s > even.delta_s + M * 8 / even.wan_bps or servers == 4
    times = Ran(even).rounds_s()
    floor = even.step_s + 2 * even.delta_s + (1 + 1 / 8) * M * 8 * 8 / (servers * 1e9)
    assert min(times) >= floor * (1 - HEADERS)
    assert max(times) <= (even.step_s + 2 * even.lan_s + 2 * port_s) * (1 + 0.01)


@for_each(("k1", "k2"), [(1, 1), (3, 2), (2, 4)])
def test_hfa(k1: int, k2: int) -> None:
    """K2 rounds take K2(K1·c + 2(ε + M·W/C)) + 2(δ + M/U)."""
    even = Even(
        rounds=2 * k2,
        settings=(
            f"sync={{kind: hfa, k1: {k1}, k2: {k2}}}",
            "optimizer={kind: sgd, learning_rate: 0.1, at: worker}",
        ),
    )
    expected = 2 * (k2 * (k1 * even.step_s + 2 * even.lan_s) + 2 * even.wan_s())
    assert sum(Ran(even).rounds_s()) == pytest.approx(expected, rel=HEADERS)


def test_hfa_of_single_steps_takes_fsas_time() -> None:
    hfa = Even(settings=("sync={kind: hfa, k1: 1, k2: 1}", "optimizer={kind: sgd, learning_rate: 0.1, at: worker}"))
    assert Ran(hfa).rounds_s() == pytest.approx(Ran(Even()).rounds_s(), rel=HEADERS)


def test_mixedsync_of_one_data_centre_takes_fsas_time() -> None:
    one = Even(sites=1)
    mixed = Even(sites=1, settings=("sync={tier1: fsa, tier2: mixedsync}",))
    assert Ran(mixed).rounds_s() == pytest.approx(Ran(one).rounds_s(), rel=HEADERS)


@for_each("sites", [2, 5, 9])
def test_mixedsync_is_stale_by_all_the_others(sites: int) -> None:
    """Even data centres: between two pushes of one there is one of each other: D - 1."""
    even = Even(sites=sites, rounds=12, settings=("sync={tier1: fsa, tier2: mixedsync}",))
    stale = [event["staleness"] for event in Ran(even).of("update") if event["round"] > 2]
    assert sum(stale) / len(stale) == pytest.approx(sites - 1, rel=0.01)


def test_ssp_of_no_staleness_takes_bsps_time_and_tap_is_never_slower() -> None:
    def total_s(sync: str) -> float:
        even = Even(rounds=5, settings=("paradigm=ps", f"sync={sync}", "device.variation=0.6"))
        ran = Ran(even)
        return max(event["t"] for event in ran.of("round")) - ran.of("train")[0]["t"]

    bsp, ssp0, ssp, tap = map(total_s, ("bsp", "{kind: ssp, staleness: 0}", "{kind: ssp, staleness: 2}", "tap"))
    assert tap <= ssp * (1 + 1e-7)
    assert ssp <= bsp * (1 + 1e-7)
    assert ssp0 <= bsp * (1 + 1e-7)


def test_half_precision_halves_the_payload_on_every_hop() -> None:
    whole, half = Ran(Even()), Ran(Even(settings=("codec=fp16",)))
    assert 2 * half.wan_payload() == whole.wan_payload() == 3 * 3 * 2 * M
    assert max(half.rounds_s()) < max(whole.rounds_s())


def test_every_round_updates_every_key_once() -> None:
    updates = [(event["round"], event["key"]) for event in Ran(Even(buckets=4, rounds=4)).of("update")]
    assert sorted(updates) == [(round_, key) for round_ in range(4) for key in range(4)]


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
