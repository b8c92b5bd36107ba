"""Which points a sweep has: grids, zips, seeds; from options, from YAML; and every mistake refused with its place."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.cli.main import main
from testbed.costs import REFERENCE
from testbed.errors import ScenarioError
from testbed.execution.code_version import ALWAYS, code_version
from testbed.execution.sweep import default_jobs
from testbed.execution.sweep_files import content_digest, source_digest
from testbed.execution.sweep_points import index_of, points_of, points_of_techniques
from testbed.facilities import BACK_ENDS
from testbed.results.sweep_index import read_index
from testbed.scenario.load import load
from testbed.scenario.presets import presets
from testbed.scenario.sweep import (
    SweepSettings,
    from_options,
    joined,
    read_sweep,
    split_values,
    technique_names,
    with_techniques,
)
from tests.for_each import for_each

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "scenarios" / "quickstart.yaml"


def test_grid_is_every_value_with_every_other_and_zip_goes_along() -> None:
    sweep = from_options(["a=1,2", "b=x"], ["c=5,6", "d=7,8"], None)
    assert list(sweep.settings()) == [
        {"a": a, "b": "x", "c": c, "d": d} for a in ("1", "2") for c, d in (("5", "7"), ("6", "8"))
    ]
    assert sweep.varied() == ("a", "c", "d")


def test_seeds_count_from_the_scenario_s_own() -> None:
    assert from_options([], [], 3).seeds_from(7) == (7, 8, 9)
    assert SweepSettings(seeds=(4, 2)).seeds_from(7) == (4, 2)
    assert SweepSettings().seeds_from(7) == (7,)


@given(
    st.lists(st.sampled_from(["1", "5 Mbit/s", "{kind: hfa, k1: 2}", "[a, b]", "'a,b'", '"a\\",b"', "x"]), min_size=1)
)
def test_commas_within_brackets_and_quotes_do_not_split(values: list[str]) -> None:
    assert split_values(",".join(values)) == values


def test_yaml_section_and_options_together(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(
        f"scenario: {QUICKSTART}\n"
        "sweep:\n  seeds: [3, 5]\n  grid:\n    codec: [none, {kind: topk, ratio: 0.1}]\n"
        "    links[*].rate: [5 Mbit/s]\n  zip:\n    batch: [8, 16]\n    rounds: [1, 2]\n"
    )
    scenario, sweep = read_sweep(file)
    assert scenario.samefile(QUICKSTART)
    assert list(sweep.settings())[2] == {
        "codec": "{kind: topk, ratio: 0.1}",
        "links[*].rate": "5 Mbit/s",
        "batch": "8",
        "rounds": "1",
    }
    narrowed = joined(sweep, from_options(["codec=fp16"], [], 1))
    assert {settings["codec"] for settings in narrowed.settings()} == {"fp16"}
    assert narrowed.seeds == 1


def test_points_carry_their_settings_into_the_plan_and_have_names_of_their_own() -> None:
    sweep = from_options(["codec=none,fp16", "training.batch=8,16"], [], 2)
    points = points_of(QUICKSTART, sweep, "simulate")
    plans = [point.plan for point in points]
    told = [(plan.technique.codec_tier2.kind, plan.training.batch_size, plan.seed) for plan in plans]
    assert told == [(codec, batch, seed) for codec in ("none", "fp16") for batch in (8, 16) for seed in (1, 2)]
    assert len({point.id for point in points}) == 8
    assert [point.id for point in points_of(QUICKSTART, sweep, "simulate")] == [point.id for point in points]


def test_names_change_with_the_code_that_decides_and_only_then(tmp_path: Path) -> None:
    for place in ("testbed/plan", "testbed/engine", "testbed/simulation", "testbed/cli", "testbed/results"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "a.py").write_text("a = 1")
    for place in (*ALWAYS, *BACK_ENDS["simulate"].sources):
        if Path(place).suffix:
            (tmp_path / place).write_text("")
    before = code_version(BACK_ENDS["simulate"].sources, tmp_path)
    (tmp_path / "testbed/cli/a.py").write_text("a = 2")
    assert code_version(BACK_ENDS["simulate"].sources, tmp_path) == before
    (tmp_path / "testbed/engine/a.py").write_text("a = 2")
    assert code_version(BACK_ENDS["simulate"].sources, tmp_path) != before
    (tmp_path / "testbed/engine/a.py").write_text("a = 1")
    assert code_version(BACK_ENDS["simulate"].sources, tmp_path) == before
    (tmp_path / REFERENCE.relative_to(ROOT)).write_text("row,call_us,element_ns,payload_byte_ns")
    assert code_version(BACK_ENDS["simulate"].sources, tmp_path) != before, "the durations of simulated work"
    emulated = code_version(BACK_ENDS["emulate"].sources, tmp_path)
    (tmp_path / "testbed/simulation/a.py").write_text("a = 2")
    assert code_version(BACK_ENDS["emulate"].sources, tmp_path) != emulated, "a simulation judges its fidelity"


def test_names_change_with_the_contents_of_data(tmp_path: Path) -> None:
    data, scenario = tmp_path / "mine.txt", tmp_path / "mine.yaml"
    scenario.write_text(
        "version: 1\nname: mine\nseed: 1\nrun: {on: simulate}\n"
        "topology:\n  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}]\n"
        "  links: [{between: [a, b], rate: 10 Mbit/s, delay: 5 ms}]\n"
        f"training: {{model: transformer, data: {{kind: text, file: {data}, context: 8}}, rounds: 1}}\n"
    )

    def names(text: str) -> list[str]:
        data.write_text(text)
        return [point.id for point in points_of(scenario, SweepSettings(seeds=2), None)]

    before = names("to be or not to be " * 50)
    assert names("to be or not to me " * 50) != before
    assert names("to be or not to be " * 50) == before


def test_the_contents_of_a_folder_are_its_names_and_bytes(tmp_path: Path) -> None:
    def digest(**files: str) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        (folder / "train").mkdir(parents=True)
        for name, content in files.items():
            (folder / "train" / name).write_text(content)
        return content_digest(folder)

    assert digest(a="1", b="2") == digest(b="2", a="1")
    assert len({digest(a="1", b="2"), digest(a="2", b="1"), digest(a="12", b=""), digest(ab="12")}) == 4
    assert content_digest(tmp_path / "missing") == digest()


def test_the_contents_of_a_folder_are_also_those_of_folders_that_links_in_it_lead_to(tmp_path: Path) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "folder"
    for path in (elsewhere / "deep", folder):
        path.mkdir(parents=True)
    (folder / "train").symlink_to(elsewhere)
    (folder / "again").symlink_to(folder)  # for ever
    (elsewhere / "up").symlink_to(folder)
    (elsewhere / "itself").symlink_to("itself")
    digests = []
    for content in ("1", "2"):
        (elsewhere / "deep" / "data").write_text(content)
        digests.append(content_digest(folder))
    assert digests[0] != digests[1] and all(digests)


@for_each("workload", ["script: train.py", "command: python train.py"])
def test_names_change_with_the_sources_beside_a_script_or_command(workload: str, tmp_path: Path) -> None:
    """Which it may import; and with nothing else there, which runs may have written."""
    scenario = tmp_path / "mine.yaml"
    job = "training: {rounds: 1}\n" if workload.startswith("script") else ""
    scenario.write_text(
        "version: 1\nname: mine\nseed: 1\nrun: {on: local}\n"
        "topology:\n  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}]\n"
        f"  links: [{{between: [a, b], rate: 10 Mbit/s, delay: 5 ms}}]\n{job}workload: {{{workload}}}\n"
    )
    (tmp_path / "lib").mkdir()
    (tmp_path / "train.py").write_text("import lib.helper\n")

    def name(place: str, text: str) -> str:
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(text)
        return points_of(scenario, SweepSettings(), None, allow_code=True)[0].id

    before = name("lib/helper.py", "RATE = 0.1\n")
    assert name("metrics.jsonl", "{}\n") == name("runs/own.py", "") == name(".cache/own.py", "") == before
    after = name("lib/helper.py", "RATE = 0.9\n")
    assert after != before and name("lib/other.py", "") != after
    (tmp_path / "lib" / "other.py").unlink()
    assert name("lib/helper.py", "RATE = 0.1\n") == before


def test_names_of_files_need_not_be_utf_8(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.py")).write_text("1")
    one = (content_digest(tmp_path), source_digest(tmp_path))
    (tmp_path / os.fsdecode(b"caf\xe9.py")).rename(tmp_path / os.fsdecode(b"caf\xe8.py"))
    two = (content_digest(tmp_path), source_digest(tmp_path))
    assert "" not in one and one[0] != two[0] and one[1] != two[1]


def test_a_scenario_with_a_sweep_is_refused_as_a_single_run(tmp_path: Path) -> None:
    file = tmp_path / "both.yaml"
    lines = [line for line in QUICKSTART.read_text().splitlines() if "rate_trace" not in line]
    file.write_text("\n".join([*lines, "sweep: {seeds: 2}"]))
    with pytest.raises(ScenarioError, match=r"both\.yaml:\d+:1: sweep: these are many runs"):
        load(file)
    assert len(points_of(file, read_sweep(file)[1], "simulate")) == 2
    file.write_text("\n".join([*lines, "sweep: {seeds: 2}", "devise: {}"]))
    with pytest.raises(ScenarioError, match=r"devise: unknown key .did you mean 'device'") as refused:
        load(file)
    assert "many runs" not in str(refused.value), "mistakes come first"


def test_every_run_of_a_sweep_is_validated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "both.yaml"
    lines = [line for line in QUICKSTART.read_text().splitlines() if "rate_trace" not in line]
    for codecs, code, told in (
        ("none, fp16", 0, "both.yaml: valid (6 runs of a sweep, on simulate"),
        ("none, fp61", 2, "--set codec=fp61: codec: 'fp61' is not one of"),
    ):
        file.write_text("\n".join([*lines, f"sweep: {{seeds: 3, grid: {{codec: [{codecs}]}}}}"]))
        assert main(["validate", str(file), "--on", "simulate"]) == code
        assert told in "".join(capsys.readouterr())
    assert main(["validate", str(file), "--on", "simulate", "--set", "codec=none", "--seed", "4"]) == 0
    assert "valid (1 run of a sweep, on simulate" in capsys.readouterr().out
    alone = tmp_path / "alone.yaml"
    alone.write_text("scenario: both.yaml\nsweep: {seeds: 2}\n")
    assert main(["validate", str(alone), "--on", "simulate"]) == 0
    assert "valid (2 runs of a sweep, on simulate" in capsys.readouterr().out


def test_a_list_of_seeds_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", str(QUICKSTART), "--on", "simulate", "--dry-run"]
    for text, told in ("1,2,5", ["1", "2", "5"]), ("7,", ["7"]), ("2", ["1", "2"]):
        assert main([*words, "--seeds", text]) == 0
        lines = capsys.readouterr().out.splitlines()[:-1]
        assert [line.split()[2] for line in lines] == told
    for wrong, told_ in (
        (["sweep", "--seeds", "1,x"], "'x' is not a whole number"),
        (["run", "--seed", "1,2,5"], "write `testbed sweep … --seeds 1,2,5`"),
    ):
        with pytest.raises(SystemExit):
            main([wrong[0], str(QUICKSTART), *wrong[1:]])
        assert told_ in capsys.readouterr().err


def test_paths_with_and_without_their_section_are_one() -> None:
    file = from_options(["training.batch=16,32", "links[*].rate=5 Mbit/s"], [], None)
    both = joined(file, from_options(["batch=64", "topology.links[*].rate=1 Mbit/s"], [], None))
    assert list(both.settings()) == [{"batch": "64", "topology.links[*].rate": "1 Mbit/s"}]
    with pytest.raises(ScenarioError, match="swept twice"):
        from_options(["batch=1,2", "training.batch=3"], [], None)


@for_each(
    ("grid", "zipped", "seeds", "told"),
    [
        (["a"], [], None, "not a setting"),
        (["a=1", "a=2"], [], None, "swept twice"),
        (["seed=1,2"], [], None, "write --seeds 1,2,5"),
        ([], [], (1, 2, 1), "1 is given twice"),
        ([], [], (1, -2), "expected seeds from 0 on"),
        ([], ["a=1,2", "a=3,4"], None, "swept twice"),
        ([], ["training.batch=1,2", "batch=3,4"], None, "swept twice"),
        (["a=16,16,32"], [], None, "a: 16 is given twice; keep one"),
        ([], ["a=1,1", "b=2,2"], None, "a, b: 1, 2 is given twice; keep one"),
        ([], ["a=1,2", "b=1"], None, "differ in length: a has 2, b has 1"),
        ([], [], 0, "outside"),
        ([], [], -3, "outside"),
        ([f"a{number}=1,2,3,4,5,6,7,8,9,10" for number in range(6)], [], None, "more than"),
    ],
)
def test_mistakes_in_options(
    grid: list[str], zipped: list[str], seeds: int | tuple[int, ...] | None, told: str
) -> None:
    with pytest.raises(ScenarioError, match=told):
        from_options(grid, zipped, seeds)


def test_a_seed_twice_is_no_second_sample(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(f"scenario: {QUICKSTART}\nsweep: {{seeds: [1, 1, 2]}}\n")
    with pytest.raises(ScenarioError, match=r"sweep: seeds: 1 is given twice; keep one"):
        read_sweep(file)


def test_an_option_replaces_its_path_of_a_zip_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(
        f"scenario: {QUICKSTART}\nsweep: {{zip: {{training.batch: [16, 32, 48], codec: [none, none, fp16]}}}}\n"
    )
    both = joined(read_sweep(file)[1], from_options(["batch=64"], [], None))
    assert list(both.settings()) == [{"codec": "none", "batch": "64"}, {"codec": "fp16", "batch": "64"}]
    assert joined(read_sweep(file)[1], from_options(["batch=64", "codec=none"], [], None)).varied() == ()


def test_values_of_lines_are_values_on_one_line(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(
        f"scenario: {QUICKSTART}\nsweep:\n  grid:\n    workload.command:\n      - [python, -c, 'a']\n"
        "      -\n        - python\n        - -c\n        - print(1, 2)\n"
    )
    values = [settings["workload.command"] for settings in read_sweep(file)[1].settings()]
    assert values == ['[python, -c, "a"]', '[python, -c, "print(1, 2)"]']


def test_a_bad_value_is_refused_before_anything_runs() -> None:
    with pytest.raises(ScenarioError, match="--set codec=fp17"):
        points_of(QUICKSTART, from_options(["codec=fp16,fp17"], [], None), "simulate")


@for_each(("back_end", "jobs"), [("simulate", 3), ("exact", 3), ("local", 1), ("emulate", 1)])
def test_runs_in_virtual_time_take_a_core_each(monkeypatch: pytest.MonkeyPatch, back_end: str, jobs: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 5})
    assert default_jobs(points_of(QUICKSTART, SweepSettings(), back_end)) == jobs


UNEQUAL = """
version: 1
name: unequal
seed: 1
run: {on: simulate}
topology:
  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 2}]
  links: [{between: [a, b], rate: 20 Mbit/s, delay: 5 ms}]
