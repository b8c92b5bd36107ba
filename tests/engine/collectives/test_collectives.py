"""Every operation at 1 to 17 ranks, in both worlds, against plain sums."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from testbed import buffers
from testbed.codec.table import make_codec
from testbed.engine.collectives.collectives import Collectives
from testbed.policy.collective import ALL_REDUCE
from testbed.training.seeds import seed_for, torch_stream
from testbed.world import World
from tests.engine.collectives.worlds import Runs, Virtual, names_of, run_all, shape_of, worlds
from tests.for_each import for_each

SIZES = (1, 3, 16, 1003)
REAL_RANKS = (1, 2, 5, 8)


@pytest.fixture(params=["virtual", "real"])
def runs(request: pytest.FixtureRequest, tmp_path: Path) -> Runs:
    return worlds(request.param, tmp_path)


def tensor_of(rank: int, size: int) -> Tensor:
    return torch.randn(size, generator=torch_stream(1, "tensor", rank, size))


def groups_of(ranks: int) -> list[int]:
    """Uneven data centres: 1, 2, 3, … workers."""
    groups, left = [], ranks
    while left:
        groups.append(min(len(groups) + 1, left))
        left -= groups[-1]
    return groups


async def late(world: World, rank: int) -> None:
    """Ranks start in no particular order."""
    await world.sleep(seed_for(1, "start", rank) % 7 * 0.003)


def every_algorithm(size: int) -> Any:
    async def job(world: World, collectives: Collectives) -> dict[str, Tensor]:
        await late(world, collectives.rank)
        mine = tensor_of(collectives.rank, size)
        return {name: await collectives.all_reduce(mine, algorithm) for name, algorithm in ALL_REDUCE.items()}

    return job


def check_sums(results: list[dict[str, Tensor]], size: int) -> None:
    exact = sum((tensor_of(rank, size).double() for rank in range(len(results))), torch.zeros(size).double())
    for name in ALL_REDUCE:
        assert torch.allclose(results[0][name].double(), exact, atol=1e-5), name
        assert all(torch.equal(result[name], results[0][name]) for result in results), f"{name}: bits differ"


@pytest.mark.sample(2)  # of 11, which take 8 s
@pytest.mark.parametrize("ranks", [*range(1, 9), 13, 16, 17])
def test_all_reduce_of_uneven_sizes(ranks: int, tmp_path: Path) -> None:
    groups = groups_of(ranks)
    for number, size in enumerate(SIZES if ranks < 6 else SIZES[2 + ranks % 2 :][:1]):
        runs = Virtual(tmp_path / str(size))
        shape = shape_of(groups, segments=1 + number % 3)
        check_sums(run_all(runs, names_of(groups), every_algorithm(size), shape=shape), size)


@for_each("name", ALL_REDUCE)
def test_what_is_given_stays_and_what_is_returned_is_the_callers(tmp_path: Path, name: str) -> None:
    """Nodes of one process share what they send, so a rank that wrote to it would change what another holds."""
    ranks, algorithm = names_of([2, 2]), ALL_REDUCE[name]

    async def job(world: World, collectives: Collectives) -> tuple[Tensor, Tensor]:
        given = tensor_of(collectives.rank, 37)
        first = await collectives.all_reduce(given, algorithm)
        kept = first.clone()
        first.zero_()
        second = await collectives.all_reduce(given, algorithm)
        assert torch.equal(given, tensor_of(collectives.rank, 37))
        return kept, second

    for kept, second in run_all(Virtual(tmp_path), ranks, job, shape=shape_of([2, 2], segments=2)):
        assert torch.equal(kept, second)


def test_a_ring_copies_nothing_but_its_result(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank puts its sum together once; all that it sends lies in memory already."""
    joined: list[int] = []
    monkeypatch.setattr(buffers, "joined", lambda tensors: joined.append(len(tensors)) or torch.cat(list(tensors)))

    async def job(world: World, collectives: Collectives) -> Tensor:
        return await collectives.all_reduce(tensor_of(collectives.rank, 40))

    run_all(runs, names_of([4]), job)
    assert joined == [4] * 4


@pytest.mark.sample(1)  # of 4, which take 2 s
@pytest.mark.parametrize("ranks", REAL_RANKS)
def test_both_worlds_give_the_same_bits(ranks: int, tmp_path: Path) -> None:
    groups = groups_of(ranks)
    results = {}
    for kind in ("real", "virtual"):
        shape = shape_of(groups, segments=2)
        results[kind] = run_all(worlds(kind, tmp_path), names_of(groups), every_algorithm(1003), shape=shape)
    check_sums(results["real"], 1003)
    for name in ALL_REDUCE:
        assert torch.equal(results["real"][0][name], results["virtual"][0][name]), name


