"""The instant at which a run goes on where a checkpoint was made."""

from __future__ import annotations

from dataclasses import dataclass, field

ConnectionState = dict[str, bool | int | float | str]
"""What a connection over which nothing is in flight remembers, by name; a text is a float that is not finite."""


@dataclass(frozen=True, slots=True)
class Instant:
    """When a checkpoint was made, and when training had begun, in seconds of the run's clock.

    In virtual time also:

    faults_s     when faults have begun that a round begins, with their numbers in the Plan, in that order
    paused_s     until when nodes stand still
    connections  of each node to others, in the order in which they were made; several to a node that is folded
    """

    at_s: float
    training_since_s: float = 0.0
    faults_s: tuple[tuple[int, float], ...] = ()
    paused_s: dict[str, float] = field(default_factory=dict)
    connections: dict[str, dict[str, list[ConnectionState]]] = field(default_factory=dict)
