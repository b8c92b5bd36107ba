"""Strangers at the ports of a training run: garbage, other protocols, silence, huge claims, and what others once said.

``python -m tests.faults.hostile --connections 10000`` trains once alone and once among them, on loopback, and prints
what a round took, how much the nodes' memory grew, and whether the parameters are the same.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import selectors
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median

import psutil

from tests.faults.runs import Ended, run

SILENT_S, SPOKEN_S = 0.3, 0.05  # how long one that says nothing is held open, and one that has said all
NODES = 9  # of the job
Place = tuple[str, int]


@dataclass(frozen=True)
class Attack:
    """How many connections, at what rate, and where to write what was seen, at least ``for_s`` later."""

    connections: int
    per_s: float
    report: Path
    for_s: float = 0.0


def shouts(chance: Random) -> Iterator[bytes]:
    """What they say, for ever."""
    hello = b"TBH1" + (1).to_bytes(2, "big")
    makers: list[Callable[[], bytes]] = [
        lambda: b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        lambda: b"",
        lambda: chance.randbytes(chance.randrange(1, 3000)),
        lambda: hello + (0xFFFF).to_bytes(2, "big") + b"\xc1" * 3000,
        lambda: hello + (64).to_bytes(2, "big") + chance.randbytes(64),
        lambda: b"TBF1" + (0).to_bytes(8, "big") + (4 << 30).to_bytes(8, "big") * 2,
        lambda: hello[: chance.randrange(6)],
    ]
    while True:
        yield chance.choice(makers)()


def listening(parent: int) -> list[tuple[psutil.Process, Place]]:
    """The ports of the nodes that this process has forked; not those that they have from it."""
    return [(child, place) for child in psutil.Process(parent).children() for place in _ports(child) - _ports(parent)]


def _ports(process: psutil.Process | int) -> set[Place]:
    process = psutil.Process(process) if isinstance(process, int) else process
    try:
        held = process.net_connections("tcp4")
    except psutil.Error:
        return set()
    return {(each.laddr.ip, each.laddr.port) for each in held if each.status == "LISTEN"}


def attack(parent: int, attack_: Attack, nodes: int) -> None:
    """Wait until all nodes listen, let them settle, be a nuisance, and write what it did to their memory."""
    while len(listening(parent)) < nodes:
        time.sleep(0.05)
    time.sleep(1.0)  # at first children hold each other's ports as well
    places = listening(parent)
    before = _memory(places)
    over_s = time.monotonic() + attack_.for_s
    made, refused = _storm(attack_, [place for _, place in places])
    time.sleep(max(0.0, over_s - time.monotonic()))
    after = _memory(places)
    grown = {pid: after[pid] - size for pid, size in before.items() if pid in after}
    seen = {"made": made, "refused": refused, "grown_bytes": max(grown.values(), default=0), "nodes": len(grown)}
    attack_.report.write_text(json.dumps(seen))


def _memory(places: list[tuple[psutil.Process, Place]]) -> dict[int, int]:
    """Bytes that are a node's own, by process."""
    sizes = {}
    for process, _ in places:
        try:
            sizes[process.pid] = process.memory_info().rss
        except psutil.Error:
            continue
    return sizes


def _storm(attack_: Attack, places: list[Place]) -> tuple[int, int]:
    """How many connections were made, and how many of them were closed by the other end."""
    chance, began_s = Random(1), time.monotonic()
    words, selector = shouts(chance), selectors.DefaultSelector()
    open_: dict[socket.socket, float] = {}
    made = refused = 0
    while made < attack_.connections or open_:
        now_s = time.monotonic()
        due = min(attack_.connections, int((now_s - began_s) * attack_.per_s))
        for _ in range(due - made):
            made += 1
            _call(chance.choice(places), next(words), open_, selector)
        for key, _ in selector.select(0.01):
            refused += _heard(key.fileobj, open_, selector)  # type: ignore[arg-type]
        for sock in [sock for sock, until_s in open_.items() if until_s < now_s]:
            _drop(sock, open_, selector)
    return made, refused


def _call(place: Place, word: bytes, open_: dict[socket.socket, float], selector: selectors.BaseSelector) -> None:
    sock = socket.socket()
    sock.settimeout(1.0)
    try:
        sock.connect(place)
        sock.send(word)
    except OSError:
        sock.close()
        return
    sock.setblocking(False)
    open_[sock] = time.monotonic() + (SPOKEN_S if word else SILENT_S)
    selector.register(sock, selectors.EVENT_READ)


def _heard(sock: socket.socket, open_: dict[socket.socket, float], selector: selectors.BaseSelector) -> int:
    try:
        ended = not sock.recv(1000)
    except OSError:
        ended = True
    if ended:
        _drop(sock, open_, selector)
    return int(ended)


def _drop(sock: socket.socket, open_: dict[socket.socket, float], selector: selectors.BaseSelector) -> None:
    selector.unregister(sock)
    sock.close()
    del open_[sock]


# ---- a run among them -----------------------------------------------------------------------------------------------


def job(rounds: int) -> tuple[str, ...]:
    return (
        "device.variation=0 %",
        "device.step_time=50 ms",
        f"training.rounds={rounds}",
        f"training.evaluate_every={rounds}",
    )


def among_strangers(directory: Path, rounds: int, attack_: Attack) -> tuple[Ended, dict[str, int]]:
    """A run on loopback, and what the strangers saw."""
    nuisance = multiprocessing.get_context("fork").Process(target=attack, args=(os.getpid(), attack_, NODES))
    nuisance.start()
    try:
        ended = run(directory, *job(rounds), on="local")
        nuisance.join(10.0)
    finally:
        nuisance.kill()
        nuisance.join()
    return ended, json.loads(attack_.report.read_text())


def round_s(ended: Ended) -> float:
    """The median time from round to round."""
    begins = [event["t0"] for event in ended.events("round", node="east/worker1")]
    return median(after - before for before, after in pairwise(begins[5:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--per-second", type=float, default=500.0)
    given = parser.parse_args()
    rounds = int((given.connections / given.per_second + 4) / 0.05)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for_s = given.connections / given.per_second
        calm, usual = among_strangers(folder / "calm", rounds, Attack(0, 1.0, folder / "calm.json", for_s))
        attack_ = Attack(given.connections, given.per_second, folder / "report.json", for_s)
        ended, seen = among_strangers(folder / "among", rounds, attack_)
        if calm.error or ended.error:
            sys.exit(f"a run failed: {calm.error or ended.error}")
        ratio = round_s(ended) / round_s(calm)
        sys.stdout.write(
            f"{seen['made']} connections, {seen['refused']} closed by a node: a round took {ratio:.3f} times as long, "
            f"memory grew by {seen['grown_bytes'] / 1e6:.1f} MB at most (of {seen['nodes']} nodes; "
            f"{usual['grown_bytes'] / 1e6:.1f} MB without them), "
            f"parameters {'the same' if ended.hashes() == calm.hashes() else 'DIFFER'}\n"
        )


if __name__ == "__main__":
    main()
