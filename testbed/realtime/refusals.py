"""What a node tells of strangers at its ports: little, however many they are and whatever names they present."""

from __future__ import annotations

from collections.abc import Callable

TOLD_EVERY_S = 60.0


class RefusalLog:
    """Tells of the first refusal of a kind at once, and of later ones at most once in ``TOLD_EVERY_S`` seconds.

    Kinds are words of ours, so there are few of them; what a stranger has sent is in ``reason`` only.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._told_at_s: dict[str, float] = {}
        self._untold: dict[str, int] = {}

    def note(self, kind: str, reason: str, caller: str, now_s: float) -> None:
        """Count a refusal at ``now_s``, and tell of it if its kind is due."""
        if now_s - self._told_at_s.get(kind, -TOLD_EVERY_S) < TOLD_EVERY_S:
            self._untold[kind] = self._untold.get(kind, 0) + 1
            return
        self._told_at_s[kind] = now_s
        others = self._untold.pop(kind, 0)
        more = f"; {others} more like it since the last line" if others else ""
        self._warn(f"refused a connection from {caller}: {reason}{more}")

    def close(self) -> None:
        """Tell how many there were of which nothing was said."""
        for kind, count in self._untold.items():
            self._warn(f"refused {count} more connections: {kind}")
        self._untold.clear()
