"""How long a training step takes on a worker's device: its mean, its spread, and the times at which it is slowed down.

Pure, and the same in every world: the draw of a step depends on the run's seed, the node and the number of the step;
slow-downs count from the beginning of the node's first step.
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

    codec_speed  how many times faster the node encodes and decodes than the table of costs says
    """

    def __init__(self, device: Device, seed: int, node: str, since_s: float | None = None) -> None:
        """``since_s``: when training began, if that was in a life of the node before this one."""
        self._device = device
        self.codec_speed = device.codec_speed
        self._draws = f"{seed}/step/{node}/"
        self._sigma = math.sqrt(math.log1p(device.variation**2))
        self._steps_done = 0.0
        self._first_s = since_s

    def state(self) -> State:
        """Return, for a checkpoint, where draws and slow-downs are."""
        return {"steps": self._steps_done} | ({} if self._first_s is None else {"first": self._first_s})

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Inverse of ``state``. Slow-downs count as before if the run's clock goes on; else from the next step."""
        self._steps_done = state["steps"]
        if self._first_s is not None:
            self._first_s = state.get("first")

    def duration_s(self, steps: float, now_s: float) -> float:
        """Seconds that ``steps`` steps (or a share of one), begun at ``now_s``, take."""
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
        """Seconds on this device, from ``now_s`` on, of what takes ``processor_s`` of the machine's processor."""
        self._first_s = now_s if self._first_s is None else self._first_s
        return slowed_s(processor_s / self._device.speed, self._device.slowdown, now_s - self._first_s)

    def _factor(self, step: int) -> float:
        """Lognormal with mean 1, by inversion of its distribution function."""
        if self._device.variation == 0:
            return 1.0
        digest = hashlib.sha256(f"{self._draws}{step}".encode()).digest()
        uniform = (int.from_bytes(digest[:8], "big") + 0.5) / 2**64
        sigma = self._sigma
        return math.exp(sigma * _NORMAL.inv_cdf(uniform) - sigma * sigma / 2)


def slowed_s(work_s: float, slowdown: Series | None, begin_s: float) -> float:
    """Seconds for work that takes ``work_s`` unhindered, where ``slowdown`` says how many times slower it is when."""
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
    """A generous bound of a step's time, for deadlines: the slowest piece, and four standard deviations."""
    slowest = max(device.slowdown.values) if device.slowdown else 1.0
    sigma = math.sqrt(math.log1p(device.variation**2))
    return device.step_time_s * slowest * math.exp(4 * sigma)


def step_shares(node: NodePlan, shape: ModelShape) -> tuple[tuple[float, float], ...]:
    """Return each segment's (forward, backward) share of a step's time: as measured, or by operations; the sum is 1.

    Raise ``ScenarioError`` if another model was measured.
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
