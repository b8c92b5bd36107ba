"""Constants of this machine from real runs: what the virtual world needs to predict an emulation on it.

    message_s  of a core, per message at each end: processor time (``cpu_s`` in the ``final`` event) of every node that
               has neither steps nor an optimizer (local servers, the scheduler), less what sums and bytes cost, is
               c0 + message_s · messages; least squares
    byte_s     of a core, per byte at each end: measured here and now, a stream over a loopback socket, authenticated as
               frames are (one run cannot tell bytes from messages: every node has both in the same proportion)
    step_s     of a core: median of the time in which a training step really computed
    memory_s   of a core, per byte summed or optimized: median over the rounds of servers
    packet_s   of a core, per full segment across the WAN: in emulated runs, what the machine did during training beyond
               the nodes' own work by the constants above (0 without such runs). What the machine does whether packets
               come or not is in it, so the least of several runs counts: give it one whose WAN is fast
    links      by WAN link: measured over planned rate, and round-trip time beyond the planned

Workers and the holder of the optimizer are left out of the fit of messages: they load libraries at their first step,
which takes seconds that no round waits for.
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
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.load import Run
from testbed.errors import ScenarioError
from testbed.results import atomic

if TYPE_CHECKING:
    import pandas as pd

_CHUNK, _CHUNKS = 1 << 17, 256
SEGMENT_BYTES = 1448  # as ``testbed.simulation.host`` counts them


@dataclass(frozen=True, slots=True)
class Calibration:
    """``residual``: root mean square of what the fit of ``message_s`` leaves, over the mean of what it explains."""

    cores: int
    message_s: float
    byte_s: float
    step_s: float
    memory_s: float
    packet_s: float
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
    byte_s = stream_byte_s() if byte_s is None else byte_s
    rows = [row for run in runs for row in _nodes(run)]
    if len(rows) < 3:
        raise ScenarioError("calibrate needs real runs (on: local or emulate) of at least three nodes that ended well")
    messages, size, cpu_s = (np.array(column) for column in zip(*rows, strict=True))
    left_s = cpu_s - byte_s * size
    (fixed_s, message_s), *_ = np.linalg.lstsq(np.column_stack([np.ones(len(rows)), messages]), left_s, rcond=None)
    fitted = fixed_s + message_s * messages
    residual = float(np.sqrt(np.mean((left_s - fitted) ** 2)) / max(1e-12, float(np.mean(left_s))))
    if message_s <= 0:
        raise ScenarioError("processor time does not grow with messages in these runs; calibrate with longer ones")
    computes = [run.tables["computes"] for run in runs]
    machine = runs[0].manifest["machine"]
    cores = int(machine.get("usable_cores") or machine["cores"])
    packet_s = _packet_s(runs, cores, float(message_s), byte_s)
    return Calibration(
        cores, float(message_s), byte_s, _step_s(computes), _memory_s(runs), packet_s, residual, len(rows), _links(runs)
    )


def write(run: Path, calibration: Calibration) -> Path:
    """Add it to the run's manifest."""
    path = run / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["calibration"] = asdict(calibration) | {"setting": calibration.setting()}
    with atomic.replacing(path) as temporary:
        temporary.write_text(json.dumps(manifest, indent=2) + "\n")
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


def _nodes(run: Run) -> list[tuple[float, float, float]]:
    """Messages, bytes and processor seconds beside computing, of every node that can be judged."""
    finals = run.tables["finals"].dropna(subset="cpu_s") if "cpu_s" in run.tables["finals"] else None
    if finals is None or run.plan["back_end"] == "simulate":
        return []
    transfers, computes = run.tables["transfers"], run.tables["computes"]
    others = set(computes[computes["work"].isin(("step", "optimizer", "script"))]["node"])
    computed = computes.groupby("node")["real_s"].sum()
    rows = []
    for name, cpu_s in zip(finals["node"], finals["cpu_s"], strict=True):
        if name not in others:
            mine = transfers[(transfers["source"] == name) | (transfers["target"] == name)]
            size = float((mine["payload_bytes"] + mine["header_bytes"]).sum())
            rows.append((float(len(mine)), size, float(cpu_s) - float(computed.get(name, 0.0))))
    return rows


def _step_s(computes: Sequence[pd.DataFrame]) -> float:
    steps = [table[table["work"] == "step"]["real_s"] for table in computes]
    return float(np.median(np.concatenate(steps)))


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


def _packet_s(runs: Sequence[Run], cores: int, message_s: float, byte_s: float) -> float:
    """Least of the emulated runs: (busy cores - messages, bytes and computing of nodes) / segments on the WAN."""
    found = []
    for run in runs:
        if run.plan["back_end"] != "emulate":
            continue
        machine, rounds = run.tables["machine"], run.tables["rounds"]
        begin_s, end_s = float(rounds["t0_s"].min()), float(rounds["t_s"].max())
        busy = machine[(machine["t_s"] > begin_s + 1) & (machine["t_s"] <= end_s)]["busy_share"]
        within = [table[(table["t_s"] > begin_s) & (table["t_s"] <= end_s)] for table in
                  (run.tables["transfers"], run.tables["computes"])]  # fmt: skip
        transfers, computes = within
        size = transfers["payload_bytes"] + transfers["header_bytes"]
        nodes_s = 2 * (message_s * len(transfers) + byte_s * float(size.sum())) + float(computes["real_s"].sum())
        segments = float(np.ceil(size[transfers["tier"] == "wan"] / SEGMENT_BYTES).sum())
        if len(busy) and segments:
            found.append((float(busy.mean()) * cores * (end_s - begin_s) - nodes_s) / segments)
    return max(0.0, min(found)) if found else 0.0


def _links(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for run in runs:
        measured = run.tables["measured"]
        for row in measured[measured["link"].notna()].dropna(subset="measured").to_dict("records"):
            link: dict[str, Any] = found.setdefault(str(row["link"]), {})
            if row["what"] == "rate":
                link["rate_factor"] = round(float(row["measured"]) / float(row["planned"]), 4)
            elif row["what"] == "rtt":
                link["more_rtt_s"] = round(float(row["measured"]) - float(row["planned"]), 6)
    return found
