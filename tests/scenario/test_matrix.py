"""The composition matrix: it says what the validator says, it is whole, and the page holds what the command prints."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path

import pytest

from testbed.cli.main import main
from testbed.errors import ScenarioError
from testbed.scenario.load import loads
from testbed.scenario.matrix import AXES, markdown, overrides, refusals
from tests.for_each import for_each
from tests.scenario.covering import all_cells, fits
from tests.scenario.test_bad import GOOD as WITHOUT_OPTIMIZER

README = Path(__file__).parents[2] / "scenarios" / "README.md"
GOOD = WITHOUT_OPTIMIZER + "optimizer: adam\n"


def test_the_page_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matrix"]) == 0
    printed = capsys.readouterr().out
    assert printed == markdown(all_cells())
    assert printed in README.read_text(encoding="utf-8")


@for_each("axes", list(combinations(AXES, 2)))
def test_the_verdict_is_that_of_reading_a_scenario(axes: tuple[str, str]) -> None:
    rng = random.Random(1)
    mine = [cell for cell in all_cells() if cell.axes == axes]
    refused = [cell for cell in mine if cell.refused]
    works = [cell for cell in mine if not cell.refused]
    for cell in [*rng.sample(refused, min(3, len(refused))), *rng.sample(works, min(3, len(works)))]:
        texts = overrides(cell.combination)
        if cell.refused is None:
            loads(GOOD, overrides=texts)
        else:
            with pytest.raises(ScenarioError) as caught:
                loads(GOOD, overrides=texts)
            assert cell.refused in str(caught.value)


def test_what_a_pair_needs_it_really_needs() -> None:
    """Without it, every such pair is refused, with a hint that names what to write."""
    seen = set()
    for cell in all_cells():
        for need in set(cell.needs) - seen:
            seen.add(need)
            texts = overrides(cell.combination)
            texts.remove(need)
            with pytest.raises(ScenarioError) as caught:
                loads(GOOD, overrides=texts)
            assert need.partition(".")[2].replace("=", ": ") in str(caught.value)
    assert len(seen) == 6


def test_a_combination_is_refused_exactly_when_one_of_its_pairs_is() -> None:
    """So the pairs are the whole truth, and nothing stands between three axes only."""
    rng = random.Random(2)
    verdicts = []
    for _ in range(700):
        full = {axis: rng.choice(kinds) for axis, kinds in AXES.items()}
        assert bool(refusals(full)) != fits(full), full
        verdicts.append(not fits(full))
    assert 50 < sum(verdicts) < 690
