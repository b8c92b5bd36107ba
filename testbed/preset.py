"""A preset: the values of several axes that together make a technique, declared beside the class that carries it.

    class Hfa(Fsa):
        presets = (
            Preset(
                name="hfa",
                summary="five local steps; every fourth average of a data centre crosses the WAN",
                source="GeoMX",
                settings={"sync": {"k1": 5, "k2": 4}},
            ),
        )

A scenario chooses it by ``technique: hfa`` (``testbed.scenario.presets``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A technique by name.

    summary   what it does, with its main numbers, as part of a sentence
    source    where it comes from: a paper, or a system
    settings  values by section, as a scenario would write them. A mapping without ``kind``, on the axis of the class
              that declares the preset, has that class as its kind. Where the scenario has another optimizer than the
              preset, the preset's optimizer is left out
    defining  paths of settings without which it is another technique, beside the kind on its own axis
    """

    name: str
    summary: str
    source: str
    settings: Mapping[str, Any]
    defining: tuple[str, ...] = ()
