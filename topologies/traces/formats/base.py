"""The contract of a trace format; ``docs/axes/trace.md`` explains it with a worked example."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from topologies.traces.model import Reading, TextFile, Trace


class TraceFormat(ABC):
    """Reads one format of traces.

    about  one line for tables and messages
    takes  the settings of a ``Reading`` that have an effect on it, by their names in a scenario
    loops  whether the tools that it comes from repeat it from its end
    sample  the text of a small file, which ``testbed check`` reads
    """

    Options: ClassVar = Reading
    about: ClassVar[str] = ""
    takes: ClassVar[tuple[str, ...]] = ()
    loops: ClassVar[bool] = False
    sample: ClassVar[str] = ""

    @staticmethod
    @abstractmethod
    def parse(file: TextFile, reading: Reading) -> Trace:
        """Return the trace in SI units, from 0 s on. Refuse the file with ``file.refuse(line, problem, cure)``."""
