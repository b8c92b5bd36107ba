"""How runs end when something is taken from them: space, directory, processes, memory.

``python -m tests.faults.ends`` runs them all, as root, and prints what each ended with: ``status.json`` has a final
state with the cause, which names the path or node; no fidelity report says ``ok`` of a run that failed; nothing hangs,
and nothing is left.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import psutil

from testbed.errors import TestbedError
from testbed.results import COMPLETED, FINISHED
from testbed.results.rundir import RunDirectory
from tests.cli.forked import Ended, Forked, import_what_commands_do, simulate_here
from tests.fuzz.stored import forget, stored_run

QUICKSTART = Path(__file__).parents[2] / "scenarios" / "quickstart.yaml"
SMALL = (
    "training.evaluate_every=1",
    "training.target_accuracy=null",
    "training.model={kind: mlp, layers: 1, hidden: 8}",
)
_CLONE_NEWNS = 0x00020000
_LIMIT_S = 300.0  # of what takes ten seconds: other work may have most of the machine
_GROUPS = Path("/sys/fs/cgroup/memory")


@dataclass(frozen=True)
class Ending:
    """How a run ended. ``problem``: what is wrong with that; empty if nothing is."""

    what: str
    code: int | None
    state: str
    message: str
    seconds: float
    problem: str = ""


def arguments(out: Path, on: str, rounds: int, *more: str) -> list[str]:
    """Return the words of a small run."""
    settings = (f"training.rounds={rounds}", *SMALL, *more)
    words = [word for setting in settings for word in ("--set", setting)]
    return ["run", str(QUICKSTART), "--on", on, "--out", str(out), "--quiet", *words]


def judged(what: str, run: Path, ended: Ended | None, seconds: float, names: str = "") -> Ending:
    """Return the ending of the run in a directory. ``names``: what its message must match, if it did not complete."""
    if ended is None:
        return Ending(what, None, "", "", seconds, "did not end")
    told = ended.stderr.strip()
    try:
        status = RunDirectory(run).status()
        state, message = status.state, status.message
    except TestbedError as error:
        return Ending(what, ended.returncode, "?", str(error), seconds, "the status cannot be read")
    problem = ""
    if "error of testbed itself" in told + message or "error in testbed itself" in message or "Traceback" in told:
        problem = f"a raw exception: {told[-600:]}"
    elif (run / "status.json").exists() and state not in FINISHED:
        problem = "no final state"
    elif not (run / "status.json").exists() and str(run.parent) not in told:
        problem = f"no status, and no path in: {told[-300:]}"
    elif (
        (run / "status.json").exists()
        and state not in COMPLETED
        and not re.search(names or re.escape(str(run)), message)
    ):
        problem = f"the message does not have {names or run}"
    elif state not in COMPLETED and _fidelity(run) == "ok":
        problem = "fidelity ok"
    elif (ended.returncode == 0) != (state == "done" and not message):
        problem = f"exit code {ended.returncode}"
    return Ending(what, ended.returncode, state, message or told[-200:], seconds, problem)


def _fidelity(run: Path) -> str:
    try:
        return str(json.loads((run / "fidelity.json").read_bytes())["status"])
    except (OSError, ValueError):
        return ""


def _wait(process: Forked) -> Ended | None:
    try:
        return process.wait(_LIMIT_S)
    except TimeoutError:
        return None


# ---- space ----------------------------------------------------------------------------------------------------------


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[None]:
    """A file system of this size at ``folder``, which this process and its children see. Needs root."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def full_disk(kilobytes: int, on: str) -> Ending:
    """A run on a disk that is full after so much; called in a process of its own."""
    folder = Path(tempfile.mkdtemp(prefix="ends-"))
    begin_s = time.monotonic()
    try:
        with small_disk(folder, kilobytes):
            ended = _wait(Forked(arguments(folder / "run", on, 3), simulate_here))
            what = f"disk of {kilobytes} KB, {on}"
            return judged(what, folder / "run", ended, time.monotonic() - begin_s)
    finally:
        folder.rmdir()


