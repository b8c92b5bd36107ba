"""Checkpoints of a running job: all nodes stop between two rounds, write their state, and continue.

1. Workers meet at a barrier after every n-th round. By then each worker has the replies to all its pushes, so no tensor
   of the algorithm is in flight, whatever the synchronisation. This is a consistent cut (Chandy and Lamport, TOCS 3(1),
   1985, reduced to stopping). DGT loses its late blocks here, and its records say so.
2. The scheduler releases the workers and tells the servers. They all write their states, and meet at a second barrier.
3. The scheduler makes the files a checkpoint (``commit``) and releases all nodes.

In a run in which nodes may be lost and join, all nodes that take part meet. A joining worker begins with a round that
none of the workers at the barrier has begun. So before its first round it has the values of the same cut, and meets
the others at that barrier. From the first barrier to the end of the checkpoint, no node may join. If a node is lost
meanwhile, all write again, because the states say who takes part. The manifest holds the membership: a resumed run
begins with the nodes that took part.

A resumed run begins at the second barrier, when all nodes have loaded their states. In virtual time its scheduler
releases them at the same instant as in the interrupted run (``World.settle``). So all times, and whatever depends on
them, such as which of two asynchronous updates comes first, are those of a run that was never interrupted.

On disk a checkpoint is a directory that is either absent or complete, even if writing is interrupted. Each node writes
its own file into ``.ckpt-000010.tmp``. The scheduler then writes the manifest with the files' SHA-256, renames the
directory, and removes all earlier checkpoints but one. Files are read as tensors and plain values only (``torch.load``
with ``weights_only``), so that they cannot run code.
"""

from __future__ import annotations

import errno
import hashlib
import io
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from testbed.engine.membership import CHECKPOINT, SAVED, Membership
from testbed.engine.pipeline.layout import layout_of
from testbed.errors import RunFailed, ScenarioError
from testbed.plan.instant import Instant
from testbed.plan.model import Plan, job_sha256, resumes_clock
from testbed.regular_file import read_regular
from testbed.results import atomic
from testbed.state import State, below, under
from testbed.world import World

GIVE_UP_AFTER = 3  # checkpoints in a row that could not be written
VERSION = 7
KEPT = 2


