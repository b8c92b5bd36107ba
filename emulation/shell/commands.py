"""The commands of the shell, one method each; ``help`` shows their docstrings."""

from __future__ import annotations

import cmd
import os
import shlex
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from emulation.bulk import BulkTransfer, transfer
from emulation.hosts import as_node, environment
from emulation.measurement import describe
from emulation.network import Emulation
from emulation.ping import Pair, ping
from emulation.replay import timelines_of
from emulation.shaping.base import LinkCounters, Shaper
from emulation.shell.recording import Recording
from testbed import units
from testbed.errors import RunFailed, ScenarioError, TestbedError
from testbed.processes.child import Child
from testbed.units import UnitError

_BAR = 24  # characters of a bar of the meters
_CLEAR = "\x1b[{rows}F\x1b[J"

Sample = tuple[float, dict[str, LinkCounters]]


class Shell(cmd.Cmd):
    """Reads commands from standard input: interactively (with prompt and completion) or from a script."""

    prompt = "testbed> "

    def __init__(self, network: Emulation, recording: Recording, interactive: bool) -> None:
        super().__init__()
        assert network.shaper is not None, "the network is up"
        self._network = network
        self._shaper = network.shaper
        self._hosts = network.layout.hosts
        self._recording = recording
        self._interactive = interactive
        self._failures = 0
        self._background: list[tuple[str, str, Child]] = []  # what runs, and in which node
        self.use_rawinput = interactive
        if not interactive:
            self.prompt = ""

    def loop(self) -> int:
        """Run until ``exit`` or the end of input; return the status, 1 if a command of a script failed."""
        intro = self._intro() if self._interactive else None
        while True:
            try:
                self.cmdloop(intro)
                break
            except KeyboardInterrupt:
                self.print("")
                intro = None
        for _, _, process in self._background:
            process.send_signal(signal.SIGKILL)
        self._ended()
        return int(bool(self._failures) and not self._interactive)

    def print(self, text: str) -> None:
        print(text, flush=True)  # noqa: T201 - a command

    def _intro(self) -> str:
        network = self._network
        return (
            f"{network.plan.name}: {len(self._hosts)} nodes, {len(network.links)} links, up in"
            f" {network.bring_up_s:.1f} s, delays by {network.method}. 'help' lists the commands; 'exit' ends it."
        )

    def onecmd(self, line: str) -> bool:
        self._recording.command(line)
        try:
            return bool(super().onecmd(line))
        except (TestbedError, UnitError, ValueError, OverflowError) as error:
            self._failures += 1
            self.print(f"error: {error}")
            return False

    def emptyline(self) -> bool:
        return False

    def default(self, line: str) -> None:
        if line.startswith("#"):
            return
        raise ScenarioError(f"unknown command '{line.split(maxsplit=1)[0]}'; 'help' lists all commands")

    # -- looking --------------------------------------------------------------------------------------------------

    def do_nodes(self, _: str) -> None:
        """nodes: every node and its address. Programs find them by name, too: worker0.tokyo is tokyo/worker0."""
        for name, port in self._hosts.items():
            self.print(f"{name:24} {port.ip}")

    def do_links(self, _: str) -> None:
        """links: every WAN link, one direction a line, as it is now."""
        counters = self._network.counters()
        for name in self._shaper.specs:
            path = self._shaper.path_of(name)
            state = "up" if self._shaper.is_up(name) else "DOWN"
            self.print(
                f"{name:32} {state:4} {units.format_rate(counters[name].configured_bps):>14}"
                f" {path.delay_s * 1e3:9.2f} ms  loss {path.loss:.3%}"
            )

    def do_ping(self, line: str) -> None:
        """ping NODE NODE [COUNT]: round-trip times."""
        source, target, count = _words(line, 2, "5")
        pair = self._pair(source, target)
        ping([pair], int(count), 0.1, self._patience_s())
        self.print(_answers(pair, int(count)))

    def do_pingall(self, _: str) -> None:
        """pingall: one echo from each node to each other node."""
        pairs = [self._pair(a, b) for a in self._hosts for b in self._hosts if a != b]
        ping(pairs, 1, 0.0, self._patience_s())
        silent = [pair for pair in pairs if not pair.rtts_s]
        for pair in silent:
            self.print(_answers(pair, 1))
        self.print(f"{len(pairs) - len(silent)} of {len(pairs)} pairs answered")
        self._failures += bool(silent)

    def _pair(self, source: str, target: str) -> Pair:
        namespace = self._network.namespace_path(self._node(source))
        return Pair(f"{source} to {target}", namespace, self._network.address(self._node(target)))

    def _patience_s(self) -> float:
        links = self._network.plan.network.links
        return 1.0 + 2 * sum(sorted((link.delay_s for link in links), reverse=True)[:4])

    def do_iperf(self, line: str) -> None:
        """iperf NODE NODE [SECONDS]: goodput of TCP, with the plan's number of parallel streams."""
        source, target, seconds = _words(line, 2, "5")
        ends = (self._node(source), self._node(target))
        streams = self._network.plan.transport.parallel_streams
        flows = [BulkTransfer.between(self._network, *ends) for _ in range(streams)]
        with self._network.measuring():
            transfer(flows, float(seconds))
        rate_bps = sum(flow.goodput_bps(float(seconds) / 4) for flow in flows)
        self.print(f"{source} to {target}: {rate_bps / 1e6:.2f} Mbit/s of payload")

    def do_measure(self, _: str) -> None:
        """measure: every link and path against the plan, as before a run."""
        for each in self._network.measure(10.0):
            self.print(f"{describe(each)}: {'ok' if each.ok else 'OUTSIDE its tolerance'}")

    def do_meters(self, line: str) -> None:
        """meters [SECONDS]: use of all links, for that long or until Ctrl-C."""
        last_s = float(line or "inf" if self._interactive else line or "1")
        begin = time.monotonic()
        before = _sample(self._shaper)
        rows = 0
        while time.monotonic() - begin < last_s:
            time.sleep(min(1.0, max(0.1, begin + last_s - time.monotonic())))
            now = _sample(self._shaper)
            shown = _meters(before, now)
            self.print((_CLEAR.format(rows=rows) if rows and self._interactive else "") + "\n".join(shown))
            before = now
            rows = len(shown)

    # -- changing -------------------------------------------------------------------------------------------------

    def do_rate(self, line: str) -> None:
        """rate LINK RATE: for example, rate a>b 5 Mbit/s; rate a<>b 5 Mbit/s changes both directions."""
        self._change(line, units.parse_rate, self._shaper.set_rate)

    def do_delay(self, line: str) -> None:
        """delay LINK DELAY: one-way delay, for example, delay a>b 40 ms."""
        self._change(line, units.parse_duration, lambda link, delay_s: self._shaper.set_path(link, delay_s=delay_s))

    def do_loss(self, line: str) -> None:
        """loss LINK SHARE: for example, loss a>b 1 %."""
        self._change(line, units.parse_share, lambda link, loss: self._shaper.set_path(link, loss=loss))

    def do_down(self, line: str) -> None:
        """down LINK: it loses all packets from now on."""
        for name in self._links(line.strip()):
            self._shaper.set_up(name, False)

    def do_up(self, line: str) -> None:
        """up LINK: as it was before it went down."""
        for name in self._links(line.strip()):
            self._shaper.set_up(name, True)

    def _change(self, line: str, parse: Callable[[str], float], change: Callable[[str, float], None]) -> None:
        link, _, value = line.strip().partition(" ")
        traced = {timeline.link for timeline in timelines_of(self._network.links)}
        for name in self._links(link):
            change(name, parse(value.strip()))
            if name in traced:
                self.print(f"note: {name} follows a trace, whose next step changes it again")

    def _links(self, text: str) -> list[str]:
        """Return the links of ``a>b``, or of both directions ``a<>b``. Raise ``ScenarioError`` for an unknown link."""
        a, _, b = text.partition("<>")
        found = [f"{a}>{b}", f"{b}>{a}"] if b else [text]
        for name in found:
            if name not in self._shaper.specs:
                raise ScenarioError(f"no link '{name}'; links: {', '.join(self._shaper.specs)}")
        return found

    # -- programs -------------------------------------------------------------------------------------------------

    def do_run(self, line: str) -> None:
        """run NODE COMMAND…: run any program in a node; with & at the end, in the background (see wait)."""
        node, *argv = shlex.split(line) or [""]
        if argv and argv[-1] == "&":
            name = f"{node}: {shlex.join(argv[:-1])}"
            self._background.append((name, node, self._start(node, argv[:-1], stdin=subprocess.DEVNULL)))
            self.print(f"[{len(self._background)}] {name}")
            return
        code = self.run(node, argv)
        if code:
            self._failures += 1
            self.print(f"{argv[0]} ended with {code}")

    def do_wait(self, _: str) -> None:
        """wait: wait for the programs in the background."""
        for name, code in self._ended():
            self._failures += bool(code)
            self.print(f"{name} ended with {code}")

    def run(self, node: str, argv: Sequence[str]) -> int:
        """Run a program in a node to its end, with this terminal; return its exit status, 128 + n after signal n."""
        with _interrupts_are_its_own():
            process = self._start(node, argv)
            process.wait()
        code = process.close()
        self._recording.ended(node, code)
        return code if code >= 0 else 128 - code

    def _start(self, node: str, argv: Sequence[str], **popen: Any) -> Child:
        if not argv:
            raise ScenarioError("no command given")
        command = [*as_node(self._node(node)), *argv]
        variables = os.environ | environment(os.environ)
        try:
            process = self._network.exec(node, command, env=variables, **popen)
        except OSError as error:
            raise RunFailed(f"{argv[0]}: {error.strerror}") from error
        self._recording.started(node, process.pid)
        return process

    def _ended(self) -> list[tuple[str, int]]:
        """Wait for the background programs; return their names and exit statuses."""
        ended = []
        for name, node, process in self._background:
            process.wait()
            code = process.close()
            ended.append((name, code))
            self._recording.ended(node, code)
        self._background.clear()
        return ended

    def _node(self, name: str) -> str:
        """Return ``name`` if it is a node's. Raise ``ScenarioError`` with the known names otherwise."""
        if name not in self._hosts:
            raise ScenarioError(f"no node '{name}'; nodes: {', '.join(self._hosts)}")
        return name

    def do_exit(self, _: str) -> bool:
        """exit: end everything."""
        return True

    def do_EOF(self, _: str) -> bool:  # noqa: N802 - cmd's name for the end of input
        return True

    # -- completion -----------------------------------------------------------------------------------------------

    def completedefault(self, text: str, line: str, begin: int, end: int) -> list[str]:
        del line, begin, end
        return [name for name in (*self._hosts, *self._shaper.specs) if name.startswith(text)]


