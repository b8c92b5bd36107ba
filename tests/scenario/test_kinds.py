"""What people are told of each axis: complete, in words, with defaults that a scenario would take."""

from dataclasses import fields
from typing import get_type_hints

import pytest

from testbed.axes import options_of
from testbed.cli.main import main
from testbed.scenario.kinds import AXES, kinds_of
from testbed.scenario.reading.axes import leaf
from testbed.scenario.reading.document import parse, plain
from testbed.scenario.reading.keys import keys_of
from testbed.scenario.schema import Scenario, Training
from tests.for_each import for_each


@for_each("axis", AXES)
def test_every_kind_and_every_option_is_explained(axis: str) -> None:
    for kind in kinds_of(axis):
        assert len(kind.about) > 8 and "\n" not in kind.about, kind
        for option in kind.options:
            assert option.about, (kind.name, option.name)


def test_every_axis_of_a_scenario_is_there() -> None:
    assert set(AXES) - {"generator", "trace"} <= {*keys_of(Scenario), *keys_of(Training)}
    assert {"paradigm", "sync", "optimizer", "codec", "order", "overlay", "shard"} <= set(AXES)


def test_defaults_are_written_as_in_a_scenario() -> None:
    options = {option.name: option.default for kind in kinds_of("paradigm") for option in kind.options}
    assert options["density"] == "1 %" and options["inside"] == "ring"
    star = next(kind for kind in kinds_of("generator") if kind.name == "star")
    assert {option.name: option.default for option in star.options}["rate"] == "20 Mbit/s"


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


def test_the_verb_prints_an_axis(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "sync"]) == 0
    shown = capsys.readouterr().out
    assert "hfa" in shown and "local steps between two pushes" in shown
    assert main(["schema", "codecs"]) == 2
    assert "'codecs' is not an axis of a scenario (did you mean 'codec'?)" in capsys.readouterr().err
