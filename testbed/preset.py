"""A preset: values on several axes that together make a technique. The class of the technique declares it.

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

    summary   what the technique does, with its main numbers, as part of a sentence
    source    the paper or system from which it comes
    settings  values by section, as a scenario would write them. On the axis of the class that declares the preset, a
              mapping without ``kind`` gets that class as its kind. If the scenario has another optimizer than the
              preset, the preset's optimizer is left out
    defining  paths of the settings that define the technique, in addition to the kind on its own axis; with another
              value it would be another technique
    """

    name: str
    summary: str
    source: str
    settings: Mapping[str, Any]
    defining: tuple[str, ...] = ()
