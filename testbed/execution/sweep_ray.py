"""Points of a sweep as tasks of Ray. Each task reports that it has begun, and later its result."""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Sequence
from typing import Any

from testbed.cluster.connection import ClusterMachine, import_ray, machines
from testbed.cluster.machines import SLOT
from testbed.execution.sweep_cluster import PointNeeds, PointReport
from testbed.execution.sweep_machine import PointBroken, PointTask
from testbed.execution.sweep_worker import PointLost, PointStarted, run_task

_LOOK_S = 0.5


class RayTasks:
    """The tasks of one sweep on the cluster that this process has joined."""

    def __init__(self) -> None:
        self._ray = import_ray()
        self._remote = self._ray.remote(run_task)
        self._contents: dict[str, Any] = {}
        self._streams: dict[Any, str] = {}
        self._machines: list[ClusterMachine] = []
        self._look_s = -math.inf

    def machines(self) -> list[ClusterMachine]:
        """See ``PointTasks``. The list is at most ``_LOOK_S`` old: to ask takes longer than most reports."""
        if time.monotonic() - self._look_s >= _LOOK_S:
            self._look_s, self._machines = time.monotonic(), machines()
        return self._machines

    def content(self, sha256: str, content: bytes) -> None:
        if sha256 not in self._contents:
            self._contents[sha256] = self._ray.put(content)

    def start(self, task: PointTask, needs: PointNeeds, without: Sequence[str]) -> None:
        """See ``PointTasks``. What is tried again is decided by the sweep, and not by Ray."""
        chosen = {"label_selector": {"ray.io/node-id": f"!in({','.join(without)})"}} if without else {}
        remote = self._remote.options(
            name=f"testbed-{task.id}", num_cpus=needs.cores, num_gpus=needs.gpus, memory=needs.memory_bytes or None,
            resources={SLOT: 1} if needs.slot else {}, num_returns="streaming", max_retries=0, **chosen,
        )  # fmt: skip
        files = {file.sha256: self._contents[file.sha256] for file in task.files.values()}
        self._streams[remote.remote(pickle.dumps(task), files)] = task.id

    def reports(self, limit_s: float) -> list[tuple[str, PointReport]]:
        streams = list(self._streams)
        ready, _ = self._ray.wait(streams, num_returns=1, timeout=limit_s)
        if ready:
            ready, _ = self._ray.wait(streams, num_returns=len(streams), timeout=0)
        return [(self._streams[stream], self._next(stream)) for stream in ready]

    def cancel(self) -> None:
        for stream in self._streams:
            self._ray.cancel(stream, force=True)
        self._streams.clear()

    def _next(self, stream: Any) -> PointReport:
        report = self._read(stream)
        if not isinstance(report, PointStarted):
            del self._streams[stream]
        return report

    def _read(self, stream: Any) -> PointReport:
        errors = self._ray.exceptions
        try:
            received = self._ray.get(next(stream))
            report: PointReport = pickle.loads(received) if isinstance(received, bytes) else received  # noqa: S301 - ours
        except StopIteration:
            return PointLost("its machine ended it without a result")
        except errors.RayTaskError as error:  # raised by our own code there
            return PointBroken(str(error))
        except errors.RuntimeEnvSetupError as error:
            return PointBroken(f"a machine could not set the code up: {error}")
        except errors.RayError as error:
            return PointLost(f"lost with its process or machine ({type(error).__name__})")
        return report