training: {model: mlp, data: digits, rounds: 3, evaluate_every: 3}
paradigm: ps
sync: tap
optimizer: {kind: adam, learning_rate: 0.002, at: global}
"""


def test_techniques_replace_those_of_the_scenario_and_what_cannot_run_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "unequal.yaml"
    path.write_text(UNEQUAL, encoding="utf-8")
    rates = from_options(["links[*].rate=5 Mbit/s,20 Mbit/s"], [], 2)
    found = points_of_techniques(["hfa", "hitopk", "mixedsync"], path, rates, None)
    assert [(point.settings["technique"], point.seed) for point in found.points[::2]] == [
        ("hfa", 1),
        ("hfa", 1),
        ("mixedsync", 1),
        ("mixedsync", 1),
    ]
    techniques = [point.plan.technique for point in found.points[::4]]
    assert [(each.paradigm.kind, each.sync_tier2.kind) for each in techniques] == [
        ("hips", "hfa"),
        ("hips", "mixedsync"),
    ]
    assert [each.optimizer.options["at"] for each in techniques] == ["worker", "global"]
    assert [*found.left_out] == ["hitopk"]
    assert found.left_out["hitopk"].startswith("paradigm.algorithm: 'hitopk' sums over equally numbered workers")
    assert found.sweep.varied() == ("technique", "links[*].rate")
    index = index_of(found.points, path, found.sweep, found.left_out)
    (tmp_path / "sweep.json").write_text(json.dumps(index), encoding="utf-8")
    assert read_index(tmp_path).left_out == found.left_out
    with pytest.raises(ScenarioError, match=r"^hitopk: paradigm\.algorithm"):
        points_of_techniques(["hitopk"], path, rates, None)
    with pytest.raises(ScenarioError, match=r"^--techniques: \./own\.py:Missing: .* no such file"):
        points_of_techniques(["hfa", "./own.py:Missing"], path, rates, None)  # which it would miss without a word
    path.write_text(UNEQUAL.replace("rounds: 3", "rounds: many"), encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"training\.rounds"):  # it is wrong, whatever the technique
        points_of_techniques(["hfa"], path, rates, None)


def test_names_of_techniques() -> None:
    assert technique_names("hfa, fp16") == ["hfa", "fp16"]
    assert technique_names("all") == list(presets())
    assert technique_names("./mine.py:Mine") == ["./mine.py:Mine"]
    with pytest.raises(ScenarioError, match=r"--techniques: 'fsaa' is not a technique .did you mean 'fsa'"):
        technique_names("hfa,fsaa")
    with pytest.raises(ScenarioError, match="technique: hfa is given twice"):
        with_techniques(from_options([], [], None), ["hfa", "hfa"])
