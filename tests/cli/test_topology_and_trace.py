"""``testbed topology`` and ``testbed trace``: what they print, draw, write, and say when something is wrong."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from testbed.cli.main import main
from tests.for_each import for_each
from tests.topologies.zoo import GML
from topologies.library import BUILT_IN
from topologies.traces import MAX_POINTS


def out(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> str:
    assert main(list(argv)) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def test_a_built_in_as_tables_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    shown = out(capsys, "topology", "hmc4", "--set", "scale=10")
    assert "us (central)" in shown and "21 Mbit/s" in shown and "103.1 ms" in shown and "licence: MIT" in shown
    told = json.loads(out(capsys, "topology", "simblock6", "--json"))
    link = next(link for link in told["links"] if link["link"] == "sa>sa-isp")
    assert link["rate_bps"] == 5.8e6 and told["routes"]["na>eu"] == ["na>na-isp", "na-isp>eu-isp", "eu-isp>eu"]


@pytest.mark.sample(2)  # of 13, which take 6 s
@pytest.mark.parametrize("name", [*BUILT_IN, "fat_tree", "dumbbell", "waxman", "ring", "file.gml"])
def test_every_network_can_be_drawn(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file.gml").write_text(GML)
    figures: list[Figure] = []
    monkeypatch.setattr("testbed.cli.topology.save", lambda figure, path: figures.append(figure))
    place = str(tmp_path / name) if "." in name else name
    out(capsys, "topology", place, "--picture", str(tmp_path / "n.png"))
    described = json.loads(out(capsys, "topology", place, "--json"))
    ends = [frozenset(link["link"].split(">")) for link in described["links"]]
    axes = figures[0].axes[0]
    markers = [line for line in axes.lines if line.get_marker() in ("o", "s") and np.size(line.get_xdata()) == 1]
    lines = [line for line in axes.lines if np.size(line.get_xdata()) > 1]
    assert {text.get_text() for text in axes.texts} >= frozenset().union(*ends), "every vertex has its name"
    assert len(markers) == len(frozenset().union(*ends)) and len(lines) >= len(set(ends))


def test_a_trace_is_changed_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "t.svg"
    changes = ["--scale", "0.5", "--speed", "10", "--json", "--picture"]
    told = json.loads(out(capsys, "trace", "lte-drive", "--resample", "1 s", *changes, str(picture)))
    assert len(told["values"]) == 60 and told["summary"]["length_s"] == 60
    assert told["summary"]["mean"] == pytest.approx(13.147e6 / 2, rel=1e-3)
    assert "<svg" in picture.read_text()


@for_each(
    ("argv", "said"),
    [
        (("topology", "hmc5"), "'hmc5' is not a built-in topology, generator or file (did you mean 'hmc4'?)"),
        (("topology", "gone.gml"), "gone.gml: no such file"),
        (("topology", "waxman", "--set", "foo=1"), "topology.generator.foo: unknown key (allowed: data_centers"),
        (("topology", "hmc4", "--set", "scale"), "not an override"),
        (("topology", "lan", "--picture", "x.gif"), "x.gif: a picture ends in one of .png, .svg, .pdf"),
        (("topology", "lan", "--yaml", "no/such/folder.yaml"), "no/such/folder.yaml: No such file or directory"),
        (("topology", "loop.gml"), "file 'loop.gml' is a loop of symbolic links"),
        (("trace", "fifo.csv"), "fifo.csv: not a regular file (copy its content into one)"),
        (("trace", "lte-drive", "--speed", "1e-300"), "speed 1e-300 makes 6e+302 s, allowed 1e+09 s"),
        (("trace", "lte-drive", "--resample", "1e-300 s"), "allowed 50000 (choose longer steps)"),
        (("trace", "lte-drive", "--speed", "0"), "--speed: 0 is not above 0"),
        (("trace", "lte-drive", "--scale", "inf"), "--scale: inf is not a finite number"),
        (("trace", "lte-drive", "--offset", "2 h"), "offset 7200 s is beyond the trace's 600 s"),
        (("trace", "reroute", "--out", "x", "--as", "mahimahi"), "'mahimahi' holds rates only, but this is a delay"),
    ],
)
def test_mistakes(
    argv: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("loop.gml", "loop.csv"):
        Path(name).symlink_to(name)
    os.mkfifo("fifo.csv")
    assert said in out(capsys, *argv, code=2)


def test_a_trace_that_is_too_long_is_resampled_as_the_message_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{number / 10:.1f},{5 + number % 2}\n" for number in range(MAX_POINTS + 10))
    Path("long.csv").write_text("time_s,rate_mbit_s\n" + rows)
    said = out(capsys, "trace", "long.csv", code=2)
    cure = said.partition("resample it: testbed ")[2].partition(")")[0]
    out(capsys, *shlex.split(cure))
    told = json.loads(out(capsys, "trace", "SHORT.csv", "--json"))
    assert len(told["values"]) == (MAX_POINTS + 10) / 10 and set(told["values"]) == {5.5e6}


@for_each(
    ("command", "said"),
    [
        ("import words.csv", "words.csv:2: expected a number ('ten' is not a number)"),
        ("import gone.csv", "gone.csv: no such file"),
        (
            "import rtt.csv",
            "rtt.csv: no rate for a-b (add a file of bandwidth, a default: 'rate: 1 Gbit/s', "
            "or say which column it is: columns: {rate: NAME in Mbit/s})",
        ),
        ("import rtt.csv --set rate=3", "--set rate=3: topology.rate: 3 has no unit (write a unit, e.g. '10 Mbit/s')"),
        (
            "import cut.gml",
            "cut.gml: is a network, not a file of measurements (`testbed topology cut.gml` shows it, and a scenario "
            "takes it as 'topology: {use: cut.gml}')",
        ),
        ("cut.gml", "cut.gml:2: not valid GML: expected ']', found EOF"),
    ],
)
def test_a_refusal_names_the_file_or_option_and_no_key_that_nobody_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("words.csv").write_text("from,to,rtt_ms\na,b,ten\n")
    Path("rtt.csv").write_text("from,to,rtt_ms\na,b,10\n")
    Path("cut.gml").write_text("graph [ node [ id 0 ")
    assert main(["topology", *shlex.split(command)]) == 2
    assert capsys.readouterr().err.startswith(f"testbed: {said}")
