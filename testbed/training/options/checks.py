"""Which choices of a training job go together, as problems with the place and the cure; free of torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any, NamedTuple

from testbed.axes import options_of
from testbed.training.declared import IMAGE_MODELS
from testbed.training.options import DATASETS, MODELS, OPTIMIZERS
from testbed.training.options.declarations import NOTHING


class OptionProblem(NamedTuple):
    """``at``: path below the section that was checked."""

    at: tuple[str, ...]
    problem: str
    hint: str


def job_problems(model: str, model_options: Mapping[str, Any], data: str, compute: str) -> Iterator[OptionProblem]:
    """Problems of a ``training`` section: kinds of model and data, the model's options, and how it is computed."""
    takes, gives = MODELS[model].takes, DATASETS[data].gives
    if takes == NOTHING and compute != "modelled":
        yield OptionProblem(("model",), f"'{model}' has sizes only", "write compute: modelled, or choose another model")
    if takes != gives:
        fitting = ", ".join(kind for kind, options in DATASETS.items() if options.gives == takes)
        wanted = "no data" if takes == NOTHING else takes
        yield OptionProblem(("data",), f"'{data}' does not fit '{model}', which takes {wanted}", f"choose {fitting}")
    if takes == NOTHING:
        yield from _declared_problems(model_options)


def _declared_problems(options: Mapping[str, Any]) -> Iterator[OptionProblem]:
    if options["sequence"] and not options["file"] and options["name"] in IMAGE_MODELS:
        yield OptionProblem(("model", "sequence"), f"has no effect on {options['name']}", "remove it")


def split_problems(split: str, options: Mapping[str, Any]) -> Iterator[OptionProblem]:
    """Problems of ``training.split``."""
    if split == "by_count" and options["shares"] and options["skew"]:
        yield OptionProblem(("skew",), "has no effect beside 'shares'", "keep one of them")


def optimizer_problems(kind: str, options: Mapping[str, Any]) -> Iterator[OptionProblem]:
    """Problems of ``optimizer``: options without effect."""
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
