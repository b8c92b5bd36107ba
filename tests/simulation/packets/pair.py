"""Two nodes at the ends of a link, for tests of connections."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from testbed.simulation.clock import Clock
from testbed.simulation.packets.connection import PacketConnection
from testbed.simulation.packets.engine import PacketEngine
from testbed.simulation.paths import SitePath
from testbed.simulation.tcp_model import TcpModel
from tests.simulation.links import change, wan_link

MODEL = TcpModel(unsent_limit_bytes=131_072)
_LOSING = 0  # words of a generator: its number is 0, and a half
_KEEPING = 0x80000000
_SETUP_FRAMES = 3  # of a handshake, there


class ChosenLosses(list[int]):
    """Words of which those of one generator, at ``begin``, let the frames be lost that ``lose`` names.

    ``sent``: frames for which it was asked. Frames of the first handshake are not counted: theirs are -2, -1 and 0.
    """

    def __init__(self, words: list[int], begin: int, lose: Callable[[int], bool]) -> None:
        super().__init__(words)
        self._begin = begin
        self._lose = lose
        self._draws = 0

    @property
    def sent(self) -> int:
        return self._draws // 2 - _SETUP_FRAMES

    def __getitem__(self, index: Any) -> Any:
        if index == self._begin + 624:
            return 0  # it has used none of its words
        if index != self._begin:
            return super().__getitem__(index)
        self._draws += 1  # two for each number
        return _LOSING if self._lose((self._draws + 1) // 2 - _SETUP_FRAMES) else _KEEPING

    def __setitem__(self, index: Any, word: Any) -> None:
        if index != self._begin + 624:
            super().__setitem__(index, word)


class Pair:
    """Two nodes, a link there and back, and a connection over it.

    ``lose`` names frames there that are lost. ``over``: another pair, whose link they share.
    """

    def __init__(
        self,
        rate_bps: float,
        delay_s: float,
        queue_bytes: int,
        model: TcpModel = MODEL,
        lose: Callable[[int], bool] = lambda number: False,
        over: Pair | None = None,
    ) -> None:
        self.arrivals: dict[Any, float] = {}
        self.rate_bps = rate_bps
        self.delay_s = delay_s
        if over is None:
            self.clock = Clock()
            self.engine = PacketEngine(self.clock, compiled=False)
            self.states = [wan_link(rate_bps, delay_s, queue_bytes) for _ in range(2)]
            self.links = [self.engine.add_link(state, Random(1), 0) for state in self.states]
            net = self.engine.net
            self.words = ChosenLosses(net.word_list, self.there.generator, lose)
            net.word_list = self.words
            self.up(True)
        else:
            self.clock = over.clock
            self.engine = over.engine
            self.states = over.states
            self.links = over.links
            self.words = over.words
        self._connect(model)

    def _connect(self, model: TcpModel) -> None:
        there, back = (
            self.engine.add_path((link,), (self.engine.add_port(1e9), self.engine.add_port(1e9)), 0.0)
            for link in self.links
        )
        way = SitePath("wan", (), 0.0, delay_s=self.delay_s)
        self.connection = PacketConnection(self.engine, way, (there, back), model, "pair", self._arrived)
        self.connection.record.chance = 0  # where another one would let other acknowledgements be late

    @property
    def sent(self) -> int:
        """Frames that have left there."""
        return self.words.sent

    @property
    def there(self) -> Any:
        return self.engine.link(self.links[0])

    def up(self, up: bool, delay_s: float | None = None) -> None:
        for link, state in zip(self.links, self.states, strict=True):
            change(self.engine, link, state, self.rate_bps if up else 0.0, self.delay_s if delay_s is None else delay_s)
        self.there.losses = 0.5

    def _arrived(self, message: Any) -> None:
        assert message not in self.arrivals
        self.arrivals[message] = self.clock.now

    def send(self, at_s: float, *sizes: tuple[Any, int]) -> None:
        for name, size_bytes in sizes:
            self.clock.at(at_s, lambda _, name=name, size=size_bytes: self.connection.send(size, 0, name))

    @property
    def sender(self) -> Any:
        """The connection's record."""
        return self.connection.record
