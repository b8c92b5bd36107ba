"""What measurements use of an emulated network that is up."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from emulation.layout import Layout
from testbed.plan.model import Plan


class BuiltNetwork(Protocol):
    """The part of ``emulation.network.Emulation`` that measurements use."""

    @property
    def plan(self) -> Plan: ...
    @property
    def layout(self) -> Layout: ...
    def namespace_path(self, node_name: str) -> str: ...
    def address(self, node_name: str) -> str: ...
    def measuring(self) -> AbstractContextManager[None]: ...
