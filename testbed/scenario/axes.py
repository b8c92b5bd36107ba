"""From a table of techniques (kind -> its frozen options dataclass) to what a scenario may write on that axis.

A bare word is the short form of a mapping: ``optimizer: adam`` is ``optimizer: {kind: adam}``. The options' types come
from the dataclass; ``min``, ``max``, ``above``, ``choices``, ``unit`` and ``help`` from its fields' metadata. So a new
technique is one line in its own table, and nothing changes here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import NoneType
from typing import Annotated, Any, ClassVar, get_args, get_type_hints

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    Tag,
    create_model,
)
from pydantic_core import PydanticUndefined, core_schema

from testbed.scenario import quantities
from testbed.scenario.document import Scalar
from testbed.scenario.rules import Violation, raise_found
from testbed.scenario.suggest import suggestion

TIERS = ("tier1", "tier2")
_UNITS = {
    "bit/s": quantities.RATE,
    "s": quantities.DURATION,
    "bytes": quantities.SIZE,
    "share": quantities.SHARE,
}


class Section(BaseModel):
    """A mapping of the scenario: nothing unknown in it, and never changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True)


class Technique(Section):
    """One value on one axis, with its options."""

    model_config = ConfigDict(use_attribute_docstrings=False)  # made, not written: to look for a source takes a second
    kind: str

    _entry: ClassVar[type[Any]]

    def trait(self, name: str) -> Any:
        """A class constant of the options dataclass, such as which data a model takes; ``None`` without one."""
        return getattr(self._entry, name, None)

    def options(self) -> dict[str, Any]:
        """The options in SI units, defaults included."""
        return self.model_dump(exclude={"kind"})

    def made(self) -> Any:
        """The options as the dataclass of their owner."""
        return self._entry(**self.options())


class PerTier(Section):
    """One technique for each tier."""

    model_config = ConfigDict(use_attribute_docstrings=False)
    tier1: Technique
    tier2: Technique


@dataclasses.dataclass(frozen=True)
class AxisSchema:
    """Goes into ``Annotated[Technique, shape]``; the type that is really read stands in ``kind``."""

    kind: Any

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        schema = handler.generate_schema(self.kind)
        if NoneType not in get_args(source):
            return schema
        before = core_schema.nullable_schema(schema)
        return core_schema.no_info_before_validator_function(_null_to_none, before)


def axis(name: str, table: Mapping[str, type[Any]]) -> AxisSchema:
    """What a scenario may write for one axis: any kind of ``table``, short or long."""
    models = [Annotated[_model(name, kind, entry), Tag(tag_of(kind))] for kind, entry in table.items()]
    union = models[0]
    for model in models[1:]:
        union = union | model

    def expand(value: Any) -> Any:
        value = {"kind": value} if isinstance(value, Scalar | str) else value
        if isinstance(value, dict):
            _check_kind(value, tuple(table))
        elif not isinstance(value, Technique):
            raise quantities.refuse(
                "expected a word, or a mapping with 'kind', got a list", f"one of {', '.join(table)}"
            )
        return value

    short = {"enum": list(table)}
    return AxisSchema(Annotated[union, Discriminator(_tag), BeforeValidator(expand), _OrShort(short)])


def per_tier(name: str, table: Mapping[str, type[Any]]) -> AxisSchema:
    """Two values of one axis, one for each tier; one alone stands for both."""
    kind = axis(name, table)
    fields: dict[str, Any] = {
        "tier1": (Annotated[Technique, kind], Field(description="workers to their local server (LAN)")),
        "tier2": (Annotated[Technique, kind], Field(description="local servers to the global servers (WAN)")),
    }
    model = create_model(f"{name.title()}PerTier", __base__=PerTier, **fields)

    def expand(value: Any) -> Any:
        if isinstance(value, Scalar | str) or (isinstance(value, dict) and "kind" in value):
            return {"tier1": _below(value, table), "tier2": value}
        return value

    return AxisSchema(Annotated[model, BeforeValidator(expand), _OrShort({"enum": list(table)})])


def _below(value: Any, table: Mapping[str, type[Any]]) -> Any:
    """What stands on tier 1 when ``value`` alone is given: itself, or its partner if it stands on the WAN only."""
    kind = value.get("kind") if isinstance(value, dict) else value
    text = kind.text if isinstance(kind, Scalar) else str(kind)
    return getattr(table.get(text), "partner", None) or value


@dataclasses.dataclass(frozen=True)
class _OrShort:
    """Adds the short form to the JSON Schema."""

    short: dict[str, Any]

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"anyOf": [self.short, handler(schema)]}


def _null_to_none(value: Any) -> Any:
    return None if quantities.is_null(value) else value


def short(kind: str) -> Any:
    """A technique without options, as the default of a field."""
    return Field(default=kind)


def tag_of(kind: str) -> str:
    """How a kind is marked in the place of an error, to be told apart from a key."""
    return f"<{kind}>"


def _tag(value: Any) -> str | None:
    if isinstance(value, dict):
        return tag_of(quantities.text_of(value["kind"]))
    return tag_of(value.kind) if isinstance(value, Technique) else None


def _check_kind(value: dict[str, Any], kinds: tuple[str, ...]) -> None:
    if "kind" not in value:
        raise_found([Violation(("kind",), "required key is missing", f"one of {', '.join(kinds)}")])
    kind = quantities.text_of(value["kind"])
    if kind not in kinds:
        raise_found([Violation(("kind",), f"'{kind}' is not one of {', '.join(kinds)}", suggestion(kind, kinds))])


def _model(axis_name: str, kind: str, entry: type[Any]) -> type[Technique]:
    """The pydantic model of one kind, made from the options dataclass of its owner."""
    options = getattr(entry, "Options", entry)
    hints = get_type_hints(options)
    fields: dict[str, Any] = {"kind": (Annotated[str, quantities.one_of(kind)], ...)}
    for option in dataclasses.fields(options):
        default = PydanticUndefined if option.default is dataclasses.MISSING else option.default
        description = option.metadata.get("help")
        hint: Any = hints[option.name]
        fields[option.name] = (Annotated[hint, leaf(hint, option.metadata)], Field(default, description=description))
    documentation = (options.__doc__ or "").strip()
    model = create_model(f"{axis_name}_{kind}", __base__=Technique, __doc__=documentation, **fields)
    model._entry = options
    return model


def leaf(hint: Any, metadata: Mapping[str, Any]) -> quantities.FieldType:
    """The leaf for one option of type ``hint``."""
    if "unit" in metadata:
        return _UNITS[metadata["unit"]]
    if "choices" in metadata:
        return quantities.one_of(*metadata["choices"])
    if hint is bool:
        return quantities.BOOLEAN
    if hint is int:
        return quantities.integer(metadata.get("min", 0), metadata.get("max", 10**12))
    if hint is float:
        above = "above" in metadata
        return quantities.number(metadata.get("above", metadata.get("min", 0)), metadata.get("max", 1e12), above)
    assert hint is str, f"an option of type {hint} needs a rule here"
    return quantities.TEXT
