"""The sections ``recovery`` and ``checkpoint``: what is done when a node is lost, and what is kept for that."""

from __future__ import annotations

from typing import Annotated

from testbed.scenario.reading.quantities import INSTANT, integer, one_of
from testbed.scenario.reading.section import Section


class Recovery(Section):
    """What is done when a node is lost."""

    on_failure: Annotated[str, one_of("abort", "continue", "restart")] = "abort"
    """abort: the run fails. continue: the others go on. restart: all go back to the last checkpoint."""
    max_restarts: Annotated[int, integer(0, 10_000)] = 3
    """restart: at most so often."""
    delay: Annotated[float, INSTANT] = 1.0
    """restart: so long after the loss."""
    replicas: Annotated[int, integer(0, 1)] = 0
    """continue: nodes that repeat every update of the global server, and take its place when it is lost."""
    on_nan: Annotated[str, one_of("abort", "skip", "ignore")] = "abort"
    """When a gradient is not finite. abort: the run ends. skip: that worker contributes zeros to the round."""


class Checkpoints(Section):
    """What is kept for `testbed run … --resume RUN`: the state of every node that the next round depends on."""

    every: Annotated[int, integer(0, 10_000_000)] = 0
    """Rounds between two checkpoints; 0: none. Workers wait for each other at a checkpoint, whatever the algorithm."""