@dataclass(frozen=True, slots=True)
class Members:
    """The membership when a checkpoint was made, as the scheduler knew it (``engine.scheduler``).

    epoch       the membership epoch
    absent      the nodes that took no part, in the order of their loss
    new         the absent nodes that had never taken part
    waiting     the absent nodes that had started again and waited to join, in that order
    joined      by node that had joined: its membership epoch
    first       by worker that had joined a run with servers: its first round
    successors  by lost server: the replica that had taken over
    trained_s   seconds of training until then
    left        the absent nodes that had ended their part on purpose
    """

    epoch: int = 0
    absent: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    joined: dict[str, int] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    successors: dict[str, str] = field(default_factory=dict)
    trained_s: float = 0.0
    left: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """The nodes that did not run: absent, and not waiting to join."""
        return tuple(name for name in self.absent if name not in self.waiting)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that was read and verified.

    round       the last round that all workers had finished
    states      by node: its state
    instant     when the checkpoint was made
    same_clock  whether the checkpoint's times are times of the resumed run's clock
    """

    path: Path
    round: int
    states: Mapping[str, State]
    instant: Instant
    members: Members
    same_clock: bool


@dataclass(frozen=True, slots=True)
class _Manifest:
    """The content of ``manifest.json``.

    files           by file: its SHA-256
    nodes           by file: the node that wrote it
    of_another_run  whether the checkpoint was copied from another run
    cut             in a pipeline, by worker: the segments of the model that it holds; empty in other runs
    """

    version: int
    round: int
    job_sha256: str
    files: dict[str, str]
    nodes: dict[str, str]
    instant: Instant
    members: Members = field(default_factory=Members)
    of_another_run: bool = False
    cut: dict[str, str] = field(default_factory=dict)


class CheckpointFiles:
    """The checkpoints of one run.

    resumed      the checkpoint with which the run begins, if any
    skipped      the unusable checkpoints, with reasons
    with_states  whether ``resumed`` has the nodes' states; if not, the files are only verified, for nodes elsewhere

    Raises ``ScenarioError`` if the newest usable checkpoint belongs to another job.
    """

    def __init__(self, directory: Path, plan: Plan, with_states: bool = True) -> None:
        self._directory = directory
        self._job = job_sha256(plan)
        self._cut = _cut_of(plan)
        self._with_states = with_states
        self._resumes_clock = resumes_clock(plan)
        self.skipped: list[str] = []
        self.failures = 0  # number of failed checkpoints in a row, counted at the scheduler
        self.resumed = self._newest()

    def write(self, round_: int, node: str, state: Mapping[str, Any]) -> str:
        """Write a node's state after ``round_``; return its SHA-256. Raise ``OSError``, for example on a full disk."""
        folder = self._temporary(round_)
        folder.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        torch.save(dict(state), buffer)
        data = buffer.getvalue()
        try:
            atomic.write_bytes(folder / _file_name(node), data)
        except OSError as error:
            raise _explained(error, folder, len(data)) from error
        return hashlib.sha256(data).hexdigest()

    def commit(self, round_: int, digests: Mapping[str, str], instant: Instant, members: Members) -> Path:
        """Make the files of ``round_`` a checkpoint, and remove old checkpoints. An ``OSError`` leaves those intact."""
        folder = self._temporary(round_)
        path = self._directory / _folder_name(round_)
        files = {_file_name(node): digest for node, digest in digests.items()}
        nodes = {_file_name(node): node for node in digests}
        about = _Manifest(VERSION, round_, self._job, files, nodes, instant, members, cut=self._cut)
        atomic.write_json(folder / "manifest.json", asdict(about))
        complete(folder, path)
        return path

    def discard(self, round_: int) -> None:
        """Remove the files of ``round_``, because a node could not write its file."""
        shutil.rmtree(self._temporary(round_), ignore_errors=True)

    def _temporary(self, round_: int) -> Path:
        return self._directory / f".{_folder_name(round_)}.tmp"

    def _newest(self) -> Checkpoint | None:
        for path in reversed(_found(self._directory)):
            try:
                return self._read(path)
            except (OSError, ValueError) as error:
                self.skipped.append(f"{path.name}: {error}")
        return None

    def _read(self, path: Path) -> Checkpoint:
        about = msgspec.json.decode(read_regular(path / "manifest.json"), type=_Manifest)
        if about.version != VERSION:
            raise ValueError(f"it has version {about.version}, but this release resumes version {VERSION}")
        nodes = {_file_name(node): node for node in about.nodes.values()}
        if about.nodes != nodes or nodes.keys() != about.files.keys():
            raise ValueError("manifest.json is damaged (its nodes are not those of its files)")
        if about.round < 0 or path.name != _folder_name(about.round):
            raise ValueError(f"manifest.json is damaged (it is of round {about.round})")
        states: dict[str, State] = {}
        for name, digest in about.files.items():
            data = _verified(path / name, digest)
            if self._with_states:
                states[about.nodes[name]] = _state_of(name, data)
        for worker in sorted(about.cut.keys() & self._cut.keys()):
            if about.cut[worker] != self._cut[worker]:
                raise ScenarioError(
                    f"{path}: was made with another cut of the model: {worker} has segments {about.cut[worker]} there, "
                    f"and {self._cut[worker]} in this run; resume with the paradigm's stages, cuts, schedule and "
                    "placement that it was made with, or begin anew"
                )
        if about.job_sha256 != self._job:
            raise ScenarioError(f"{path}: belongs to another job; resume the scenario that made it")
        same_clock = self._resumes_clock or not about.of_another_run
        return Checkpoint(path, about.round, states, about.instant, about.members, same_clock)


def complete(folder: Path, path: Path) -> None:
    """Rename the complete directory of a checkpoint; keep this checkpoint and the one before it.

    Later checkpoints may exist if the run was resumed from an earlier one because they were unreadable. They do not
    count for the number of checkpoints kept, so this one is not removed in their favour.
    """
    shutil.rmtree(path, ignore_errors=True)  # may exist from before the run was resumed
    folder.rename(path)
    atomic.sync(path.parent)
    found = _found(path.parent)
    for old in found[: max(0, found.index(path) + 1 - KEPT)]:
        shutil.rmtree(old)


def _found(directory: Path) -> list[Path]:
    """Return the checkpoints, sorted by round; names are longer after round 999999."""
    return sorted(directory.glob("ckpt-*"), key=lambda path: (len(path.name), path.name))


def _explained(error: OSError, folder: Path, needed_bytes: int) -> OSError:
    """Return an error that names the free and the needed space, if the disk is full."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return error
    free_mb = shutil.disk_usage(folder).free / 1e6
    needed_mb = needed_bytes / 1e6
    return OSError(error.errno, f"disk full: {folder} has {free_mb:.1f} MB, needs {needed_mb:.1f} MB")


def _verified(path: Path, digest: str) -> bytes:
    data = read_regular(path)
    if hashlib.sha256(data).hexdigest() != digest:
        raise ValueError(f"{path.name} is damaged (its SHA-256 differs)")
    return data


def _state_of(name: str, data: bytes) -> State:
    try:
        state = torch.load(io.BytesIO(data), weights_only=True)
    except Exception as error:  # torch's readers raise anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{name} is not a state ({reason})") from error
    if not isinstance(state, dict) or not all(isinstance(key, str) for key in state):
        raise ValueError(f"{name} is not a state (expected values by name)")
    return state


def _cut_of(plan: Plan) -> dict[str, str]:
    """Return the segments of the model that each worker of a pipeline holds; empty for a run without a pipeline."""
    if plan.pipeline is None:
        return {}
    layout = layout_of(plan)
    workers = [(node.name, node.stage) for node in plan.nodes if node.role == "worker" and node.stage is not None]
    return {name: layout.segments_of(stage) for name, stage in workers}


def _folder_name(round_: int) -> str:
    return f"ckpt-{round_ + 1:06d}"


def in_main_memory(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a state with all tensors in main memory, so that it can be read without a GPU."""
    return {name: each.cpu() if isinstance(each, Tensor) and not each.is_meta else each for name, each in state.items()}


