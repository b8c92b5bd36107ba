"""Options of a training job that do not go together, and the tables that a scenario reads."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

from testbed.training.datasets import _LOADERS
from testbed.training.options import DATASETS, MODELS, OPTIMIZERS, SPLITS
from testbed.training.splits import RULES
from tests.for_each import for_each


@for_each("kind", OPTIMIZERS)
def test_defaults_of_optimizers_go_together(kind: str) -> None:
    assert not list(OPTIMIZERS.options(kind, {}).problems())


@for_each(
    ("kind", "changed", "place"),
    [
        ("sgd", {"nesterov": True}, "nesterov"),
        ("adam", {"period": 5}, "period"),
        ("adam", {"decay": 0.5, "schedule": "inverse_sqrt"}, "decay"),
        ("dcasgd", {"mean_square_decay": 0.5}, "mean_square_decay"),
    ],
)
def test_options_without_effect(kind: str, changed: dict[str, Any], place: str) -> None:
    ((option, problem, hint),) = OPTIMIZERS.options(kind, changed).problems()
    assert option == place and problem and hint


def test_shares_and_skew() -> None:
    ((option, *_),) = SPLITS.options("by_count", {"shares": "1 2", "skew": 1.0}).problems()
    assert option == "skew"
    assert not list(SPLITS.options("by_count", {"shares": "1 2"}).problems())


def test_every_name_has_its_code() -> None:
    assert DATASETS.keys() == _LOADERS.keys()
    assert SPLITS.keys() == RULES.keys()


@for_each("table", [MODELS, DATASETS, SPLITS, OPTIMIZERS])
def test_options_can_be_written_in_a_scenario(table: dict[str, type[Any]]) -> None:
    for options in table.values():
        assert options.__doc__
        for option in dataclasses.fields(options):
            assert option.metadata["help"]
            assert option.default is not dataclasses.MISSING


def test_options_need_no_torch() -> None:
    code = "import sys, testbed.training.options, testbed.training.declared; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)
    assert result.stdout.strip() == "False"
