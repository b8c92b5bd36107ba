"""Options of a training job that have no effect, as problems with place and cure; free of torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any, NamedTuple

from testbed.axes import options_of
from testbed.training.options import OPTIMIZERS


class OptionProblem(NamedTuple):
    """``at``: path below the checked section."""

    at: tuple[str, ...]
    problem: str
    hint: str


def split_problems(options: Mapping[str, Any]) -> Iterator[OptionProblem]:
    """Yield the problems of ``training.split``."""
    if options.get("shares") and options.get("skew"):
        yield OptionProblem(("skew",), "has no effect beside 'shares'", "keep one of them")


def optimizer_problems(kind: str, options: Mapping[str, Any]) -> Iterator[OptionProblem]:
    """Yield the problems of ``optimizer``."""
    if options.get("nesterov") and not options["momentum"]:
        yield OptionProblem(("nesterov",), "has no effect without momentum", "write momentum: 0.9")
    schedule = options["schedule"]
    for name in ("period", "decay"):
        if schedule in ("constant", "inverse_sqrt") and options[name] != _default(kind, name):
            yield OptionProblem((name,), f"has no effect with schedule '{schedule}'", "write schedule: step, or cosine")
    if (
        OPTIMIZERS[kind].needs_backups
        and not options["adaptive"]
        and options["mean_square_decay"] != _default(kind, "mean_square_decay")
    ):
        yield OptionProblem(("mean_square_decay",), "has no effect", "write adaptive: true")


def _default(kind: str, name: str) -> Any:
    default = next(option.default for option in fields(options_of(OPTIMIZERS[kind])) if option.name == name)
    assert default is not MISSING
    return default