def read_only(after_s: float, on: str) -> Ending:
    """A run whose disk becomes read-only; no status can be written then, so that its words are on the terminal."""
    folder = Path(tempfile.mkdtemp(prefix="ends-"))
    begin_s = time.monotonic()
    try:
        with small_disk(folder, 50_000):
            process = Forked(arguments(folder / "run", on, 400), simulate_here)
            _begun(process, folder / "run", after_s)
            subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=False, capture_output=True)
            remounted = "ro," in next(
                line for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line
            )
            ended = _wait(process)
            state = "read-only" if remounted else "not remounted"
            problem = "" if ended and (not remounted or str(folder) in ended.stderr) else f"no path: {ended}"
            code, told = (ended.returncode, ended.stderr) if ended else (None, "")
            return Ending(f"read-only, {on}", code, state, told.strip(), time.monotonic() - begin_s, problem)
    finally:
        folder.rmdir()


def vanishing(after_s: float, on: str) -> Ending:
    """A run whose directory is removed."""
    folder = Path(tempfile.mkdtemp(prefix="ends-"))
    begin_s = time.monotonic()
    try:
        process = Forked(arguments(folder / "run", on, 400), simulate_here)
        _begun(process, folder / "run", after_s)
        shutil.rmtree(folder / "run", ignore_errors=True)
        ended = _wait(process)
        told = ended.stderr.strip() if ended else ""
        problem = (
            "" if ended and ended.returncode in (2, 3, 4) and str(folder / "run") in told else f"told: {told[-600:]}"
        )
        problem = "a raw exception: " + told[-600:] if "itself" in told else problem
        return Ending(f"vanishing, {on}", ended and ended.returncode, "", told, time.monotonic() - begin_s, problem)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---- processes ------------------------------------------------------------------------------------------------------


def _begun(process: Forked, run: Path, after_s: float) -> None:
    """Return so long after the first events of the run, or when it has ended."""
    end_s = time.monotonic() + _LIMIT_S
    while not list(run.glob("events/*")) and process.poll() is None and time.monotonic() < end_s:
        time.sleep(0.01)
    end_s = time.monotonic() + after_s
    while process.poll() is None and time.monotonic() < end_s:
        time.sleep(0.01)


VICTIMS: dict[str, Callable[[psutil.Process, Random], psutil.Process]] = {
    "launcher": lambda launcher, chance: launcher,
    "host": lambda launcher, chance: launcher.children()[0],
    "node": lambda launcher, chance: chance.choice(launcher.children()[0].children()),
}
# what the message says, by victim and signal; of a launcher that is killed nobody is left to say it
SAYS = {
    ("launcher", "SIGTERM"): "interrupted",
    ("launcher", "SIGINT"): "interrupted",
    ("launcher", "SIGHUP"): "interrupted",
    ("host", "SIGKILL"): "host process ended with signal 9",
    ("host", "SIGTERM"): "SIGTERM|interrupted",
    ("node", "SIGKILL"): r"\w+/\w+ was killed by signal 9, SIGKILL",
    ("node", "SIGTERM"): r"\w+/\w+",
    ("node", "SIGSEGV"): r"\w+/\w+ was killed by signal 11",
    ("node", "SIGSTOP"): r"\w+/\w+",
    ("host", "SIGSTOP"): "",
    ("launcher", "SIGSTOP"): "",
}


def struck(seed: int, victim: str, name: str) -> Ending:
    """A run of real processes of which one gets a signal; one that is stopped goes on after 20 s."""
    folder, chance = Path(tempfile.mkdtemp(prefix="ends-")), Random(seed)
    begin_s, run = time.monotonic(), folder / "run"
    try:
        process = Forked(arguments(run, "local", 4000, "device.step_time=5 ms"))
        _begun(process, run, chance.uniform(0.0, 3.0))
        before = {each.pid for each in psutil.Process(process.pid).children(recursive=True)}
        number = signal.Signals[name]
        VICTIMS[victim](psutil.Process(process.pid), chance).send_signal(number)
        if number is signal.SIGSTOP:
            time.sleep(20.0)
            for each in (process.pid, *before):
                if psutil.pid_exists(each):
                    os.kill(each, signal.SIGCONT)
            _begun(process, run, 2.0)
            if process.poll() is None:
                os.kill(process.pid, signal.SIGTERM)
        ended = _wait(process)
        _gone(before, 10.0)
        what = f"{name} to {victim}"
        if (victim, name) == ("launcher", "SIGKILL"):
            state = RunDirectory(run).status().state
            problem = "" if state == "crashed" else "not seen as crashed"
            found = Ending(what, -9, state, "", time.monotonic() - begin_s, problem)
        else:
            says = SAYS[victim, name] or "."
            found = judged(what, run, ended, time.monotonic() - begin_s, f"interrupted|{says}" if says else "")
        left = [pid for pid in before if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]
        return (
            found if not left else Ending(what, found.code, found.state, found.message, found.seconds, f"left: {left}")
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _gone(pids: set[int], within_s: float) -> None:
    end_s = time.monotonic() + within_s
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < end_s:
        time.sleep(0.05)


# ---- memory ---------------------------------------------------------------------------------------------------------


@contextmanager
def memory_group(name: str, megabytes: int) -> Iterator[Path]:
    """A control group, of version 1, with so much memory. Needs root.

    A command joins it by itself: this process would be the largest in it, and the one that the kernel kills.
    """
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = next(line.split(":", 2)[2] for line in lines if ":memory:" in line)
    group = _GROUPS / own.strip("/") / name
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(megabytes << 20))
    try:
        yield group
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        for _ in range(100):  # until the kernel has buried the last of them
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.2)