def _words(line: str, needed: int, *defaults: str) -> list[str]:
    words = line.split()
    if not needed <= len(words) <= needed + len(defaults):
        raise ScenarioError(f"expected {needed} to {needed + len(defaults)} words, got {len(words)}; see 'help'")
    return [*words, *defaults[len(words) - needed :]]


def _answers(pair: Pair, sent: int) -> str:
    if not pair.rtts_s:
        return f"{pair.name}: none of {sent} answered"
    low, middle, high = (1e3 * of(pair.rtts_s) for of in (min, statistics.median, max))
    return (
        f"{pair.name}: {len(pair.rtts_s)} of {sent} answered, round trip"
        f" {low:.2f} / {middle:.2f} / {high:.2f} ms (least / median / most)"
    )


@contextmanager
def _interrupts_are_its_own() -> Iterator[None]:
    """While inside, Ctrl-C ends the program, which the terminal signals, and not the shell."""
    before = signal.signal(signal.SIGINT, lambda *_: None)  # a handler, unlike SIG_IGN, is not inherited
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _sample(shaper: Shaper) -> Sample:
    return time.monotonic(), shaper.counters()


def _meters(before: Sample, now: Sample) -> list[str]:
    """A header and a line for each link, for the time between two samples."""
    elapsed_s = max(now[0] - before[0], 1e-6)
    width = max((len(name) for name in now[1]), default=4)
    shown = [f"{'link':{width}}  {'use':{_BAR}}  {'Mbit/s':>8} {'of':>8} {'queue kB':>9} {'dropped':>8} {'lost':>6}"]
    for name, counters in now[1].items():
        used_bps = (counters.sent_bytes - before[1][name].sent_bytes) * 8 / elapsed_s
        share = used_bps / counters.configured_bps if counters.configured_bps else 0.0
        shown.append(
            f"{name:{width}}  {_bar(share)}  {used_bps / 1e6:8.2f} {counters.configured_bps / 1e6:8.2f}"
            f" {counters.backlog_bytes / 1e3:9.1f} {counters.dropped_packets:8} {counters.lost_packets:6}"
        )
    return shown


def _bar(share: float) -> str:
    full = round(min(max(share, 0.0), 1.0) * _BAR)
    return "#" * full + "." * (_BAR - full)
