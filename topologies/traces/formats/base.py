"""The contract of a trace format; ``docs/axes/trace.md`` explains it with a worked example."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from topologies.text_file import TextFile
from topologies.traces.model import WHAT, Reading, Trace


class TraceFormat(ABC):
    """Reads one format of traces.

    about   one line about it for tables and messages
    holds   the quantities that it can hold
    takes   the settings of a ``Reading`` that have an effect on it, by their names in a scenario
    units   the unit of a file's values, by quantity, unless the settings name another one
    loops   whether the tools that use the format repeat a trace from its end
    sample  the text of a small file, which ``testbed check`` reads
    """

    Options: ClassVar = Reading
    about: ClassVar[str] = ""
    holds: ClassVar[tuple[str, ...]] = WHAT
    takes: ClassVar[tuple[str, ...]] = ()
    units: ClassVar[Mapping[str, str]] = {}
    loops: ClassVar[bool] = False
    sample: ClassVar[str] = ""

    @staticmethod
    @abstractmethod
    def parse(file: TextFile, reading: Reading) -> Trace:
        """Return the trace in SI units, from 0 s on. Refuse the file with ``file.refuse(line, problem, cure)``."""
