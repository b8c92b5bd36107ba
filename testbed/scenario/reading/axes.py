"""From the table of an axis to what a scenario may write on that axis.

A bare word is the short form of a mapping: ``optimizer: adam`` is ``optimizer: {kind: adam}``. The options' types come
from the technique's options dataclass, ``min``, ``max``, ``above``, ``choices``, ``unit`` and ``help`` from its fields'
metadata. So a new technique changes nothing here. The models of shipped techniques are made once; those of
techniques from outside (``testbed.axes``) when a scenario names them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, get_type_hints

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    PlainSerializer,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    WrapValidator,
    create_model,
)
from pydantic_core import PydanticUndefined, SchemaValidator, core_schema

from testbed.axes import LIMITS, Axis, AxisError, limits_of, names_code, options_of
from testbed.scenario.reading import quantities
from testbed.scenario.reading.document import Scalar
from testbed.scenario.reading.files import allows_code
from testbed.scenario.reading.section import Made, ReadAs
from testbed.scenario.reading.suggest import suggestion
from testbed.scenario.reading.violations import Violation, raise_found

TIERS = ("tier1", "tier2")
CODE_PATTERN = r"^[^:]+(\.py)?:[A-Za-z_][A-Za-z0-9_]*$"
_UNITS = {"bit/s": quantities.RATE, "s": quantities.INSTANT, "bytes": quantities.SIZE, "share": quantities.SHARE}
Table = Mapping[str, type[Any]]


class Technique(Made):
    """One value on one axis, with its options. ``declared`` is the class that states the technique's properties."""

    kind: str

    declared: ClassVar[type[Any]]

    @property
    def options(self) -> Any:
        """The options dataclass of the technique's owner, with SI values."""
        return options_of(self.declared)(**{name: value for name, value in self if name != "kind"})

    def violations(self, *at: str) -> Iterator[Violation]:
        """Yield what the options' owner finds wrong in them: ``problems()`` yields option, problem and cure."""
        for option, problem, hint in getattr(self.options, "problems", tuple)():
            yield Violation((*at, option), problem, hint)


class PerTier(Made):
    """One technique for each tier."""

    tier1: Technique
    tier2: Technique


def axis(name: str, table: Table) -> ReadAs:
    """Return what a scenario may write for one axis: any kind of ``table``, short or long."""
    shipped = table.shipped if isinstance(table, Axis) else table
    union: Any = None
    for kind, entry in shipped.items():
        tagged: Any = Annotated[_model(name, kind, entry), Tag(_tag(kind))]
        union = tagged if union is None else union | tagged
    opened: dict[str, type[Technique]] = {}

    def read(value: Any, handler: Callable[[Any], Any], info: ValidationInfo) -> Any:
        if isinstance(value, Technique):
            return handler(value) if value.kind in shipped else value
        value = _long_form(value, table)
        kind = _known(value, table, info)
        if kind in shipped:
            return handler(value)
        tag = _tag(kind)
        entry = table[kind]
        if tag not in opened or opened[tag].declared is not entry:  # its file may have been edited
            opened[tag] = _model(name, kind, entry)
        # as a member of the union would be, so that errors carry the mark of the kind
        choices = core_schema.tagged_union_schema({tag: opened[tag].__pydantic_core_schema__}, _tag_of)
        return SchemaValidator(choices).validate_python({**value, "kind": kind}, context=info.context)

    kinds = Annotated[union, Discriminator(_tag_of), WrapValidator(read), _WRITTEN, _OrShort(table)]
    return ReadAs(kinds, opened)


_WRITTEN = PlainSerializer(lambda technique, info: technique.model_dump(mode=info.mode))


def per_tier(name: str, table: Table) -> ReadAs:
    """Return what a scenario may write for an axis that differs by tier; one technique alone stands for both tiers."""
    kind = axis(name, table)
    fields: dict[str, Any] = {
        "tier1": (Annotated[Technique, kind], Field(description="workers to their local server (LAN)")),
        "tier2": (Annotated[Technique, kind], Field(description="local servers to the global servers (WAN)")),
    }
    model = create_model(f"{name.title()}PerTier", __base__=PerTier, **fields)

    def expand(value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, Scalar | str) or (isinstance(value, dict) and "kind" in value):
            found = table[_known(_long_form(value, table), table, info)]
            return {"tier1": getattr(found, "partner", "") or value, "tier2": value}
        return value

    return ReadAs(Annotated[model, BeforeValidator(expand), _OrShort(table)])


def short(kind: str) -> Any:
    """Return the default of a field: a technique without options."""
    return Field(default=kind)


