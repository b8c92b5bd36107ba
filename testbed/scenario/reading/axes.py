"""Turns the table of an axis into the schema for the values of that axis in a scenario.

A bare word is the short form of a mapping: ``optimizer: adam`` is ``optimizer: {kind: adam}``. Options are declared as
all settings are (``testbed.declaration``), so a new technique changes nothing here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    PlainSerializer,
    PlainValidator,
    Tag,
    TypeAdapter,
    ValidationInfo,
    WithJsonSchema,
    create_model,
)
from pydantic_core import SchemaValidator, core_schema

from testbed.aggregation import AGGREGATION
from testbed.axes import Axis, AxisError, names_code, options_of
from testbed.codec.options import CODECS
from testbed.paradigms import PARADIGMS, REPLICAS
from testbed.policy.order import ORDERS
from testbed.policy.overlay import OVERLAYS
from testbed.policy.pipeline import PLACEMENTS, SCHEDULES
from testbed.policy.shard import SHARDS
from testbed.policy.sync import SYNC
from testbed.scenario.reading import quantities
from testbed.scenario.reading.document import Scalar
from testbed.scenario.reading.files import allows_code
from testbed.scenario.reading.leaves import leaf
from testbed.scenario.reading.models import dumped, made_model, reading
from testbed.scenario.reading.section import Made, ReadAs
from testbed.scenario.reading.violations import Violation, raise_found, violations_of
from testbed.suggest import nearest, suggestion
from testbed.training.options import DATASETS, LOADINGS, MODELS, OPTIMIZERS, SPLITS
from topologies.generators import GENERATORS
from topologies.traces.synthetic import SYNTHETIC

TIERS = ("tier1", "tier2")
CODE_PATTERN = r"^[^:]+(\.py)?:[A-Za-z_][A-Za-z0-9_]*$"
Table = Mapping[str, type[Any]]
AXES: Mapping[str, Table] = {
    "paradigm": PARADIGMS,
    "sync": SYNC,
    "optimizer": OPTIMIZERS,
    "codec": CODECS,
    "order": ORDERS,
    "overlay": OVERLAYS,
    "shard": SHARDS,
    "aggregation": AGGREGATION,
    "model": MODELS,
    "data": DATASETS,
    "split": SPLITS,
    "loading": LOADINGS,
    "generator": GENERATORS,
    "trace": SYNTHETIC,
    "schedule": SCHEDULES,
    "placement": PLACEMENTS,
    "replicas": REPLICAS,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Technique:
    """One value on one axis: the class that states the technique's properties, and its options, in SI units."""

    kind: str
    declared: type[Any]
    options: Any

    def resolved(self) -> dict[str, Any]:
        """Return kind and options as a scenario would write them."""
        return {"kind": self.kind, **dumped(_options_model(self.options.__class__), self.options, "json")}

    def violations(self, *at: str) -> list[Violation]:
        """Return the problems that the class of the options reports."""
        return violations_of(self.options, *at)


@dataclasses.dataclass(frozen=True, slots=True)
class PerTier:
    """One technique for each tier."""

    tier1: Technique
    tier2: Technique

    def __iter__(self) -> Iterator[tuple[str, Technique]]:
        return iter((("tier1", self.tier1), ("tier2", self.tier2)))


@cache
def of_axis(name: str, tiers: bool = False) -> ReadAs:
    """Return the reader of the techniques on an axis."""
    return per_tier(name, AXES[name]) if tiers else axis(name, AXES[name])


def axis(name: str, table: Table) -> ReadAs:
    """Return the reader of one technique: any kind of ``table``, in its short or long form.

    The model of a kind is made only when a scenario names the kind, as most scenarios name few kinds.
    """
    models: dict[str, type[BaseModel]] = {}
    validators: dict[str, SchemaValidator] = {}

    def read(value: Any, info: ValidationInfo) -> Technique:
        if isinstance(value, Technique):
            return value
        value = _long_form(value, table)
        kind = _known(value, table, info)
        entry: Any = table[kind]
        tag = _tag(kind)
        model = _model(name, kind, entry)
        if models.get(tag) is not model:  # a file of code may have changed
            # a union, so that errors carry the mark of the kind
            choices = core_schema.tagged_union_schema({tag: model.__pydantic_core_schema__}, _tag_of)
            models[tag] = model
            validators[tag] = SchemaValidator(choices)
        found = validators[tag].validate_python({**value, "kind": kind}, context=info.context)
        options = {key: value for key, value in found if key != "kind"}
        return Technique(kind, entry, options_of(entry)(**options))

    write = PlainSerializer(lambda technique: technique and technique.resolved())
    kinds = Annotated[Any, PlainValidator(read), write, _OrShort(table, lambda: _shipped(name, table))]
    return ReadAs(kinds, models)


def _shipped(name: str, table: Table) -> core_schema.CoreSchema:
    """Return the schema of the long form of all shipped kinds."""
    shipped = table.shipped if isinstance(table, Axis) else table
    union: Any = None
    for kind in shipped:
        entry: Any = shipped[kind]
        tagged: Any = Annotated[_model(name, kind, entry), Tag(_tag(kind))]
        union = tagged if union is None else union | tagged
    return TypeAdapter(Annotated[union, Discriminator(_tag_of)]).core_schema


_TIERS = ("tier1", "tier2")


