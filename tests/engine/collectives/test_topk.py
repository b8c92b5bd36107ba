"""Hierarchical top-k against its definition, its bytes against the formula, its time against the dense ways."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from testbed.engine.collectives.collectives import Collectives
from testbed.engine.collectives.operation import CollectiveMail
from testbed.engine.collectives.sums import (
    BucketSum,
    DenseSum,
    OwnChoice,
    OwnSiteSums,
    TopKSum,
    top_count,
)
from testbed.engine.inbox import Inbox
from testbed.errors import Diverged
from testbed.ids import data_center_of
from testbed.policy.collective import ALL_REDUCE, SELECTORS
from testbed.training.seeds import torch_stream
from testbed.world import World
from tests.contract.programs import Program
from tests.engine.collectives.worlds import Runs, Virtual, names_of, shape_of, worlds
from tests.for_each import for_each
from tests.policy.collective.sparse_cost import flat_sparse_wan_bytes, hitopk_wan_bytes

SITES, WORKERS, SIZE, DENSITY = 3, 4, 4000, 0.01
NAMES = names_of([WORKERS] * SITES)
ROUNDS = 3


@pytest.fixture(params=["virtual", "real"])
def runs(request: pytest.FixtureRequest, tmp_path: Path) -> Runs:
    return worlds(request.param, tmp_path)


def gradient_of(rank: int, round_: int, size: int = SIZE) -> Tensor:
    """Uneven on purpose: the first quarter of the model has the large gradients."""
    numbers = torch.randn(size, generator=torch_stream(5, rank, round_))
    numbers[: size // 4] *= 20
    return numbers


def make_sum(world: World, mail: CollectiveMail, kind: str, density: float, workers: int = WORKERS) -> BucketSum:
    names = [name for name in NAMES if int(name[-1]) < workers]
    everybody = Collectives(world, mail, names, shape=shape_of([workers] * SITES))
    site = data_center_of(world.node)
    inside = Collectives(world, mail, [n for n in names if data_center_of(n) == site], name="in")
    across = Collectives(world, mail, [n for n in names if n[-1] == world.node[-1]], name="out")
    own = OwnChoice(world, density, 1, kind if kind in SELECTORS else "exact")
    if kind == "hitopk" or kind in SELECTORS:
        return TopKSum(world, OwnSiteSums(world, inside), across, own, 0)
    if kind == "flat":
        alone = Collectives(world, mail, [world.node], name="alone")
        return TopKSum(world, OwnSiteSums(world, alone), everybody, own, 0, direct=True)
    return DenseSum(world, everybody, ALL_REDUCE[kind])


def program_of(kind: str, rank: int, *, rounds: int = ROUNDS, size: int = SIZE, density: float = DENSITY) -> Program:
    async def program(world: World) -> tuple[list[Tensor], float]:
        inbox = Inbox(world)
        one = make_sum(world, CollectiveMail(world, inbox), kind, density)
        world.spawn(inbox.run(), "inbox")
        sums = [(await one(gradient_of(rank, round_, size), round_, False))[0] for round_ in range(rounds)]
        return sums, world.now()

    return program


def run_kind(runs: Runs, kind: str, **options: Any) -> list[tuple[list[Tensor], float]]:
    results = runs({name: program_of(kind, rank, **options) for rank, name in enumerate(NAMES)})
    return [results[name] for name in NAMES]


def largest(tensor: Tensor, count: int) -> Tensor:
    """Indices of the largest magnitudes, ties by the lowest index."""
    return torch.sort(tensor.abs(), descending=True, stable=True).indices[:count]


def expected() -> list[Tensor]:
    """The definition, in double precision, without any communication."""
    residuals = torch.zeros(SITES, SIZE, dtype=torch.float64)
    sums = []
    for round_ in range(ROUNDS):
        total = torch.zeros(SIZE, dtype=torch.float64)
        for site in range(SITES):
            ranks = range(site * WORKERS, (site + 1) * WORKERS)
            residuals[site] += sum(gradient_of(rank, round_).double() for rank in ranks)
            chosen = _chosen(residuals[site])
            total[chosen] += residuals[site][chosen]
            residuals[site][chosen] = 0
        sums.append(total)
    return sums


def _chosen(site_sum: Tensor) -> Tensor:
    part = SIZE // WORKERS
    shards = [largest(site_sum[i * part : (i + 1) * part], top_count(part, DENSITY)) + i * part for i in range(WORKERS)]
    return torch.cat(shards)


def test_is_what_it_is_defined_to_be_and_the_same_everywhere(runs: Runs) -> None:
    results = run_kind(runs, "hitopk")
    for got, wanted in zip(results[0][0], expected(), strict=True):
        assert torch.allclose(got.double(), wanted, atol=1e-3)
        assert torch.count_nonzero(got) == torch.count_nonzero(wanted)
    for sums, _ in results:
        assert all(torch.equal(a, b) for a, b in zip(sums, results[0][0], strict=True))


def test_it_takes_any_selector(tmp_path: Path) -> None:
    """Of gradients with a large quarter: a random choice keeps less than a third of what the largest have."""
    energy = {}
    for selector in SELECTORS:
        results = run_kind(Virtual(tmp_path / selector), selector, rounds=1)
        (total, *_), _ = results[0]
        assert all(torch.equal(sums[0], total) for sums, _ in results)
        assert 0 < torch.count_nonzero(total) <= SITES * WORKERS * top_count(SIZE // WORKERS, DENSITY)
        energy[selector] = float(total.double().square().sum())
    assert energy["exact"] >= energy["published"] > 0.5 * energy["exact"]
    assert energy["random"] < 0.3 * energy["exact"]


def test_a_selector_that_draws_goes_on_where_a_checkpoint_was_made() -> None:
    tensors = [torch.ones(SIZE) * i for i in range(4)]
    one, again = (random_choice("w0", 0) for _ in "ab")
    for tensor in tensors[:2]:
        one._take(tensor, 40)
    again.load_state(one.state())
    for tensor in tensors[2:]:
        assert all(torch.equal(a, b) for a, b in zip(one._take(tensor, 40), again._take(tensor, 40), strict=True))


def test_workers_and_buckets_draw_positions_of_their_own() -> None:
    senders = [("w0", 0), ("w1", 0), ("w0", 1), ("w1", 1)]
    positions = [random_choice(*sender)._take(torch.ones(SIZE), 40)[0].tolist() for sender in senders]
    assert len({tuple(each) for each in positions}) == len(senders)


@for_each("selector", SELECTORS)
def test_what_overflows_is_a_training_that_has_diverged(selector: str) -> None:
    world: Any = SimpleNamespace(node="w0")
    choice = OwnChoice(world, 0.1, 1, selector)
    with pytest.raises(Diverged, match="the training has diverged"):
        for _ in range(3):
            choice._take(torch.full((SIZE,), 3e38), 40)


def random_choice(node: str, bucket: int) -> OwnChoice:
    world: Any = SimpleNamespace(node=node)
    return OwnChoice(world, 0.1, 1, "random", bucket)


def test_nothing_is_lost(tmp_path: Path) -> None:
    """Whole numbers, so that sums are exact: with everything sent in the end, all gradients have arrived."""

    def program(rank: int) -> Program:
        async def run(world: World) -> Tensor:
            inbox = Inbox(world)
            mail = CollectiveMail(world, inbox)
            one = make_sum(world, mail, "hitopk", 0.25)
            world.spawn(inbox.run(), "inbox")
            gradients = [torch.full((40,), float(rank + 1)) * torch.arange(40), *[torch.zeros(40)] * 4]
            return torch.stack([(await one(g, i, False))[0] for i, g in enumerate(gradients)]).sum(dim=0)

        return run

    total = Virtual(tmp_path)({name: program(rank) for rank, name in enumerate(NAMES)})[NAMES[0]]
    assert torch.equal(total, torch.arange(40) * float(sum(range(1, len(NAMES) + 1))))


def wan_bytes(runs: Runs, site: str, rounds: int = 1) -> int:
    """Payload that left a data centre, per round."""
    events = [event for name in NAMES for event in runs.events(name) if event["kind"] == "transfer"]
    out = [e["payload_bytes"] for e in events if data_center_of(e["source"]) == site and e["tier"] == "wan"]
    return sum(out) // rounds


@pytest.mark.sample(2)  # of 4, which take 2 s
@pytest.mark.parametrize(
    ("kind", "formula"),
    [
        ("hitopk", hitopk_wan_bytes(SITES, WORKERS, SIZE, DENSITY)),
        ("flat", flat_sparse_wan_bytes(SITES, WORKERS, SIZE, DENSITY)),
    ],
)
def test_bytes_across_the_wan_to_the_byte(kind: str, formula: int, runs: Runs) -> None:
    run_kind(runs, kind)
    assert [wan_bytes(runs, site, ROUNDS) for site in "abc"] == [formula] * 3


def test_times_are_ordered_as_the_model_says(tmp_path: Path) -> None:
    """Hierarchical top-k, flat top-k, dense in two levels, one flat ring, a tree. Each pair of sites has a link."""
    times = {}
    for kind in ("hitopk", "flat", "torus2d", "ring", "binomial_tree"):
        results = run_kind(Virtual(tmp_path / kind), kind, rounds=1, size=500_000, density=0.03)
        times[kind] = max(end_s for _, end_s in results)
    assert sorted(times, key=times.__getitem__) == list(times), times