def _file_name(node: str) -> str:
    return node.replace("/", ".") + ".pt"


class Checkpointer:
    """One node's part in writing and loading checkpoints.

    resumed      whether the run begins with a checkpoint
    checkpoint   that checkpoint; ``None`` if not ``resumed``
    state        this node's state in it
    first_round  the first round of this run
    """

    def __init__(self, world: World, membership: Membership, plan: Plan, files: CheckpointFiles | None) -> None:
        self._world = world
        self._membership = membership
        self._files = files
        self._every = plan.checkpoint_every if files else 0  # rounds; 0: this run writes no checkpoints
        faults = [fault for fault in plan.faults if fault.kind == "disk_full" and world.node in fault.targets]
        self._disk_full_rounds = [(fault.round or 0, (fault.round or 0) + int(fault.value)) for fault in faults]
        self._rounds = plan.training.rounds
        self._deadline_s = plan.timeouts.run_deadline_s
        checkpoint = files.resumed if files and not membership.joined_late else None
        self.checkpoint = checkpoint
        self.resumed = checkpoint is not None
        self.first_round = checkpoint.round + 1 if checkpoint else 0
        self.state: State = dict(checkpoint.states.get(world.node, {})) if checkpoint else {}
        if "pacer/steps" in self.state:
            world.pacer.load_state(below("pacer", self.state))

    def due(self, round_: int) -> bool:
        """Return whether a checkpoint follows ``round_``; none follows the last round."""
        return self._every > 0 and (round_ + 1) % self._every == 0 and 0 < round_ + 1 < self._rounds

    async def resume(self) -> None:
        """Return when all nodes have loaded their states; in virtual time, at the instant of the checkpoint."""
        await self._membership.barrier(f"{SAVED}{self.first_round - 1}", deadline_s=self._deadline_s)

    async def save(self, round_: int, state: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
        """Write a worker's state after ``round_``. Return when all nodes have written, or the checkpoint is skipped."""
        released = await self._membership.barrier(f"{CHECKPOINT}{round_}", deadline_s=self._deadline_s)
        if not released.get("skipped"):
            await self._write(round_, state)

    def serve(self, state: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
        """Write a server's state at each checkpoint, while the workers stand still."""
        if self._every:
            self._membership.on_checkpoint = lambda round_: self._world.spawn(
                self._write(round_, state), f"checkpoint of round {round_}"
            )

    async def _write(self, round_: int, state: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
        """Write the state. Write it again if a node is lost before all nodes have written."""
        files = self._files
        node = self._world.node
        assert files is not None
        written: Mapping[str, Any] = {"again": True}
        while written.get("again"):
            digest = ""
            content = {**await state(), **under("pacer", self._world.pacer.state())}
            try:
                self._check_disk(round_)
                writing = self._world.aside(partial(files.write, round_, node, in_main_memory(content)))
                digest = await self._world.wait(writing, "its checkpoint to be written", self._deadline_s)
            except OSError as error:
                self._world.record("warning", message=f"no checkpoint of round {round_}: {error}")
            name = f"{SAVED}{round_}"
            written = await self._membership.barrier(name, deadline_s=self._deadline_s, sha256=digest)

    def _check_disk(self, round_: int) -> None:
        if any(begin <= round_ < end for begin, end in self._disk_full_rounds):
            self._world.record("fault", fault="disk_full", targets=self._world.node, begins=True)
            raise OSError(errno.ENOSPC, "disk full (a fault of the scenario)")


async def commit(
    world: World,
    files: CheckpointFiles,
    round_: int,
    digests: Mapping[str, str],
    cut: tuple[Instant, Members],
    wait_s: float,
) -> None:
    """Make the files of ``digests`` a checkpoint. Discard them if a node could not write its own (an empty digest).

    ``cut``: the instant of the checkpoint, and the membership
    """
    failed = ", ".join(node for node, digest in digests.items() if not digest)  # each has recorded a warning

    def make() -> str:
        """Commit or discard the files. Return the reason if there is no checkpoint, otherwise an empty text."""
        why = f"{failed} could not write"
        try:
            if not failed:
                files.commit(round_, digests, *cut)
                return ""
        except OSError as error:
            why = str(error)
        files.discard(round_)
        return why

    why = await world.wait(world.aside(make), "the checkpoint's manifest", wait_s)
    files.failures = files.failures + 1 if why else 0
    if files.failures == GIVE_UP_AFTER:
        raise RunFailed(f"no checkpoint could be written {GIVE_UP_AFTER} times in a row; the last time: {why}")
    if not why:
        world.record("checkpoint", round=round_)
    elif not failed:
        world.record("warning", message=f"no checkpoint of round {round_}: {why}; earlier ones are kept")
