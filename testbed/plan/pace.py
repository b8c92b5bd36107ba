"""The duration of a training step on a worker's device: its mean, its random variation, and its slow-downs over time.

It is the same in every world: the random factor of a step depends on the run's seed, the node and the step number;
times of slow-downs count from the beginning of the node's first step.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

from testbed.errors import ScenarioError
from testbed.plan.model import NodePlan
from testbed.settings.job import Device
from testbed.settings.series import Series
from testbed.state import State
from testbed.training.shapes import ModelShape

_NORMAL = NormalDist()


class Pacer:
    """The steps of one node, in order. ``duration_s`` must be asked once for every piece of a step.

    codec_speed  how many times faster than in the table of costs the node encodes and decodes
    """

    def __init__(self, device: Device, seed: int, node: str, since_s: float | None = None) -> None:
        """``since_s``: when training began, if an earlier process of the node began it."""
        self._device = device
        self.codec_speed = device.codec_speed
        self._draws = f"{seed}/step/{node}/"
        self._sigma = math.sqrt(math.log1p(device.variation**2))
        self._steps_done = 0.0
        self._first_s = since_s

    def state(self) -> State:
        """Return, for a checkpoint, the positions in the random draws and in the slow-downs."""
        return {"steps": self._steps_done} | ({} if self._first_s is None else {"first": self._first_s})

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Inverse of ``state``. Slow-downs continue if the run's clock does; else they count from the next step."""
        self._steps_done = state["steps"]
        if self._first_s is not None:
            self._first_s = state.get("first")

    def duration_s(self, steps: float, now_s: float) -> float:
        """Return the seconds that ``steps`` steps (or a share of one), begun at ``now_s``, take."""
        self._first_s = now_s if self._first_s is None else self._first_s
        work_s = 0.0
        left = steps
        while left > 0:
            number = math.floor(self._steps_done + 1e-9)
            part = min(left, number + 1 - self._steps_done) if steps < 1 else 1.0 if left > 1.0 else left
            work_s += part * self._device.step_time_s * self._factor(number)
            self._steps_done += part
            left -= part
        return slowed_s(work_s, self._device.slowdown, now_s - self._first_s)

    def measured_s(self, processor_s: float, now_s: float) -> float:
        """Return the seconds on this device, from ``now_s``, for work that takes ``processor_s`` on the processor."""
        self._first_s = now_s if self._first_s is None else self._first_s
        return slowed_s(processor_s / self._device.speed, self._device.slowdown, now_s - self._first_s)

    def _factor(self, step: int) -> float:
        """Return the random factor of a step: lognormal with mean 1, by inversion of the distribution function."""
        if self._device.variation == 0:
            return 1.0
        digest = hashlib.sha256(f"{self._draws}{step}".encode()).digest()
        uniform = (int.from_bytes(digest[:8], "big") + 0.5) / 2**64
        sigma = self._sigma
        return math.exp(sigma * _NORMAL.inv_cdf(uniform) - sigma * sigma / 2)


def slowed_s(work_s: float, slowdown: Series | None, begin_s: float) -> float:
    """Return the seconds, from ``begin_s``, for work that takes ``work_s`` without ``slowdown`` (factors over time)."""
    if slowdown is None:
        return work_s
    now_s = begin_s
    for _, end_s, factor in slowdown.segments(begin_s):
        if now_s + work_s * factor <= end_s:
            return now_s + work_s * factor - begin_s
        work_s -= (end_s - now_s) / factor
        now_s = end_s
    raise AssertionError("the last segment has no end")


def longest_step_s(device: Device) -> float:
    """Return a generous bound of a step's time, for deadlines: with the largest slow-down and four deviations."""
    slowest = max(device.slowdown.values) if device.slowdown else 1.0
    sigma = math.sqrt(math.log1p(device.variation**2))
    return device.step_time_s * slowest * math.exp(4 * sigma)


def step_shares(node: NodePlan, shape: ModelShape) -> tuple[tuple[float, float], ...]:
    """Return each segment's (forward, backward) share of a step's time, as measured or by operations; the sum is 1.

    Raise ``ScenarioError`` if the measured model has another number of segments.
    """
    layers = node.device.layers
    if not layers:
        return shape.time_shares()
    if len(layers) != len(shape.segments):
        raise ScenarioError(
            f"device.profile: has {len(layers)} segments, but the model '{shape.name}' has {len(shape.segments)}; "
            "measure this model with 'testbed profile'"
        )
    total = sum(map(sum, layers))
    return tuple((forward / total, backward / total) for forward, backward in layers)
