"""What people are told of each axis: complete, in words, with defaults that a scenario would take."""

from dataclasses import fields
from typing import get_type_hints

from testbed.axes import options_of
from testbed.scenario.kinds import AXES, kinds_of
from testbed.scenario.reading.axes import leaf
from testbed.scenario.reading.document import parse, plain
from tests.for_each import for_each


@for_each("axis", AXES)
def test_every_kind_and_every_option_is_explained(axis: str) -> None:
    for kind in kinds_of(axis):
        assert len(kind.about) > 8 and "\n" not in kind.about, kind
        for option in kind.options:
            assert option.about, (kind.name, option.name)


@for_each("axis", AXES)
def test_a_scenario_may_write_each_default(axis: str) -> None:
    """``resolved.yaml`` writes all of them, and can be run again."""
    for kind in kinds_of(axis):
        owner = options_of(AXES[axis][kind.name])
        hints = get_type_hints(owner)
        for option, field in zip(kind.options, fields(owner), strict=True):
            if option.default not in ("", "None", "''"):
                read = leaf(hints[field.name], field.metadata).read(plain(parse(option.default, "e.yaml")))
                assert read == field.default, (kind.name, option)