def _long_form(value: Any, table: Table) -> dict[str, Any]:
    value = {"kind": value} if isinstance(value, Scalar | str) else value
    if not isinstance(value, dict):
        raise quantities.refuse("expected a word, or a mapping with 'kind', got a list", f"one of {', '.join(table)}")
    if "kind" not in value:
        raise_found([Violation(("kind",), "required key is missing", f"one of {', '.join(table)}")])
    return value


def kind_of(table: Axis[Any]) -> Any:
    """Return what a scenario may write where a kind of ``table`` stands alone, without options, or nothing.

    What such a kind reads becomes part of the scenario, so its code is noted in the context's list ``code``.
    """

    def read(value: Any, info: ValidationInfo) -> str | None:
        if quantities.is_null(value):
            return None
        kind = _known({"kind": value}, table, info, at=())
        if (code := table.code_of(kind)) is not None:
            (info.context or {}).get("code", []).append(code)
        return kind

    either = [{"enum": list(table)}, {"type": "string", "pattern": CODE_PATTERN}]
    return Annotated[str | None, BeforeValidator(read), WithJsonSchema({"anyOf": either})]


def _known(value: dict[str, Any], table: Table, info: ValidationInfo, at: tuple[str, ...] = ("kind",)) -> str:
    """Return the kind as ``table`` knows it: the path of a file becomes absolute. Imports code that is allowed only."""
    kind = quantities.text_of(value["kind"])
    if isinstance(table, Axis) and table.is_open and names_code(kind):
        if not allows_code(info):
            problem = f"'{kind}' names code, and this file is not at or below the working directory"
            raise_found([Violation(at, problem, "read that code first, then give --allow-code")])
    elif kind not in table and kind not in getattr(table, "removed", ()):  # the axis refuses these
        raise_found([Violation(at, f"'{kind}' is not one of {', '.join(table)}", suggestion(kind, table))])
    if isinstance(table, Axis):
        try:
            kind = table.resolve(kind, (info.context or {}).get("folder"))
            table[kind]
        except AxisError as error:
            raise_found([Violation(at, error.problem, error.hint)])
    return kind


def _tag(kind: str) -> str:
    """Return the mark of a kind in the place of an error, which no key looks like."""
    return f"<{kind}>"


def _tag_of(value: Any) -> str | None:
    if isinstance(value, dict):
        return _tag(quantities.text_of(value["kind"]))
    return _tag(value.kind) if isinstance(value, Technique) else None


def _model(axis_name: str, kind: str, entry: type[Any]) -> type[Technique]:
    options = options_of(entry)
    hints = get_type_hints(options)
    fields: dict[str, Any] = {"kind": (Annotated[str, quantities.one_of(kind)], ...)}
    for option in dataclasses.fields(options):
        default = PydanticUndefined if option.default is dataclasses.MISSING else option.default
        description = option.metadata.get("help")
        hint: Any = hints[option.name]
        fields[option.name] = (Annotated[hint, leaf(hint, option.metadata)], Field(default, description=description))
    documentation = (options.__doc__ or "").strip()
    model = create_model(f"{axis_name}_{kind}", __base__=Technique, __doc__=documentation, **fields)
    model.declared = entry
    return model


def leaf(hint: Any, metadata: Mapping[str, Any]) -> quantities.FieldType:
    if "unit" in metadata:
        unit = _UNITS[metadata["unit"]]
        if not LIMITS.isdisjoint(metadata):
            unit = quantities.within(unit, *limits_of(hint, metadata))
        return quantities.or_word(unit, metadata["words"]) if "words" in metadata else unit
    if "choices" in metadata:
        return quantities.one_of(*metadata["choices"])
    if hint is bool:
        return quantities.BOOLEAN
    low, high, above = limits_of(hint, metadata)
    if hint is int:
        return quantities.integer(low + above, high)
    if hint is float:
        return quantities.number(low, high, above)
    assert hint is str, f"an option of type {hint} needs a leaf here"  # of techniques from outside: Axis._load
    return quantities.TEXT


@dataclasses.dataclass(frozen=True)
class _OrShort:
    """Adds to the JSON Schema the short form, installed kinds and, on an open axis, paths of code."""

    table: Table

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        forms: list[dict[str, Any]] = [{"enum": list(self.table)}, handler(schema)]
        if isinstance(self.table, Axis) and self.table.is_open:
            installed = [kind for kind in self.table if kind not in self.table.shipped]
            path = {"type": "string", "pattern": CODE_PATTERN}
            outside = {"anyOf": [path, {"enum": installed}]} if installed else path
            forms += [outside, {"type": "object", "properties": {"kind": outside}, "required": ["kind"]}]
        return {"anyOf": forms}
