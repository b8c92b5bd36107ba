"""Estimates whether a machine is fast enough for an emulation: whether steps end within their modelled time.

Nodes of an emulated or local run share the machine's cores, and each step is really computed. Steps may keep the cores
busy for half of their modelled time (``SHARE``), as messages, packets and other programs need cores, too.

The duration of a step is estimated from the model's declarations, and from how fast this machine multiplies matrices in
comparison with a reference machine. Torch is not used, as its import would take longer than the check of a scenario.
``testbed doctor`` measures a step.
"""

from __future__ import annotations

import math
import os
import socket
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.plan.model import NodePlan, Plan
from testbed.processes.child import fork
from testbed.training.options import DATASETS, MODELS
from testbed.training.options.declarations import OWN_JOBS

SHARE = 0.5
"""The part of the cores' time that training steps may take."""
_SEVERAL = 2  # jobs
COLD = 2.0
"""How many times longer a step takes in a run than in a loop, because other nodes evict its data from the caches."""
_REFERENCE_PRODUCTS_S = 1.43e-3  # ``_products_s`` on the reference machine, an AMD EPYC of 2022 (Zen 4)
_OPERATIONS_PER_S = 5e10  # of one core of the reference machine, in products of large matrices
_PASSES = 6  # operations per multiplication of the forward pass: with its addition two, and four in the backward pass
_HOP_BYTES = 1024
_HOP_DEADLINE_S = 5.0


@dataclass(frozen=True, slots=True)
class Machine:
    """``cores`` that this process may use; each takes ``slowness`` times as long as a core of the reference machine."""

    cores: int
    slowness: float

    @classmethod
    def measured(cls) -> Machine:
        """Measure this machine, with some milliseconds of processor time."""
        return cls(usable_cores(), _products_s() / _REFERENCE_PRODUCTS_S)


def usable_cores() -> int:
    return len(os.sched_getaffinity(0))


def _products_s(repeats: int = 8) -> float:
    """Return the least processor time of a series of products of matrices, each too small for a second thread."""
    import numpy as np

    factor = np.full((64, 64), 0.5, np.float32)
    product = np.empty_like(factor)
    found_s = []
    for _ in range(repeats):
        begin_s = time.thread_time()
        for _ in range(150):
            np.matmul(factor, factor, out=product)
            np.maximum(product, 0.0, out=product)
            product.sum()
        found_s.append(time.thread_time() - begin_s)
    return min(found_s)


def step_s(plan: Plan, machine: Machine) -> float:
    """Estimate how long a core of ``machine`` computes a step in a run, in s."""
    training = plan.training
    model = MODELS[training.model.kind]
    options = MODELS.options(training.model.kind, training.model.options)
    data = DATASETS[training.data.kind]
    sample = data.sample_bound(DATASETS.options(training.data.kind, training.data.options))
    multiplications = model.multiplications(options, *sample) if sample is not None else 0
    seconds = model.call_s + training.batch_size * multiplications * _PASSES / _OPERATIONS_PER_S
    return float(COLD * machine.slowness * seconds)


def busy_share(workers: list[NodePlan], step_s: float, cores: int) -> float:
    """Return the share of the cores' time that the steps of ``workers`` take. If it is above 1, steps end late."""
    return sum(step_s / worker.device.step_time_s for worker in workers) / cores


def workers_carried(step_s: float, step_time_s: float, cores: int) -> int:
    """Return how many workers with steps of ``step_time_s`` may share the cores; computing a step takes ``step_s``."""
    return int(SHARE * cores * step_time_s / step_s)


def warnings(plan: Plan) -> list[str]:
    """Return a warning if this machine is too slow for the Plan, else nothing."""
    return too_slow(plan, Machine.measured()) if _sharing(plan) else []


