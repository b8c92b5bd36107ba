"""Who is missing in which round: the bookkeeping that all synchronous policies share."""

from __future__ import annotations

from testbed.policy.events import Push


class Rounds:
    """Rounds of keys that have begun and are not yet complete."""

    def __init__(self, members: tuple[str, ...]) -> None:
        self._members = members
        self._missing: dict[tuple[int, int], set[str]] = {}

    def complete(self, push: Push) -> bool:
        """Note a push; True when it is the last of its (key, round)."""
        where = (push.key, push.round)
        missing = self._missing.setdefault(where, set(self._members))
        assert push.member in missing, f"{push.member} pushed key {push.key} of round {push.round} twice"
        missing.remove(push.member)
        if not missing:
            del self._missing[where]
        return not missing

    def missing(self, key: int, round_: int) -> tuple[str, ...]:
        """Members, in rank order, that a begun round still waits for."""
        missing = self._missing.get((key, round_), set())
        return tuple(member for member in self._members if member in missing)
