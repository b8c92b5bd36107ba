"""Spoilt texts and numbers, for every kind of file."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

WORDS = (
    "null",
    "~",
    "true",
    "no",
    "''",
    "[]",
    "{}",
    "-1",
    "0",
    "1e9",
    "1e400",
    ".nan",
    "032",
    "3:20",
    "20 Mbit/s",
    "-5 ms",
    "5 %",
    "*a",
    "&a x",
    "!!python/object/apply:os.system ['true']",
    "<<: x",
    "fsa",
    "- ",
    ": ",
    "\t",
    "\x00",
    "ü",
    "{a: 1}",
    "[1, [2]]",
    "---",
    "9" * 400,
    "x; touch y",
    "../../x",
    "{kind: fsa}",
    "simulate",
    "1 KiB",
    "2024-01-01",
    "1e-300",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "\ufeff",
    "\u2028",
    "\x85",
    "\x0c",
    "\r",
    '"',
    "'",
    "#",
    "]",
    "}",
    "?",
    "\udcff",
    "a" * 5000,
    "%d",
    "\\",
    "\\x",
    "1e300 GiB",
    "720 h",
    "1e5",
    "*",
    "-0",
    "0.0",
    "4294967296",
)
_DIGIT = re.compile(r"[0-9]")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
ZEROS = ("٠", "۰", "०", "０", "𝟎")  # of other scripts
NUMERIC = ("null", "0", "-1", "1", "2", "1e400", ".nan", "inf", "1e-300", "1e300", "9" * 26, "0.1", "1e9", "1000000000")


def spoilt(text: str, chance: Random, words: tuple[str, ...] = WORDS) -> bytes:
    """Return the text with one to three mistakes, as bytes, which need not be valid UTF-8."""
    lines = text.splitlines() or [""]
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        at = chance.randrange(len(lines))
        chance.choice(_MISTAKES)(lines, at, chance, words)
        lines = lines or [""]
    data = ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")
    return chance.choice(_BYTES)(data, chance) if chance.random() < 0.15 else data


def nonsense_number(text: str, chance: Random) -> tuple[str, str]:
    """Return a number that must be refused, made of ``text``, which has one; and why."""
    match = _NUMBER.search(text)
    assert match is not None, text
    number = match[0]
    zero = ord(chance.choice(ZEROS))
    changed, why = chance.choice(
        (
            (_DIGIT.sub(lambda digit: chr(zero + int(digit[0])), number), "digits of another script"),
            (f"{number[0]}_{number[1:] or '0'}", "an underscore"),
            (f"0x{number}", "hexadecimal"),
            (f"{number}e", "an exponent without digits"),
            (f"{number},0", "a decimal comma"),
            (f"--{number}", "two signs"),
            ("nan", "not a number"),
            ("inf", "infinite"),
            (f"{number}.", "a point without digits") if "." not in number else (f"{number}.1", "two points"),
        )
    )
    return text[: match.start()] + changed + text[match.end() :], why


def _word(lines: list[str], at: int, chance: Random, words: tuple[str, ...]) -> None:
    pieces = re.split(r"([ ,])", lines[at])
    pieces[chance.randrange(len(pieces))] = chance.choice(words)
    lines[at] = "".join(pieces)


def _number(lines: list[str], at: int, chance: Random, words: tuple[str, ...]) -> None:
    found = list(_NUMBER.finditer(lines[at]))
    if found:
        match = chance.choice(found)
        lines[at] = lines[at][: match.start()] + chance.choice(NUMERIC) + lines[at][match.end() :]


def _without(lines: list[str], at: int, chance: Random, words: tuple[str, ...]) -> None:
    del lines[at]


def _twice(lines: list[str], at: int, chance: Random, words: tuple[str, ...]) -> None:
    lines.insert(chance.randrange(len(lines) + 1), lines[at])


def _indented(lines: list[str], at: int, chance: Random, words: tuple[str, ...]) -> None:
    lines[at] = " " * chance.randint(1, 6) + lines[at]


def _cut(lines: list[str], at: int, chance: Random, words: tuple[str, ...]) -> None:
    lines[at] = lines[at][: chance.randint(0, len(lines[at]))]


def _swapped(lines: list[str], at: int, chance: Random, words: tuple[str, ...]) -> None:
    characters = list(lines[at])
    chance.shuffle(characters)
    lines[at] = "".join(characters)


def _exchanged(lines: list[str], at: int, chance: Random, words: tuple[str, ...]) -> None:
    other = chance.randrange(len(lines))
    lines[at], lines[other] = lines[other], lines[at]


_MISTAKES: tuple[Callable[[list[str], int, Random, tuple[str, ...]], None], ...] = (
    _word,
    _word,
    _number,
    _number,
    _without,
    _twice,
    _indented,
    _cut,
    _swapped,
    _exchanged,
)


def flipped(data: bytes, chance: Random) -> bytes:
    """Return the data with one to four wrong bits."""
    changed = bytearray(data or b"\0")
    for _ in range(chance.randint(1, 4)):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def shortened(data: bytes, chance: Random) -> bytes:
    """Return the data without its end, or without a piece."""
    at = chance.randrange(len(data) + 1)
    return data[:at] if chance.random() < 0.5 else data[:at] + data[at + chance.randint(1, 50) :]


def _noise(data: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.randbytes(chance.randint(1, 40)) + data[at:]


def _utf16(data: bytes, chance: Random) -> bytes:
    return data.decode("utf-8", "replace").encode("utf-16")


_BYTES: tuple[Callable[[bytes, Random], bytes], ...] = (flipped, shortened, _noise, _utf16)
