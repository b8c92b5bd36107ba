"""DiLoCo: many local steps, then one outer step with Nesterov momentum on the mean change.

Douillard et al., DiLoCo: Distributed low-communication training of language models, 2023 (arXiv 2311.08105). Like
HFA it pushes rarely, but what travels is the outer gradient, parameters before minus after H inner steps, and the
global server takes an outer step along its mean. Outer learning rate 1 and momentum 0 is plain averaging of models.

``fragments`` and ``overlap_steps`` make it Streaming DiLoCo (``policy.sync.streaming``); a codec of a few bits
quantises the outer gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from testbed.axes import option
from testbed.policy.events import Contribution
from testbed.policy.sync.base import FIRST, SECOND, WEIGHTS
from testbed.policy.sync.fsa import Fsa
from testbed.policy.sync.streaming import Streaming, steps_between
from testbed.preset import Preset

MIX = "mix"
COMPENSATE = "compensate"
COMPENSATION = 0.2


class DiLoCo(Fsa):
    """Local steps, then an outer step along the mean change of the models, in synchronous rounds."""

    contribution: ClassVar[Contribution] = Contribution.DELTA
    spans_tiers: ClassVar[bool] = True
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="diloco",
            summary="ten local steps (50 in the paper), then one outer Nesterov step along the mean change of models",
            source="Douillard et al., 2023",
            settings={"sync": {"h": 10, "outer_learning_rate": "0.7", "outer_momentum": "0.6"}},
        ),
        Preset(
            name="streaming_diloco",
            summary="as diloco, in four parts of the model in turn, each under way during three further steps",
            source="Douillard et al., 2025",
            settings={
                "sync": {
                    "h": 16,
                    "outer_learning_rate": "0.7",
                    "outer_momentum": "0.6",
                    "fragments": 4,
                    "overlap_steps": 3,
                },
            },
        ),
    )

    @dataclass(frozen=True, slots=True)
    class Options:
        """``h`` inner steps a round; the outer optimizer's step size and Nesterov momentum (the paper's defaults)."""

        h: int = option(50, "inner steps between two outer steps of a parameter", min=1, max=10**6)
        outer_learning_rate: float = option(0.7, "step size of the outer optimizer", above=0, max=100)
        outer_momentum: float = option(0.9, "Nesterov momentum of the outer optimizer", min=0, max=0.9999)
        weights: str = option("worker", **WEIGHTS)
        first_moments: int = option(0, **FIRST)
        second_moments: int = option(0, **SECOND)
        fragments: int = option(
            1, "parts of the model that are synchronised in turns, one in every h / fragments steps", min=1, max=1000
        )
        overlap_steps: int = option(0, "inner steps that go on while a fragment is on its way (τ)", max=10**6)
        mixing: float = option(0.5, "share of a worker's own values when a fragment comes that late (α)", max=0.9999)
        late: str = option(
            MIX,
            "what becomes of a fragment that comes that late. mix: its mean with the worker's own values; compensate: "
            "the worker's steps meanwhile are put on top of it, corrected for where they began (CoCoDC)",
            choices=(MIX, COMPENSATE),
        )
        compensation: float = option(
            COMPENSATION, "of a late fragment: length of that correction, as a share of the steps' own (λ)", max=1000
        )

        def problems(self) -> Iterator[tuple[str, str, str]]:
            """Yield a problem if rounds have no step, fragments overlap, or an option has no effect."""
            if self.fragments > self.h:
                yield "fragments", f"{self.fragments} rounds cannot share {self.h} steps", f"write {self.h} or fewer"
            elif self.overlap_steps and self.overlap_steps >= self.h // self.fragments:
                most = self.h // self.fragments - 1
                problem = f"a round has {self.h // self.fragments} steps, and they begin before its own fragment leaves"
                yield "overlap_steps", problem, f"write {most} or less"
            if self.overlap_steps == 0 and self.mixing != 0.5:
                yield "mixing", "has no effect without 'overlap_steps'", "remove it"
            elif self.late == COMPENSATE and self.mixing != 0.5:
                yield "mixing", "has no effect where late fragments are compensated", "remove it"
            if self.overlap_steps == 0 and self.late != MIX:
                yield "late", "has no effect without 'overlap_steps'", "remove it"
            elif self.late == MIX and self.compensation != COMPENSATION:
                yield "compensation", "has no effect where late fragments are mixed", "write late: compensate"

    @classmethod
    def local_steps(cls, options: Options, round_: int) -> int:
        return steps_between(options.h, options.fragments, round_)

    @classmethod
    def streaming(cls, options: Options) -> Streaming | None:
        if options.fragments == 1 and options.overlap_steps == 0:
            return None
        compensation = options.compensation if options.late == COMPENSATE else None
        return Streaming(options.fragments, options.overlap_steps, options.mixing, compensation)

    @classmethod
    def outer_optimizer(cls, options: Options) -> tuple[str, dict[str, Any]]:
        return "nesterov", {"learning_rate": options.outer_learning_rate, "momentum": options.outer_momentum}
