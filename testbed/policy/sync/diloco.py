"""DiLoCo: many local steps, then one outer step with Nesterov momentum on the mean change.

Douillard et al., DiLoCo: Distributed low-communication training of language models, 2023 (arXiv 2311.08105). Like
HFA it pushes rarely, but what travels is the outer gradient, parameters before minus after H inner steps, and the
global server takes an outer step along its mean. Outer learning rate 1 and momentum 0 is plain averaging of models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from testbed.axes import option
from testbed.policy.events import Contribution
from testbed.policy.sync.base import WEIGHTS
from testbed.policy.sync.fsa import Fsa


class DiLoCo(Fsa):
    """Synchronous rounds of outer gradients."""

    contribution: ClassVar[Contribution] = Contribution.DELTA
    spans_tiers: ClassVar[bool] = True

    @dataclass(frozen=True, slots=True)
    class Options:
        """``h`` inner steps a round; the outer optimizer's step size and Nesterov momentum (the paper's defaults)."""

        h: int = option(50, "inner steps between two rounds", min=1, max=10**6)
        outer_learning_rate: float = option(0.7, "step size of the outer optimizer", above=0, max=100)
        outer_momentum: float = option(0.9, "Nesterov momentum of the outer optimizer", min=0, max=0.9999)
        weights: str = option("worker", **WEIGHTS)

    @classmethod
    def local_steps(cls, options: Options, round_: int) -> int:
        return options.h

    @classmethod
    def outer_optimizer(cls, options: Options) -> tuple[str, dict[str, Any]]:
        return "nesterov", {"learning_rate": options.outer_learning_rate, "momentum": options.outer_momentum}
