"""Overlays in the engine: the results of a star, by other ways; several keys, several servers, each tier."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest
import torch

from tests.end_to_end.runs import run_scenario
from tests.engine.runs import THREE_SITES, Simulated, run
from tests.for_each import for_each

NINE_SITES = Path(__file__).parent / "nine_sites.yaml"
TWO_SERVERS = "topology.data_centers[0].global_servers=2"
ONCE = ("training.evaluate_every=1",)
SGD = "optimizer={kind: sgd, learning_rate: 0.1}"


def transfers(result: Simulated, message: str, round_: int) -> list[tuple[str, str, int]]:
    """Who sent what to whom, in the order of arrival."""
    events = [event for event in result.of_kind("transfer") if event["message"] == message]
    return [(event["source"], event["target"], event["key"]) for event in events if event["round"] == round_]


TIERS = ["{tier1: %s, tier2: star}", "{tier1: star, tier2: %s}", "{tier1: %s, tier2: %s}"]
EXACT = [
    "{kind: tree, merge: exact}",
    "{kind: tree, merge: exact, degree: 1}",
    "{kind: tsengine, merge: exact}",
    "{kind: tsengine, merge: exact, chunk: 1 KB, ports: 1}",
    "{kind: tsengine, merge: exact, pairing: fastest}",
    "{kind: netstorm, merge: exact, change: 0, chunk: 4 KB}",
]


@pytest.fixture(scope="module")
def star(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    return run(tmp_path_factory.mktemp("star") / "run")


@pytest.mark.sample(1)  # of 9, which take 5 s
@pytest.mark.parametrize(
    ("kind", "tiers"),
    [*((kind, TIERS[-1]) for kind in EXACT), *zip(EXACT[::3], TIERS[:-1], strict=False)],
)
def test_exact_merging_gives_the_bits_of_a_star(tmp_path: Path, star: Simulated, kind: str, tiers: str) -> None:
    """Row 53, 58."""
    result = run(tmp_path, "overlay=" + tiers.replace("%s", kind), TWO_SERVERS, "shard=multigps")
    assert result.hashes() == star.hashes()


ONE_ROUND = ("training.rounds=1", "training.evaluate_every=1", SGD)


@pytest.fixture(scope="module")
def one_round(tmp_path_factory: pytest.TempPathFactory) -> torch.Tensor:
    """Parameters after one round of a star."""
    return run(tmp_path_factory.mktemp("one_round") / "run", *ONE_ROUND).parameters("east/worker0")


@for_each("kind", ["tree", "tsengine"])
@for_each("codec", ["none", "fp16"])
def test_sums_differ_from_a_star_by_rounding_only(
    tmp_path: Path, one_round: torch.Tensor, kind: str, codec: str
) -> None:
    """|Δ| of a sum of n float32 in another order is at most (n − 1)·2^−24·Σ|g|, and of float16 on each hop 2^−11."""
    merged = run(tmp_path, *ONE_ROUND, f"codec={codec}", f"overlay={kind}")
    assert len(merged.hashes()) == 1
    difference = (merged.parameters("east/worker0") - one_round).abs().max()
    assert difference <= (1e-6 if codec == "none" else 2e-3)


def test_a_run_repeats_bit_for_bit_in_virtual_time(tmp_path: Path) -> None:
    first, second = (run(tmp_path / name, "overlay=tsengine", "training.rounds=3") for name in "ab")
    assert first.hashes() == second.hashes()
    assert [e["t"] for e in first.of_kind("round")] == [e["t"] for e in second.of_kind("round")]


@pytest.mark.sample(1)  # of 4, which take 3 s
@pytest.mark.parametrize("codec", ["twobit", "{kind: bisparse, bound: 100}", "{kind: mpq, bound: 1000}", "fp16"])
def test_every_codec_travels_through_an_exact_overlay(tmp_path: Path, codec: str) -> None:
    tier2 = f"codec={{tier1: none, tier2: {codec}}}"
    star_ = run(tmp_path / "star", tier2)
    other = run(tmp_path / "other", tier2, "overlay={tier1: star, tier2: {kind: tsengine, merge: exact}}")
    assert torch.equal(other.parameters("west/worker0"), star_.parameters("west/worker0"))


SYNC = ["{kind: hfa, k1: 2, k2: 2}", "{kind: diloco, h: 2}", "{kind: esync, fixed_steps: 2}", "{kind: esync}"]


@pytest.mark.sample(1)  # of 4, which take 3 s
@pytest.mark.parametrize("sync", SYNC)
def test_algorithms_with_local_steps(tmp_path: Path, sync: str) -> None:
    overrides = (f"sync={sync}", "optimizer={kind: sgd, at: worker}")
    star_ = run(tmp_path / "star", *overrides)
    other = run(tmp_path / "other", *overrides, "overlay={kind: tsengine, merge: exact}")
    assert len(other.hashes()) == 1
    if "{kind: esync}" not in sync:  # its numbers of steps are measured, and transfers take another time
        assert other.hashes() == star_.hashes()


@pytest.fixture(scope="module")
def nine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Simulated]:
    """Nine nodes, thirteen unequal links, a model of 47 MB, every overlay. Rounds of a star or tree are alike."""
    rounds = {"star": 3, "tree": 3, "tsengine": 7, "netstorm": 7}
    return {
        kind: run(
            tmp_path_factory.mktemp(kind) / "run",
            f"overlay={{tier1: star, tier2: {kind}}}",
            f"training.rounds={count}",
            scenario=NINE_SITES,
        )
        for kind, count in rounds.items()
    }


@for_each("kind", ["tree", "tsengine", "netstorm"])
def test_each_member_gets_each_version_once_and_the_way_is_on_record(nine: dict[str, Simulated], kind: str) -> None:
    """Row 55: the forwarding tree of a round can be drawn from its transfers."""
    servers = {f"h{number}/server0" for number in range(1, 10)}
    for round_ in (0, 2 if kind == "tree" else 6):
        spread = transfers(nine[kind], "spread", round_)
        for key in {key for _, _, key in spread}:
            holders = {"h1/global0"}
            for source, target, _ in (each for each in spread if each[2] == key):
                assert source in holders and target not in holders
                holders.add(target)
            assert holders == servers | {"h1/global0"}
        assert any(source != "h1/global0" for source, _, _ in spread)


def test_tsengine_and_a_balanced_tree_are_faster_than_a_star_and_netstorm_than_all(nine: dict[str, Simulated]) -> None:
    """NetStorm is of the same group, later; its paper tells of 6.5 to 9.2 times on the same links.

    TSEngine explores: in the mean of twenty rounds it takes 29 to 30 s, with three seeds, against the tree's 30.9 s.
    """
    learn = ("tsengine", "netstorm")  # what is fast
    times = {kind: each.round_s("h9/worker0", skip=5 if kind in learn else 1) for kind, each in nine.items()}
    assert times["netstorm"] < times["tsengine"] < 1.05 * times["tree"] < times["star"]
    assert times["star"] / times["tsengine"] > 1.5
    assert times["star"] / times["netstorm"] > 3


@pytest.mark.slow  # 12 s
def test_it_wins_where_access_links_are_unequal_and_shared(tmp_path: Path) -> None:
    """Side by side over one access link, transfers would all end when the last does, and nothing be relayed.

    Packet by packet, rounds take 35.5 and 26.9 s.
    """
    times = {
        kind: run(
            tmp_path / kind,
            f"overlay={{tier1: star, tier2: {kind}}}",
            "training.rounds=3",
            scenario=Path(__file__).parent / "eight_accesses.yaml",
        ).round_s("h/worker0", skip=1)
        for kind in ("star", "tsengine")
    }
    assert times["star"] > 1.25 * times["tsengine"], times


def test_it_uses_several_links_of_a_node_at_the_same_time(tmp_path: Path) -> None:
    """Down, two members behind links of their own take one delay more than with a star, not the time of a transfer."""
    setting = ("topology.data_centers[0].workers=0", "training.rounds=4")
    times = {
        kind: run(tmp_path / kind, f"overlay={{tier1: star, tier2: {kind}}}", *setting).round_s("east/worker0", skip=1)
        for kind in ("star", "tsengine")
    }
    assert times["tsengine"] < 1.4 * times["star"], times


def test_netstorm_plans_anew_and_uses_several_trees(nine: dict[str, Simulated]) -> None:
    def trees(round_: int) -> set[frozenset[tuple[str, str]]]:
        merges = transfers(nine["netstorm"], "merge", round_)
        keys = {key for _, _, key in merges}
        return {frozenset((a, b) for a, b, key in merges if key == one) for one in keys}

    assert len(trees(0)) == 3
    assert all(len(tree) == 9 for round_ in (0, 3, 6) for tree in trees(round_))
    assert trees(0) != trees(6)


def test_the_server_takes_in_one_transfer_at_a_time_with_one_port(tmp_path: Path) -> None:
    """Row 54."""
    overrides = ("overlay={tier1: star, tier2: {kind: tsengine, ports: 1}}", "training.rounds=2", *ONCE)
    result = run(tmp_path, *overrides, scenario=NINE_SITES)
    merges = [e for e in result.of_kind("transfer", "h1/global0") if e["message"] == "merge"]
    assert len(merges) > 10
    assert all(after["t0"] >= before["t"] - 1e-6 for before, after in itertools.pairwise(merges))
    per_round = Counter((event["round"], event["key"]) for event in merges)
    assert min(per_round.values()) < 9  # the rest was merged elsewhere


@pytest.mark.slow  # 2 s
@pytest.mark.parametrize(
    "kind", ["{kind: tsengine, merge: exact}", pytest.param("tree", marks=pytest.mark.slow)]
)  # 2 s
def test_real_processes(tmp_path: Path, kind: str) -> None:
    """A tree fixes the order of sums, exact merging keeps that of a star: the same bits in every world."""
    overrides = (f"overlay={kind}", TWO_SERVERS, "device.step_time=20 ms", "order={kind: p3, slice: 20 KB}")
    real = run_scenario(tmp_path / "local", "local", *overrides, scenario=THREE_SITES)
    assert real.outcome.status == "done", real.outcome.message
    assert real.hashes("worker") == run(tmp_path / "simulated", *overrides).hashes()
    assert [event for event in real.events if event["kind"] == "transfer" and event["message"] == "spread"]


@pytest.mark.slow  # 2 s
def test_real_processes_that_sum_on_the_way(tmp_path: Path) -> None:
    real = run_scenario(tmp_path / "local", "local", "overlay=tsengine", "device.step_time=20 ms", scenario=THREE_SITES)
    assert real.outcome.status == "done", real.outcome.message
    assert len(real.hashes("worker")) == 1
