"""Several global servers: the same bits whatever their number, and bytes that are level where the shard says so."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.engine.runs import Simulated, run
from tests.for_each import for_each

TWO_LAYERS = "training.model.layers=2"  # the largest tensor is most of the model


def servers(count: int) -> str:
    return f"topology.data_centers[0].global_servers={count}"


def wan_bytes(result: Simulated) -> Counter[str]:
    """Bytes of gradients that each global server took in during training."""
    taken: Counter[str] = Counter()
    for event in result.of_kind("transfer"):
        if event["message"] == "push" and "/global" in event["node"]:
            taken[event["node"]] += event["payload_bytes"]
    return taken


SYNC = ["fsa", "{kind: hfa, k1: 2, k2: 2}", "{kind: diloco, h: 2}", "{kind: esync, fixed_steps: 2}"]


SHARDS = ["hashed", "multigps", "{kind: multigps, rule: even, bound: 1000}"]


@pytest.mark.sample(1)  # of 4, which take 4 s
@pytest.mark.parametrize("sync", SYNC)
def test_any_number_of_global_servers_gives_the_same_bits(tmp_path: Path, sync: str) -> None:
    """Row 63."""
    at = "global" if sync == "fsa" else "worker"
    cases = [(1, SHARDS[0]), (5, SHARDS[2])]
    cases += [(2, SHARDS[1]), (5, SHARDS[0])] if sync == "fsa" else []
    hashes = set[str]()
    for number, shard in cases:
        overrides = (f"shard={shard}", f"sync={sync}", f"optimizer={{kind: sgd, at: {at}}}")
        hashes |= run(tmp_path / f"{number} {shard}", servers(number), *overrides).hashes()
    assert len(hashes) == 1


def test_asynchronous_algorithms_finish_with_several_servers(tmp_path: Path) -> None:
    result = run(tmp_path, servers(3), "shard=multigps", "sync={tier1: fsa, tier2: mixedsync}")
    assert len(result.of_kind("round")) == 4 * 4


@for_each("count", [2, 4])
def test_bytes_are_level(tmp_path: Path, count: int) -> None:
    taken = wan_bytes(run(tmp_path, servers(count), "shard=multigps"))
    assert len(taken) == count
    assert max(taken.values()) <= 1.05 * sum(taken.values()) / count


def test_the_originals_rule_is_not_level(tmp_path: Path) -> None:
    taken = wan_bytes(run(tmp_path, servers(2), "shard=hashed", TWO_LAYERS))
    assert max(taken.values()) > 1.98 * sum(taken.values()) / 2


def test_more_servers_than_keys(tmp_path: Path) -> None:
    """Some servers then hold nothing, and still start and end with the run."""
    many, one = (
        run(tmp_path / str(n), servers(n), TWO_LAYERS, "shard={kind: multigps, bound: 1000000}") for n in (12, 1)
    )
    assert many.hashes() == one.hashes()
    assert len(wan_bytes(many)) == 6
