"""The candidates, which are the user's scenario with each of several techniques, as Plans; and why some are refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from analysis.advise.goal import Constraints, Goal
from testbed.codec.options import CODECS
from testbed.errors import CapabilityError, ScenarioError
from testbed.paradigms import PARADIGMS
from testbed.plan.build import build_plan
from testbed.plan.identity import identity_of
from testbed.plan.model import Plan
from testbed.scenario import Scenario
from testbed.scenario.presets import presets

Read = Callable[[Sequence[str], str | None], Scenario]
"""Returns the user's scenario with overrides, for a back end (``None``: its own). Raises ``ScenarioError``."""

OWN = "as written"
"""The name of the user's own technique. If that equals a preset, the name is ``PRESET (as written)``."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """The user's scenario with a technique.

    settings  the overrides of the scenario that select the technique, as texts ``path=value``
    summary   a sentence about it
    plan      its Plan on the back end ``simulate``, with the scenario's number of rounds
    """

    name: str
    settings: tuple[str, ...]
    summary: str
    plan: Plan


@dataclass(frozen=True, slots=True)
class Refused:
    """A technique that is not a candidate, and the reason."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Technique:
    """A technique: the overrides that select it, and a sentence about it."""

    settings: tuple[str, ...]
    summary: str = ""


def candidates(
    read: Read, techniques: Mapping[str, Technique], goal: Goal, constraints: Constraints
) -> tuple[list[Candidate], list[Refused]]:
    """Return the techniques that the scenario and the constraints allow, its own first, and the refused ones.

    A technique whose Plan equals that of an earlier one is refused, too. Raise ``ScenarioError`` if the scenario itself
    is invalid.
    """
    found: dict[str, Candidate] = {}
    refused: list[Refused] = []
    own = plan_with(read, (), goal)
    same_as, summary = _preset_of(own, read, techniques, goal)
    own_name = f"{same_as} ({OWN})" if same_as else OWN
    others = {name: technique for name, technique in techniques.items() if name != same_as}
    for name, technique in {own_name: Technique((), summary), **others}.items():
        try:
            plan = plan_with(read, technique.settings, goal)
        except (ScenarioError, CapabilityError) as error:
            refused.append(Refused(name, str(error).splitlines()[0]))
            continue
        if why := "; ".join(_violated(plan, constraints)):
            refused.append(Refused(name, why))
            continue
        same = identity_of(plan)
        if same not in found:
            found[same] = Candidate(name, technique.settings, technique.summary, plan)
        else:
            refused.append(Refused(name, f"is the same as {found[same].name} on this scenario"))
    return list(found.values()), refused


def is_own(name: str) -> bool:
    """Return whether a candidate is the user's own technique."""
    return name == OWN or name.endswith(f"({OWN})")


def _preset_of(own: Plan, read: Read, techniques: Mapping[str, Technique], goal: Goal) -> tuple[str, str]:
    """Return the name and summary of the preset or technique that equals the scenario's own; without one, name ``""``.

    All presets are compared, not only the requested ones, so that the technique has the same name in every answer.
    """
    shipped = {name: Technique((f"technique={name}",), preset.summary) for name, preset in presets().items()}
    if own.pipeline is not None:  # techniques of pipelines are schedules and placements, not presets
        shipped = {}
    for name, technique in {**shipped, **techniques}.items():
        try:
            plan = plan_with(read, technique.settings, goal)
        except (ScenarioError, CapabilityError):
            continue
        if identity_of(plan) == identity_of(own):
            return name, technique.summary
    return "", "the scenario as it is"


def plan_with(read: Read, settings: Sequence[str], goal: Goal) -> Plan:
    """Return the Plan of the user's scenario with these settings and the goal's target, for ``simulate``."""
    wanted = [] if goal.target is None else goal.target.settings
    return build_plan(read([*settings, *wanted], "simulate"))


def _violated(plan: Plan, constraints: Constraints) -> Iterator[str]:
    if constraints.no_udp and plan.transport.best_effort_channels:
        yield "sends unreliable datagrams (no-udp)"
    technique = plan.technique
    codecs = (technique.codec_tier1, technique.codec_tier2)
    sparse = PARADIGMS[technique.paradigm.kind].sparse(
        PARADIGMS.options(technique.paradigm.kind, technique.paradigm.options)
    )
    if constraints.fp32 and (sparse or not all(CODECS[codec.kind].exact for codec in codecs)):
        yield "does not send every tensor as float32 (fp32)"


def refuse_what_is_not_simulated(scenario: Scenario) -> None:
    """Raise ``ScenarioError`` for a scenario with a workload or faults: simulations cannot compare techniques there."""
    if scenario.workload is not None:
        raise ScenarioError(
            "advise: no techniques to compare: this scenario runs a program, script or traced job, which has a "
            "technique of its own; give 'training' a model and data to compare techniques"
        )
    if scenario.faults:
        raise ScenarioError(
            "advise: which technique is best where nodes or links fail depends on when they fail; leave "
            "'faults' out, and then compare the best three with faults by `testbed sweep`"
        )


def rounds_for(plan: Plan, steps: float, own_steps: float, most: float) -> tuple[int, int]:
    """Return how many rounds a candidate makes, and the number of rounds between two evaluations.

    It makes ``most`` times the training steps of the scenario's own technique, with as many steps between evaluations.

    steps      of a worker in a round of the candidate
    own_steps  of a worker in a round of the scenario's own technique
    """
    ratio = own_steps / steps
    every = max(1, round(plan.training.evaluate_every * ratio))
    return max(every, math.ceil(plan.training.rounds * ratio * most)), every
