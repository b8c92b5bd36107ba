"""Which techniques go together: one table, read by the validator, the tests and the documentation.

A technique that no table names does not exist here and is refused as "not one of …". What this table adds are the
combinations of techniques that each exist, and the reason why they are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from testbed.policy.events import Contribution
from testbed.policy.sync import SYNC
from testbed.scenario.rules import Found
from testbed.scenario.sync_rules import sync_problems
from testbed.training.options.checks import optimizer_problems, split_problems

if TYPE_CHECKING:
    from testbed.scenario.schema import Scenario


@dataclass(frozen=True, slots=True)
class Hips:
    """Hierarchical parameter server: workers, one local server per data centre, global servers (GeoMX)."""

    tiers: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class ParameterServer:
    """Parameter server with one tier: workers push over the WAN, straight to the global servers (ps-lite)."""

    tiers: ClassVar[int] = 1


PARADIGMS = {"hips": Hips, "ps": ParameterServer}


@dataclass(frozen=True, slots=True)
class Refused:
    """A combination that is refused: ``at`` is the key that the message points to."""

    at: tuple[str, ...]
    applies: Callable[[Scenario], bool]
    reason: str
    hint: str


REFUSED: tuple[Refused, ...] = (
    Refused(
        ("training", "compute"),
        lambda scenario: scenario.training.compute == "modelled" and scenario.run.on != "simulate",
        "'modelled' computes nothing, and real processes need values",
        "write 'real', or run it with 'on: simulate'",
    ),
    Refused(
        ("training", "compute"),
        lambda scenario: scenario.training.compute == "real" and scenario.training.model.trait("takes") == "none",
        "'real' needs a model with values, and this one has only shapes",
        "write 'modelled', and run it with 'on: simulate'",
    ),
    Refused(
        ("codec", "tier2"),
        lambda scenario: (
            scenario.optimizer.options().get("at") == "worker"
            and scenario.sync.tier1.kind in ("fsa", "bsp")
            and scenario.codec.tier2.options().get("pull") == "difference"
        ),
        "'pull: difference' follows parameters, and with the optimizer on the workers sums of gradients come down",
        "write 'pull: sparse-sum'",
    ),
    Refused(
        ("order",),
        lambda scenario: (
            scenario.order.options().get("overlap") == "layers"
            and (
                SYNC[scenario.sync.tier1.kind].contribution is not Contribution.GRADIENT
                or scenario.optimizer.options().get("at") == "worker"
            )
        ),
        "'overlap: layers' begins the next forward pass layer by layer, with values that come down ready to use; "
        "here workers update their own model, all of it at once",
        "write 'overlap: none'; slices and priorities work all the same",
    ),
    Refused(
        ("training", "target_accuracy"),
        lambda scenario: scenario.training.compute == "modelled" and scenario.training.target_accuracy is not None,
        "has no effect when training.compute is 'modelled'",
        "there is no accuracy without values; remove it",
    ),
)


def technique_problems(scenario: Scenario) -> list[Found]:
    """What ``REFUSED`` and the rules of single axes say of a scenario."""
    refused = [Found(entry.at, entry.reason, entry.hint) for entry in REFUSED if entry.applies(scenario)]
    return [*refused, *sync_problems(scenario), *job_rules(scenario)]


def job_rules(scenario: Scenario) -> list[Found]:
    """What the training job itself refuses: data that do not fit the model, options without effect."""
    training, optimizer = scenario.training, scenario.optimizer
    split = split_problems(training.split.kind, training.split.options())
    steps = optimizer_problems(optimizer.kind, optimizer.options())
    return [
        *(Found(("training", "split", *at), problem, hint) for at, problem, hint in split),
        *(Found(("optimizer", *at), problem, hint) for at, problem, hint in steps),
    ]