def out_of_memory(megabytes: int) -> Ending:
    """A run in a control group with too little memory: the kernel kills one of its processes."""
    folder, begin_s = Path(tempfile.mkdtemp(prefix="ends-")), time.monotonic()
    try:
        with memory_group(f"ends-{os.getpid()}", megabytes) as group:
            big = ("training.model={kind: mlp, layers: 2, hidden: 4096}", "training.rounds=50")
            join = ["sh", "-c", 'echo $$ > "$0"; exec "$@"', str(group / "cgroup.procs")]
            command = [*join, sys.executable, "-m", "testbed.cli.main", *arguments(folder / "run", "local", 50, *big)]
            run = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
            ended = Ended(run.returncode, run.stdout, run.stderr)
            return judged(
                f"{megabytes} MB of memory", folder / "run", ended, time.monotonic() - begin_s, "want of memory"
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---- all of them ----------------------------------------------------------------------------------------------------


def trials(disks: int, signals: int, stops: int) -> list[Callable[[], Ending]]:
    """Return the trials: so many sizes of a disk, so many signals, so many processes that stand still for 20 s."""
    chance = Random(1)
    least, most = 12, 200
    found: list[Callable[[], Ending]] = [
        partial(full_disk, least + round(number * (most - least) / max(1, disks)), "simulate")
        for number in range(disks)
    ]
    found += [partial(full_disk, 12 + 16 * number, "local") for number in range(disks // 8)]
    kinds = [pair for pair in (*SAYS, ("launcher", "SIGKILL")) if pair[1] != "SIGSTOP"]
    found += [partial(struck, number, *kinds[number % len(kinds)]) for number in range(signals)]
    found += [partial(struck, number, list(VICTIMS)[number % 3], "SIGSTOP") for number in range(stops)]
    if disks:
        found += [
            partial(way, chance.uniform(0.0, 2.0), on) for way in (vanishing, read_only) for on in ("simulate", "local")
        ]
    if stops:
        found += [partial(out_of_memory, megabytes) for megabytes in (700, 900)]
    return found


def ending_of(trial: Callable[[], Ending]) -> Ending:
    """Return the ending of a trial in a forked process, whose mounts and groups are its own."""
    import_what_commands_do()  # before the fork
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:  # notices if its process is killed
        return pool.submit(trial).result()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.ends", description=__doc__)
    parser.add_argument("--disks", type=int, default=100, help="sizes of a disk that becomes full")
    parser.add_argument("--signals", type=int, default=40, help="signals to launcher, host and nodes")
    parser.add_argument("--stops", type=int, default=3, help="processes that stand still for 20 s, and two OOM kills")
    parser.add_argument("--skip", type=int, default=0, help="leave the first out")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    given = parser.parse_args()
    stored_run()  # compiles the solver, eight seconds, before the forks
    forget()
    all_, end_s = trials(given.disks, given.signals, given.stops), time.monotonic() + given.seconds
    endings: list[Ending] = []
    for trial in all_[given.skip :]:
        if time.monotonic() > end_s:
            break
        endings.append(ending := ending_of(trial))
        mark = f"PROBLEM: {ending.problem}" if ending.problem else "ok"
        first = ending.message.replace("\n", " | ")[:110]
        sys.stdout.write(
            f"{ending.what:26} {ending.code!s:>5} {ending.state:12} {ending.seconds:6.1f} s {mark}; {first}\n"
        )
        sys.stdout.flush()
    states = Counter(ending.state for ending in endings)
    wrong = sum(bool(ending.problem) for ending in endings)
    sys.stdout.write(f"{given.skip + len(endings)} of {len(all_)}: {dict(states)}, {wrong} with a problem\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