@for_each("ranks", [1, 2, 5, 7])
def test_primitives(ranks: int, runs: Runs) -> None:
    names = names_of(groups_of(ranks))

    async def job(world: World, collectives: Collectives) -> dict[str, Any]:
        rank = collectives.rank
        await late(world, rank)
        mine = tensor_of(rank, 100 + rank)
        equal = tensor_of(rank, 101)
        return {
            "broadcast": await collectives.broadcast(equal),
            "all_gather": await collectives.all_gather(mine),
            "gather": await collectives.gather(mine),
            "scatter": await collectives.scatter([tensor_of(0, 10 + to) for to in range(ranks)] if rank == 0 else ()),
            "direct": [parts[0] for parts in (await collectives.all_gather_parts((mine,), direct=True))[0]],
            "reduce_scatter": (await collectives.reduce_scatter(equal))[0],
            "part": collectives.parts_of(101)[collectives.rank],
        }

    results = run_all(runs, names, job)
    total = sum(tensor_of(rank, 101) for rank in range(ranks))
    uneven = [tensor_of(rank, 100 + rank) for rank in range(ranks)]
    for result in results:
        assert torch.equal(result["broadcast"], tensor_of(0, 101))
        for kind in ("all_gather", "direct"):
            assert all(torch.equal(a, b) for a, b in zip(result[kind], uneven, strict=True))
        start, stop = result["part"]
        assert torch.allclose(result["reduce_scatter"], total[start:stop], atol=1e-5)
    assert sum(result["reduce_scatter"].numel() for result in results) == 101
    assert all(torch.equal(a, b) for a, b in zip(results[0]["gather"], uneven, strict=True))
    assert not any(result["gather"] for result in results[1:])
    assert all(torch.equal(result["scatter"], tensor_of(0, 10 + rank)) for rank, result in enumerate(results))


def test_operations_overlap_and_do_not_mix(runs: Runs) -> None:
    names = names_of([2, 2])

    async def job(world: World, collectives: Collectives) -> list[Tensor]:
        calls = []
        for number in range(12):
            algorithm = list(ALL_REDUCE.values())[number % len(ALL_REDUCE)]
            call = collectives.all_reduce(torch.full((501,), float(10**collectives.rank * (number + 1))), algorithm)
            calls.append(world.spawn(call, f"operation {number}"))
        # awaited last first, and finished in any order
        return [await world.wait(call, "an operation") for call in reversed(calls)][::-1]

    for result in run_all(runs, names, job, shape=shape_of([2, 2])):
        assert [tensor[0].item() for tensor in result] == [1111.0 * (number + 1) for number in range(12)]
        assert all(tensor.unique().numel() == 1 for tensor in result)


@for_each("name", ALL_REDUCE)
@for_each("size", [1, 50])
def test_a_flag_raised_anywhere_is_known_everywhere(name: str, size: int, tmp_path: Path) -> None:
    groups = [3, 1, 2]
    for who in (None, 5):

        async def job(world: World, collectives: Collectives, who: int | None = who) -> bool:
            mine = tensor_of(collectives.rank, size)
            _, flag = await collectives.all_reduce_flagged(mine, collectives.rank == who, ALL_REDUCE[name])
            return flag

        flags = run_all(Virtual(tmp_path / str(who)), names_of(groups), job, shape=shape_of(groups))
        assert flags == [who is not None] * 6


def test_with_a_codec_all_ranks_still_hold_the_same_bits_and_send_half(runs: Runs) -> None:
    groups = [2, 3]
    results = run_all(
        runs, names_of(groups), every_algorithm(1000), shape=shape_of(groups), codec=make_codec("fp16", {})
    )
    exact = sum(tensor_of(rank, 1000) for rank in range(5))
    for name in ALL_REDUCE:
        assert all(torch.equal(result[name], results[0][name]) for result in results), name
        assert torch.allclose(results[0][name], exact, atol=0.02), name
        assert not torch.equal(results[0][name], exact)
    sizes = {e["payload_bytes"] for e in runs.events("a/worker0") if e["kind"] == "transfer"}
    assert max(sizes) == 2000


def test_a_rank_that_does_not_come_is_named(tmp_path: Path) -> None:
    async def job(world: World, collectives: Collectives) -> None:
        if collectives.rank != 1:
            await collectives.all_reduce(torch.ones(10))

    with pytest.raises(Exception, match="operation 0 of group 'all', pipe 0, from a/worker1"):
        run_all(Virtual(tmp_path), names_of([3]), job)
