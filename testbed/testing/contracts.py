"""The contract of each axis."""

from __future__ import annotations

from testbed.testing import (
    aggregation,
    codec,
    declared,
    made,
    model,
    optimizer,
    order,
    overlay,
    pipeline,
    sync,
    training,
)
from testbed.testing.requirement import Requirement, Result, requirements_of, results
from testbed.testing.subject import Subject

_OWN: dict[str, tuple[Requirement, ...]] = {
    "sync": requirements_of(sync),
    "codec": requirements_of(codec),
    "order": requirements_of(order),
    "overlay": requirements_of(overlay),
    "aggregation": requirements_of(aggregation),
    "schedule": pipeline.SCHEDULE,
    "placement": pipeline.PLACEMENT,
    "optimizer": requirements_of(optimizer),
    "model": requirements_of(model),
    "shard": (made.every_element_is_placed_once, made.made_twice_it_is_the_same),
    "data": (made.made_twice_it_is_the_same,),
    "split": (made.no_sample_is_dealt_twice, made.made_twice_it_is_the_same),
    "topology": (made.a_scenario_can_use_it, made.made_twice_it_is_the_same),
    "trace": (made.a_scenario_can_use_it, made.made_twice_it_is_the_same),
}
CONTRACTS = {axis: requirements_of(declared) + own for axis, own in _OWN.items()}
_WITHOUT_TRAINING = ("topology", "trace")


def contract_of(axis: str, *, with_training: bool = True) -> tuple[Requirement, ...]:
    """Return the requirements for a technique of ``axis``, the cheapest first, and trainings in both worlds last."""
    trains = with_training and axis not in _WITHOUT_TRAINING
    return CONTRACTS[axis] + (requirements_of(training) if trains else ())


def failures(subject: Subject, *, with_training: bool = False) -> list[Result]:
    """Return the requirements that a technique does not meet."""
    contract = contract_of(subject.axis_name, with_training=with_training)
    return [result for result in results(subject, contract) if not result.passed]
