"""Spoilt scenarios and frames, by seed: reading them raises the errors that are meant for that, and nothing else.

``python -m tests.faults.fuzz --cases 10000`` prints what broke, with the seed that repeats it (``--only SEED``).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import struct
import sys
import time
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

import msgspec
import torch

from testbed.errors import ScenarioError
from testbed.messages import MAX_HEADER_BYTES, Message, MessageKind, encode_header
from testbed.plan.build import build_plan
from testbed.plan.model import from_json, to_json
from testbed.realtime.auth import MAX_HELLO_BYTES, decode_hello
from testbed.realtime.frame_codes import frame_code
from testbed.realtime.frames import MAGIC, BadFrame, FrameReader, frame_pieces
from testbed.scenario import BACK_ENDS, loads

ROOT = Path(__file__).parents[2]
KEY, MOST_BYTES = b"k" * 32, 1 << 20
WORDS = (
    "null", "~", "true", "no", "''", "[]", "{}", "-1", "0", "1e9", "1e400", ".nan", "032", "3:20", "20 Mbit/s", "-5 ms",
    "5 %", "*a", "&a x", "!!python/object/apply:os.system ['true']", "<<: x", "fsa", "- ", ": ", "\t", "\x00", "ü",
    "{a: 1}", "[1, [2]]", "---", "9" * 400, "x; touch y", "../../x", "{kind: fsa}", "simulate", "1 KiB", "2024-01-01",
)  # fmt: skip


# ---- scenarios ------------------------------------------------------------------------------------------------------


@cache
def scenarios() -> tuple[str, ...]:
    """The examples, as texts; those that are long would spend the time on themselves."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "scenarios").rglob("*.yaml"))]
    return tuple(text for text in texts if len(text) < 4000)


def spoilt_text(chance: Random) -> str:
    """A scenario with one to three mistakes."""
    lines = chance.choice(scenarios()).splitlines()
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(lines))
        chance.choice((_word, _without, _twice, _indented, _cut, _swapped))(lines, at, chance)
        lines = lines or [""]
    return "\n".join(lines) + "\n"


def _word(lines: list[str], at: int, chance: Random) -> None:
    words = lines[at].split(" ")
    words[chance.randrange(len(words))] = chance.choice(WORDS)
    lines[at] = " ".join(words)


def _without(lines: list[str], at: int, chance: Random) -> None:
    del lines[at]


def _twice(lines: list[str], at: int, chance: Random) -> None:
    lines.insert(chance.randrange(len(lines) + 1), lines[at])


def _indented(lines: list[str], at: int, chance: Random) -> None:
    lines[at] = " " * chance.randint(1, 6) + lines[at]


def _cut(lines: list[str], at: int, chance: Random) -> None:
    lines[at] = lines[at][: chance.randint(0, len(lines[at]))]


def _swapped(lines: list[str], at: int, chance: Random) -> None:
    characters = list(lines[at])
    chance.shuffle(characters)
    lines[at] = "".join(characters)


def read_scenario(chance: Random) -> None:
    """A ``ScenarioError``, or a Plan that survives its own JSON."""
    text, on = spoilt_text(chance), chance.choice(sorted(BACK_ENDS))
    try:
        plan = build_plan(loads(text, "s.yaml", (f"run.on={on}",)), on)
    except ScenarioError:
        return
    if from_json(to_json(plan)) != plan:
        raise AssertionError("the Plan does not survive JSON")


# ---- frames ---------------------------------------------------------------------------------------------------------


def read_frames(chance: Random) -> None:
    """A ``BadFrame``, or what was sent, or nothing yet: never a message that nobody sent."""
    sent = Message(
        MessageKind.PUSH, 1, 2, {"n": chance.randint(0, 99)}, (torch.ones(chance.randint(0, 300)),), sender="a/b"
    )
    whole = b"".join(frame_pieces(encode_header(sent), sent.parts, 0, frame_code("aes-gmac", KEY)))
    spoil = chance.choice((_flipped, _shortened, _doubled, _noise, _forged))
    data = spoil(whole, chance)
    try:
        arrivals = _fed(FrameReader(frame_code("aes-gmac", KEY), MOST_BYTES), data, chance)
    except BadFrame:
        return
    if arrivals and spoil is not _forged and data != whole:
        raise AssertionError(f"{len(arrivals)} messages that nobody sent")


def _fed(reader: FrameReader, data: bytes, chance: Random) -> list[object]:
    arrivals: list[object] = []
    offset = 0
    while offset < len(data):
        count = min(len(reader.buffer()), len(data) - offset, chance.choice((1, 7, 1000, 1 << 20)))
        reader.buffer()[:count] = data[offset : offset + count]
        arrivals += reader.received(count)
        offset += count
    return arrivals


def _flipped(whole: bytes, chance: Random) -> bytes:
    data = bytearray(whole)
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def _shortened(whole: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(whole))
    return whole[:at] + whole[at + chance.randint(1, 50) :]


