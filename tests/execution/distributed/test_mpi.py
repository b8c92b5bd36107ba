"""MPI under our data-parallel training: the same job, MPICH's all-reduce and sockets, and no mpirun."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.engine.collectives.collectives import Collectives
from testbed.engine.collectives.roles import allreduce_worker
from testbed.errors import CapabilityError, NodeLost, RunFailed
from testbed.execution.distributed.mpi import group as group_module
from testbed.execution.distributed.mpi.library import environment, forget_shared_memory, load_mpi
from testbed.execution.distributed.role import LibrarySum
from testbed.plan.model import Choice, Plan
from tests.end_to_end.runs import run_scenario
from tests.end_to_end.test_three_worlds import skip_unless_possible
from tests.engine.collectives.plans import run_plan, serverless_plan
from tests.engine.collectives.worlds import Virtual
from tests.execution.distributed.runs import Forked, forked, received

SCENARIO = Path(__file__).parents[3] / "scenarios" / "paradigms" / "mpi.yaml"
ROUNDS = 4
MODEL = Choice(kind="mlp", options={"hidden": 512})


def why_not() -> str:
    try:
        load_mpi()
    except CapabilityError as error:
        return str(error)
    return ""


REASON = why_not()
needs_mpi = pytest.mark.skipif(bool(REASON), reason=REASON)


def mpi_plan(groups: list[int], **options: Any) -> Plan:
    return serverless_plan(groups, "mpi", options, rounds=ROUNDS, model=MODEL)


def left_behind() -> list[str]:
    """MPICH's shared memory that no process has mapped; another test's ranks may be running meanwhile."""
    there = [path.name for path in Path("/dev/shm").glob("mpich_shm_*")]
    mapped = ""
    for maps in Path("/proc").glob("[0-9]*/maps") if there else ():
        with contextlib.suppress(OSError):  # the process has ended
            mapped += maps.read_text()
    return [name for name in there if name not in mapped and Path("/dev/shm", name).exists()]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Forked:
    return forked(tmp_path_factory.mktemp("mpi"), mpi_plan([2, 1], bucket=100_000))


@pytest.fixture(scope="module")
def around_a_ring(tmp_path_factory: pytest.TempPathFactory) -> Forked:
    return forked(tmp_path_factory.mktemp("ring"), mpi_plan([2, 1], algorithm="ring"))


@needs_mpi
@pytest.mark.parametrize("which", ["trained", "around_a_ring"])
def test_it_trains_as_our_all_reduce_does(which: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The order of a sum is another, so the last bits are; nothing else is."""
    results = request.getfixturevalue(which).values
    ours = run_plan(
        Virtual(tmp_path), serverless_plan([2, 1], "allreduce", {}, rounds=ROUNDS, model=MODEL), allreduce_worker
    )
    for name, values in results.items():
        for mine, reference in zip(values, ours[name], strict=True):
            assert torch.allclose(mine, reference, atol=1e-5)
        assert all(torch.equal(a, b) for a, b in zip(values, results["a/worker0"], strict=True))


@needs_mpi
def test_a_rings_bytes_come_from_one_neighbour(around_a_ring: Forked) -> None:
    """2 (p − 1)/p of the gradients and the flag, and a little for its headers; all over TCP, though on one machine."""
    payload = 2 * 2 / 3 * 4 * (sum(value.numel() for value in around_a_ring.values["a/worker0"]) + 1)
    for name in around_a_ring.values:
        by_source = received(around_a_ring, name, "mpi")
        assert name not in by_source
        assert ROUNDS * payload <= max(by_source.values()) <= ROUNDS * (payload * 1.02 + 2000), by_source
        assert sum(by_source.values()) - max(by_source.values()) < ROUNDS * 1000


@needs_mpi
def test_every_rounds_bytes_are_counted(trained: Forked) -> None:
    """Whatever the algorithm: a worker must hear of as many numbers as the model has, in each round."""
    payload = 4 * sum(value.numel() for value in trained.values["a/worker0"])
    for name in trained.values:
        transfers = [e for e in trained.events[name] if e["kind"] == "transfer" and e["message"] == "mpi"]
        assert {event["round"] for event in transfers} == set(range(ROUNDS))
        assert sum(event["payload_bytes"] for event in transfers) >= ROUNDS * payload
        assert all(event["tier"] == ("lan" if event["source"][0] == name[0] else "wan") for event in transfers)


@needs_mpi
def test_all_stop_together_at_the_target(tmp_path: Path) -> None:
    events = forked(tmp_path, serverless_plan([1, 1], "mpi", {}, rounds=300, target_accuracy=0.5)).events.values()
    ends = {event["rounds"] for of_node in events for event in of_node if event["kind"] == "final"}
    assert len(ends) == 1
    assert ends.pop() < 300


