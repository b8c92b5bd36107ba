"""Programs of a user on loopback: what they are given, what ends a run, what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed import api
from testbed.display import state
from testbed.errors import CapabilityError, RunFailed, ScenarioError
from testbed.execution import host, session
from testbed.execution.programs.supervisor import Supervisor
from testbed.plan.build import build_plan
from testbed.results.rounds import CompletedRound
from testbed.scenario import load, loads, program
from testbed.settings.job import Workload
from tests.cli.forked import Forked
from tests.for_each import for_each
from tests.results.fake_run import make_plan

RUN = session.run
SCENARIO = """
version: 1
name: program
seed: 1
run: {on: local}
topology:
  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 2}]
  links: [{between: [a, b], rate: 20 Mbit/s, delay: 1 ms}]
workload: {command: "true"}
"""
STEPS = """
import json, os, sys
for step in range(int(sys.argv[1])):
    print(json.dumps({"step": step, "loss": 1 / (step + 1 + int(os.environ["RANK"])), "samples": 8}))
print(json.dumps({"step": step, "accuracy": 0.75}))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "steps.py").write_text(STEPS)
    (tmp_path / "program.yaml").write_text(SCENARIO)
    monkeypatch.chdir(tmp_path)
    # a process of its own takes a second to start
    monkeypatch.setattr(session, "run", lambda plan, directory, report, *_: host.attempt(plan, directory, report))
    return tmp_path


def run(folder: Path, **workload: Any) -> api.Run:
    changes = {f"workload.{key}": value for key, value in workload.items()}
    return api.run(api.load(folder / "program.yaml", set=changes), out=folder / "run", progress=False, again=True)


def logs(folder: Path) -> dict[str, str]:
    return {path.stem: path.read_text() for path in (folder / "run" / "logs").glob("*.log")}


def test_processes_get_what_torchrun_sets_and_placeholders(folder: Path) -> None:
    names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT TESTBED_NODE MINE"
    script = f"for name in {names}; do eval echo \\$$name; done; pwd; echo $0 $1"
    run(
        folder,
        command=["sh", "-c", script, "{rank}/{world_size}", "{data_center}@{master_addr}:{master_port}{keep}"],
        env={"MINE": "{node}!"},
    )
    found = logs(folder)
    rank0, rank2 = found["a.worker0"].split("\n"), found["b.worker1"].split("\n")
    port = rank0[6]
    assert int(port) > 1024
    assert rank0[:9] == ["0", "3", "0", "1", "0", "127.0.0.1", port, "a/worker0", "a/worker0!"]
    assert rank2[:9] == ["2", "3", "0", "1", "2", "127.0.0.1", port, "b/worker1", "b/worker1!"]
    assert rank2[9:11] == [str(folder), f"2/3 b@127.0.0.1:{port}{{keep}}"]


def test_one_process_per_host_stands_for_its_workers(folder: Path) -> None:
    run(folder, command=["echo", "{rank} of {world_size}: {workers} workers"], per="host")
    assert {name: text.strip() for name, text in logs(folder).items()} == {
        "a.host": "0 of 2: 1 workers",
        "b.host": "1 of 2: 2 workers",
    }
    assert (folder / "run" / "logs" / "hosts").read_text() == "localhost\n" * 3


def test_metrics_fill_the_tables_and_all_that_is_made_of_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(folder, command="python steps.py 12", metrics="stdout")
    assert done.result is not None and done.fidelity is not None
    assert (done.result["status"], done.result["rounds"], done.result["accuracy"]) == ("done", 12, 0.75)
    assert done.result["training_s"] > 0 and done.result["fidelity"]["status"] == done.fidelity["status"]
    rounds = done.tables["rounds"]
    assert rounds.groupby("node")["samples"].sum().to_dict() == dict.fromkeys(
        ["a/worker0", "b/worker0", "b/worker1"], 96
    )
    assert rounds[rounds["node"] == "b/worker1"]["loss"].tolist() == pytest.approx([1 / (n + 3) for n in range(12)])
    assert '{"step": 11' in logs(folder)["a.worker0"]
    assert (folder / "run" / "figure.png").is_file() and "steps" in str(done)
    from analysis.report.page import page

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, stream, **_: stream.write("<svg></svg>"))
    assert "steps.py" in page([done]) and "run time" in page([done])


def test_a_process_that_has_ended_holds_no_round_back(folder: Path) -> None:
    """Two report twelve rounds; the third ends after three."""
    told: list[int] = []

    class Rounds(api.Callback):
        def on_round(self, completed: CompletedRound) -> None:
            told.append(completed.number)

    (folder / "steps.py").write_text(
        "import json, os, time\nfor step in range(3 if os.environ['RANK'] == '2' else 12):\n"
        "    time.sleep(0.05)\n    print(json.dumps({'step': step}))\n"
    )
    changes = {"workload.command": "python steps.py", "workload.metrics": "stdout"}
    scenario = api.load(folder / "program.yaml", set=changes)
    api.run(scenario, out=folder / "run", progress=False, callbacks=[Rounds()])
    assert told == list(range(12))


