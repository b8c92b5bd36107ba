"""What points of a sweep are called, in words and as names of links."""

from dataclasses import dataclass

import pytest

from testbed.scenario.sweep_labels import link_names, telling, varied_of, words_of

ZIPPED = [
    {"sync": kind, "optimizer.at": at, "training.rounds": "9"}
    for kind, at in (("fsa", "global"), ("hfa", "worker"), ("diloco", "worker"))
]


@dataclass(frozen=True)
class Swept:
    settings: dict[str, str]
    seed: int = 1


def labels(*points: dict[str, str]) -> list[str]:
    return [", ".join(map(str, words)) for words in words_of(telling(points), points)]


def test_settings_that_change_together_are_told_by_the_first_of_them() -> None:
    assert varied_of(ZIPPED) == ("sync", "optimizer.at")
    assert labels(*ZIPPED) == ["fsa", "hfa", "diloco"]
    turned = [dict(reversed(point.items())) for point in ZIPPED]
    assert labels(*turned) == ["fsa", "hfa", "diloco"], "two have the optimizer at their workers"


def test_values_of_a_grid_say_what_they_are_of() -> None:
    points = [
        {"codec": codec, "links[*].rate": rate} for codec in ("none", "fp16") for rate in ("5 Mbit/s", "1 Gbit/s")
    ]
    assert labels(*points) == [
        "codec none, rate 5 Mbit/s",
        "codec none, rate 1 Gbit/s",
        "fp16, rate 5 Mbit/s",
        "fp16, rate 1 Gbit/s",
    ]


@pytest.mark.parametrize(
    ("path", "values", "told"),
    [
        ("sync", ["fsa", "{kind: hfa, k1: 2, k2: 2}"], ["fsa", "hfa"]),
        ("sync", ["halos", "{kind: halos, updates: 4, outer_learning_rate: 1}"], ["halos", "halos updates=4"]),
        ("sync", ["{kind: hfa, k1: 2, k2: 2}", "{kind: hfa, k1: 4, k2: 2}"], ["hfa k1=2", "hfa k1=4"]),
        ("sync", ["hfa", "{kind: hfa, k1: 4}"], ["hfa", "hfa k1=4"]),
        ("codec", ["./my/own.py:Half", "fp16"], ["Half", "fp16"]),
        ("training.model.kind", ["mlp", "cnn"], ["model mlp", "model cnn"]),
        ("sync.k1", ["2", "4"], ["k1 2", "k1 4"]),
        ("links[*].rate_trace", ["traces/day.csv", "night.csv"], ["rate_trace day.csv", "rate_trace night.csv"]),
        ("topology", ["{use: [a, b, c, d, e, f, g, h, i]}", "{use: a}"], ["topology 1", "topology use: a"]),
    ],
)
def test_a_value_is_as_short_as_it_can_be(path: str, values: list[str], told: list[str]) -> None:
    assert labels(*({path: value} for value in values)) == told


def test_a_point_that_leaves_a_setting_alone_has_the_default() -> None:
    assert labels({"sync.k1": "2"}, {}) == ["k1 2", "k1 default"]


def test_links_have_names_of_files_and_no_two_are_equal() -> None:
    assert link_names([Swept(point, 3) for point in ZIPPED]) == ["fsa-seed3", "hfa-seed3", "diloco-seed3"]
    assert link_names([Swept({}, 1), Swept({}, 2)]) == ["seed1", "seed2"]
    rates = [Swept({"links[*].rate": rate}) for rate in ("1.5 Mbit/s", "1.5 MBIT/s", "../..")]
    assert link_names(rates) == ["rate-1.5-mbit-s-seed1", "rate-1.5-mbit-s~2-seed1", "rate-seed1"]
    long = [Swept({f"training.option{number}": str(value) for number in range(30)}, value) for value in (1, 2)]
    assert max(map(len, link_names(long))) < 120
