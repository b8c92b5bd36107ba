"""Scenarios whose workload is a job's trace: the sections that have no effect, and what follows from the trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationInfo
from pydantic_core import PydanticCustomError

from testbed.errors import ScenarioError, TestbedError
from testbed.job_trace.model import Rates
from testbed.job_trace.reading import Totals, digest_of, files_of, groups_of, read_job, totals_of
from testbed.scenario.reading.files import allows_code, beside
from testbed.scenario.reading.quantities import is_null, text_of
from testbed.scenario.reading.violations import Violation, raise_found
from testbed.units import UnitError, parse_rate

_OWN = "what the job does is in its trace; remove it"
_AXES = ("sync", "optimizer", "outer_optimizer", "codec", "order", "overlay", "shard", "aggregation")
WITHOUT_EFFECT: Mapping[str, str] = {  # sections, each with the cure
    **dict.fromkeys(_AXES, _OWN),
    "checkpoint": "a trace is played from its beginning; remove it",
    "recovery": "every rank has a part of its own, so the run ends when one is lost; remove it",
}
DEVICE = ("speed", "variation", "slowdown")  # the keys of a device that have an effect; durations are the trace's
_SHORTEST_S = 1e-3
T = TypeVar("T")


def with_trace(data: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    """Return the scenario's tree with ``training``, ``paradigm`` and ``device`` derived from the trace.

    Raise a refusal for keys without effect, and for a trace that could not be played to its end.
    """
    workload = data["workload"]
    if _is_read(data):
        return data
    raise_found(_without_effect(data))
    places = {key: _place(workload, key, info) for key in ("trace", "kineto", "groups")}
    for key, path in places.items():
        if path:
            _refused_at(key, partial(_find, key, path))
    totals, sha256 = _refused_at("trace", partial(_read, places, workload))
    training = data.get("training")
    given = training if isinstance(training, dict) else {}
    device = data.get("device")
    made = {
        "workload": {**workload, **{key: str(path) for key, path in places.items() if path}, "sha256": sha256},
        "training": {
            "rounds": 1,
            **given,
            "model": {"kind": "traced", "sent": totals.sent_bytes},
            "data": {"kind": "traced"},
        },
        "device": {**(device if isinstance(device, dict) else {}), "step_time": max(_SHORTEST_S, totals.work_s)},
    }
    paradigm = {} if "paradigm" in data else {"paradigm": {"kind": "allreduce"}}
    return {**data, **made, **paradigm}


def without_training(resolved: dict[str, Any]) -> dict[str, Any]:
    """Return a resolved scenario without the sections and keys that the trace decides."""
    kept = {key: value for key, value in resolved.items() if key not in WITHOUT_EFFECT}
    device = {key: value for key, value in kept["device"].items() if key in DEVICE}
    workload = {key: value for key, value in kept["workload"].items() if key != "sha256"}
    return {**kept, "training": {"rounds": kept["training"]["rounds"]}, "device": device, "workload": workload}


def _is_read(data: dict[str, Any]) -> bool:
    training = data.get("training")
    model = training.get("model") if isinstance(training, dict) else None
    return isinstance(model, dict) and "sent" in model and bool(data["workload"].get("sha256"))


def _without_effect(data: dict[str, Any]) -> Iterator[Violation]:
    for key, cure in WITHOUT_EFFECT.items():
        if key in data and not is_null(data[key]):
            yield Violation((key,), "has no effect beside 'workload: {trace: …}'", cure)
    for section, known in (("training", ("rounds",)), ("device", DEVICE)):
        given = data.get(section)
        for key in given if isinstance(given, dict) else ():
            if key not in known:
                yield Violation((section, key), "has no effect beside 'workload: {trace: …}'", _OWN)


def _place(workload: dict[str, Any], key: str, info: ValidationInfo) -> Path | None:
    """Return the path of the file or folder that the workload names under ``key``, or ``None``.

    It must be in the scenario's folder, unless the scenario may name code.
    """
    if is_null(workload.get(key)):
        return None
    text = text_of(workload[key])
    path = Path(text)
    if path.is_absolute():
        if allows_code(info):
            return path
        problem = f"'{text}' is an absolute path, but this file is not at or below the working directory"
        raise_found([Violation(("workload", key), problem, "give --allow-code, if you trust it")])
    try:
        return beside(str(path.parent), info) / path.name
    except PydanticCustomError as error:  # outside a field, pydantic has no place for the error
        told = error.context or {}
        raise_found([Violation(("workload", key), told["problem"], told["hint"])])
    raise AssertionError("a refusal was raised")


def _find(key: str, path: Path) -> None:
    """Raise ``ScenarioError`` if there are no such files, or if the file of process groups cannot be read."""
    if key == "groups":
        groups_of((), str(path))
    else:
        files_of(path)


def _refused_at(key: str, read: Callable[[], T]) -> T:
    """Call ``read`` and return its result. Its errors become violations at ``workload.key``."""
    try:
        return read()
    except TestbedError as error:
        raise_found(Violation(("workload", key), problem) for problem in _lines(error))
        raise


def _read(places: Mapping[str, Path | None], workload: dict[str, Any]) -> tuple[Totals, str]:
    """Return the totals of the trace (its work and its bytes, among others), and its digest."""
    trace, kineto, groups = (str(places[key] or "") for key in ("trace", "kineto", "groups"))
    rates = Rates(_number(workload, "flops", float), _number(workload, "memory_rate", parse_rate) / 8)
    sha256 = digest_of(trace, kineto, groups)
    return _totals(trace, kineto, groups, rates, sha256), sha256


def _number(workload: dict[str, Any], key: str, parse: Callable[[str], float]) -> float:
    """Return a number that the section has not read yet: 0 if it is absent, 1 if the section will refuse it."""
    given = workload.get(key)
    if is_null(given):
        return 0.0
    if isinstance(given, float | int):
        return float(given)
    try:
        return parse(text_of(given))
    except (ValueError, PydanticCustomError, UnitError):
        return 1.0


@lru_cache(maxsize=16)  # the points of a sweep name the same trace
def _totals(trace: str, kineto: str, groups: str, rates: Rates, sha256: str) -> Totals:
    return totals_of(read_job(trace, kineto, groups, rates), rates)


def _lines(error: TestbedError) -> list[str]:
    return error.problems if isinstance(error, ScenarioError) else [str(error)]