def test_metrics_may_be_in_a_file(folder: Path) -> None:
    done = run(folder, command="sh -c 'python steps.py 3 > steps-$RANK.jsonl'", metrics="steps-{rank}.jsonl")
    assert done.result is not None and done.result["rounds"] == 3
    assert done.tables["rounds"].groupby("node").size().to_dict() == {"a/worker0": 3, "b/worker0": 3, "b/worker1": 3}


def test_the_last_line_of_metrics_may_lack_its_end(folder: Path) -> None:
    (folder / "last.jsonl").write_text('{"step": 0, "loss": 1}\n{"step": 1, "loss": 0.5, "samples": 8}')
    done = run(folder, command="cat last.jsonl", metrics="stdout")
    assert sorted(done.tables["rounds"]["round"]) == [0, 0, 0, 1, 1, 1]


def test_a_loss_that_is_not_finite_is_a_divergence(folder: Path) -> None:
    (folder / "steps.py").write_text(STEPS.replace('"loss": 1 /', '"loss": (1 if step < 5 else float("nan")) /'))
    done = run(folder, command="python steps.py 20", metrics="stdout")
    assert done.result is not None and done.result["status"] == "diverged"


@pytest.mark.slow  # 11 s
def test_programs_can_be_swept(folder: Path) -> None:
    grid = {"workload.env.PAUSE": ["0", "3"], "workload.command": ["sh -c 'sleep $PAUSE'"]}
    quick, slow = api.sweep("program.yaml", grid=grid, out="sweep").runs
    assert quick.result is not None and slow.result is not None
    assert slow.result["training_s"] >= 3


def test_a_server_is_stopped_when_the_clients_are_done(folder: Path) -> None:
    serve = (
        "import socket, time; time.sleep(0.3); s = socket.create_server(('127.0.0.1', {master_port})); time.sleep(60)"
    )
    with_port = folder / "serve.py"
    with_port.write_text(serve.replace("{master_port}", "int(__import__('sys').argv[1])"))
    port = free_port()
    client = f"import socket; socket.create_connection(('127.0.0.1', {port})); print('reached')"
    (folder / "client.py").write_text(client)
    done = run(
        folder,
        first=f"python serve.py {port}",
        command="python client.py",
        listens=port,
        ends="others",
        timeout="20 s",
    )
    assert done.status.state == "done"
    assert logs(folder)["b.worker0"] == logs(folder)["b.worker1"] == "reached\n"


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def test_a_run_that_would_wait_for_no_process_is_refused(folder: Path) -> None:
    data_centers = "[{name: a, central: true, workers: 0}, {name: b, workers: 1}]"
    one = (f"topology.data_centers={data_centers}", "workload.ends=others")
    with pytest.raises(ScenarioError, match=r"workload.ends: only the first process is started.*one worker; write"):
        build_plan(load(folder / "program.yaml", one), "local")
    several = (f"topology.data_centers={data_centers.replace('1}', '3}')}", "workload.ends=others")
    assert build_plan(load(folder / "program.yaml", several), "local").program
    with pytest.raises(ScenarioError, match="one data centre with workers"):
        build_plan(load(folder / "program.yaml", (*several, "workload.per=host")), "local")


def test_a_directory_whose_path_is_no_utf_8_is_refused(folder: Path) -> None:
    (folder / os.fsdecode(b"r\xff")).mkdir()
    scenario = (folder / "program.yaml").rename(folder / os.fsdecode(b"r\xff/program.yaml"))
    with pytest.raises(
        ScenarioError, match=r"workload.cwd: the path of this directory is not UTF-8.*run it in another"
    ):
        load(scenario)


def test_the_first_may_be_the_only_one_and_ends_the_rest(folder: Path) -> None:
    run(folder, command=None, first="echo alone")
    assert logs(folder) == {"a.worker0": "alone\n"}
    run(folder, first="echo done", command="sleep 3600", ends="first")


@for_each(
    ("shell", "how"),
    [
        ("echo before; echo the cause >&2; exit 3", "exit status 3: the cause"),
        ("echo before; kill -9 $$", r"signal 9, SIGKILL \(by itself or another process\): before"),
    ],
)
def test_the_message_names_node_end_and_last_line(folder: Path, shell: str, how: str) -> None:
    with pytest.raises(RunFailed, match=rf"b/worker0 \(rank 1\) (ended with|was ended by) {how}") as caught:
        run(folder, command=["sh", "-c", f"if [ $RANK = 1 ]; then {shell}; fi; sleep 60"])
    assert "last lines of" in str(caught.value)
    assert json.loads((folder / "run" / "result.json").read_text())["status"] == "failed"


