"""Which member's push is missing in which round: the bookkeeping that all synchronous policies share."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.policy.events import Push


@dataclass(slots=True)
class _OpenRound:
    """A round of a key: its members, and those of them that have not pushed yet."""

    members: tuple[str, ...]
    missing: set[str]


class Rounds:
    """Rounds of keys that have begun and are not yet complete. Members may be lost, and join again."""

    def __init__(self, members: tuple[str, ...]) -> None:
        self._members = members
        self._gone: set[str] = set()
        self._since: dict[str, int] = {}  # first rounds of those that have joined again
        self._begun: dict[tuple[int, int], _OpenRound] = {}
        self._reached = -1  # the latest round that has begun of any key

    def complete(self, push: Push) -> tuple[str, ...]:
        """Note a push. Return the members in rank order if it completes its (key, round), else an empty tuple."""
        where = (push.key, push.round)
        begun = self._begun.get(where)
        if begun is None:
            members = self._expected(push.round)
            begun = self._begun[where] = _OpenRound(members, set(members))
            self._reached = max(self._reached, push.round)
        assert push.member in begun.missing, f"{push.member} pushed key {push.key} of round {push.round} twice"
        begun.missing.remove(push.member)
        if begun.missing:
            return ()
        del self._begun[where]
        return begun.members

    def missing(self, key: int, round_: int) -> tuple[str, ...]:
        """Return the members, in rank order, whose push of a begun round is missing."""
        begun = self._begun.get((key, round_))
        return tuple(member for member in self._members if begun and member in begun.missing)

    def on_member_lost(self, member: str) -> list[tuple[int, int, tuple[str, ...]]]:
        """``member`` is lost; its pushes so far count. Return (key, round, members) of rounds now complete."""
        self._gone.add(member)
        complete = []
        for (key, round_), begun in sorted(self._begun.items()):
            if member in begun.missing:
                begun.missing.remove(member)
                begun.members = tuple(each for each in begun.members if each != member)
                if not begun.missing:
                    complete.append((key, round_, begun.members))
        for key, round_, _ in complete:
            del self._begun[key, round_]
        return complete

    def begin_at(self, round_: int) -> None:
        """All rounds before ``round_`` are over: the run is resumed, or this server has joined it."""
        self._reached = round_ - 1

    def on_member_joined(self, member: str, since: int | None = None) -> int:
        """``member`` is back. Return the first round that it is part of.

        ``since``: that round, if another server has agreed on it; by default the first that no key has begun.
        """
        self._gone.discard(member)
        self._since[member] = self._reached + 1 if since is None else since
        return self._since[member]

    def present(self, members: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of ``members`` that are not lost."""
        return tuple(member for member in members if member not in self._gone) if self._gone else members

    def _expected(self, round_: int) -> tuple[str, ...]:
        if not self._gone and not self._since:
            return self._members
        return tuple(m for m in self._members if m not in self._gone and self._since.get(m, 0) <= round_)