@needs_mpi
@pytest.mark.parametrize("when", ["in training", "at the start"])
def test_a_lost_rank_ends_the_run_and_is_named(when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if when == "in training":
        summed = LibrarySum.__call__

        async def lost(self: LibrarySum, gradient: torch.Tensor, round_: int, flag: bool) -> Any:
            if self._world.node == "b/worker0" and round_ == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return await summed(self, gradient, round_, flag)

        monkeypatch.setattr(LibrarySum, "__call__", lost)
    else:
        exchange = group_module.exchange

        async def lost_there(peers: Collectives, what: Any) -> list[Any]:
            if peers.rank == 2 and isinstance(what, dict):  # at PMI's barrier
                os.kill(os.getpid(), signal.SIGKILL)
            return await exchange(peers, what)

        monkeypatch.setattr(group_module, "exchange", lost_there)
    began_s = time.monotonic()
    with open(tmp_path / "crashes", "w+") as crashes:
        faulthandler.enable(crashes)  # inherited by the ranks
        try:
            with pytest.raises(NodeLost, match="b/worker0"):
                forked(tmp_path / "run", mpi_plan([2, 1]))
        finally:
            faulthandler.enable()
    assert (tmp_path / "crashes").read_text() == "", "the other ranks end with a message"
    assert time.monotonic() - began_s < 30


@needs_mpi
def test_a_rank_that_hears_of_a_loss_leaves_no_memory_that_mpich_makes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library in MPICH's place makes its memory half a second after another rank is lost, and asks its manager."""
    name = f"mpich_shm_{os.getpid():x}_late"

    def late(_: Any) -> None:
        time.sleep(0.5)  # in which the other rank begins, too
        if os.environ["PMI_RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.5)
        path = Path(f"/dev/shm/{name}")
        path.write_bytes(bytes(4096))
        memory = torch.from_file(str(path), shared=True, size=4096, dtype=torch.uint8)
        (tmp_path / "made").touch()
        os.write(int(os.environ["PMI_FD"]), b"cmd=barrier_in\n")
        time.sleep(60 + len(memory))

    monkeypatch.setattr(group_module, "start", late)
    with pytest.raises(NodeLost, match="b/worker0"):
        forked(tmp_path / "run", mpi_plan([1, 1]))
    assert (tmp_path / "made").exists(), "the rank left before MPICH had come to its next request"
    assert not Path(f"/dev/shm/{name}").exists()


@needs_mpi
def test_a_start_that_mpich_gives_up_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_provider(*where: Any) -> dict[str, str]:
        return {**environment(*where), "FI_PROVIDER": "none"}

    monkeypatch.setattr(group_module, "environment", without_provider)
    with pytest.raises(RunFailed, match=r"a/worker0|b/worker0|MPICH has aborted"):
        forked(tmp_path, mpi_plan([1, 1]))


def test_shared_memory_is_found_after_mpich_has_closed_its_file() -> None:
    path = Path(f"/dev/shm/mpich_shm_{os.getpid():x}_test")
    path.write_bytes(bytes(4096))
    try:
        memory = torch.from_file(str(path), shared=True, size=4096, dtype=torch.uint8)  # the file is closed again
        forget_shared_memory()
        assert not path.exists() and len(memory) == 4096
    finally:
        path.unlink(missing_ok=True)


@needs_mpi
def test_nothing_stays_behind(trained: Forked, around_a_ring: Forked) -> None:
    assert left_behind() == []


@pytest.mark.slow  # 12 s
@needs_mpi
@pytest.mark.emulation
def test_its_bytes_cross_the_emulated_links(tmp_path: Path) -> None:
    """What the workers' connections have carried between data centres, the kernel has counted on the links between."""
    skip_unless_possible("emulate")
    small = (
        "training.rounds=4",
        "training.model=mlp",
        "topology.links[*].delay=10 ms",
        "training.evaluate_every=4",
    )
    run = run_scenario(tmp_path / "run", "emulate", *small, scenario=SCENARIO)
    assert run.outcome.status in ("done", "degraded"), run.outcome.message
    assert len(run.hashes("worker")) == 1
    exchange: dict[str, int] = {}
    for event in run.of_kind("transfer"):
        if event["message"] == "mpi" and event["tier"] == "wan":
            link = f"{event['source'].split('/')[0]}>{event['node'].split('/')[0]}"
            exchange[link] = exchange.get(link, 0) + event["payload_bytes"]
    crossed = {link: max(e["bytes"] for e in run.of_kind("link") if e["link"] == link) for link in exchange}
    assert len(exchange) >= 4
    for link, size_bytes in exchange.items():
        assert size_bytes < crossed[link], link
    assert sum(exchange.values()) > 0.6 * sum(crossed.values())
