"""Scripts that fail in every way that a user's script may, and the message that a run must have for each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from testbed.execution import host, session
from testbed.plan.build import build_plan
from testbed.plan.model import to_json
from testbed.scenario.load import load

NODE = "east/worker0"
SCENARIO = """
version: 1
name: failing
seed: 1
topology:
  data_centers: [{name: hub, central: true, workers: 1}, {name: east, workers: 1}]
  links: [{between: [hub, east], rate: 5 Mbit/s, delay: 2 ms}]
workload: {script: mine.py}
training: {rounds: 4}
device: {step_time: 5 ms}
"""
DEADLINES = """
timeouts: {heartbeat: 0.2 s, dead_after: DEAD s, tcp_user_timeout: STEP s, step_deadline: STEP s}
"""
SCRIPT = """\
import ctypes, os, signal, sys, threading, time
import torch
from testbed.kvstore import GeoOptimizer, connect
store = connect()
def fail(place):
    if store.rank == 1 and place == PLACE:
        if THREAD:
            thread = threading.Thread(target=the_failure, daemon=True)
            thread.start(); time.sleep(60)
        the_failure()
def the_failure():
    KIND
class Samples(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, number):
        if store.rank == 1 and number == 5:
            SAMPLE
        return torch.randn(4)
fail("start")
model = torch.nn.Linear(4, 2)
optimizer = GeoOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), store)
fail("connected")
for step in range(store.job.rounds):
    if step == 2: fail("middle")
    for batch in torch.utils.data.DataLoader(Samples(), 8, num_workers=LOADERS):
        optimizer.zero_grad()
        model(batch).sum().backward()
    optimizer.step()
