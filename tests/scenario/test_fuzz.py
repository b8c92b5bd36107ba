"""Whatever is thrown at it, reading a scenario gives a scenario or a ScenarioError; so does planning it."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.plan.model import from_json, to_json
from testbed.scenario import BACK_ENDS, loads, starter
from tests.scenario.test_bad import GOOD

CORPUS = [GOOD, starter(), *(p.read_text(encoding="utf-8") for p in sorted((Path(__file__).parent / "bad").glob("*")))]
TOKENS = [
    "null", "~", "true", "''", "[]", "{}", "-1", "0", "1e9", "1e-400", ".nan", "032", "20 Mbit/s", "0 s", "720 h",
    "5 %", "*a", "&a x", "!!int 3", "<<: x", "fsa", "kind: fsa", "? x", "- ", ": ", "\t", "\x00", "ü", "{a: 1}",
    "[1, [2]]", "---", "east", "a" * 40, "measured", "simulate", "modelled", "star", "mesh", "1000", "10000000",
    "1.5 bdp", "generator",
]  # fmt: skip
LEAVES = st.sampled_from(TOKENS) | st.integers().map(str) | st.text(max_size=12).map(repr)
WORDS = st.sampled_from(sorted(set(re.findall(r"[a-z_0-9]+(?=:)", GOOD + starter()))))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.dictionaries(WORDS, inner, max_size=4).map(
            lambda entries: "{" + ", ".join(f"{key}: {value}" for key, value in entries.items()) + "}"
        ),
    ),
    max_leaves=15,
)


def read(text: str | bytes, overrides: tuple[str, ...] = ()) -> None:
    """Read and, if it is good, plan it on every back end."""
    try:
        scenario = loads(text, "s.yaml", overrides)
    except ScenarioError as error:
        assert error.problems and all(problem.startswith(("s.yaml", "--set", "…")) for problem in error.problems)
        return
    for on in BACK_ENDS:
        try:
            plan = build_plan(scenario, on)
        except ScenarioError:
            continue
        assert from_json(to_json(plan)) == plan


@given(TREES)
def test_any_tree(text: str) -> None:
    read(text)


@given(st.dictionaries(WORDS, TREES, max_size=3))
def test_any_tree_beside_good_keys(entries: dict[str, str]) -> None:
    read(GOOD + "".join(f"{key}: {value}\n" for key, value in entries.items() if f"\n{key}:" not in f"\n{GOOD}"))


@given(st.sampled_from(CORPUS), st.integers(0, 10**6), st.integers(0, 30), LEAVES)
def test_mutated_files(text: str, position: int, length: int, token: str) -> None:
    position %= len(text) + 1
    read(text[:position] + token + text[position + length :])


@given(st.sampled_from([GOOD, starter()]), st.integers(0, 10**6), LEAVES)
def test_a_value_replaced(text: str, choice: int, token: str) -> None:
    places = [place for place in range(len(text)) if text.startswith(": ", place)]
    place = places[choice % len(places)] + 2
    ends = [end for end in (text.find(mark, place) for mark in ",}]\n") if end >= 0]
    read(text[:place] + token + text[min(ends) :])


@given(st.sampled_from(["seed", "links[*].rate", "links", "device", "topology", "sync", "data_centers[west]"]), TREES)
def test_any_override(path: str, value: str) -> None:
    read(GOOD, (f"{path}={value}",))
