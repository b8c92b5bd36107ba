"""What a refusal proposes is accepted, and trains: every cure of every rule over techniques, applied as it says."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from testbed.execution import host, record
from testbed.plan.build import build_plan
from testbed.scenario import loads
from testbed.scenario.rules import violations_of
from testbed.scenario.schema import Scenario
from tests.for_each import for_each
from tests.scenario.test_bad import GOOD
from tests.scenario.test_rules import EXAMPLES, SCRIPTS, unchecked

REMOVED = "-"  # before a path: "remove it"
ALSO = "+"  # before a setting: a second refusal proposes it, or it is what is left when an option is removed
OTHER = (
    "training",
    "workload",
    "cluster",
    "device.pace",
    "device.kind",
    "data_centers",
    "background",
    "order={kind: dgt",
    "faults=[{kind: nan",
    "faults=[{kind: reorder",
)
"""Examples of compute, data, scripts, sizes and names, whose cures choose no technique, begin with these."""


def cured(texts: tuple[str, ...], cure: tuple[str, ...]) -> list[str]:
    """Return the settings of an example with those of the cure, one for each path."""
    found: dict[str, str] = {}
    for text in (*texts, *cure):
        path, _, value = text.lstrip(REMOVED + ALSO).partition("=")
        if text.startswith(REMOVED):
            found.pop(path, None)
        else:
            found[path] = value
    return [f"{path}={value}" for path, value in found.items()]


CASES = [(texts, (cure,) if isinstance(cure, str) else cure) for texts, cures in EXAMPLES.items() for cure in cures]


def test_every_refusal_of_a_technique_is_in_the_table() -> None:
    assert [texts for texts, cures in EXAMPLES.items() if not cures and not texts[0].startswith(OTHER)] == []


@for_each(("texts", "cure"), CASES)
def test_the_cure_is_what_the_refusal_says_and_is_accepted(texts: tuple[str, ...], cure: tuple[str, ...]) -> None:
    hints = " ".join(violation.hint for violation in violations_of(unchecked(*texts)))
    for setting in cure:
        words = setting.partition("=")[2].strip("{}").replace("kind: ", "").split(", ")
        written = {word for text in texts for word in text.partition("=")[2].strip("{}").split(", ")}
        new = [word.split(": ")[-1].strip("{}") for word in words if word not in written]
        assert setting[0] in (REMOVED, ALSO) or any(word in hints for word in new), (setting, hints)
    loads(GOOD, "s.yaml", overrides=cured(texts, cure), folder=SCRIPTS)


def outcome_of(scenario: Scenario, folder: Path) -> str:
    """Train in virtual time, and return status and message."""
    plan = build_plan(scenario)
    run = record.prepare(folder, plan, scenario=b"", resolved="", capabilities={})
    outcome = record.conclude(run, plan, host.attempt(plan, run.path, lambda event: None), "", 0.0).outcome
    return f"{outcome.status} {outcome.message}".strip()


def short(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return settings that make a run short.

    In few rounds no element passes the threshold of two-bit quantisation, and few rows of a table are looked up.
    """
    if any(text.startswith("workload") for text in texts):
        return ("run.on=simulate", "training={rounds: 20}")
    rounds = 120 if any("twobit" in text or "recommender" in text for text in texts) else 20
    model = () if any(text.startswith("training.model") for text in texts) else ("training.model=mlp",)
    return ("run.on=simulate", f"training.rounds={rounds}", "training.evaluate_every=5", *model)


def train(texts: tuple[str, ...], cure: tuple[str, ...], folder: Path) -> str:
    settings = cured(tuple(cured(texts, cure)), short(texts))
    return outcome_of(loads(GOOD, "s.yaml", overrides=settings, folder=SCRIPTS), folder)


def in_virtual_time(texts: tuple[str, ...], cure: tuple[str, ...]) -> bool:
    library = "paradigm=gloo" in texts and not cure[0].startswith("paradigm")
    return not library and not any(text.startswith("run.on=") for text in cure)


TRAINABLE = [case for case in CASES if in_virtual_time(*case)]


@pytest.mark.slow  # 1 s each; drawn, as each takes as long as all checks of the text above
@pytest.mark.parametrize(("texts", "cure"), random.Random(1).sample(TRAINABLE, 24), ids=str)
def test_the_cure_trains(texts: tuple[str, ...], cure: tuple[str, ...], tmp_path: Path) -> None:
    outcome = train(texts, cure, tmp_path / "run")
    # in the few rounds here, LARS comes to no accuracy
    assert outcome.split()[0] in ("done", "reduced") or "the accuracy stayed at" in outcome
