"""Constants of this machine from real runs: what the virtual world needs to predict an emulation on it.

message_s  of a core, per message at each end, and
step_s     of a core, per training step with all that belongs to it: processor time of every node while it trained
           (``spent``), less what bytes and sums cost, is
           idle_share · time + message_s · messages + step_s · steps + segment_s · segments on the WAN; least
           squares, none below zero
byte_s     of a core, per byte at each end: measured here and now, a stream over a loopback socket, authenticated as
           frames are (one run cannot tell bytes from messages: every node has both in the same proportion)
memory_s   of a core, per byte summed or optimized: median over the rounds of servers
packet_s   of a core, per full segment across the WAN: segment_s at both ends and, in emulated runs, what the
           machine did beside its nodes (0 without such runs). At a low rate every packet wakes somebody, and there
           is time for it; so the least of several runs counts: give it one whose WAN is fast
links      by WAN link: measured over planned rate, and round-trip time beyond the planned

Looked at is the time from the end of the slowest worker's second round to the end of the fastest worker's last: at
their first steps workers load libraries, which takes seconds that no round waits for.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.load import StoredRun
from testbed.errors import ScenarioError
from testbed.realtime.frame_codes import FrameCode, frame_code
from testbed.results import atomic

_CHUNK, _CHUNKS = 1 << 17, 256
SEGMENT_BYTES = 1448  # as ``testbed.simulation.host`` counts them
SHORTEST_S = 2.0  # nodes tell their processor time twice a second
_FIRST_ROUNDS = 2


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
        """Return the constants as a value of ``simulation.host`` in a scenario."""
        packet = f", packet: {self.packet_s * 1e6:.1f} us" if self.packet_s >= 1e-6 else ""
        return (
            f"{{cores: {self.cores}, message: {self.message_s * 1e6:.1f} us, stream: {8e-6 / self.byte_s:.0f} Mbit/s, "
            f"step: {max(1.0, self.step_s * 1e6):.0f} us, memory: {8e-6 / self.memory_s:.0f} Mbit/s{packet}}}"
        )


def calibrate(runs: Sequence[StoredRun], byte_s: float | None = None) -> Calibration:
    """Fit all constants. ``ScenarioError`` where the runs do not hold what it takes."""
    nodes = pd.concat([spent(run) for run in runs], ignore_index=True)
    if len(nodes) < 3 or not nodes["steps"].any():
        raise ScenarioError(
            "calibrate needs real runs (on: local or emulate) of at least three nodes, with training steps, that went "
            f"on for {SHORTEST_S:g} s after their second round"
        )
    byte_s = stream_byte_s(str(runs[0].plan["transport"]["mac"])) if byte_s is None else byte_s
    (idle_share, message_s, step_s, segment_s), residual = _fit(nodes, byte_s)
    if message_s <= 0:
        raise ScenarioError("processor time does not grow with messages in these runs; calibrate with longer ones")
    packet_s = 2 * segment_s + min((found for run in runs if (found := beside_s(run)) is not None), default=0.0)
    return Calibration(
        cores_of(runs[0]), message_s, byte_s, step_s, _memory_s(runs), packet_s, idle_share, residual, len(nodes),
        _links(runs),
    )  # fmt: skip


def _fit(nodes: pd.DataFrame, byte_s: float) -> tuple[list[float], float]:
    """Return the share of a core in idleness, seconds per message, step and segment; and the residual."""
    from scipy.optimize import nnls

    causes = nodes[["window_s", "messages", "steps", "segments"]].to_numpy(dtype=float)
    left_s = (nodes["cpu_s"] - byte_s * nodes["bytes"] - nodes["computed_s"]).to_numpy(dtype=float)
    constants, error = nnls(causes, left_s)
    return constants.tolist(), float(error / np.sqrt(len(nodes)) / max(1e-12, float(np.mean(left_s))))


def write(run: Path, calibration: Calibration) -> Path:
    """Add it to the run's manifest."""
    path = run / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["calibration"] = asdict(calibration) | {"setting": calibration.setting()}
    atomic.write_json(path, manifest)
    return path


def stream_byte_s(code: str, repeats: int = 3) -> float:
    """Return a core's seconds per byte at one end of a stream with this ``transport.mac``: the least of repeats."""
    return min(_stream_once(code) for _ in range(repeats))


