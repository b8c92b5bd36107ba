"""The functions of the shell: inspect nodes and links, measure, run programs."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emulation.bulk import BulkTransfer, transfer
from emulation.hosts import as_node, environment
from emulation.measurement import describe
from emulation.ping import Pair, ping
from testbed.errors import RunFailed, ScenarioError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emulation.network import Emulation
    from emulation.shaping.base import Shaper
    from emulation.shell.recording import Recording


@dataclass(frozen=True, slots=True)
class Echoes:
    """The answers to ``sent`` echoes."""

    name: str
    sent: int
    rtts_s: tuple[float, ...]

    def __str__(self) -> str:
        if not self.rtts_s:
            return f"{self.name}: none of {self.sent} answered"
        low, middle, high = min(self.rtts_s), statistics.median(self.rtts_s), max(self.rtts_s)
        return (
            f"{self.name}: {len(self.rtts_s)} of {self.sent} answered, round trip"
            f" {low * 1e3:.2f} / {middle * 1e3:.2f} / {high * 1e3:.2f} ms (least / median / most)"
        )


class ShellSession:
    """The functions on a network that is up."""

    def __init__(self, network: Emulation, recording: Recording) -> None:
        self.network, self.recording = network, recording
        self._background: list[tuple[str, str, subprocess.Popen[Any]]] = []

    @property
    def shaper(self) -> Shaper:
        """The network's shaper."""
        assert self.network.shaper is not None
        return self.network.shaper

    def node(self, name: str) -> str:
        """Return ``name`` if it is a node's. Raise ``ScenarioError`` with the known names otherwise."""
        if name not in self.network.layout.hosts:
            raise ScenarioError(f"no node '{name}'; nodes: {', '.join(self.network.layout.hosts)}")
        return name

    def links(self, text: str) -> list[str]:
        """Return the links of ``a>b``, or of both directions ``a<>b``. Raise ``ScenarioError`` for an unknown link."""
        a, _, b = text.partition("<>")
        found = [f"{a}>{b}", f"{b}>{a}"] if b else [text]
        for name in found:
            if name not in self.shaper.specs:
                raise ScenarioError(f"no link '{name}'; links: {', '.join(self.shaper.specs)}")
        return found

    # -- measuring ------------------------------------------------------------------------------------------------

    def ping(self, source: str, target: str, count: int = 5) -> Echoes:
        """Send echoes from a node to another, a tenth of a second apart."""
        pair = self._pair(source, target)
        ping([pair], count, 0.1, self._patience_s())
        return Echoes(pair.name, count, tuple(pair.rtts_s))

    def ping_all(self) -> list[Echoes]:
        """Send one echo from each node to each other node."""
        nodes = list(self.network.layout.hosts)
        pairs = [self._pair(a, b) for a in nodes for b in nodes if a != b]
        ping(pairs, 1, 0.0, self._patience_s())
        return [Echoes(pair.name, 1, tuple(pair.rtts_s)) for pair in pairs]

    def _pair(self, source: str, target: str) -> Pair:
        namespace = self.network.namespace_path(self.node(source))
        return Pair(f"{source} to {target}", namespace, self.network.address(self.node(target)))

    def _patience_s(self) -> float:
        links = self.network.plan.network.links
        return 1.0 + 2 * sum(sorted((link.delay_s for link in links), reverse=True)[:4])

    def goodput_bps(self, source: str, target: str, seconds: float) -> float:
        """Measure the goodput of TCP from a node to another, in bit/s, with the plan's number of parallel streams."""
        source, target = self.node(source), self.node(target)
        streams = self.network.plan.transport.parallel_streams
        flows = [BulkTransfer.between(self.network, source, target) for _ in range(streams)]
        with self.network.measuring():
            transfer(flows, seconds)
        return sum(flow.goodput_bps(seconds / 4) for flow in flows)

    def measure(self) -> list[str]:
        """Return the measurements that precede a run, as lines of text."""
        found = self.network.measure(10.0)
        return [f"{describe(each)}: {'ok' if each.ok else 'OUTSIDE its tolerance'}" for each in found]

    # -- programs ---------------------------------------------------------------------------------------------------

    def run(self, node: str, argv: Sequence[str]) -> int:
        """Run a program in a node to its end, with this terminal; return its exit status, 128 + n after signal n."""
        with _interrupts_are_its_own():
            process = self._start(node, argv)
            code = process.wait()
        self.recording.ended(node, code)
        return code if code >= 0 else 128 - code

    def start(self, node: str, argv: Sequence[str]) -> int:
        """Start a program in a node in the background; return its number, from 1 on."""
        name = f"{node}: {' '.join(argv)}"
        self._background.append((name, node, self._start(node, argv, stdin=subprocess.DEVNULL)))
        return len(self._background)

    def wait(self) -> list[tuple[str, int]]:
        """Wait for the background programs; return their names and exit statuses."""
        ended = []
        for name, node, process in self._background:
            ended.append((name, process.wait()))
            self.recording.ended(node, process.returncode)
        self._background.clear()
        return ended

    def end(self) -> None:
        """Kill the background programs."""
        for _, _, process in self._background:
            process.kill()
        self.wait()

    def _start(self, node: str, argv: Sequence[str], **popen: Any) -> subprocess.Popen[Any]:
        if not argv:
            raise ScenarioError("no command given")
        try:
            process = self.network.exec(
                self.node(node), [*as_node(node), *argv], env=os.environ | environment(os.environ), **popen
            )
        except OSError as error:
            raise RunFailed(f"{argv[0]}: {error.strerror}") from error
        self.recording.started(node, process.pid)
        return process


@contextmanager
def _interrupts_are_its_own() -> Iterator[None]:
    """While inside, Ctrl-C ends the program, which the terminal signals, and not the shell."""
    before = signal.signal(signal.SIGINT, lambda *_: None)  # a handler, unlike SIG_IGN, is not inherited
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
