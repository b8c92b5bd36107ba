"""The star: every child exchanges with its server directly. GeoMX without TSEngine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from testbed.policy.overlay.base import Overlay


class Star(Overlay):
    """No relays."""

    relays: ClassVar[bool] = False

    @dataclass(frozen=True, slots=True)
    class Options:
        """A star has no options."""