def _doubled(whole: bytes, chance: Random) -> bytes:
    return whole[: chance.randrange(len(whole))] + whole


def _noise(whole: bytes, chance: Random) -> bytes:
    return chance.randbytes(chance.randint(1, 4000))


def _forged(whole: bytes, chance: Random) -> bytes:
    """By somebody who knows the key: a header of any content, claims of any length, the right code."""
    header = chance.choice((_any_header, _almost_a_header, _nested))(chance)[: MAX_HEADER_BYTES + 1]
    body = chance.randbytes(chance.choice((0, 4, 400)))
    claimed = len(body) if chance.random() < 0.7 else chance.choice((0, 1, 1 << 19, 1 << 40, 2**63))
    start = struct.pack("!4sQIQ", MAGIC, 0, len(header), claimed) + header
    mac = frame_code("aes-gmac", KEY).begin(0)
    mac.update(start + body)
    return start + body + mac.digest()


def _any_header(chance: Random) -> bytes:
    return msgspec.msgpack.encode(_anything(chance, 3))


def _almost_a_header(chance: Random) -> bytes:
    """Right in all but the numbers."""
    sizes = (0, 1, 4, 100, -1, 2**31, 2**62, 2**63, 2**64 - 1)
    shapes = [[chance.choice(sizes) for _ in range(chance.randint(0, 9))] for _ in range(chance.randint(0, 3))]
    parts = [[chance.choice(("f4", "i8", "u1", "O", "")), shape] for shape in shapes]
    numbers = [chance.choice((0, -1, 2**63, 1.5, None)) if chance.random() < 0.1 else 1 for _ in range(5)]
    key, round_, sent_at_s, priority, channel = numbers
    kind = chance.choice(("push", "value", "register", "?"))
    return msgspec.msgpack.encode([kind, "a/b", key, round_, sent_at_s, priority, channel, {}, parts])


def _nested(chance: Random) -> bytes:
    """Lists in lists, as deep as a header may be long; in the place of the notes, or of all of it."""
    depth = chance.choice((10, 500, 5000, 60_000))
    inner = bytes([0x81, 0xA1, 0x61]) * min(depth, 20_000) if chance.random() < 0.5 else bytes([0x91]) * depth
    return (
        inner + bytes([0xC0])
        if chance.random() < 0.5
        else bytes([0x99]) + b"\xa4push\xa3a/b\x01\x01\x01\x01\x00" + inner
    )


def _anything(chance: Random, depth: int) -> object:
    leaf = chance.choice((None, True, -1, 2**63, 1.5, float("nan"), "push", "a/b", "", b"\0" * 9, "x" * 300))
    if depth == 0 or chance.random() < 0.4:
        return leaf
    items = [_anything(chance, depth - 1) for _ in range(chance.randint(0, 9))]
    return items if chance.random() < 0.7 else {str(at): item for at, item in enumerate(items)}


def read_hello(chance: Random) -> None:
    """What a stranger says first: a ``ConnectionError``, or a hello whose secret is then asked for."""
    hello = msgspec.msgpack.encode(["run", "a/b", "c/d", "data", chance.randbytes(16)])
    spoil = chance.choice((_flipped, _shortened, _doubled, _noise))
    data = spoil(hello, chance) if chance.random() < 0.7 else _any_header(chance) + _nested(chance)
    try:
        decode_hello(data[:MAX_HELLO_BYTES])
    except ConnectionError:
        return


# ---- many of them ---------------------------------------------------------------------------------------------------

READERS: dict[str, Callable[[Random], None]] = {
    "scenario": read_scenario, "frame": read_frames, "hello": read_hello,
}  # fmt: skip


def broken(what: str, seeds: range) -> list[str]:
    """A text for every seed with which reading raises what it should not."""
    found = []
    for seed in seeds:
        try:
            READERS[what](Random(f"{what}/{seed}"))
        except Exception:
            found.append(f"python -m tests.faults.fuzz --what {what} --only {seed}\n{traceback.format_exc(limit=-3)}")
    return found


def _portion(job: tuple[str, range]) -> list[str]:
    return broken(*job)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--what", choices=sorted(READERS), action="append")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    given = parser.parse_args()
    seeds = range(given.only, given.only + 1) if given.only is not None else range(given.seed, given.seed + given.cases)
    with multiprocessing.get_context("fork").Pool(len(os.sched_getaffinity(0))) as pool:
        for what in given.what or sorted(READERS):
            began_s = time.monotonic()
            jobs = [(what, seeds[at : at + 50]) for at in range(0, len(seeds), 50)]
            found = [text for texts in pool.imap(_portion, jobs) for text in texts]
            sys.stdout.writelines(f"{text}\n" for text in found)
            took_s = time.monotonic() - began_s
            sys.stdout.write(
                f"{len(seeds)} spoilt {what}s in {took_s:.0f} s: {len(found)} raised what they should not\n"
            )


if __name__ == "__main__":
    main()
