"""The section ``device``: what workers compute on, how long a step takes, how much that varies, when it is slower."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BeforeValidator

from testbed.scenario.reading.quantities import (
    DURATION,
    INSTANT,
    PART,
    SHARE,
    integer,
    is_null,
    number,
    one_of,
    or_word,
)
from testbed.scenario.reading.section import ReadAs, Section, changes_of
from testbed.scenario.reading.violations import Violation, series_violations
from testbed.scenario.sections.tables import PROFILE, STEP_TIMES

AUTO = -1  # ``index``: the GPU with the least load


class SlowdownPoint(Section):
    """A time, from which on the device is ``factor`` times slower."""

    at: Annotated[float, INSTANT]
    """Time since the worker's first step."""
    factor: Annotated[float, number(0.001, 1000)]
    """How many times slower than its step time."""


class Slowdown(Section):
    """Times at which a device is slower: other jobs, thermal throttling, a battery."""

    points: tuple[SlowdownPoint, ...] = ()
    """Times and factors; the first time is 0 s."""
    repeat_after: Annotated[float | None, DURATION] = None
    """Time after which it starts again; by default the last factor stays."""

    def _violations(self) -> Iterable[Violation]:
        if not self.points:
            return [Violation((), "has no points", "write a list of {at: 0 s, factor: 1}, {at: 10 s, factor: 5}")]
        return series_violations([point.at for point in self.points], self.repeat_after)


def _read_slowdown(value: Any) -> Any:
    if is_null(value):
        return None
    return {"points": value} if isinstance(value, tuple | list) else value


class Device(Section):
    """What a worker computes on, and how long one training step takes there."""

    kind: Annotated[str, one_of("cpu", "cuda")] = "cpu"
    """Where workers compute."""
    share: Annotated[float, PART] = 1.0
    """Part of a GPU that a worker's step occupies while it computes: at 50 %, steps of two workers run at one time; at
    100 %, workers of one GPU take turns."""
    index: Annotated[int, or_word(integer(0, 1023), {"auto": AUTO})] = AUTO
    """Number of the GPU; auto: the one with the least load."""
    server_device: Annotated[str, one_of("cpu", "cuda")] = "cpu"
    """Where servers aggregate and optimize."""
    pace: Annotated[str, one_of("auto", "paced", "measured")] = "auto"
    """paced: a step computes, then waits until its step time has passed. measured: it takes as long as it computes;
    in an exact run, which needs exact.cpu: measured for it, the processor's time divided by speed. auto: measured on a
    GPU of a real run, else paced."""
    step_time: Annotated[float, DURATION] = 0.05
    """Time of one training step at speed 1."""
    speed: Annotated[float, number(0.001, 1000)] = 1.0
    """How many times faster than step_time says; 0.5 makes a straggler."""
    variation: Annotated[float, SHARE] = 0.0
    """Spread of single steps: standard deviation as a share of the mean. They are drawn, lognormal, from the seed."""
    slowdown: Annotated[Slowdown | None, BeforeValidator(_read_slowdown)] = None
    """Times at which it is slower: a list of {at: 10 s, factor: 5}."""
    codec_speed: Annotated[float, number(0.001, 1000)] = 1.0
    """How many times faster codecs are than the table of costs says (`simulation.costs`); in virtual time only."""
    profile: PROFILE = ()
    """{file: NAME.csv}: times of the model's layers, as `testbed profile` measures them; instead of step_time. A
    data centre or worker with a step time of its own has none."""
    step_times: STEP_TIMES = None
    """Step times of single workers instead of step_time: {file: NAME.csv} with the columns worker,step_time_ms. A row's
    worker is DATA_CENTER/workerN, or DATA_CENTER for all of its workers. Settings of the same worker or data centre
    come before its row; a worker's row comes before settings of its data centre."""


_CHANGED = tuple(name for name in Device.model_fields if name not in ("step_times", "profile"))
DEVICE_CHANGES = ReadAs(
    changes_of(
        Device,
        "DeviceChanges",
        "What differs from the global ``device`` in one data centre or at one worker.",
        *_CHANGED,
    )
)