def too_slow(plan: Plan, machine: Machine) -> list[str]:
    """Return a warning, with a cure, if ``machine`` is too slow for the Plan; else nothing."""
    workers = _sharing(plan)
    duration_s = step_s(plan, machine)
    share = busy_share(workers, duration_s, machine.cores)
    if share <= SHARE:
        return []
    longer_s = min(worker.device.step_time_s for worker in workers) * share / SHARE
    cores = f"{machine.cores} core{'s' * (machine.cores > 1)}"
    model = plan.training.model.kind
    return [
        f"device.step_time: a step of '{model}' takes about {duration_s * 1e3:.1f} ms of a core here, so "
        f"{len(workers)} workers keep {cores} busy for {share:.0%} of the step time, but messages need half of it: "
        f"write at least {math.ceil(longer_s * 1e3)} ms, or use fewer workers, more cores, or --on simulate"
    ]


def warnings_together(plans: Sequence[Plan]) -> list[str]:
    """Return a warning if this machine is too slow for all jobs together, though perhaps not for each; else nothing."""
    return too_slow_together(plans, Machine.measured()) if any(map(_sharing, plans)) else []


def too_slow_together(plans: Sequence[Plan], machine: Machine) -> list[str]:
    """Return a warning, with a cure, if ``machine`` is too slow for all jobs together; else nothing."""
    shares = [
        busy_share(workers, step_s(plan, machine), machine.cores) for plan in plans if (workers := _sharing(plan))
    ]
    if sum(shares) <= SHARE or len(shares) < _SEVERAL:
        return []
    cores = f"{machine.cores} core{'s' * (machine.cores > 1)}"
    factor = sum(shares) / SHARE
    return [
        f"jobs: the steps of all jobs keep {cores} busy for {sum(shares):.0%} of the step times, but messages need "
        f"half of them: write step times {factor:.1f} times as long, or use fewer workers, more cores, or --on simulate"
    ]


def _sharing(plan: Plan) -> list[NodePlan]:
    """Return the workers that compute steps on this machine's cores and pace them by modelled times."""
    unknown = plan.program is not None or MODELS[plan.training.model.kind].takes in OWN_JOBS
    if unknown or plan.facilities.in_virtual_time or plan.is_spread or plan.training.compute != "real":
        return []
    return [node for node in plan.training_workers if node.device.kind == "cpu" and node.device.pace == "paced"]


def measured_step_s(plan: Plan, budget_s: float = 0.4) -> float:
    """Return how long a core computes a step in a run, in s, from measurements in a loop. Imports torch."""
    import torch

    from testbed.engine.learner import make_learner

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        learner = make_learner(plan, plan.training_workers[0])
        found_s: list[float] = []
        end_s = time.monotonic() + budget_s
        while time.monotonic() < end_s or not found_s:
            begin_s = time.thread_time()
            learner.gradient(len(found_s))
            found_s.append(time.thread_time() - begin_s)
    finally:
        torch.set_num_threads(threads)
    return COLD * statistics.median(found_s)


def measured_hop_s(budget_s: float = 0.5) -> float:
    """Return the median time of a message of 1 KiB to another process over loopback, including waking it, in s."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        child = fork(lambda _: _echo(server.getsockname()))
        try:
            server.settimeout(_HOP_DEADLINE_S)
            connection, _ = server.accept()
            with connection:
                connection.settimeout(_HOP_DEADLINE_S)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                found_s: list[float] = []
                end_s = time.monotonic() + budget_s
                while time.monotonic() < end_s or not found_s:
                    begin_s = time.perf_counter()
                    connection.sendall(bytes(_HOP_BYTES))
                    connection.recv(_HOP_BYTES, socket.MSG_WAITALL)
                    found_s.append((time.perf_counter() - begin_s) / 2)
                    time.sleep(1e-3)  # so that both have to be woken, as nodes have
        finally:
            child.close()
    return statistics.median(found_s)


def _echo(address: tuple[str, int]) -> int:
    """Echo messages until the other end closes the connection."""
    with socket.create_connection(address, _HOP_DEADLINE_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := connection.recv(_HOP_BYTES, socket.MSG_WAITALL):
            connection.sendall(data)
    return 0
