"""Small tensors of a model with many travel together, where nothing tells them from each other: with the same bits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from testbed.engine.buckets import buckets_of
from testbed.engine.roles import make_role
from testbed.plan.build import build_plan
from testbed.policy.collective.options import AUTO, bucket_bytes
from testbed.scenario.load import load
from tests.engine.runs import THREE_SITES, Simulated, run
from tests.for_each import for_each
from tests.kvstore import scripts
from tests.realtime.in_process import InProcess

DEEP = (
    "training.model={kind: mlp, layers: 34, hidden: 8}",
    "training.rounds=2",
    "training.evaluate_every=2",
    "data_centers[east].workers=1",
)
WHOLE = "order={kind: fifo, slice: whole}"
TWO_BITS = "codec={kind: twobit, threshold: 0.0001}"
LOCAL = "optimizer={kind: adam, learning_rate: 0.01, at: worker}"
MANY = """
import torch
from testbed.kvstore import GeoOptimizer, connect
store = connect()
parameters = [torch.nn.Parameter(torch.full((size % 7 + 1,), 0.5)) for size in range(COUNT)]
optimizer = GeoOptimizer(torch.optim.SGD(parameters, lr=0.1, momentum=0.9), store)
for step in range(store.job.rounds):
    optimizer.zero_grad()
    (torch.cat(parameters) * torch.rand(sum(map(len, parameters)))).square().sum().backward()
    optimizer.step()
"""


@for_each(
    ("settings", "together"),
    [
        ((), True),
        (("sync=hfa", LOCAL), True),
        (("codec=twobit",), True),
        ((WHOLE,), False),
        (("order={kind: fifo, overlap: layers}",), False),
        (("order=p3",), False),
        (("order=dgt",), False),
        (("codec={tier1: none, tier2: topk}",), False),
        (("sync=mixedsync",), True),
        (("paradigm=ps", "sync=tap"), True),
        (("sync={kind: diloco, h: 4, fragments: 2}", LOCAL), False),
        (("overlay={tier1: star, tier2: tree}",), True),
        (("optimizer={kind: lars, learning_rate: 0.1}",), False),
    ],
)
def test_keys_travel_together_where_nothing_tells_them_apart(settings: tuple[str, ...], together: bool) -> None:
    plan = build_plan(load(THREE_SITES, settings), "simulate")
    sizes = (8,) * 100
    assert buckets_of(plan, sizes, {}).sizes == ((800,) if together else sizes)
    assert buckets_of(plan, sizes[:64], {}).sizes == sizes[:64]
    assert buckets_of(plan, sizes, {3: 2}).sizes == sizes
    if together:  # of a model of 8 MB, whose slices are of 1 MiB: tensors that are larger travel alone
        assert buckets_of(plan, (*sizes, 2_000_000, *sizes, 200_000, 200_000), {}).sizes == (
            800,
            2_000_000,
            200_800,
            200_000,
        )


@for_each(
    "settings",
    [
        ("topology.data_centers[hub].global_servers=2", "shard={kind: multigps, bound: 1000}", TWO_BITS),
        ("sync={kind: hfa, k1: 2, k2: 2}", LOCAL, "codec=fp16"),
        ("paradigm={kind: hips, inside: ring}",),
        ("overlay={tier1: star, tier2: tsengine}",),
    ],
)
def test_buckets_end_with_the_bits_of_tensors_that_travel_alone(settings: tuple[str, ...], tmp_path: Path) -> None:
    alone = run(tmp_path / "alone", *DEEP, *settings, WHOLE)
    together = run(tmp_path / "together", *DEEP, *settings)
    assert together.hashes() == alone.hashes()
    assert pushes(together) < pushes(alone) / 20


def pushes(done: Simulated) -> int:
    return sum(event["message"] == "push" for event in done.of_kind("transfer"))


@for_each("sync", ["fsa", "{kind: hfa, k1: 1, k2: 2}"])
def test_a_round_of_a_script_takes_as_many_messages_whatever_the_number_of_its_small_tensors(
    sync: str, tmp_path: Path
) -> None:
    counts = []
    for count in (100, 200):
        path = scripts.scenario(tmp_path / str(count), MANY.replace("COUNT", str(count)))
        done = run(tmp_path / f"run {count}", f"sync={sync}", scenario=path)
        counts.append(Counter(event["kind"] for event in done.events))
    assert counts[0] == counts[1]


def test_their_bytes_and_bits_are_the_same_in_both_worlds(tmp_path: Path) -> None:
    path = scripts.scenario(tmp_path / "a", MANY.replace("COUNT", "100"))
    simulated = run(tmp_path / "run", scenario=path)
    plan, nodes = build_plan(load(path), "local"), InProcess()
    nodes({node.name: make_role(plan, node) for node in plan.nodes}, plan)

    def transfers(events: list[dict[str, Any]]) -> Counter[tuple[str, int, int]]:
        kept = [each for each in events if each["kind"] == "transfer" and each["message"] in ("init", "push", "value")]
        return Counter((each["message"], each["payload_bytes"], each["header_bytes"]) for each in kept)

    real = [event for node in nodes.logs for event in nodes.events(node)]
    assert transfers(real) == transfers(simulated.events)
    finals = [event for event in real if event["kind"] == "final" and event.get("rounds")]
    assert {event["parameters_sha256"] for event in finals} <= simulated.hashes()


def test_buckets_of_all_reduce_are_those_of_ddp_or_a_share_of_a_large_model() -> None:
    sizes = (1_000_000, 100_000_000, 800_000_000, 27_000_000_000)
    assert [bucket_bytes(AUTO, each) for each in sizes] == [25_000_000] * 3 + [27_000_000_000 // 32]
    assert bucket_bytes(4_000_000, 27_000_000_000) == 4_000_000 and bucket_bytes(0, 27_000_000_000) == 0
