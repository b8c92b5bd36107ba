"""Techniques by name: as written in files and on the command line, and the file that holds all there are."""

from pathlib import Path

import pytest

from testbed.codec.options import CODECS
from testbed.errors import ScenarioError
from testbed.paradigms import PARADIGMS
from testbed.plan.build import build_plan
from testbed.policy.order import ORDERS
from testbed.policy.overlay import OVERLAYS
from testbed.policy.shard import SHARDS
from testbed.policy.sync import SYNC
from testbed.scenario.load import load
from testbed.scenario.sweep import from_texts, read_techniques
from tests.for_each import for_each

ROOT = Path(__file__).parents[2]
ALL = ROOT / "scenarios/large/techniques.yaml"


def test_the_file_of_all_techniques_misses_none_that_both_worlds_can_run() -> None:
    found = {"sync": set(), "codec": set(), "order": set(), "overlay": set(), "shard": set(), "paradigm": set()}
    for settings in read_techniques(ALL).values():
        overrides = [f"{path}={value}" for path, value in settings.items()]
        technique = build_plan(load(ROOT / "scenarios/quickstart.yaml", overrides), "simulate").technique
        found["sync"].add(technique.sync_tier2.kind)
        found["codec"].add(technique.codec_tier2.kind)
        found["order"].add(technique.order.kind)
        found["overlay"].add(technique.overlay_tier2.kind)
        found["shard"].add(technique.shard.kind)
        found["paradigm"].add(technique.paradigm.kind)
    both_worlds = {kind for kind, options in PARADIGMS.items() if not options.library}
    assert found == {"sync": set(SYNC), "codec": set(CODECS), "order": set(ORDERS), "overlay": set(OVERLAYS),
                     "shard": set(SHARDS), "paradigm": both_worlds}  # fmt: skip


@for_each(("text", "told"), [("fsa: hfa\n", "1:1: fsa: expected"), ("[fsa]\n", "expected a mapping")])
def test_what_is_no_technique_is_refused(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "some.yaml"
    file.write_text(text)
    with pytest.raises(ScenarioError, match=told):
        read_techniques(file)


@for_each("texts", [["a:sync=hfa", "a:sync=fsa"], ["a:sync=hfa;codec=fp16;sync=fsa"]])
def test_what_is_given_twice_is_refused(texts: list[str]) -> None:
    with pytest.raises(ScenarioError, match="already"):
        from_texts(texts)
