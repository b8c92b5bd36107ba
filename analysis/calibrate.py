"""Constants of this machine from real runs: what the virtual world needs to predict an emulation on it.

message_s  of a core, per message at each end, and
step_s     of a core, per training step with all that belongs to it: processor time of every node while it trained
           (``analysis.processor_time``), less what bytes and sums cost, is
           idle_share · time + message_s · messages + step_s · steps + segment_s · segments on the WAN; least
           squares, none below zero
byte_s     of a core, per byte at each end: measured here and now, a stream over a loopback socket, authenticated as
           frames are (one run cannot tell bytes from messages: every node has both in the same proportion)
memory_s   of a core, per byte summed or optimized: median over the rounds of servers
packet_s   of a core, per full segment across the WAN: segment_s at both ends and, in emulated runs, what the
           machine did beside its nodes (0 without such runs). At a low rate every packet wakes somebody, and there
           is time for it; so the least of several runs counts: give it one whose WAN is fast
links      by WAN link: measured over planned rate, and round-trip time beyond the planned
"""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis.load import Run
from analysis.processor_time import SHORTEST_S, Spent, beside, cores_of, spent
from testbed.errors import ScenarioError
from testbed.results import atomic

_CHUNK, _CHUNKS = 1 << 17, 256


@dataclass(frozen=True, slots=True)
class Calibration:
    """``idle_share``: of a core, that a node takes though nothing happens. ``residual``: root mean square of what the
    fit of processor time leaves, over the mean of what it explains."""

    cores: int
    message_s: float
    byte_s: float
    step_s: float
    memory_s: float
    packet_s: float
    idle_share: float
    residual: float
    nodes: int
    links: dict[str, dict[str, float]]

    def setting(self) -> str:
        """As a value of ``simulation.host`` in a scenario."""
        packet = f", packet: {self.packet_s * 1e6:.1f} us" if self.packet_s >= 1e-6 else ""
        return (
            f"{{cores: {self.cores}, message: {self.message_s * 1e6:.1f} us, stream: {8e-6 / self.byte_s:.0f} Mbit/s, "
            f"step: {max(1.0, self.step_s * 1e6):.0f} us, memory: {8e-6 / self.memory_s:.0f} Mbit/s{packet}}}"
        )


def calibrate(runs: Sequence[Run], byte_s: float | None = None) -> Calibration:
    """Fit all constants. ``ScenarioError`` where the runs do not hold what it takes."""
    nodes = [node for run in runs for node in spent(run)]
    if len(nodes) < 3 or not any(node.steps for node in nodes):
        raise ScenarioError(
            "calibrate needs real runs (on: local or emulate) of at least three nodes, with training steps, that went "
            f"on for {SHORTEST_S:g} s after their second round"
        )
    byte_s = stream_byte_s() if byte_s is None else byte_s
    (idle_share, message_s, step_s, segment_s), residual = _fit(nodes, byte_s)
    if message_s <= 0:
        raise ScenarioError("processor time does not grow with messages in these runs; calibrate with longer ones")
    watched = [found for run in runs if (found := beside(run)) and found.segments]
    packet_s = 2 * segment_s + min((run.cpu_s / run.segments for run in watched), default=0.0)
    return Calibration(
        cores_of(runs[0]), message_s, byte_s, step_s, _memory_s(runs), packet_s, idle_share, residual, len(nodes),
        _links(runs),
    )  # fmt: skip


def _fit(nodes: Sequence[Spent], byte_s: float) -> tuple[list[float], float]:
    """Share of a core in idleness, seconds per message, step and segment; and the residual."""
    from scipy.optimize import nnls

    causes = np.array([[node.window_s, node.messages, node.steps, node.segments] for node in nodes])
    left_s = np.array([node.cpu_s - byte_s * node.size_bytes - node.computed_s for node in nodes])
    constants, error = nnls(causes, left_s)
    return constants.tolist(), float(error / np.sqrt(len(nodes)) / max(1e-12, float(np.mean(left_s))))


def write(run: Path, calibration: Calibration) -> Path:
    """Add it to the run's manifest."""
    path = run / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["calibration"] = asdict(calibration) | {"setting": calibration.setting()}
    atomic.write_json(path, manifest)
    return path


def stream_byte_s(repeats: int = 3) -> float:
    """Seconds of a core for a byte at one end of an authenticated stream; the least of some repeats."""
    return min(_stream_once() for _ in range(repeats))


def _stream_once() -> float:
    chunk, key = bytes(_CHUNK), b"k" * 32
    view = bytearray(_CHUNK)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * _CHUNK)
        begin_s = time.process_time()
        for _ in range(_CHUNKS):
            hmac.new(key, chunk, hashlib.sha256).digest()
            ours.sendall(chunk)
            got = 0
            while got < _CHUNK:
                got += theirs.recv_into(memoryview(view)[got:])
            hmac.new(key, view, hashlib.sha256).digest()
        return (time.process_time() - begin_s) / (2 * _CHUNKS * _CHUNK)


def _memory_s(runs: Sequence[Run]) -> float:
    """Seconds per byte of sums: by server and round, over the bytes that it was pushed."""
    rates = []
    for run in runs:
        computes, transfers = run.tables["computes"], run.tables["transfers"]
        pushes = transfers[(transfers["message"] == "push") & (transfers["round"] >= 0)]
        size = pushes.groupby(["target", "round"])["payload_bytes"].sum()
        spent = computes[computes["work"] == "sum"].groupby(["node", "round"])["real_s"].sum()
        both = spent.index.intersection(size.index)
        rates += (spent[both] / size[both]).tolist()
    if not rates:
        raise ScenarioError("no server summed anything in these runs; calibrate with paradigm: hips or ps")
    return float(np.median(rates))


def _links(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for run in runs:
        measured = run.tables["measured"]
        for row in measured.dropna(subset=["link", "measured"]).to_dict("records"):
            link: dict[str, Any] = found.setdefault(str(row["link"]), {})
            if row["what"] == "rate":
                link["rate_factor"] = round(float(row["measured"]) / float(row["planned"]), 4)
            elif row["what"] == "rtt":
                link["more_rtt_s"] = round(float(row["measured"]) - float(row["planned"]), 6)
    return found
