"""Several real nodes on one event loop, over loopback sockets: fast, and easy to look into."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from testbed.plan.model import Plan
from testbed.realtime.auth import Credentials, new_credentials
from testbed.realtime.node import AnyRole, run_node
from testbed.realtime.processor import Tokens
from testbed.realtime.setup import ConnectionLimits, NodeSetup
from testbed.realtime.sockets import listen
from tests.contract.tiny import tiny_plan


class MemoryLog:
    """An event log in memory."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def write(self, kind: str, t: float, **fields: Any) -> None:
        self.events.append({"t": t, "kind": kind, **fields})

    def append(self, event: msgspec.Struct) -> None:
        fields = msgspec.structs.asdict(event)
        self.events.append({name: value for name, value in fields.items() if name != "node"})

    def flush(self) -> None:
        pass


class InProcess:
    """``run_worlds`` of the contract suite; ``credentials`` may be set per node to let one be wrong."""

    def __init__(self, limits: ConnectionLimits | None = None, tls: bool = False) -> None:
        self.limits, self.tls = limits or ConnectionLimits(), tls
        self.logs: dict[str, MemoryLog] = {}
        self.progress: list[dict[str, Any]] = []
        self.credentials: dict[str, Credentials] = {}
        self.addresses: dict[str, tuple[str, int]] = {}

    def __call__(self, programs: Mapping[str, AnyRole], plan: Plan | None = None) -> dict[str, Any]:
        return asyncio.run(self._run(programs, plan or tiny_plan(programs)))

    def events(self, node: str) -> list[dict[str, Any]]:
        return self.logs[node].events

    async def _run(self, programs: Mapping[str, AnyRole], plan: Plan) -> dict[str, Any]:
        listeners = {name: listen(("127.0.0.1", 0)) for name in programs}
        self.addresses = {name: sock.getsockname() for name, sock in listeners.items()}
        self.logs = {name: MemoryLog() for name in programs}
        common, tokens, epoch_ns = new_credentials(self.tls), Tokens.make(2), time.monotonic_ns()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    name: group.create_task(
                        run_node(
                            NodeSetup(
                                plan=plan,
                                name=name,
                                addresses=self.addresses,
                                listener=listeners[name],
                                credentials=self.credentials.get(name, common),
                                epoch_ns=epoch_ns,
                                tokens=tokens,
                                limits=self.limits,
                            ),
                            program,
                            self.logs[name],
                            self.progress.append,
                        )
                    )
                    for name, program in programs.items()
                }
        except BaseExceptionGroup as group_of_errors:
            raise group_of_errors.exceptions[0] from None
        finally:
            tokens.close()
        return {name: task.result() for name, task in tasks.items()}