def test_a_missing_program_a_lost_port_and_a_timeout_are_named(folder: Path) -> None:
    with pytest.raises(CapabilityError, match="no program 'no-such-program'"):
        run(folder, command="no-such-program")
    with pytest.raises(RunFailed, match="a/worker0 ended before it listened on port 5201"):
        run(folder, first="true", command="true", listens=5201)
    with pytest.raises(
        RunFailed, match=r"not ended within workload.timeout, 1 s; still running: a/worker0.*'ends: others'"
    ):
        run(folder, first="sleep 60", command="true", timeout="1 s")


def test_a_fault_kills_a_process_and_starts_it_again(folder: Path) -> None:
    (folder / "program.yaml").write_text(
        SCENARIO + "faults: [{kind: kill, node: b/worker0, at: 300 ms, for: 200 ms}]\n"
    )
    done = run(folder, command=["sh", "-c", "echo begins; test -e $RANK || { touch $RANK; exec sleep 1; }"])
    assert logs(folder)["b.worker0"] == "begins\nbegins\n" and logs(folder)["b.worker1"] == "begins\n"
    assert done.result is not None and len(done.result["faults"]["happened"]) == 1


def test_a_fault_pauses_a_process(folder: Path) -> None:
    """After the third step, which only this process reports: on a busy machine the others may start seconds later."""
    (folder / "program.yaml").write_text(SCENARIO + "faults: [{kind: pause, node: b/worker0, round: 3, for: 700 ms}]\n")
    steps = (
        "import json, os, time\nfor step in range(12 if os.environ['TESTBED_NODE'] == 'b/worker0' else 0):\n"
        "    time.sleep(0.1)\n    print(json.dumps({'step': step}))\n"
    )
    (folder / "steps.py").write_text(steps)
    rounds = run(folder, command="python steps.py", metrics="stdout").tables["rounds"]
    longest = rounds[rounds["round"] > 0].groupby("node")["duration_s"].max()
    assert longest["b/worker0"] > 0.6


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])  # 7 s
def test_nothing_is_left_when_the_command_is_ended(folder: Path, number: signal.Signals) -> None:
    pids = folder / "pids"
    pids.mkdir()
    script = f"setsid sh -c 'echo $$ > {pids}/daemon$RANK; exec sleep 60' & echo $$ > {pids}/shell$RANK; sleep 60"
    (folder / "leave.sh").write_text(script)
    arguments = ["run", "program.yaml", "--set", "workload.command=sh leave.sh", "--out", "run", "--quiet"]

    def with_a_host() -> None:
        os.setsid()
        session.run = RUN

    launcher = Forked(arguments, with_a_host)
    deadline = time.monotonic() + 240
    while len([path for path in pids.iterdir() if path.read_text().strip()]) < 6:
        assert time.monotonic() < deadline and launcher.poll() is None
        time.sleep(0.02)
    os.kill(launcher.pid, number)
    launcher.wait(240)
    started = [int(path.read_text()) for path in pids.iterdir()]
    while any(Path(f"/proc/{pid}").exists() for pid in started) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == []
    if number == signal.SIGINT:
        assert json.loads((folder / "run" / "result.json").read_text())["status"] == "interrupted"


def test_programs_end_with_a_host_whose_group_is_killed(folder: Path) -> None:
    """A second Ctrl-C kills the host's group at once. Guards must survive it: they end the programs."""
    pids = folder / "pids"
    pids.mkdir()
    launched = os.fork()
    if launched == 0:
        try:
            os.setsid()
            run(folder, command=["sh", "-c", f"setsid sh -c 'echo $$ > {pids}/$RANK; exec sleep 60' & sleep 60"])
        finally:
            os._exit(1)
    deadline = time.monotonic() + 240
    while len(started := [int(text) for path in pids.iterdir() if (text := path.read_text().strip())]) < 3:
        assert time.monotonic() < deadline and os.waitpid(launched, os.WNOHANG) == (0, 0)
        time.sleep(0.02)
    os.killpg(launched, signal.SIGKILL)
    os.waitpid(launched, 0)
    while any(Path(f"/proc/{pid}").exists() for pid in started):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_faults_of_a_program_come_before_its_own_deadline(folder: Path) -> None:
    fault = "faults=[{kind: pause, node: b/worker0, at: 50 min, for: 1 s}]"
    assert build_plan(load(folder / "program.yaml", [fault])).faults
    with pytest.raises(ScenarioError, match=r"3000 s is not before the run's deadline \(600 s\)"):
        build_plan(load(folder / "program.yaml", [fault, "workload.timeout=10 min"]))


