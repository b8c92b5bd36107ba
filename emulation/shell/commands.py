"""The commands of the shell, one method each; ``help`` shows their docstrings."""

from __future__ import annotations

import cmd
import shlex
import time
from collections.abc import Callable, Sequence

from emulation.shaping.base import LinkCounters, Shaper
from emulation.shell.session import ShellSession
from testbed import units
from testbed.errors import ScenarioError, TestbedError
from testbed.units import UnitError

_BAR = 24  # characters of a bar of the meters
_CLEAR = "\x1b[{rows}F\x1b[J"

Sample = tuple[float, dict[str, LinkCounters]]


class Shell(cmd.Cmd):
    """Reads commands from standard input: interactively (with prompt and completion) or from a script."""

    prompt = "testbed> "

    def __init__(self, session: ShellSession, interactive: bool) -> None:
        super().__init__()
        self._session, self._interactive = session, interactive
        self._failures = 0
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
        self._session.end()
        return int(bool(self._failures) and not self._interactive)

    def print(self, text: str) -> None:
        """Print a line at once."""
        print(text, flush=True)  # noqa: T201 - a command

    def _intro(self) -> str:
        network = self._session.network
        return (
            f"{network.plan.name}: {len(network.layout.hosts)} nodes, {len(network.links)} links, up in"
            f" {network.bring_up_s:.1f} s, delays by {network.method}. 'help' lists the commands; 'exit' ends it."
        )

    def onecmd(self, line: str) -> bool:
        self._session.recording.command(line)
        try:
            return bool(super().onecmd(line))
        except (TestbedError, UnitError, ValueError) as error:
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
        for name, port in self._session.network.layout.hosts.items():
            self.print(f"{name:24} {port.ip}")

    def do_links(self, _: str) -> None:
        """links: every WAN link, one direction a line, as it is now."""
        shaper, counters = self._session.shaper, self._session.network.counters()
        for name in shaper.specs:
            path = shaper.path_of(name)
            state = "up" if shaper.is_up(name) else "DOWN"
            self.print(
                f"{name:32} {state:4} {units.format_rate(counters[name].configured_bps):>14}"
                f" {path.delay_s * 1e3:9.2f} ms  loss {path.loss:.3%}"
            )

    def do_ping(self, line: str) -> None:
        """ping NODE NODE [COUNT]: round-trip times."""
        source, target, count = _words(line, 2, "5")
        self.print(str(self._session.ping(source, target, int(count))))

    def do_pingall(self, _: str) -> None:
        """pingall: one echo from each node to each other node."""
        found = self._session.ping_all()
        silent = [each for each in found if not each.rtts_s]
        for each in silent:
            self.print(str(each))
        self.print(f"{len(found) - len(silent)} of {len(found)} pairs answered")
        self._failures += bool(silent)

    def do_iperf(self, line: str) -> None:
        """iperf NODE NODE [SECONDS]: goodput of TCP."""
        source, target, seconds = _words(line, 2, "5")
        rate_bps = self._session.goodput_bps(source, target, float(seconds))
        self.print(f"{source} to {target}: {rate_bps / 1e6:.2f} Mbit/s of payload")

    def do_measure(self, _: str) -> None:
        """measure: every link and path against the plan, as before a run."""
        for row in self._session.measure():
            self.print(row)

    def do_meters(self, line: str) -> None:
        """meters [SECONDS]: use of all links, for that long or until Ctrl-C."""
        last_s = float(line or "inf" if self._interactive else line or "1")
        begin, before, rows = time.monotonic(), _sample(self._session.shaper), 0
        while time.monotonic() - begin < last_s:
            time.sleep(min(1.0, max(0.1, begin + last_s - time.monotonic())))
            now = _sample(self._session.shaper)
            shown = _meters(before, now)
            self.print((_CLEAR.format(rows=rows) if rows and self._interactive else "") + "\n".join(shown))
            before, rows = now, len(shown)

    # -- changing -------------------------------------------------------------------------------------------------

    def do_rate(self, line: str) -> None:
        """rate LINK RATE: for example, rate a>b 5 Mbit/s; rate a<>b 5 Mbit/s changes both directions."""
        self._change(line, units.parse_rate, self._session.shaper.set_rate)

    def do_delay(self, line: str) -> None:
        """delay LINK DELAY: one-way delay, for example, delay a>b 40 ms."""
        self._change(line, units.parse_duration, self._session.shaper.set_delay)

    def do_loss(self, line: str) -> None:
        """loss LINK SHARE: for example, loss a>b 1 %."""
        self._change(line, units.parse_share, self._session.shaper.set_loss)

    def do_down(self, line: str) -> None:
        """down LINK: it loses all packets from now on."""
        for name in self._session.links(line.strip()):
            self._session.shaper.set_up(name, False)

    def do_up(self, line: str) -> None:
        """up LINK: as it was before it went down."""
        for name in self._session.links(line.strip()):
            self._session.shaper.set_up(name, True)

    def _change(self, line: str, parse: Callable[[str], float], change: Callable[[str, float], None]) -> None:
        link, _, value = line.strip().partition(" ")
        for name in self._session.links(link):
            change(name, parse(value.strip()))
            if self._session.network.follows_trace(name):
                self.print(f"note: {name} follows a trace, whose next step changes it again")

    # -- programs -------------------------------------------------------------------------------------------------

    def do_run(self, line: str) -> None:
        """run NODE COMMAND…: run any program in a node; with & at the end, in the background (see wait)."""
        node, *argv = shlex.split(line) or [""]
        if argv and argv[-1] == "&":
            self.print(f"[{self._session.start(node, argv[:-1])}] {node}: {shlex.join(argv[:-1])}")
            return
        code = self._session.run(node, argv)
        if code:
            self._failures += 1
            self.print(f"{argv[0]} ended with {code}")

    def do_wait(self, _: str) -> None:
        """wait: wait for the programs in the background."""
        for name, code in self._session.wait():
            self._failures += bool(code)
            self.print(f"{name} ended with {code}")

    def do_exit(self, _: str) -> bool:
        """exit: end everything."""
        return True

    def do_EOF(self, _: str) -> bool:  # noqa: N802 - cmd's name for the end of input
        return True

    # -- completion -----------------------------------------------------------------------------------------------

    def completedefault(self, text: str, line: str, begin: int, end: int) -> list[str]:
        del line, begin, end
        names: Sequence[str] = (*self._session.network.layout.hosts, *self._session.shaper.specs)
        return [name for name in names if name.startswith(text)]


def _words(line: str, needed: int, *defaults: str) -> list[str]:
    words = line.split()
    if not needed <= len(words) <= needed + len(defaults):
        raise ScenarioError(f"expected {needed} to {needed + len(defaults)} words, got {len(words)}; see 'help'")
    return [*words, *defaults[len(words) - needed :]]


def _sample(shaper: Shaper) -> Sample:
    """The counters of all links, with the time."""
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
