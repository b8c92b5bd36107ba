"""The instant at which a checkpoint was made, where a run can resume."""

from __future__ import annotations

from dataclasses import dataclass, field

ConnectionState = dict[str, bool | int | float | str]
"""The state of a connection with no bytes in flight, by name. Non-finite floats are written as texts."""


@dataclass(frozen=True, slots=True)
class Instant:
    """When a checkpoint was made, and when training had begun, in seconds of the run's clock.

    In virtual time also:

    faults_s     (number in the Plan, time of beginning) of each fault that a finished round has begun, in that order
    paused_s     by node: the time until which it stands still
    connections  by node and peer: the connections in the order in which they were made; several if the peer is folded
    """

    at_s: float
    training_since_s: float = 0.0
    faults_s: tuple[tuple[int, float], ...] = ()
    paused_s: dict[str, float] = field(default_factory=dict)
    connections: dict[str, dict[str, list[ConnectionState]]] = field(default_factory=dict)
