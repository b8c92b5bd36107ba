"""An axis is read from its table: whatever an options dataclass says in its fields, the scenario keeps to."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, get_type_hints

import pytest
from pydantic import ValidationError

from testbed.axes import options_of
from testbed.declaration import option, required
from testbed.scenario.kinds import kinds_of
from testbed.scenario.reading import declared
from testbed.scenario.reading.axes import AXES, PerTier, Technique, axis, per_tier
from testbed.scenario.reading.document import parse, plain
from testbed.scenario.reading.leaves import leaf
from testbed.scenario.reading.problems import lines_of, problems_of
from tests.for_each import for_each


@dataclass(frozen=True)
class Shared:
    rate: float = field(default=0.01, metadata={"help": "share sent", "above": 0, "max": 0.5})


class Owner:
    """As the policies do it: the options inside their class."""

    @dataclass(frozen=True, kw_only=True)
    class Options(Shared):
        """With what it inherits."""

        rounds: int = field(metadata={"help": "rounds between", "min": 2, "max": 9})
        wait: float = field(default=1.5, metadata={"help": "longest wait", "unit": "s"})
        mode: str = field(default="a", metadata={"help": "which way", "choices": ("a", "b")})
        loud: bool = field(default=False, metadata={"help": "say so"})
        every: int = field(default=4, metadata={"help": "rounds", "above": 1})
        piece: int = field(default=4000, metadata={"help": "size", "unit": "bytes", "min": 1000})
        bits: int = field(default=2, metadata={"help": "of a number", "choices": (1, 2, 4)})


@dataclass(frozen=True)
class Bare:
    """No options."""


TABLE = {"bare": Bare, "owner": Owner}


@dataclass(frozen=True)
class Example:
    one: Technique = required(form=axis("one", TABLE))
    two: PerTier | None = option(None, form=per_tier("two", TABLE))


def read(text: str) -> Example:
    return declared.read(Example, plain(parse(text, "e.yaml")))


def mistakes(text: str) -> list[str]:
    root = parse(text, "e.yaml")
    with pytest.raises(ValidationError) as caught:
        declared.read(Example, plain(root))
    return lines_of(problems_of(caught.value, root, declared.model_of(Example)))


def test_options_in_si_units_with_defaults() -> None:
    example = read("one: {kind: owner, rounds: 3, wait: 20 ms, every: 2, piece: 1 KB, bits: 4}")
    expected: dict[str, Any] = {"rate": 0.01, "rounds": 3, "wait": 0.02, "mode": "a", "loud": False, "every": 2}
    expected |= {"piece": 1000, "bits": 4}
    assert (example.one.kind, asdict(example.one.options)) == ("owner", expected)


@for_each(
    ("option", "message"),
    [
        ("rounds: 1", "e.yaml:1:28: one.rounds: 1 is outside [2, 9]"),
        ("rounds: 3, rate: 0", "e.yaml:1:37: one.rate: 0 is outside (0, 0.5]"),
        ("rounds: 3, rate: 0.6", "e.yaml:1:37: one.rate: 0.6 is outside (0, 0.5]"),
        ("rounds: 3, wait: 2", "e.yaml:1:37: one.wait: 2 has no unit (write a unit, e.g. '50 ms')"),
        ("rounds: 3, mode: c", "e.yaml:1:37: one.mode: 'c' is not one of a, b"),
        ("rounds: 3, every: 1", "e.yaml:1:38: one.every: 1 is outside [2, 1000000000000]"),
        ("rounds: 3, piece: 999 bytes", "e.yaml:1:38: one.piece: 999 bytes is outside [1 KB, 16 GiB]"),
        ("rounds: 3, bits: 3", "e.yaml:1:37: one.bits: '3' is not one of 1, 2, 4"),
        ("rounds: 3, loud: no", "e.yaml:1:37: one.loud: expected true or false, got 'no'"),
        ("mode: a", "e.yaml:1:1: one.rounds: required key is missing"),
        ("rounds: 3, raet: 1", "e.yaml:1:31: one.raet: unknown key (did you mean 'rate'?)"),
    ],
)
def test_what_the_fields_say_is_kept(option: str, message: str) -> None:
    assert mistakes(f"one: {{kind: owner, {option}}}") == [message]


def test_mistakes_of_one_tier_and_of_both() -> None:
    assert mistakes("one: bare\ntwo: {tier1: bare, tier2: {kind: owner, rounds: 1}}") == [
        "e.yaml:2:49: two.tier2.rounds: 1 is outside [2, 9]"
    ]
    assert mistakes("one: bare\ntwo: {kind: owner, rounds: 1}") == ["e.yaml:2:28: two.rounds: 1 is outside [2, 9]"]


@for_each("axis", AXES)
def test_every_kind_and_every_option_is_explained(axis: str) -> None:
    for kind in kinds_of(axis):
        assert len(kind.about) > 8 and "\n" not in kind.about, kind
        for each in kind.options:
            assert each.about, (kind.name, each.name)


@for_each("axis", AXES)
def test_a_scenario_may_write_each_default(axis: str) -> None:
    """``resolved.yaml`` writes all of them, and can be run again."""
    for kind in kinds_of(axis):
        owner = options_of(AXES[axis][kind.name])
        hints = get_type_hints(owner)
        for shown, each in zip(kind.options, fields(owner), strict=True):
            if "axis" in each.metadata:
                assert shown.default == each.default.kind
            elif shown.default not in ("", "None", "''"):
                read = leaf(hints[each.name], each.metadata).read(plain(parse(shown.default, "e.yaml")))
                assert read == each.default, (kind.name, shown)
