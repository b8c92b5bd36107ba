"""What orders, codecs and overlays do to the time and the bytes of a round, against closed forms.

Symbols: see ``tests.simulation.even``.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from tests.for_each import for_each
from tests.simulation.even import HEADERS, Even, M, Ran
from tests.simulation.star import FLUID

# ---- DGT ------------------------------------------------------------------------------------------------------------

BLOCK_BYTES = 65_536
BLOCKS = -(-M // BLOCK_BYTES)


def dgt(k: float, *settings: str) -> Even:
    """Only what is reliable is waited for."""
    order = f"{{kind: dgt, k: {k}, adaptive: false, channels: 3, block: {BLOCK_BYTES} bytes, late: heuristic-drop}}"
    return Even(sites=2, rounds=2, settings=(f"order={order}", *settings))


def reliable_bytes(k: float) -> int:
    """round(k·m) blocks of the m, and always the last, short one (sizes without numbers are equal in importance)."""
    last = M - (BLOCKS - 1) * BLOCK_BYTES
    return min(BLOCKS - 1, math.floor(k * BLOCKS + 0.5)) * BLOCK_BYTES + last


@for_each("k", [0.25, 0.5, 0.8])
def test_dgt_pushes_its_share(k: float) -> None:
    """T = c + 2(ε + M·W/C) + (δ + K·M/U) + (δ + M/U)."""
    even = dgt(k)
    expected = even.step_s + 2 * even.lan_s + even.wan_s(reliable_bytes(k)) + even.wan_s()
    assert Ran(even).rounds_s() == pytest.approx([expected] * 2, rel=1e-4)


def test_dgt_of_all_that_is_reliable_takes_fsas_time() -> None:
    plain = Even(sites=2, rounds=2)
    assert Ran(dgt(1)).rounds_s() == pytest.approx(Ran(plain).rounds_s(), rel=1e-4)


def test_dgts_time_does_not_depend_on_what_is_lost() -> None:
    """With BBR, whose rate is C(1 - p): a thousandth here."""
    bbr = replace(FLUID, tcp=replace(FLUID.tcp, congestion_control="bbr"))  # type: ignore[type-var]
    without, lossy = (Ran(dgt(0.5, f"topology.links[*].loss={p}"), bbr).rounds_s() for p in (0, 0.001))
    assert lossy == pytest.approx(without, rel=2e-3)


def test_dgts_blocks_are_delivered_late_or_lost() -> None:
    accounts = Ran(dgt(0.5, "order.late=zero")).of("blocks")
    assert accounts
    for account in accounts:
        assert account["sent"] == account["delivered"] + account["late"] + account["lost"]
        assert account["sent"] == BLOCKS - 1 - math.floor(0.5 * BLOCKS + 0.5)


# ---- Bi-Sparse ------------------------------------------------------------------------------------------------------


@for_each("sites", [2, 4, 5, 6])
@for_each("ratio", [0.01, 0.1])
def test_bisparses_bytes(ratio: float, sites: int) -> None:
    """Up 2·⌊tn⌋ words; down 2·D·⌊tn⌋, or dense where that is less: where D·t is more than a half."""
    codec = f"{{tier1: none, tier2: {{kind: bisparse, ratio: {ratio}, pull: sparse-sum}}}}"
    even = Even(
        sites=sites,
        workers=1,
        rounds=2,
        settings=(
            f"codec={codec}",
            "optimizer={kind: sgd, learning_rate: 0.1, at: worker}",
        ),
    )
    words = 2 * int(ratio * M / 4)
    down = M if sites * words >= M / 4 else 4 * sites * words
    assert (down == M) == (sites * ratio > 0.5)
    crossing = [e for e in Ran(even).of("transfer") if e["tier"] == "wan" and e["key"] >= 0 and e["round"] >= 0]
    assert {e["payload_bytes"] for e in crossing if e["message"] == "push"} == {4 * words}
    assert {e["payload_bytes"] for e in crossing if e["message"] == "value"} == {down}


# ---- TSEngine -------------------------------------------------------------------------------------------------------


@for_each(("sites", "levels"), [(1, 1), (3, 2), (7, 3)])
def test_tsengines_trees_have_logarithmic_depth(sites: int, levels: int) -> None:
    """⌈log2(N + 1)⌉ transfers one after another, each way; what is asked and told takes some δ for each."""
    assert levels == math.ceil(math.log2(sites + 1))
    even = Even(
        sites=sites,
        workers=1,
        delay_s=0.001,
        rounds=2,
        settings=("overlay={tier1: star, tier2: {kind: tsengine, ports: 1, chunk: 1 GB}}",),
    )
    floor = even.step_s + 2 * even.lan_s + 2 * levels * M * 8 / even.wan_bps
    first = Ran(even).rounds_s()[0]  # in which all begin together
    assert floor <= first <= floor * 1.01


# ---- P3 -------------------------------------------------------------------------------------------------------------

HIDDEN = 4096
# bytes of the two layers of a perceptron on 8 × 8 digits; biases are keys of their own
FIRST, FIRST_BIAS, SECOND = 4 * 65 * HIDDEN, 4 * HIDDEN, 4 * 10 * (HIDDEN + 1)
WORK = (2 * 64 * HIDDEN, 2 * 64 * HIDDEN, 2 * 10 * HIDDEN, 4 * 10 * HIDDEN)  # forward, backward; forward, backward
SLICE = 16_384  # headers are less than a hundredth of it


def two_layers(order: str, rate_bps: float) -> Ran:
    return Ran(
        Even(
            sites=1,
            workers=1,
            wan_bps=rate_bps,
            step_s=0.1,
            rounds=5,
            settings=(
                f"training.model={{kind: mlp, hidden: {HIDDEN}}}",
                "training.data=digits",
                "paradigm=ps",
                f"order={order}",
            ),
        )
    )


def period_s(ran: Ran) -> float:
    """From one round's first forward pass to the next's."""
    begins = sorted(e["t0"] for e in ran.of("compute") if e.get("part") == "forward 0" and e["node"] == "b0/worker0")
    return begins[-1] - begins[-2]


@for_each("rate_bps", [2e7, 1e8, 1e9])
def test_a_two_layer_pipeline(rate_bps: float) -> None:
    """FIFO: the second layer's gradient, made first, is in the first's way, up and down. P3: it is overtaken.

    Backward begins at 0: the second layer's gradient is there at b2, the first's at b2 + b1. With x1, x2 what they
    take on the link, each layer's values are back at v1 and v2, and a period is max(v1 + f1, v2) + f2.
    """
    even = Even(sites=1, workers=1, wan_bps=rate_bps)
    f1, b1, f2, b2 = (0.1 * work / sum(WORK) for work in WORK)
    x1, x2, delta = FIRST * 8 / rate_bps, SECOND * 8 / rate_bps, even.delta_s
    up2 = b2 + x2
    up1 = max(b2 + b1, up2) + x1 - FIRST_BIAS * 8 / rate_bps  # its weights, which come down while its bias goes up
    v2 = up2 + x2 + 2 * delta
    v1 = max(up1 + delta, v2 - delta) + x1 + delta
    fifo = max(v1 + f1, v2) + f2
    assert period_s(two_layers("{kind: fifo, overlap: layers, slice: whole}", rate_bps)) == pytest.approx(
        fifo, rel=2e-3
    )
    one = SLICE * 8 / rate_bps
    v1 = b2 + b1 + x1 + 2 * delta + one
    v2 = b2 + x2 + (x1 if x2 > b1 else 0.0) + 2 * delta + one
    p3 = max(v1 + f1, v2) + f2
    got = period_s(two_layers(f"{{kind: p3, slice: {SLICE} bytes}}", rate_bps))
    assert got == pytest.approx(p3, abs=2 * one + 1e-2 * p3)


def test_the_order_of_the_pipelines() -> None:
    """max(computation, communication) ≤ P3 ≤ FIFO in slices ≤ FIFO of whole keys ≤ no overlap."""
    orders = (
        f"{{kind: p3, slice: {SLICE} bytes}}",
        f"{{kind: fifo, overlap: layers, slice: {SLICE} bytes}}",
        "{kind: fifo, overlap: layers, slice: whole}",
    )
    times = [period_s(two_layers(order, 1e8)) for order in orders]
    none = Ran(
        Even(
            sites=1,
            workers=1,
            wan_bps=1e8,
            step_s=0.1,
            rounds=5,
            settings=(
                f"training.model={{kind: mlp, hidden: {HIDDEN}}}",
                "training.data=digits",
                "paradigm=ps",
                "order={kind: fifo, slice: whole}",
            ),
        )
    )
    times.append(none.rounds_s()[-1])
    assert all(less <= more * (1 + 1e-2) for less, more in itertools.pairwise(times))
    assert times[0] >= max(0.1, (FIRST + SECOND) * 8 / 1e8) * (1 - HEADERS)
