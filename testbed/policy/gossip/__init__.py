"""Gossip: workers average models with their neighbours only. Neighbours and weights, without tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from testbed.axes import option
from testbed.policy.gossip.graphs import GRAPHS


@dataclass(frozen=True, slots=True)
class GossipAlgorithm:
    """``pairwise``: two workers average whenever one has made a step; otherwise all mix in rounds.

    ``pushes``: models travel in one direction only, and push-sum corrects the weights.
    ``changes``: the change by local steps travels beside the model, and is averaged separately.
    """

    pairwise: bool = False
    pushes: bool = False
    changes: bool = False


ALGORITHMS = {
    "dpsgd": GossipAlgorithm(),
    "adpsgd": GossipAlgorithm(pairwise=True),
    "sgp": GossipAlgorithm(pushes=True),
    "noloco": GossipAlgorithm(changes=True),
}


@dataclass(frozen=True, slots=True)
class GossipOptions:
    """Decentralised training: every worker has a model of its own and mixes it with those of its neighbours.

    ``dpsgd``: all at once, round by round (Lian et al., 2017). ``adpsgd``: pairs, whenever a worker has made a step
    (Lian et al., 2018). ``sgp``: each pushes to one other, weights corrected by push-sum (Assran et al., 2019).
    ``noloco``: models and their changes by local steps are averaged apart, and momentum is on both (Kolehmainen, 2025).
    """

    algorithm: str = option("dpsgd", "how models are mixed", choices=tuple(ALGORITHMS))
    graph: str = option(
        "ring", "which workers are neighbours; network: along the data centres' links", choices=(*GRAPHS, "network")
    )
    gradients: str = option(
        "sum",
        "sum: a worker's gradient counts as often as there are workers, so that the average of all models "
        "moves as with an optimizer on servers; mean: once",
        choices=("sum", "mean"),
    )
    correction: float = option(
        1.0, "noloco: how far a step draws a model towards the mean of those that it is averaged with (γ)", min=0, max=4
    )
    step: float = option(
        0.0,
        "consensus step size γ of models that pass through a codec; 0: 1, or 0.2 where it sends only some elements",
        min=0,
        max=1,
    )

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Yield the options that have no effect."""
        if self.correction != 1.0 and not ALGORITHMS[self.algorithm].changes:
            yield "correction", f"has no effect with '{self.algorithm}'", "remove it, or write 'algorithm: noloco'"
