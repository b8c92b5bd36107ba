"""Scenarios: spoilt texts, and documents by a generator that knows the schema."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from testbed.errors import ScenarioError
from testbed.plan.build import build_jobs, build_plan
from testbed.plan.model import Plan, from_json, to_json
from testbed.scenario import BACK_ENDS, load
from testbed.scenario.jobs import load_jobs
from testbed.scenario.load import json_schema
from testbed.scenario.reading.document import Mapping, Node, Scalar, Sequence, parse
from tests.fuzz.texts import WORDS, nonsense_number, spoilt
from tests.fuzz.trial import Input, no_regular_file

SCENARIOS = Path(__file__).parents[2] / "scenarios"
Document = dict[str, Any]  # of Node's leaves: texts as they stand in YAML
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?( (kbit/s|Mbit/s|Gbit/s|ms|s|us|min|h|KiB|MiB|KB|MB|bytes|%|bdp))?")
_TEXTS = (
    "name",
    "title",
    "source",
    "licence",
    "notes",
    "use",
    "file",
    "command",
    "script",
    "between",
    "from",
    "to",
    "node",
    "link",
    "data_center",
    "version",
    "sweep",
    "scenario",
)


@cache
def corpus() -> tuple[tuple[Path, str], ...]:
    """Return the examples; those that are long, or have thousands of nodes, would spend the time on themselves."""
    paths = sorted(SCENARIOS.rglob("*.yaml"))
    texts = [(path, path.read_text(encoding="utf-8")) for path in paths if path.parent.name != "large"]
    return tuple((path, text) for path, text in texts if len(text) < 4000)


@cache
def documents() -> tuple[Document, ...]:
    """Return those of the examples that can be written elsewhere: they name no files, and are one run."""
    found = []
    for path, text in corpus():
        tree = _plain(parse(text, path.name))
        if "file:" not in text and ".py" not in text and "topology" in tree:
            tree.pop("sweep", None)
            found.append(tree)
    return tuple(found)


def spoilt_text(chance: Random, folder: Path) -> Input:
    """An example with mistakes in its text, or something that is no file."""
    path = folder / "s.yaml"
    if chance.random() < 0.02:
        what = no_regular_file(path, chance.randrange(6))
        return _input(path, (), chance, nonsense=f"a {what}")
    path.write_bytes(spoilt(chance.choice(corpus())[1], chance))
    return _input(path, (), chance)


def structured(chance: Random, folder: Path) -> Input:
    """A document that the schema's generator has changed, or one with nonsense in a single place."""
    document = _copy(chance.choice(documents()))
    nonsense, overrides = "", []
    if chance.random() < 0.3:
        nonsense = _spoil_a_number(document, chance)
    else:
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            _change(document, chance)
        if chance.random() < 0.3:
            overrides = [_override(chance)]
    path = folder / "s.yaml"
    path.write_bytes(yaml(document).encode("utf-8", "surrogateescape"))
    return _input(path, tuple(overrides), chance, nonsense)


def _input(path: Path, overrides: tuple[str, ...], chance: Random, nonsense: str = "") -> Input:
    on = chance.choice((None, None, *BACK_ENDS)) if not nonsense else None

    def read() -> Plan:
        if chance.random() < 0.5:
            scenario = load(path, overrides, sweeping=True)
        else:
            jobs = load_jobs(path, overrides)
            if jobs.are_several:
                return build_jobs(jobs)[0][0].plan
            scenario = jobs.jobs[0].scenario
        if scenario.name and sum(site.workers for site in scenario.topology.data_centers) > 5000:
            raise ScenarioError(f"{path}: taken, but its plan would take seconds")
        return build_plan(scenario, on)

    def check(plan: Plan) -> None:
        assert from_json(to_json(plan)) == plan, "the Plan does not survive JSON"

    return Input(read, (path.name, "--set", "--on"), nonsense, check)


# ---- by the schema --------------------------------------------------------------------------------------------------


@cache
def _schema() -> dict[str, Any]:
    return json_schema()


def _resolved(schema: Any) -> dict[str, Any]:
    while "$ref" in schema:
        schema = _schema()["$defs"][schema["$ref"].rpartition("/")[2]]
    found: dict[str, Any] = schema
    return found


