"""DGT, differential gradient transmission: important blocks travel reliably, the others by best effort.

A tensor's payload is cut into blocks. A block's contribution is a moving average of its mean magnitude. The share k of
the blocks with the largest contributions travels on channel 0 (reliable, in order). The others travel on channels 1 to
C (best effort): the less a block contributes, the higher its channel. Channels are marked in the IP header, so that a
bottleneck may serve them by priority. k falls with the loss: k = max(k0 · loss / first loss, k_min).

Zhou et al., "DGT: A contribution-aware differential gradient transmission mechanism for distributed machine
learning", Future Generation Computer Systems 121, 2021. Counts are those of the authors' code and of GeoMX.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from testbed.axes import option
from testbed.policy.order.fifo import WHOLE, Fifo
from testbed.policy.shard.slices import ELEMENT_BYTES
from testbed.preset import Preset
from testbed.state import Remembering

RELIABLE = 0
MAX_CHANNELS = 7  # three bits of precedence in the IP header
MAX_BLOCK_BYTES = 65_536
SKIPPED = 255  # the channel of a block that is not sent at all

CONTRIBUTION = "contribution"
RANDOM = "random"
NONE = "none"
ZERO = "zero"
NEXT_ROUND = "next-round"
RETRANSMIT = "retransmit"
HEURISTIC_DROP = "heuristic-drop"
SENDER_DROP = "sender-drop"
EXACT = "exact"
FOUR_BITS = "4-bit"


class Dgt(Fifo):
    """Sends keys in blocks, the important blocks reliably. Keys are not sliced and have equal priority."""

    best_effort: ClassVar[bool] = True
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="dgt",
            summary="blocks of gradients that matter less travel over the WAN by UDP, and may be lost",
            source="GeoMX; Zhou et al., FGCS 2021",
            settings={"order": {}},
        ),
    )

    @dataclass(frozen=True, slots=True)
    class Options:
        """How a data centre sends pushes to the global servers, and how these treat late blocks.

        A round of a key is complete when all its blocks have arrived, or when all have left their sender and none has
        arrived for ``deadline``. In a bottleneck's queue, the reliable parts of later keys overtake blocks. If these
        take longer than the deadline, blocks are late although none is lost. ``late``:

        next-round      missing blocks count as zero; those that come during the key's next round are added to it (DGT)
        zero            missing blocks count as zero; later blocks are dropped
        retransmit      the server asks for missing blocks, which are sent again reliably: nothing is lost
        heuristic-drop  baseline: as zero, without waiting at all
        sender-drop     baseline: the sender does not send unimportant blocks
        """

        k: float = option(0.8, "share sent reliably, at first", above=0, max=1)
        k_min: float = option(0.2, "share sent reliably, at least", max=1)
        adaptive: bool = option(True, "whether k follows the training loss")
        channels: int = option(3, "best-effort channels", min=1, max=MAX_CHANNELS)
        block: int = option(4096, "size of a block", unit="bytes")
        alpha: float = option(0.3, "weight of a block's past contribution", max=0.99)
        selection: str = option(
            CONTRIBUTION, "what decides; random and none are baselines", choices=(CONTRIBUTION, RANDOM, NONE)
        )
        late: str = option(
            NEXT_ROUND,
            "what becomes of blocks that do not come in time",
            choices=(NEXT_ROUND, ZERO, RETRANSMIT, HEURISTIC_DROP, SENDER_DROP),
        )
        deadline: float = option(0.01, "how long after the last block a key's round is closed", unit="s")
        code: str = option(
            EXACT, "how unimportant blocks are encoded: exact, or 4 bits an element", choices=(EXACT, FOUR_BITS)
        )

        def problems(self) -> Iterator[tuple[str, str, str]]:
            if self.k_min > self.k:
                problem = "is larger than order.k, so that k could never follow the loss"
                yield "k_min", problem, "write a smaller k_min, or a larger k"
            if self.block % ELEMENT_BYTES or not ELEMENT_BYTES <= self.block <= MAX_BLOCK_BYTES:
                problem = f"a block holds whole float32 elements, and {MAX_BLOCK_BYTES} bytes at most"
                yield "block", problem, "write 4096 bytes"

    def __init__(self, options: Options) -> None:
        super().__init__(Fifo.Options(slice=WHOLE))

    @classmethod
    def overlaps(cls, options: Options) -> bool:
        return False

    @classmethod
    def channels(cls, options: Options) -> int:
        return options.channels

    @classmethod
    def needs_loss(cls, options: Options) -> bool:
        return options.adaptive

    @classmethod
    def repairs_losses(cls, options: Options) -> bool:
        return options.late == RETRANSMIT and options.code == EXACT


class Threshold(Remembering):
    """The share k for the next round, from the training loss."""

    remembers = ("k", "_first")

    def __init__(self, options: Dgt.Options) -> None:
        self._options = options
        self._first: float | None = None
        self.k = options.k

    def update(self, loss: float) -> float:
        """Return k after a round with this ``loss``. A loss that is not finite or not positive changes nothing."""
        if self._options.adaptive and math.isfinite(loss) and loss > 0:
            self._first = self._first or loss
            self.k = min(1.0, max(self._options.k * loss / self._first, self._options.k_min))
        return self.k


def block_count(size: int, block: int) -> int:
    """Return how many blocks of size ``block`` hold ``size``, both in bytes or both in elements."""
    return -(-size // block)


def contribution(old: Any, mean_magnitude: Any, alpha: float) -> Any:
    """Return the next moving average of one block (a number) or of many (an array); it starts at 0."""
    return alpha * old + (1 - alpha) * mean_magnitude


def channels_of(scores: Sequence[float], k: float, channels: int) -> list[int]:
    """Return the channel of every block. Blocks of score 0 are ``SKIPPED``; equal scores are ordered by position.

    Of the m blocks that are sent, round(k·m) with the largest scores go to channel 0, and so does the tensor's last
    block, whatever its score; the rest is divided evenly over the channels from 1 on, by decreasing score.
    """
    result = [SKIPPED] * len(scores)
    order = sending_order(scores)
    important = math.floor(k * (len(order) + 1) + 0.5)
    rest = len(order) - important
    for position, block in enumerate(order):
        below = position - important
        result[block] = RELIABLE if below < 0 else 1 + below * channels // rest
    result[-1] = RELIABLE
    return result


def sending_order(scores: Sequence[float]) -> list[int]:
    """Return the blocks with a positive score, except the tensor's last block, the largest score first."""
    return sorted((block for block in range(len(scores) - 1) if scores[block] > 0), key=lambda block: -scores[block])
