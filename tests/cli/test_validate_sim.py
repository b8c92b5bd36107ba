"""validate-sim from its options to its table; a second virtual world stands for the emulated one."""

import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.cli import validate_sim
from tests.cli.forked import Ended, command

SMALL = (
    "version: 1\nname: small\nseed: 1\n"
    "topology:\n  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}]\n"
    "  links: [{between: [a, b], rate: 10 Mbit/s, delay: 5 ms}]\n"
    "training: {model: {kind: mlp, hidden: 8}, data: digits, rounds: 4, evaluate_every: 2}\n"
)
TECHNIQUES = "half: {codec: fp16}\n"


def without_an_emulation() -> None:
    """What would be emulated is simulated, without the given costs; in the second repeat on slower devices."""
    real = validate_sim._results

    def results(arguments: Namespace, places: Any, world: str, repeat: int = 0) -> Any:
        if world == "simulate":
            return real(arguments, places, world, repeat)
        slow = {"device.step_time": "60 ms"} if repeat else {}
        slower = [replace(place, settings={**place.settings, **slow}) for place in places]
        return real(Namespace(**{**vars(arguments), "costs": None}), slower, "simulate", repeat)

    validate_sim._results = results


def validate(folder: Path, *more: str) -> Ended:
    options = [
        "--rates",
        "5 Mbit/s,50 Mbit/s",
        "--delays",
        "10 ms",
        "--rounds",
        "3",
        "--out",
        str(folder / "out"),
        "--techniques",
        str(folder / "techniques.yaml"),
        "--technique",
        "bsp:sync=bsp",
    ]
    return command(["validate-sim", str(folder / "small.yaml"), *options, *more], prepare=without_an_emulation)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("validation")
    (path / "small.yaml").write_text(SMALL)
    (path / "techniques.yaml").write_text(TECHNIQUES)
    return path


def test_the_simulation_alone_has_the_given_costs_and_a_generators_links_have_the_rates(folder: Path) -> None:
    links = "links: [{between: [a, b], rate: 10 Mbit/s, delay: 5 ms}]"
    sites = "data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}]"
    made = SMALL.replace(links, "").replace(sites, "generator: {kind: star, data_centers: 2, workers: 1}")
    (folder / "made.yaml").write_text(made)
    (folder / "costs.csv").write_text("# slow\nrow,call_us,element_ns,payload_byte_ns\nfp16 encode,100000,0,0\n")
    options = ["--rates", "5 Mbit/s", "--delays", "10 ms", "--rounds", "3", "--technique", "half:codec=fp16"]
    options += ["--costs", str(folder / "costs.csv"), "--out", str(folder / "made"), "--json"]
    ran = command(["validate-sim", str(folder / "made.yaml"), *options], prepare=without_an_emulation)
    assert ran.returncode == 0, ran.stderr
    (point,) = json.loads(ran.stdout.splitlines()[-1])["points"]
    assert point["simulated_s"] > point["measured_s"] + 0.1


def test_what_has_been_run_is_not_run_again(folder: Path) -> None:
    small = ("--rates", "50 Mbit/s", "--out", str(folder / "again"))
    assert validate(folder, *small).returncode == 0
    before = {path: path.stat().st_mtime_ns for path in folder.glob("again/simulate/runs/*/result.json")}
    assert len(before) >= 2
    ran = validate(folder, *small)
    assert ran.returncode == 0, ran.stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert "median error 0.0%" in ran.stdout, "both are the same world now"
    assert "bsp" in ran.stdout and "50 Mbit/s" in ran.stdout


@pytest.mark.slow  # 4 s
def test_a_second_run_says_how_far_the_first_is_to_be_believed(folder: Path) -> None:
    """The second one ran on slower devices: their mean counts, and they are held against each other."""
    ran = validate(folder, "--repeats", "2", "--json")
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    for point in told["points"]:
        first, second = point["repeats_s"]
        assert second > 1.01 * first
        assert point["measured_s"] == pytest.approx((first + second) / 2)
        predicted = point["simulated_repeats_s"]
        assert predicted == pytest.approx([first, first], rel=1e-3), "on devices as the first one's"
        assert point["error"] == pytest.approx(sum(predicted) / (first + second) - 1)
    assert any(len(set(point["simulated_repeats_s"])) == 2 for point in told["points"]), "each has a seed of its own"
    apart = sorted(second / first - 1 for first, second in (point["repeats_s"] for point in told["points"]))
    assert told["reproduced"]["worst"] == pytest.approx(apart[-1])
    assert told["reproduced"]["points"] == 4
