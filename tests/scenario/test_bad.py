"""Bad scenarios: one file per mistake in ``bad/``, and beside it (``.err``) the exact message.

In an ``.err`` file ``{sync}`` and the like stand for the kinds that exist on that axis today.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.codec.options import CODECS
from testbed.errors import ScenarioError
from testbed.paradigms import PARADIGMS
from testbed.policy.sync import SYNC
from testbed.scenario import load, loads
from testbed.scenario.reading.document import MAX_BYTES, MAX_DEPTH, MAX_NODES
from testbed.scenario.reading.keys import keys_of
from testbed.scenario.schema import MODEL
from testbed.training.options import OPTIMIZERS
from tests.for_each import for_each
from topologies.generators import GENERATORS

BAD = Path(__file__).parent / "bad"
NAMES = sorted(path.stem for path in BAD.glob("*.yaml"))
TABLES = {
    "{sync}": SYNC,
    "{codec}": CODECS,
    "{paradigm}": PARADIGMS,
    "{optimizer}": OPTIMIZERS,
    "{generator}": GENERATORS,
    "{sections}": keys_of(MODEL),
}
GOOD = """\
version: 1
name: good
seed: 7
topology:
  data_centers:
    - {name: east, central: true}
    - {name: west}
  links:
    - {between: [east, west], rate: 20 Mbit/s, delay: 40 ms}
training: {model: cnn, data: digits, rounds: 100}
"""


def refusal(text: str | bytes, *overrides: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        loads(text, "s.yaml", overrides)
    assert caught.value.exit_code == 2
    return str(caught.value)


def expected(name: str) -> str:
    text = (BAD / f"{name}.err").read_text(encoding="utf-8").removesuffix("\n")
    for token, table in TABLES.items():
        text = text.replace(token, ", ".join(table))
    return text


@for_each("name", NAMES)
def test_says_where_and_what(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BAD)
    with pytest.raises(ScenarioError) as caught:
        load(f"{name}.yaml")
    assert str(caught.value) == expected(name)


def test_not_utf8() -> None:
    assert refusal(b"name: caf\xe9") == "s.yaml: not valid UTF-8 at byte 9 (save it as UTF-8)"


def test_deep_nesting() -> None:
    assert refusal("[" * 2000) == f"s.yaml:1:13: nesting is deeper than {MAX_DEPTH} levels"


def test_two_megabytes(tmp_path: Path) -> None:
    text = "x: " + "a" * (2 << 20)
    assert refusal(text) == f"s.yaml: file is {len(text)} bytes, limit is {MAX_BYTES}"
    (tmp_path / "s.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError, match=f"s.yaml: file is {len(text)} bytes, limit is {MAX_BYTES}"):
        load(tmp_path / "s.yaml")


def test_too_many_values() -> None:
    assert refusal("[" + "1," * 30_000 + "]") == f"s.yaml:1:40000: more than {MAX_NODES} values"


def test_a_fifo_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "scenario.yaml")
    with pytest.raises(ScenarioError, match=r"scenario\.yaml: not a regular file \(copy its content into one\)"):
        load(tmp_path / "scenario.yaml")


def test_mistakes_of_rules_are_shown_with_mistakes_of_values() -> None:
    text = GOOD.replace("20 Mbit/s", "20").replace("[east, west]", "[east, wets]").replace("west}", "west, wokers: 1}")
    assert refusal(text).splitlines() == [
        "s.yaml:7:20: topology.data_centers[1].wokers: unknown key (did you mean 'workers'?)",
        "s.yaml:9:24: topology.links[0].between[1]: no data centre or router named 'wets' (did you mean 'west'?)",
        "s.yaml:9:37: topology.links[0].rate: 20 has no unit (write a unit, e.g. '10 Mbit/s')",
    ]


@for_each(
    ("override", "message"),
    [
        ("links[*].rate=5Mbps", "topology.links[0].rate: 'Mbps' is not a unit of rate (write '5 Mbit/s')"),
        ("training.rounds=0", "training.rounds: 0 is outside [1, 10000000]"),
        ("training.modl=cnn", "training.modl: unknown key (did you mean 'model'?)"),
        ("links[7].rate=5 Mbit/s", "there is no item 7; the list has 1 items"),
        ("links[east<>west].rate=5 Mbit/s", "not an override (write links[east-west].rate=…)"),
        ("links[east-wets].rate=5 Mbit/s", "no item named 'east-wets' (did you mean 'east-west'?)"),
        ("data_centers[wets].workers=3", "no item named 'wets' (did you mean 'west'?)"),
        ("codec={kind: topk, ratio: 5 %}", "codec.ratio: expected a number, got '5 %' (write 0.05, as a share of 1)"),
        (
            "codec={kind: topk, ratio: 12.50%}",
            "codec.ratio: expected a number, got '12.50%' (write 0.125, as a share of 1)",
        ),
        ("codec={kind: topk, ratio: 100 %}", "codec.ratio: expected a number, got '100 %' (write 1, as a share of 1)"),
        (
            "links[0].rate=5 %",
            "topology.links[0].rate: '%' is not a unit of rate (one of Tbit/s, Gbit/s, Mbit/s, kbit/s, bit/s)",
        ),
        ("routers[*]=x", "'routers[*]' matches nothing"),
        ("data_centers[Zürich].workers=3", "not an override (write data_centers[zurich].workers=…)"),
        ("data_centers[eu_west].workers=3", "not an override (write data_centers[eu-west].workers=…)"),
        ("data_centers[東京].workers=3", "not an override (write path=value, e.g. training.rounds=50)"),
        (
            "data_centers[0].name=New York",
            "topology.data_centers[0].name: 'New York' is not a valid name (write 'new-york', of "
            "1-32 characters: a-z first, then a-z 0-9 '-')",
        ),
        ("training.rounds", "not an override (write path=value, e.g. training.rounds=50)"),
        ("device=[", "not valid YAML: expected the node content, but found '<stream end>'"),
        ("name=*a", "YAML aliases (*a) are not allowed"),
    ],
)
def test_a_bad_override_points_at_itself(override: str, message: str) -> None:
    assert refusal(GOOD, override) == f"--set {override}: {message}"


def test_overrides_and_file_are_reported_together() -> None:
    assert refusal(GOOD.replace("seed: 7", "seed: x"), "links[3]=1").splitlines() == [
        "--set links[3]=1: there is no item 3; the list has 1 items",
        "s.yaml:3:7: seed: expected an integer, got 'x'",
    ]
