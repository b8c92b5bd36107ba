"""The star: every child exchanges with its server directly. GeoMX without TSEngine."""

from __future__ import annotations

from dataclasses import dataclass


class Star:
    """No relays."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """A star has no options."""
