"""What must hold on any network of workers: any numbers of them, any speeds, any seed. Real training, virtual time."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.end_to_end.reference import train_single_process
from tests.engine.runs import Simulated, run

ROUNDS = 4
SMALL = ("training.model={kind: mlp, hidden: 8}", f"training.rounds={ROUNDS}", f"training.evaluate_every={ROUNDS}")
few = settings(max_examples=3, deadline=None, phases=(Phase.explicit, Phase.generate))


@dataclass(frozen=True)
class Cluster:
    """Three data centres: workers and speed of each, how much steps vary, the seed of data and models."""

    workers: tuple[int, int, int]
    speeds: tuple[float, float, float]
    variation: float
    seed: int

    def overrides(self) -> list[str]:
        sites = [f"data_centers[{site}].workers={count}" for site, count in enumerate(self.workers)]
        speeds = [f"data_centers[{site}].device.speed={speed:.2f}" for site, speed in enumerate(self.speeds)]
        return [*SMALL, *sites, *speeds, f"device.variation={self.variation:.2f}", f"seed={self.seed}"]

    @property
    def last_worker(self) -> str:
        return f"west/worker{self.workers[2] - 1}"


SPEED = st.floats(0.2, 1)
CLUSTERS = st.builds(
    Cluster,
    st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(1, 3)),
    st.tuples(SPEED, SPEED, SPEED),
    st.floats(0, 0.6),
    st.integers(0, 10**6),
)


def train(folder: pytest.TempPathFactory, cluster: Cluster, *overrides: str) -> Simulated:
    return run(folder.mktemp("run"), *cluster.overrides(), *overrides)


def values(run: Simulated, cluster: Cluster) -> torch.Tensor:
    return run.parameters(cluster.last_worker)


def sgd(rate: float, at: str = "global") -> str:
    return f"optimizer={{kind: sgd, learning_rate: {rate}, at: {at}}}"


@pytest.mark.parametrize("paradigm", ["hips", "ps"])
@given(cluster=CLUSTERS)
@few
def test_fsa_is_training_in_a_single_process(
    paradigm: str, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    done = train(tmp_path_factory, cluster, sgd(0.05), f"paradigm={paradigm}")
    alone = torch.cat(train_single_process(done.plan, ROUNDS))
    assert torch.allclose(values(done, cluster), alone, atol=2e-6)
    training = [worker.name for worker in done.plan.with_role("worker") if worker.trains]
    assert all(torch.equal(done.parameters(name), values(done, cluster)) for name in training)


@given(cluster=CLUSTERS)
@few
def test_ssp_0_is_bsp(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The same rhythm, and the same values, which everybody has when all have pushed."""
    ssp, bsp = (
        train(tmp_path_factory, cluster, "paradigm=ps", sync, sgd(0.05))
        for sync in ("sync={kind: ssp, staleness: 0}", "sync=bsp")
    )
    assert torch.allclose(values(ssp, cluster), values(bsp, cluster), atol=2e-6)
    begins = [{e["round"]: e["t0"] for e in each.of_kind("round", cluster.last_worker)} for each in (ssp, bsp)]
    assert begins[0] == pytest.approx(begins[1], rel=0.05)


@given(cluster=CLUSTERS, scope=st.sampled_from(["esync", "{tier1: esync, tier2: fsa}"]))
@few
def test_esync_on_equal_devices_has_the_step_pattern_of_fsa(
    cluster: Cluster, scope: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    equal = Cluster(cluster.workers, (1, 1, 1), 0, cluster.seed)
    near = ("topology.links[*].delay=1 ms", "topology.links[*].rate=1 Gbit/s")
    done = train(tmp_path_factory, equal, f"sync={scope}", sgd(0.05, "worker"), *near)
    fsa = train(tmp_path_factory, equal, sgd(0.05), *near)
    steps = [[(e["node"], e["round"], e["steps"]) for e in each.of_kind("round")] for each in (done, fsa)]
    assert sorted(steps[0]) == sorted(steps[1])
