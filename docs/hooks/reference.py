"""The reference pages of the site, generated when it is built: scenario keys, techniques, commands, tables of a run."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from typing import Any

from testbed.cli.main import EXIT_CODES, build_parser
from testbed.preset import Preset
from testbed.results.columns import TABLES
from testbed.scenario.kinds import kinds_of
from testbed.scenario.load import json_schema
from testbed.scenario.presets import presets, settings_of
from testbed.scenario.reading.axes import AXES
from testbed.testing.subject import AXES as OPEN_AXES

Schema = Mapping[str, Any]
_CODE = "a class: `FILE.py:Class` or `package.module:Class`"
_PLAIN = {"string": "text", "boolean": "`true` or `false`", "object": "mapping", "null": ""}


def pages() -> dict[str, str]:
    """Return the content of each page by its place in the site."""
    return {
        "reference/scenario.md": "\n".join(_scenario(json_schema())),
        "reference/techniques.md": "\n".join(_techniques()),
        "reference/command.md": "\n".join(_command()),
        "reference/tables.md": "\n".join(_tables()),
        "reference/protocols.md": "\n".join(_protocols()),
    }


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    for row in (header, ("---",) * len(header), *rows):
        yield "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |"
    yield ""


# ---- scenario keys --------------------------------------------------------------------------------------------------


def _scenario(schema: Schema) -> Iterator[str]:
    yield "# Keys of a scenario\n"
    yield "Generated from the schema that validates scenarios (`testbed schema`). A key without a default is required;"
    yield "– stands for a default that is derived or absent. [Scenarios](../scenarios/README.md) explains the format.\n"
    yield from _section("Scenario", schema)
    for name in sorted(schema["$defs"]):
        if not _is_technique(name):
            yield from _section(name, schema["$defs"][name])


def _section(name: str, schema: Schema) -> Iterator[str]:
    yield f"## {name}\n"
    yield f"{schema.get('description', '').replace('``', '`')}\n"
    required = schema.get("required", ())
    yield from table(
        ("key", "type", "default", "meaning"),
        [
            (f"`{key}`", _type(key, value), "" if key in required else _default(value), value.get("description", ""))
            for key, value in schema["properties"].items()
        ],
    )


def _is_technique(name: str) -> bool:
    return name.partition("_")[0] in AXES


def _default(schema: Schema) -> str:
    value = schema.get("default")
    if isinstance(value, Mapping):
        return "see there"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return "–" if value is None else f"`{value}`"


def _type(key: str, schema: Schema) -> str:
    """Return the type in words, with links to the sections that it names."""
    alternatives = dict.fromkeys(_alternatives(key, schema))
    return " or ".join(text for text in alternatives if text)


def _alternatives(key: str, schema: Schema) -> Iterator[str]:
    for inner in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _alternatives(key, inner)
    if "$ref" in schema:
        yield _reference(schema["$ref"].rpartition("/")[2])
    elif "enum" in schema and key in AXES:
        yield f"a technique: [{key}](techniques.md#{key})"
    elif "enum" in schema:
        yield ", ".join(f"`{value}`" for value in schema["enum"])
    elif "const" in schema:
        yield f"`{schema['const']}`"
    elif ".py" in schema.get("pattern", ""):
        yield _CODE
    elif schema.get("type") == "array":
        yield _list_of(key, schema)
    elif "kind" in schema.get("properties", {}):
        yield "the same with options"
    elif "type" in schema:
        yield _simple(schema)
    elif not {"anyOf", "oneOf"} & schema.keys():
        yield "text"


def _reference(name: str) -> str:
    axis = name.partition("_")[0]
    return f"a technique: [{axis}](techniques.md#{axis})" if _is_technique(name) else f"[{name}](#{name.lower()})"


def _list_of(key: str, schema: Schema) -> str:
    if "prefixItems" in schema:
        return f"list of {len(schema['prefixItems'])}: {_type(key, schema['prefixItems'][0])}"
    return f"list of: {_type(key, schema.get('items', {}))}"


def _simple(schema: Schema) -> str:
    types = schema["type"]
    if isinstance(types, list):  # a number with a unit
        example = schema.get("examples", [""])[0]
        return f"quantity, e.g. `{example}`" if example else "quantity"
    if types in ("integer", "number"):
        least, most = schema.get("minimum"), schema.get("maximum")
        limits = f", {least} … {most}" if least is not None and most is not None else ""
        return types + limits
    return _PLAIN.get(types, types)


# ---- techniques, commands, tables -----------------------------------------------------------------------------------


def _techniques() -> Iterator[str]:
    yield "# Techniques\n"
    yield "## Presets\n"
    yield "`technique: NAME` chooses values of several axes with one name (`testbed schema technique`). What a scenario"
    yield "writes on these axes itself wins over a preset's options. The optimizer is that of the scenario, unless the"
    yield "preset has another, and runs where the technique needs it.\n"
    rows = [(f"`{preset.name}`", preset.summary, _values(preset), preset.source) for preset in presets().values()]
    yield from table(("technique", "what it does", "its values", "from"), rows)
    yield "Generated from the axes' tables (`testbed schema AXIS`). The first technique of an axis is its default,"
    yield "where a scenario may leave the axis out.\n"
    for axis in AXES:
        yield f"## {axis}\n"
        for kind in kinds_of(axis):
            yield f"### {axis}: {kind.name}\n"
            yield f"{kind.about.replace('``', '`')}\n"
            if kind.options:
                rows = [
                    (f"`{option.name}`", f"`{option.default}`" if option.default else "", option.about)
                    for option in kind.options
                ]
                yield from table(("option", "default", "meaning"), rows)


def _values(preset: Preset) -> str:
    return "; ".join(f"`{section}: {value}`" for section, value in settings_of(preset).items())


def _command() -> Iterator[str]:
    yield "# The command\n"
    yield "Generated from the parser of the command line; `testbed VERB --help` prints the same.\n"
    yield f"```text\n{EXIT_CODES}```\n"
    os.environ["COLUMNS"] = "110"
    [verbs] = [action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    for name, parser in verbs.choices.items():
        yield f"## testbed {name}\n"
        yield f"```text\n{parser.format_help()}```\n"


def _tables() -> Iterator[str]:
    yield "# Tables of a run\n"
    yield "Generated from `testbed.results.columns`. `Run.tables[NAME]` is a pandas frame; `testbed export RUN"
    yield "--format csv` writes all of them. Times are seconds on the run's one clock.\n"
    for name, each in TABLES.items():
        yield f"## {name}\n"
        yield f"Events: {', '.join(f'`{kind}`' for kind in each.kinds)}.\n"
        rows = [(f"`{column.name}`", column.type, column.unit, column.meaning) for column in each.columns]
        yield from table(("column", "type", "unit", "meaning"), rows)


def _protocols() -> Iterator[str]:
    yield "# Base classes of the axes\n"
    yield "Generated from docstrings. The pages of [your own technique](../axes/README.md) explain each contract.\n"
    for name, axis in OPEN_AXES.items():
        base = axis.base_class()
        yield f"## {name}\n"
        yield f"::: {base.__module__}.{base.__qualname__}\n"
