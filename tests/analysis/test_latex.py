"""The LaTeX tables of a comparison fit the page that they are for, and their columns can be told apart."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from analysis import compare
from analysis.comparable import frames_and_payload
from analysis.sweeps import output
from analysis.sweeps.points import cases_of, points_of
from analysis.sweeps.stored import SweepComparison
from testbed.target import ACCURACY, Target

NAMES = ("fsa", "bisparse", "three_phase_ring_of_another_length", "{kind: diloco, h: 50, outer: nesterov}")
ROWS: list[dict[str, Any]] = [
    {
        "sync": name,
        "topology.rate": rate,
        "seed": seed,
        "status": "done",
        "accuracy": 0.8765,
        "loss": 0.4321,
        "target": 0.88,
        "target_measure": ACCURACY,
        "time_to_target_s": (1234.5 + 7 * seed) * (0.7731 + seed / 100) ** place,
        "wan_bytes": 987.6e9 * (0.6617 + seed / 100) ** place,
        "step_time_s": 1.2345,
    }
    for rate in ("20 Mbit/s", "100 Mbit/s")
    for place, name in enumerate(NAMES)
    for seed in (1, 2, 3)
]


def of_a_sweep() -> str:
    cases = cases_of(points_of(ROWS, ["sync", "topology.rate"]))
    compared = SweepComparison("mine", ROWS, {}, cases, Target(ACCURACY, 0.88), {}, {}, None)
    return output.as_latex(compared)


def of_runs() -> str:
    return compare.as_latex(
        [{**row, "label": f"{row['sync']}, emulated", "run": "x", "speed_up": 0.778} for row in ROWS[:12:3]]
    )


def test_no_two_columns_have_one_name() -> None:
    for table in (of_a_sweep(), of_runs()):
        first, second = (line.removesuffix(r" \\").split(" & ") for line in table.splitlines()[2:4])
        assert len({*zip(first, second, strict=True)}) == len(first) <= 6, table


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_tables_fit_the_text_of_an_article_and_a_column_of_two(tmp_path: Path) -> None:
    for options, form in (("", str), ("[twocolumn]", compare.in_a_column)):
        tables = "\n\n".join(rf"\noindent {form(table)}" for table in (of_a_sweep(), of_runs()))
        text = rf"\documentclass{options}{{article}}\usepackage{{booktabs}}\begin{{document}}{tables}\end{{document}}"
        (tmp_path / "paper.tex").write_text(text)
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
        assert r"Overfull \hbox" not in done.stdout, done.stdout


def test_bytes_of_packets_and_of_payload_are_told_apart() -> None:
    trained = {"label": "ring"}
    program = {"label": "train.py", "run_time_s": 3.0}
    (told,) = frames_and_payload([trained, program])
    assert told == "the WAN bytes of train.py are those of whole packets; all others are payload alone"
    assert not frames_and_payload([trained, trained]) and not frames_and_payload([program, program])
