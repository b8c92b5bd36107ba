"""The look of every technique, back end and part of the time, the same in every figure: label, colour, marker, line.

Colours are those of Okabe and Ito's palette, which can be told apart with any colour vision; markers and lines differ,
too. The tables also define the order of legends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

from testbed.aggregation import AGGREGATION
from testbed.axes import Axis
from testbed.codec.options import CODECS
from testbed.facilities import facilities_of
from testbed.paradigms import PARADIGMS, Paradigm
from testbed.placeholders import title_of
from testbed.policy.order import ORDERS
from testbed.policy.overlay import OVERLAYS
from testbed.policy.shard import SHARDS
from testbed.policy.sync import SYNC


@dataclass(frozen=True, slots=True)
class Identity:
    """The look of one object in figures."""

    label: str
    color: str
    marker: str = "o"
    line: str = "-"
    hollow: bool = False  # markers of predictions are hollow


PIPELINE = next(kind for kind, paradigm in PARADIGMS.shipped.items() if paradigm.cuts_models)
TECHNIQUES: dict[str, Identity] = {  # in the order of legends and tables
    "fsa": Identity("FSA", "#0072B2", "o"),
    "bsp": Identity("BSP", "#000000", "s"),
    "mixedsync": Identity("MixedSync", "#E69F00", "^"),
    "hfa": Identity("HFA", "#009E73", "D"),
    "esync": Identity("ESync", "#CC79A7", "v"),
    "dgt": Identity("DGT", "#D55E00", "P"),
    "tsengine": Identity("TSEngine", "#56B4E9", "X"),
    "p3": Identity("P3", "#7A5195", "<"),
    "fp16": Identity("FP16", "#666666", ">"),
    "bisparse": Identity("Bi-Sparse", "#A6761D", "h"),
    "mpq": Identity("MPQ", "#882255", "p"),
    "multigps": Identity("MultiGPS", "#E7298A", "*"),
    "ssp": Identity("SSP", "#5C6BC0", "d"),
    "diloco": Identity("DiLoCo", "#8D6E63", "H"),
    "allreduce": Identity("All-reduce", "#455A64", "8"),
    "pipeline": Identity("Pipeline", "#6D4C41", "P", "-."),
    "gpipe": Identity("GPipe", "#6D4C41", "o", ":"),
    "1f1b": Identity("1F1B", "#6D4C41", "s", "--"),
    "interleaved": Identity("Interleaved", "#6D4C41", "^", "-."),
    "zero_bubble": Identity("Zero bubble", "#6D4C41", "D", "-."),
    "greedy": Identity("Greedy", "#6D4C41", "v"),
    "gossip": Identity("Gossip", "#9E9D24", "*"),
    "tap": Identity("TAP", "#D55E00", "^", "--"),
    "dcasgd": Identity("DC-ASGD", "#7A5195", "s", "--"),
    "ps": Identity("Flat PS", "#3F3F3F", "s", "-."),
    "tree": Identity("Tree", "#56B4E9", "<", "--"),
    "twobit": Identity("2-bit", "#E69F00", "X", "--"),
    "dgc": Identity("DGC", "#CC79A7", "P", "--"),
    "topk": Identity("Top-k", "#0072B2", "v", "--"),
    "mstopk": Identity("MSTopK", "#56B4E9", "D", ":"),
    "randomk": Identity("Random-k", "#666666", "x", ":"),
    "netstorm": Identity("NetStorm", "#D55E00", "o", ":"),
    "gloo": Identity("Gloo", "#455A64", "X", "--"),
    "none": Identity("dense", "#20242C", "o"),
}

BACK_ENDS: dict[str, Identity] = {
    "emulate": Identity("emulated", "#333333", line="-"),
    "exact": Identity("exact", "#333333", line="-"),
    "simulate": Identity("simulated", "#333333", line="--", hollow=True),
    "local": Identity("local", "#333333", line=":"),
    "cluster": Identity("deployed", "#333333", line="-."),
}

PARTS: dict[str, Identity] = {
    "compute": Identity("compute", "#009E73"),
    "codec": Identity("codec", "#CC79A7"),
    "lan": Identity("LAN", "#56B4E9"),
    "wan": Identity("WAN", "#D55E00"),
    "waiting": Identity("waiting", "#C9CDD2"),
}

_SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5195", "#666666", "#A6761D", "#000000")
_MARKERS = "osD^vPX<>h"

_AXES: dict[str, Axis[Any]] = {  # field of the Plan's technique
    "sync_tier2": SYNC,
    "sync_tier1": SYNC,
    "order": ORDERS,
    "overlay_tier2": OVERLAYS,
    "overlay_tier1": OVERLAYS,
    "codec_tier2": CODECS,
    "codec_tier1": CODECS,
    "shard": SHARDS,
    "aggregation_tier2": AGGREGATION,
    "aggregation_tier1": AGGREGATION,
}


def technique_of(plan: Mapping[str, Any]) -> str:
    """Return the short name of a Plan's technique, such as ``hfa+fp16``; for a user's program, the program's name.

    The name has a pipeline with its schedule, a paradigm without servers, and every value that is not the default of
    its axis, in the order of ``_AXES``. If all are defaults, it is the synchronisation algorithm.
    """
    if program := plan.get("program"):
        return title_of(program["command"] or program["first"])
    kinds = {axis: str(value["kind"]) for axis, value in plan["technique"].items()}
    chosen = {field: kinds.get(field, axis.default) for field, axis in _AXES.items()}  # older runs lack some axes
    named = [chosen[field] for field, axis in _AXES.items() if chosen[field] != axis.default]
    if not PARADIGMS.get(kinds["paradigm"], Paradigm).tiers:  # an older run may have a kind that no longer exists
        named.insert(0, kinds["paradigm"])
    if pipeline := plan.get("pipeline"):
        named = [PIPELINE, pipeline["schedule"]["kind"], *named]
    return "+".join(dict.fromkeys(named)) or kinds["sync_tier2"]


def technique(name: str) -> Identity:
    """Return the look of a name made by ``technique_of``. A combination looks like its first technique."""
    looks = [look_of(part) for part in name.split("+")]
    return replace(looks[0], label=" + ".join(look.label for look in looks))


def look_of(name: str, label: str | None = None) -> Identity:
    """Return the look of one technique, with ``label`` instead of its own label if given.

    A user's technique (``package.module:Class`` or ``path/file.py:Class``) is labelled by its class. Its colour and
    marker are derived from the class name, so that they are the same in every figure.
    """
    look = TECHNIQUES.get(name) or _from_elsewhere(name.rpartition(":")[2])
    return replace(look, label=label) if label else look


def _from_elsewhere(name: str) -> Identity:
    place = crc32(name.encode())
    return Identity(name, _SERIES[place % len(_SERIES)], _MARKERS[place // len(_SERIES) % len(_MARKERS)], ":")


def series(number: int, label: str = "") -> Identity:
    """Return the look of the ``number``-th of several objects of one kind: data centres, links, seeds.

    Each time the colours repeat, the markers shift by one, so that a hundred looks differ.
    """
    again, colour = divmod(number, len(_SERIES))
    return Identity(label or str(number), _SERIES[colour], _MARKERS[(number + again) % len(_MARKERS)])


def of_world(plan: Mapping[str, Any]) -> Identity:
    """Return the look of the world in which a run was made."""
    return BACK_ENDS[facilities_of(plan).name]


def of_runs(plans: list[Mapping[str, Any]]) -> list[Identity]:
    """Return one look per run: colour by technique and line by back end; if two were alike, colours by position."""
    found = []
    for plan in plans:
        known = technique(technique_of(plan))
        where = of_world(plan)
        found.append(replace(known, label=f"{known.label}, {where.label}", line=where.line, hollow=where.hollow))
    labels = _told_apart([look.label for look in found], plans)
    found = [replace(look, label=label) for look, label in zip(found, labels, strict=True)]
    return _distinct(found)


def of_points(plans: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> list[Identity]:
    """Return one look per point of a sweep, with its label: colour by technique; if two were alike, by position."""
    return _distinct(
        [replace(technique(technique_of(plan)), label=label) for plan, label in zip(plans, labels, strict=True)]
    )


def _distinct(looks: list[Identity]) -> list[Identity]:
    if len({(look.color, look.marker, look.line) for look in looks}) == len(looks):
        return looks
    return [
        replace(look, color=series(number).color, marker=series(number).marker) for number, look in enumerate(looks)
    ]


def _told_apart(labels: Sequence[str], plans: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return distinct labels: equal ones get the scenario's name, the seed, or else a number appended."""
    found = list(labels)
    for label in {label for label in labels if labels.count(label) > 1}:
        alike = [place for place, each in enumerate(labels) if each == label]
        ways = ([f"{plans[place]['name']}" for place in alike], [f"seed {plans[place]['seed']}" for place in alike])
        numbered = [str(place + 1) for place in alike]
        told = next((way for way in ways if len(set(way)) == len(alike)), numbered)
        for place, suffix in zip(alike, told, strict=True):
            found[place] = f"{label}, {suffix}"
    return found