fail("end")
"""
LINE, SAMPLE_LINE, LOOP_LINE = 12, 17, 25
CRASHES = ("SIGKILL", "os._exit", "os._exit 0", "abort", "segmentation fault", "hang outside Python")


@dataclass(frozen=True)
class Kind:
    """A way to fail: code for ``KIND`` or ``SAMPLE``, and the pattern of the message after the place."""

    code: str
    what: str
    line: int = LINE
    file: str = "mine.py"
    loaders: int = 0
    sample: bool = False

    def script(self, place: str) -> str:
        """Return the script that fails at ``place``, which may end with ``in a thread``."""
        where, _, thread = place.partition(" ")
        code, sample = ("pass", self.code) if self.sample else (self.code, "pass")
        changes = {
            "PLACE": repr(where),
            "THREAD": str(bool(thread)),
            "KIND": code,
            "SAMPLE": sample,
            "LOADERS": str(self.loaders),
        }
        return re.sub(r"\b(PLACE|THREAD|KIND|SAMPLE|LOADERS)\b", lambda found: changes[found[0]], SCRIPT)


KINDS = {
    "exception": Kind("raise RuntimeError('my data set is not there')", "RuntimeError: my data set is not there"),
    "own exception": Kind(
        "type('Mine', (ValueError,), {'__module__': 'mine'}); raise type('Mine', (ValueError,), {})('a\\nb')", "Mine: a"
    ),
    "misuse of the store": Kind("store.pull('nothing')", "ScenarioError: key 'nothing' is not known.*"),
    "exit": Kind("sys.exit(3)", "SystemExit: 3"),
    "exit with a text": Kind("sys.exit('no data')", "SystemExit: no data"),
    "interrupt": Kind("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "SIGKILL": Kind("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL: the process was killed.*"),
    "os._exit": Kind("os._exit(7)", r"os\._exit: the script ended its process, status 7"),
    "os._exit 0": Kind("os._exit(0)", r"os\._exit: the script ended its process, status 0"),
    "abort": Kind("os.abort()", "SIGABRT: Aborted"),
    "segmentation fault": Kind("ctypes.string_at(0)", "SIGSEGV: Segmentation fault"),
    "MemoryError": Kind("raise MemoryError", "MemoryError"),
    "recursion": Kind("the_failure()", "RecursionError: maximum recursion depth exceeded.*"),
    "syntax": Kind("import crooked", r"SyntaxError: .*", file="crooked.py", line=2),
    "syntax of the script": Kind("x = = 1", "SyntaxError: invalid syntax"),
    "missing module": Kind("import nowhere_to_be_found", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
    "missing file": Kind("open('nowhere.csv')", r"FileNotFoundError: \[Errno 2\] No such file.*'nowhere.csv'"),
    "module": Kind("import helper; helper.work()", "ValueError: of the helper", file="helper.py", line=2),
    "hang": Kind("time.sleep(1000)", "TimeoutError: no call of the store for .* s .*"),
    "hang outside Python": Kind(
        "ctypes.PyDLL(None).sleep(1000)", "(NodeLost: .*no sign of life|TimeoutError: no call of the store).*"
    ),
    "sample": Kind("raise ValueError('sample 5')", "ValueError: sample 5", line=SAMPLE_LINE, sample=True),
    "sample in a loader's process": Kind(
        "raise ValueError('sample 5')", "ValueError: sample 5", line=SAMPLE_LINE, loaders=1, sample=True
    ),
    "loader's process killed": Kind(
        "os.kill(os.getpid(), signal.SIGKILL)",
        r"RuntimeError: DataLoader worker \(pid.*",
        line=LOOP_LINE,
        loaders=1,
        sample=True,
    ),
    "loader's process hangs": Kind(
        "time.sleep(60)",
        f"TimeoutError: .*; its process [0-9]+ is at mine.py:{SAMPLE_LINE}",
        line=LOOP_LINE,
        loaders=1,
        sample=True,
    ),
}

PLACES = ("start", "connected", "middle", "end")
COMMON = (
    "exception",
    "exit",
    "exit with a text",
    "SIGKILL",
    "os._exit",
    "abort",
    "segmentation fault",
    "MemoryError",
    "missing file",
    "missing module",
)
CASES: list[tuple[str, str, str]] = [
    *(("local", kind, place) for kind in COMMON for place in PLACES),
    *(("local", kind, "middle") for kind in KINDS if kind not in COMMON),
    *(
        ("local", kind, "middle in a thread")
        for kind in ("exception", "SIGKILL", "os._exit", "segmentation fault", "missing file")
    ),
    *(
        ("simulate", kind, place)
        for place in ("start", "end")
        for kind in ("exception", "exit with a text", "MemoryError", "missing file", "missing module")
    ),
    *(
        ("simulate", kind, "middle")
        for kind in (
            *CRASHES,
            "hang",
            "sample in a loader's process",
            "loader's process hangs",
            "interrupt",
            "syntax of the script",
        )
    ),
    *(("simulate", kind, "middle in a thread") for kind in ("exception", "segmentation fault")),
    *(("emulate", "exception", place) for place in (*PLACES, "middle in a thread")),
    *(
        ("emulate", kind, "middle")
        for kind in (
            "exit with a text",
            "SIGKILL",
            "os._exit",
            "segmentation fault",
            "MemoryError",
            "hang",
            "hang outside Python",
            "sample in a loader's process",
            "loader's process hangs",
        )
    ),
]


def run_failing(
    folder: Path, back_end: str, kind: str, place: str, step_deadline_s: float = 5.0
) -> session.SessionResult:
    """Run a script that fails, and return how the run ended. A crash of a simulation needs a process of its own.

    ``step_deadline_s``: until when a script that hangs is waited for.
    """
    folder.mkdir()
    deadlines = DEADLINES.replace("DEAD", f"{step_deadline_s * 0.6:g}").replace("STEP", f"{step_deadline_s:g}")
    (folder / "mine.py").write_text(KINDS[kind].script(place))
    (folder / "mine.yaml").write_text(SCENARIO + (deadlines if "hang" in kind else ""))
    (folder / "crooked.py").write_text("x = 1\nfor\n")
    (folder / "helper.py").write_text("def work():\n    raise ValueError('of the helper')\n")
    plan = build_plan(load(folder / "mine.yaml"), back_end)
    directory = folder / "run"
    directory.mkdir()
    (directory / "plan.json").write_bytes(to_json(plan))
    apart = back_end == "emulate" or (back_end == "simulate" and kind in CRASHES)
    return (session.run if apart else host.attempt)(plan, directory, lambda event: None)


def assert_named(folder: Path, kind: str, result: session.SessionResult) -> None:
    """The first line of the message is node, place and cause; the file that the second names has the traceback."""
    expected = KINDS[kind]
    first, *rest = result.message.splitlines()
    # a script that cannot be compiled fails at all nodes
    node = "(hub|east)/worker0" if kind == "syntax of the script" else NODE
    assert re.fullmatch(f"{node}: {re.escape(expected.file)}:{expected.line}: {expected.what}", first), result.message
    assert result.status == "failed" and result.exit_code == 4
    (name,) = [line.removeprefix("traceback: ") for line in rest if line.startswith("traceback: ")]
    text = (folder / "run" / name).read_text()
    assert text.startswith(first.split(": ", 1)[1])
    assert len(text.splitlines()) > 2 and expected.file in text
