"""Simulates the first rounds of an emulated run, to show how long they take by links and device model alone.

Nodes of an emulated run are processes that need additional time for messages, sums and codecs, and delay each other.
Measurements of links or steps do not show how much longer this makes rounds. A simulation of the same rounds, packet by
packet (``testbed.simulation.packets``), does: it records them as events ``predicted``, and the fidelity report compares
them with the emulated rounds.

If the run has faults, only the rounds before the first fault are compared.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from emulation.sandbox import MARKER, is_inside
from testbed.errors import Interrupted
from testbed.execution.devices import uses_gpus
from testbed.execution.scripts import is_scripted
from testbed.paradigms import library_of
from testbed.plan.model import Plan

Record = Callable[..., None]

ROUNDS = 10
WALL_S = 10.0  # the simulation ends after this time; the rounds that are complete by then are compared


def record_predicted(plan: Plan, record: Record) -> None:
    """Simulate the first rounds of a predictable Plan, and record those of each worker.

    ``record(kind, **fields)``: writes an event.
    """
    rounds = _Rounds(plan)
    # in the sandbox's own memory file system, which goes with the sandbox even if it is killed
    with TemporaryDirectory(prefix="testbed-", dir=MARKER.parent if is_inside() else None) as directory:
        completed = _simulate(plan, Path(directory), rounds)
    if completed:
        for event in rounds.common():
            record("predicted", **event)


def is_predictable(plan: Plan) -> bool:
    """Return whether links and device model alone determine times: no program, library, script, GPU or jitter."""
    paradigm = plan.technique.paradigm
    return not (
        not plan.is_emulated
        or plan.exact is not None
        or plan.is_spread
        or plan.program is not None
        or library_of(paradigm.kind, paradigm.options)
        or plan.late_comers
        or is_scripted(plan)
        or uses_gpus(plan)
        or any(link.jitter_s > 0 for link in plan.network.links)
        or any(node.device.pace != "paced" for node in plan.training_workers)
    )


class _Rounds:
    """Collects the rounds of a simulation as its ``Progress``, and interrupts it when there are enough."""

    def __init__(self, plan: Plan) -> None:
        self._events: list[dict[str, Any]] = []
        # this round is left out: a fault begins when one worker has finished it, and others may not have
        self._faulty_round = min((fault.round for fault in plan.faults if fault.round is not None), default=math.inf)
        self._faulty_s = min((fault.at_s for fault in plan.faults if fault.at_s is not None), default=math.inf)
        self._done = Counter({node.name: 0 for node in plan.training_workers})
        self._ends_s = time.monotonic() + WALL_S
        self._ended = False

    def __call__(self, event: dict[str, Any]) -> None:
        if event["kind"] == "round":
            self._events.append(event)
            self._done[event["node"]] += 1
        if not self._ended and (min(self._done.values()) >= ROUNDS or time.monotonic() > self._ends_s):
            self._ended = True
            raise KeyboardInterrupt

    def common(self) -> list[dict[str, Any]]:
        """Return the rounds that all workers completed before the first fault."""
        since_s = min((event["t0"] for event in self._events), default=0.0)
        faulty = [event["round"] for event in self._events if event["t"] - since_s >= self._faulty_s]
        count = min(*self._done.values(), self._faulty_round, *faulty)
        return [
            {"worker": event["node"], "t0": event["t0"], "end": event["t"], "round": event["round"]}
            for event in self._events
            if event["round"] < count
        ]


def _simulate(plan: Plan, directory: Path, rounds: _Rounds) -> bool:
    """Simulate until there are enough rounds. Return True if no node failed."""
    import torch

    from testbed.engine.roles import make_role
    from testbed.simulation.run import simulate

    torch.set_num_threads(1)
    virtual = replace(plan.simulation, network="packets", fold=False, events="brief")
    simulated = replace(plan.simulated(virtual), checkpoint_every=0, faults=())
    exits = simulate(simulated, partial(make_role, files=None, watch=None), directory, rounds)
    return all(end.error is None or isinstance(end.error, Interrupted) for end in exits.values())