def test_the_testbed_s_own_deadlines_and_limits_are_not_those_of_a_program(folder: Path) -> None:
    slow = ["run.on=emulate", "links[0].rate=100 kbit/s", "links[0].queue=100 MB"]
    assert build_plan(load(folder / "program.yaml", slow)).program
    many = "topology.data_centers=[{name: a, central: true, workers: 200}, {name: b, workers: 200}]"
    with pytest.raises(ScenarioError, match="400 nodes in total"):
        load(folder / "program.yaml", [many])
    assert len(build_plan(load(folder / "program.yaml", [many, "workload.per=host"])).nodes) == 2


def test_what_has_no_effect_is_refused_with_place_and_cure(folder: Path) -> None:
    file = folder / "program.yaml"
    for change, words in {
        "sync=hfa": "sync: has no effect beside 'workload: {command: …}' (the program has its own; remove it)",
        "training.rounds=3": "arguments of the command",
        "transport.tls=true": "transport.tls: is for the testbed's own connections",
        "timeouts.heartbeat=1 s": "workload: {timeout: 10 min}",
        "workload.command=[echo, {rank}]": 'for a placeholder, write "{rank}" in quotes',
        "workload.command=echo {world_sise}": "'{world_sise}' is not a placeholder (did you mean 'world_size'?)",
        "workload.command=echo 'a": "not a command: no closing quotation",
        "workload.cwd=nowhere": "workload.cwd: there is no directory",
        "run.on=simulate": "run it 'on: emulate' or 'on: local'",
        "workload={script: steps.py, ends: first}": "workload.ends: has no effect on 'script'",
        "workload={ends: first}": "write 'command: python train.py'",
        "workload.env.A-B=1": "not an override",
    }.items():
        with pytest.raises(ScenarioError) as caught:
            load(file, [change])
        assert words in str(caught.value) and change.partition("=")[0].rpartition(".")[0] in str(caught.value)


def test_commands_of_strangers_need_a_word(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "program.yaml"
    elsewhere.write_text(SCENARIO)
    with pytest.raises(ScenarioError, match=r"names commands.*--allow-code"):
        load(elsewhere)
    assert load(elsewhere, allow_code=True).is_program


def test_a_resolved_scenario_is_read_again_and_a_changed_program_is_another_run(folder: Path) -> None:
    read = load(folder / "program.yaml", ["workload.command=python steps.py 3"])
    assert loads(read.to_yaml()) == read and "sync" not in read.to_yaml()
    (folder / "steps.py").write_text("pass")
    assert load(folder / "program.yaml", ["workload.command=python steps.py 3"]) != read


def test_large_files_are_told_apart_without_being_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, command = folder / "data.bin", ["workload.command=python steps.py data.bin"]

    def digest(content: bytes, changed_ns: int) -> str | None:
        data.write_bytes(content)
        os.utime(data, ns=(changed_ns, changed_ns))
        program._digest_of.cache_clear()
        workload = load(folder / "program.yaml", command).workload
        assert workload is not None
        return workload.sha256

    small = digest(b"a" * 2000, 1)
    assert digest(b"b" * 2000, 2) != small == digest(b"a" * 2000, 3)
    monkeypatch.setattr(program, "LARGEST_READ_BYTES", 1000)
    large = digest(b"a" * 2000, 11)
    assert digest(b"b" * 2000, 11) == large != digest(b"b" * 2000, 12)


def test_a_program_can_be_built_of_sections(folder: Path) -> None:
    read = load(folder / "program.yaml", ["workload.command=[echo, '{rank}']", "workload.ends=first"])
    topology = {
        "data_centers": [{"name": "a", "central": True, "workers": 1}, {"name": "b", "workers": 2}],
        "links": [{"between": ["a", "b"], "rate": "20 Mbit/s", "delay": "1 ms"}],
    }
    start: dict[str, Any] = {"version": 1, "name": "program", "seed": 1, "run": {"on": "local"}, "topology": topology}
    workload = Workload(command=("echo", "{rank}"), ends="first")
    assert api.Scenario.read({**start, "workload": workload}) == api.load({**start, "workload": workload}) == read


def test_the_traffic_of_a_data_centre_counts_once_when_its_first_process_has_ended() -> None:
    plan, moved = make_plan(), {"tokyo": {"up": 3, "down": 4}, "hub": {"up": 9, "down": 9}}
    shown, running = (
        state.initial(plan),
        {
            node: SimpleNamespace(status=lambda now_s: {"kind": "status", "t": now_s})
            for node in ("tokyo/worker0", "tokyo/worker1")
        },
    )
    watched: Any = Supervisor.__new__(Supervisor)
    watched._plan, watched._running, watched._report = plan, running, shown.take
    watched._hosts = SimpleNamespace(traffic=lambda: moved)
    watched._report_status(1.0)
    del running["tokyo/worker0"]
    moved["tokyo"] = {"up": 5, "down": 6}
    watched._report_status(2.0)
    assert shown.wan_bytes() == 5