def _stream_once(kind: str) -> float:
    chunk, code = bytes(_CHUNK), frame_code(kind, b"k" * 32)
    view = bytearray(_CHUNK)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * _CHUNK)
        begin_s = time.process_time()
        for number in range(_CHUNKS):
            _digest(code, number, chunk)
            ours.sendall(chunk)
            got = 0
            while got < _CHUNK:
                got += theirs.recv_into(memoryview(view)[got:])
            _digest(code, number, view)
        return (time.process_time() - begin_s) / (2 * _CHUNKS * _CHUNK)


def _digest(code: FrameCode, number: int, data: bytes | bytearray) -> None:
    mac = code.begin(number)
    mac.update(data)
    mac.digest()


def _memory_s(runs: Sequence[StoredRun]) -> float:
    """Return the seconds per byte of sums: by server and round, over the bytes that it was pushed."""
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


def _links(runs: Sequence[StoredRun]) -> dict[str, dict[str, float]]:
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


# ---- where the processor time of a run went --------------------------------------------------------------------------


def window_of(run: StoredRun) -> tuple[float, float] | None:
    """Begin and end, on the run's clock; ``None`` where the run is too short, or was simulated."""
    ends = [np.sort(group.to_numpy()) for _, group in run.tables["rounds"].groupby("node")["t_s"]]
    if run.plan["back_end"] == "simulate" or not ends or min(map(len, ends)) <= _FIRST_ROUNDS:
        return None
    begin_s, end_s = max(float(each[_FIRST_ROUNDS - 1]) for each in ends), min(float(each[-1]) for each in ends)
    return (begin_s, end_s) if end_s - begin_s >= SHORTEST_S else None


def spent(run: StoredRun) -> pd.DataFrame:
    """Return one row per node that recorded its processor time throughout the window; none without a window.

    Messages, bytes and segments (on the WAN) are those sent and received; ``computed_s``: really, but for training
    steps.
    """
    columns = ["window_s", "messages", "bytes", "segments", "steps", "computed_s", "cpu_s"]
    rows, window = [], window_of(run)
    if window is None:
        return pd.DataFrame(columns=columns)
    transfers, computes = (_within(run.tables[name], window) for name in ("transfers", "computes"))
    for node, samples in run.tables["processes"].groupby("node"):
        cpu_s = _between(samples, window)
        if cpu_s is not None:
            mine = transfers[(transfers["source"] == node) | (transfers["target"] == node)]
            work = computes[computes["node"] == node]
            steps = work["work"] == "step"
            rows.append((window[1] - window[0], len(mine), float(_size_bytes(mine).sum()), _segments(mine),
                         int(steps.sum()), float(work[~steps]["real_s"].sum()), cpu_s))  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def beside_s(run: StoredRun) -> float | None:
    """Processor time of the machine beside the nodes' own, per segment that crossed the emulated WAN.

    ``None`` where it was not measured, on one machine alone, or nothing crossed the WAN.
    """
    window, nodes = window_of(run), spent(run)
    if window is None or nodes.empty or run.plan["back_end"] != "emulate" or run.plan.get("cluster"):
        return None
    busy, segments = (_within(run.tables[name], window) for name in ("machine", "transfers"))
    count = _segments(segments)
    if not len(busy) or not count:
        return None
    cores = run.manifest["machine"]["cores"] or cores_of(run)  # the share is one of all cores, not of usable ones
    total_s = float(busy["busy_share"].mean()) * cores * (window[1] - window[0])
    return max(0.0, total_s - float(nodes["cpu_s"].sum())) / count


def cores_of(run: StoredRun) -> int:
    """Return the number of cores that the run could use."""
    machine = run.manifest["machine"]
    return int(machine.get("usable_cores") or machine["cores"])


def _within(table: pd.DataFrame, window: tuple[float, float]) -> pd.DataFrame:
    return table[(table["t_s"] > window[0]) & (table["t_s"] <= window[1])]


def _size_bytes(transfers: pd.DataFrame) -> pd.Series[int]:
    return transfers["payload_bytes"] + transfers["header_bytes"]


def _segments(transfers: pd.DataFrame) -> float:
    return float(np.ceil(_size_bytes(transfers[transfers["tier"] == "wan"]) / SEGMENT_BYTES).sum())


def _between(samples: pd.DataFrame, window: tuple[float, float]) -> float | None:
    """Processor time in the window, between samples in proportion; ``None`` where they do not cover it."""
    t, cpu_s = samples["t_s"].to_numpy(), samples["cpu_s"].to_numpy()
    if t.min() > window[0] or t.max() < window[1]:
        return None
    begin_s, end_s = np.interp(window, t, cpu_s)
    return float(end_s - begin_s)
