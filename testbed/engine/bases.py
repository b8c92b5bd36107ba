"""Which value each worker below a local server has, where these workers do not wait for each other.

The top tier must know at which value a gradient was computed: for delay compensation, and for its staleness. Where a
local server sums, that is the value that it was sent last. Where it passes on the push of each worker by itself, others
of its workers have been sent newer values meanwhile, so each push that goes up says which one its worker has.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from testbed.engine.reply import PULL_ROUND


class Bases:
    """A value is known by the round of this server's own push that it answers; a first value is that of a pull."""

    def __init__(self) -> None:
        self._current: dict[int, int] = {}  # by key: the value that this server has
        self._had: dict[int, dict[str, int]] = {}  # by key: the value that each worker was sent last
        self._forgotten: dict[int, list[int]] = {}  # by key: what no worker has now and the top tier keeps

    def arrived(self, key: int, round_: int) -> None:
        """Note that the value of ``key`` is now the answer to this server's push of ``round_``."""
        before, self._current[key] = self._of_server(key), round_
        self._forget(key, before)

    def sent(self, key: int, worker: str) -> None:
        """Note that ``worker`` is sent the value that this server has."""
        had = self._had.setdefault(key, {})
        before, had[worker] = had.get(worker, PULL_ROUND), self._of_server(key)
        self._forget(key, before)

    def note(self, key: int, workers: Sequence[str]) -> list[int]:
        """Return what the push of ``workers`` says: the oldest value that they have; those that no worker has now."""
        had = self._had.get(key, {})
        return [min(had.get(worker, PULL_ROUND) for worker in workers), *self._forgotten.pop(key, ())]

    def _of_server(self, key: int) -> int:
        return self._current.get(key, PULL_ROUND)

    def _forget(self, key: int, round_: int) -> None:
        if round_ not in (PULL_ROUND, self._of_server(key), *self._had.get(key, {}).values()):
            self._forgotten.setdefault(key, []).append(round_)

    def state(self) -> str:
        """Return what a checkpoint keeps."""
        return json.dumps([list(each.items()) for each in (self._current, self._had, self._forgotten)])

    def load_state(self, text: str) -> None:
        """Inverse of ``state``."""
        self._current, self._had, self._forgotten = (dict(each) for each in json.loads(text))