def per_tier(name: str, table: Table) -> ReadAs:
    """Return the reader of a technique for each tier; a single technique is for both tiers."""
    kind = axis(name, table)
    fields: dict[str, Any] = {
        "tier1": (Annotated[Technique, kind], Field(description="workers to their local server (LAN)")),
        "tier2": (Annotated[Technique, kind], Field(description="local servers to the global servers (WAN)")),
    }
    model = create_model(f"{name.title()}PerTier", __base__=Made, **fields)

    def expand(value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, Scalar | str) or (isinstance(value, dict) and "kind" in value):
            found = table[_known(_long_form(value, table), table, info)]
            partner = getattr(found, "partner", "")
            return {"tier1": _partner_of(value, table[partner], partner) if partner else value, "tier2": value}
        if isinstance(value, dict) and not any(nearest(str(key), _TIERS) for key in value):
            return _long_form(value, table)  # options without 'kind', which it refuses
        return value

    both = reading(model, PerTier)
    return ReadAs(Annotated[both, BeforeValidator(expand), _OrShort(table)])


def _partner_of(value: Any, declared: type[Any], kind: str) -> Any:
    """Return the partner of a technique, with the written values of the options that both have."""
    shared = {each.name for each in dataclasses.fields(options_of(declared))}
    if not isinstance(value, dict) or not shared:
        return kind
    return {"kind": kind, **{name: given for name, given in value.items() if name in shared}}


def _written(table: Table) -> list[str]:
    """Return the kinds that a scenario may write, without those that follow from its workload."""
    shipped = table.shipped if isinstance(table, Axis) else table  # others have no workload, and are not imported here
    return [kind for kind in table if not getattr(shipped.get(kind), "of_workload", False)]


def _long_form(value: Any, table: Table) -> dict[str, Any]:
    value = {"kind": value} if isinstance(value, Scalar | str) else value
    if not isinstance(value, dict):
        raise quantities.refuse(
            "expected a word, or a mapping with 'kind', got a list", f"one of {', '.join(_written(table))}"
        )
    if "kind" not in value:
        raise_found([Violation(("kind",), "required key is missing", f"one of {', '.join(_written(table))}")])
    return value


def kind_of(table: Axis[Any]) -> ReadAs:
    """Return the reader of an optional kind of ``table`` without options.

    The data that such a kind reads become part of the scenario, so its code is noted in the context's list ``code``.
    """

    def read(value: Any, info: ValidationInfo) -> str | None:
        if quantities.is_null(value):
            return None
        kind = _known({"kind": value}, table, info, at=())
        if (code := table.code_of(kind)) is not None:
            (info.context or {}).get("code", []).append(code)
        return kind

    either = [{"enum": list(table)}, {"type": "string", "pattern": CODE_PATTERN}]
    return ReadAs(Annotated[str | None, BeforeValidator(read), WithJsonSchema({"anyOf": either})])


def _known(value: dict[str, Any], table: Table, info: ValidationInfo, at: tuple[str, ...] = ("kind",)) -> str:
    """Return the kind as ``table`` knows it, with the absolute path of a file. Import code only if it is allowed."""
    kind = quantities.text_of(value["kind"])
    if isinstance(table, Axis) and table.is_open and names_code(kind):
        if not allows_code(info):
            problem = f"'{kind}' names code, but this file is not at or below the working directory"
            raise_found([Violation(at, problem, "read that code first, then give --allow-code")])
    elif kind not in table and kind not in getattr(table, "removed", ()):  # the axis refuses these
        written = _written(table)
        cure = suggestion(kind, written) or (table.own_class(kind) if isinstance(table, Axis) else "")
        raise_found([Violation(at, f"'{kind}' is not one of {', '.join(written)}", cure)])
    if isinstance(table, Axis):
        try:
            kind = table.resolve(kind, (info.context or {}).get("folder"))
            table[kind]
        except AxisError as error:
            raise_found([Violation(at, error.problem, error.hint)])
    return kind


def _tag(kind: str) -> str:
    """Return the mark of a kind in the location of an error, which cannot be mistaken for a key."""
    return f"<{kind}>"


def _tag_of(value: Any) -> str | None:
    return _tag(quantities.text_of(value["kind"])) if isinstance(value, dict) else None


@cache
def _model(axis_name: str, kind: str, entry: Any) -> type[BaseModel]:
    this_kind = (Annotated[str, quantities.one_of(kind)], ...)
    return made_model(f"{axis_name}_{kind}", options_of(entry), _name_of, _leaf_of, kind=this_kind)


@cache
def _options_model(options: Any) -> type[BaseModel]:
    return made_model(options.__name__, options, _name_of, _leaf_of)


def _name_of(option: dataclasses.Field[Any]) -> str:
    return option.name


def _leaf_of(hint: Any, facts: Mapping[str, Any]) -> Any:
    if "axis" in facts:
        return Annotated[hint, of_axis(facts["axis"])]
    return Annotated[hint, leaf(hint, facts)]


@dataclasses.dataclass(frozen=True)
class _OrShort:
    """Adds to the JSON Schema the short form, installed kinds and, on an open axis, paths of code."""

    table: Table
    long: Callable[[], core_schema.CoreSchema] | None = None  # the long form, where the type does not say it

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        forms: list[dict[str, Any]] = [{"enum": list(self.table)}, handler(self.long() if self.long else schema)]
        if isinstance(self.table, Axis) and self.table.is_open:
            installed = [kind for kind in self.table if kind not in self.table.shipped]
            path = {"type": "string", "pattern": CODE_PATTERN}
            outside = {"anyOf": [path, {"enum": installed}]} if installed else path
            forms += [outside, {"type": "object", "properties": {"kind": outside}, "required": ["kind"]}]
        return {"anyOf": forms}