def generated(schema: Any, chance: Random, depth: int = 0) -> Any:
    """Return a value that the schema allows, most of the time."""
    schema = _resolved(schema)
    if depth > 7 or chance.random() < 0.01:
        return chance.choice(WORDS)
    for union in ("anyOf", "oneOf", "allOf"):
        if union in schema:
            return generated(chance.choice(schema[union]), chance, depth)
    if "enum" in schema:
        return str(chance.choice(schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    kind = schema.get("type", "")
    if isinstance(kind, list) or "examples" in schema:
        return _quantity(schema, chance)
    return _GENERATORS.get(kind, _text)(schema, chance, depth)


def _object(schema: Any, chance: Random, depth: int) -> Any:
    known, needed = schema.get("properties", {}), schema.get("required", ())
    some = min(1.0, chance.choice((0, 1, 2, 5)) / (len(known) or 1))
    found = {
        key: generated(entry, chance, depth + 1)
        for key, entry in known.items()
        if (key in needed and chance.random() < 0.97) or chance.random() < some
    }
    if isinstance(schema.get("additionalProperties"), dict):
        for _ in range(chance.randint(0, 2)):
            found[chance.choice(_NAMES)] = generated(schema["additionalProperties"], chance, depth + 1)
    return found


def _array(schema: Any, chance: Random, depth: int) -> Any:
    if "prefixItems" in schema:
        return [generated(entry, chance, depth + 1) for entry in schema["prefixItems"]]
    count = chance.choice((0, 1, 1, 2, 2, 3))
    return [generated(schema.get("items", {}), chance, depth + 1) for _ in range(count)]


def _integer(schema: Any, chance: Random, depth: int) -> str:
    low, high = schema.get("minimum", 0), schema.get("maximum", 100)
    return str(chance.choice((low, high, low - 1, high + 1, 0, 1, 2, chance.randint(int(low), int(high)))))


def _number(schema: Any, chance: Random, depth: int) -> str:
    low, high = schema.get("minimum", 0), schema.get("maximum", 1)
    return repr(chance.choice((low, high, 0, 1, 0.5, chance.uniform(low, high), 1e-300, 1e300)))


def _quantity(schema: Any, chance: Random) -> str:
    example = str(chance.choice(schema.get("examples", ["1 s"])))
    factor = chance.choice((0, 1e-9, 1e-3, 0.1, 0.5, *(1,) * 6, 2, 3, 10, 1e3, 1e6, 1e18, -1))
    number, _, unit = example.partition(" ")
    return f"{float(number) * factor:g} {unit}".strip() if re.fullmatch(r"[0-9]+(\.[0-9]+)?", number) else example


_NAMES = (
    "east",
    "west",
    "hub",
    "tokyo",
    "a",
    "b",
    "worker0",
    "east/worker0",
    "hub>east",
    "hub<>east",
    "*",
    "*/worker0",
    "*/server0",
    "*>*",
    "hub/global0",
    "hub/scheduler",
)


def _text(schema: Any, chance: Random, depth: int = 0) -> str:
    return chance.choice(_NAMES) if chance.random() < 0.9 else chance.choice(WORDS)


_GENERATORS: dict[str, Any] = {
    "object": _object,
    "array": _array,
    "integer": _integer,
    "number": _number,
    "string": _text,
    "boolean": lambda schema, chance, depth: chance.choice(("true", "false")),
    "null": lambda schema, chance, depth: "null",
}


def _change(document: Document, chance: Random) -> None:
    """Set one section, or one key of it, to what the schema's generator makes; or remove or repeat something."""
    properties = _schema()["properties"]
    key = chance.choice(sorted(properties))
    how = chance.random()
    holder, inner = document.get(key), _options(properties[key])
    if how < 0.35 or not isinstance(holder, dict) or not inner:
        document[key] = generated(properties[key], chance)
    elif how < 0.85:
        name = chance.choice(sorted(inner))
        holder[name] = generated(inner[name], chance, 1)
    else:
        place, last = chance.choice(list(_leaves(document)))
        if how < 0.93 and isinstance(place, dict):
            del place[last]
        else:
            place[last] = generated(chance.choice(list(properties.values())), chance, 3)


def _options(schema: Any) -> dict[str, Any]:
    schema = _resolved(schema)
    found: dict[str, Any] = dict(schema.get("properties", {}))
    for union in ("anyOf", "oneOf"):
        for member in schema.get(union, ()):
            found |= _options(member)
    return found


def _override(chance: Random) -> str:
    paths = (
        "seed",
        "links[*].rate",
        "links[0].queue",
        "device.step_time",
        "topology",
        "sync",
        "training.rounds",
        "data_centers[*].workers",
        "links[٣].rate",
        "links[99].rate",
        "x.y",
        "",
        "codec.kind",
        "faults[0].at",
        "links[*].rate_trace",
        "lan.rate",
    )
    return f"{chance.choice(paths)}={yaml(generated(chance.choice(list(_schema()['properties'].values())), chance, 3))}"


# ---- nonsense that must be refused ----------------------------------------------------------------------------------


def _spoil_a_number(document: Document, chance: Random) -> str:
    places = [
        (holder, key)
        for holder, key in _leaves(document)
        if key not in _TEXTS and isinstance(holder[key], str) and _QUANTITY.fullmatch(holder[key])
    ]
    holder, key = chance.choice(places)
    before = holder[key]
    holder[key], why = nonsense_number(before, chance)
    return f"{why}: {key}: {holder[key]} (before: {before})"


# ---- documents ------------------------------------------------------------------------------------------------------


def _plain(node: Node) -> Any:
    if isinstance(node, Mapping):
        return {key: _plain(value) for key, value in node.entries.items()}
    if isinstance(node, Sequence):
        return [_plain(item) for item in node.items]
    return _quoted(node.text) if node.quoted or not _is_plain(node.text) else node.text


def _is_plain(text: str) -> bool:
    return re.fullmatch(r"[\w/%.+-][\w /%.+-]*", text) is not None and text == text.strip()


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(entry) for key, entry in value.items()}
    return [_copy(entry) for entry in value] if isinstance(value, list) else value


def _leaves(value: Any) -> Any:
    """Yield holder and key of every value inside."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield value, key
        yield from _leaves(entry)


def yaml(value: Any) -> str:
    """Return a document in flow style; its leaves stand in it as they are."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {yaml(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(yaml, value)) + "]"
    assert isinstance(value, str | Scalar), value
    return str(value)
