"""Exact runs: the kernel's identity, the guest's seed, the watchdog, measured processors, and what a run leaves."""

from __future__ import annotations

from tests.mutations.mutation import Mutation, always, edit

KERNEL, LAUNCHER = ("tests/emulation/exact/test_kernel.py",), ("tests/execution/test_exact.py",)
CORES = ("tests/realtime/test_cores.py",)
MUTATIONS: dict[str, Mutation] = {
    "a changed kernel is started": Mutation(
        "emulation.exact.kernel:require", edit("not _intact(kernel)", "False"), KERNEL
    ),
    "building keeps a kernel that was changed": Mutation(
        "emulation.exact.kernel:build", edit(" and _intact(kernel)", ""), KERNEL
    ),
    "a guest that cannot begin is silent": Mutation(
        "emulation.exact.guest_init:main", edit("traceback.print_exc()", "pass"), KERNEL
    ),
    "any source makes the kernel": Mutation("emulation.exact.kernel:_verify", always(None), KERNEL),
    "all guests have one seed": Mutation(
        "emulation.exact.command:Guest.arguments", edit("self.seed % 2**63 + 1", "1"), KERNEL
    ),
    "a guest that spins is left alone": Mutation("testbed.execution.exact:processor_s", always(0.0), LAUNCHER),
    "half a line of progress counts": Mutation(
        "testbed.execution.exact:Lines.__iter__",
        edit('*whole, _ = file.read().split(b"\\n")', "whole = file.read().splitlines()"),
        LAUNCHER,
    ),
    "measured codecs take modelled time": Mutation(
        "testbed.realtime.cores:Cores.spend", edit("if self.measured:", "if False:"), CORES
    ),
    "measured copies take no time": Mutation(
        "testbed.realtime.world:RealWorld._compute", edit("not self._cores.copies_cost", "True"), CORES
    ),
    "nodes of an exact run keep their processor": Mutation(
        "testbed.realtime.cores:_YieldingSelector.select", edit("os.sched_yield()", "pass"), CORES
    ),
    "memory of exact runs is filled page by page": Mutation(
        "testbed.realtime.cores:fill_memory_at_once", always(None), CORES
    ),
    "a flood lets a fast link wait": Mutation(
        "emulation.flood:Flood.due", edit("+ 2 * WAIT_S", ""), ("tests/emulation/test_pure.py",)
    ),
    "virtual time has a machine's ceiling": Mutation(
        "emulation.monitor:Monitor.links", edit("if self._has_ceiling:", "if True:"), ("tests/emulation/test_pure.py",)
    ),
    "tensors need huge pages": Mutation(
        "testbed.buffers:_new_block", edit("suppress(OSError)", "suppress(KeyError)"), ("tests/units/test_buffers.py",)
    ),
    "measured steps take no time in an exact run": Mutation(
        "testbed.realtime.world:RealWorld._passes_afterwards", always(False), CORES
    ),
}
