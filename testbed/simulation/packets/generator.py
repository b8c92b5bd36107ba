"""Random numbers: MT19937 (Matsumoto and Nishimura 1998), draw for draw the same as Python's ``random.Random``.

A generator has 624 words of state and one more word, the number of words used so far.
"""

from __future__ import annotations

from random import Random

from testbed.simulation.packets.pools import set_word, word_at
from testbed.simulation.packets.records import Network

_WORDS = 624
_SHIFT = 397


def state_of(random: Random) -> tuple[int, ...]:
    """Return the words of a generator in the state of ``random``."""
    words: tuple[int, ...] = random.getstate()[1]
    return words


def _renew(net: Network, generator: int) -> None:
    for i in range(_WORDS):
        following = word_at(net, generator + (i + 1) % _WORDS)
        mixed = (word_at(net, generator + i) & 0x80000000) | (following & 0x7FFFFFFF)
        word = word_at(net, generator + (i + _SHIFT) % _WORDS) ^ (mixed >> 1)
        if mixed & 1:
            word ^= 0x9908B0DF
        set_word(net, generator + i, word)


def draw_word(net: Network, generator: int) -> int:
    """Return 32 random bits."""
    used = word_at(net, generator + _WORDS)
    if used >= _WORDS:
        _renew(net, generator)
        used = 0
    set_word(net, generator + _WORDS, used + 1)
    word = word_at(net, generator + used)
    word ^= word >> 11
    word ^= (word << 7) & 0x9D2C5680
    word ^= (word << 15) & 0xEFC60000
    return word ^ (word >> 18)


def draw(net: Network, generator: int) -> float:
    """Return the same number as ``Random.random``."""
    high = draw_word(net, generator) >> 5
    low = draw_word(net, generator) >> 6
    return (high * 67108864.0 + low) * (1.0 / 9007199254740992.0)


def draw_below_eight(net: Network, generator: int, limit: int) -> int:
    """Return the same number as ``Random.randrange(limit)``, for limits from 4 to 7."""
    number = draw_word(net, generator) >> 29
    while number >= limit:
        number = draw_word(net, generator) >> 29
    return number
