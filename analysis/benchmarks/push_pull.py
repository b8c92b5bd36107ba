"""The script of the benchmark ``transport``: every worker pushes and pulls a tensor, in as many keys as asked, again
and again; worker 0 writes the seconds of each time, the page faults per MB and the server's processor time to a file.
Settings come as environment.
"""

from __future__ import annotations

import json
import os
import resource
import time
from pathlib import Path

import torch

from testbed.kvstore import connect

WARM_UP = 3  # repeats that do not count, in which TCP's windows and the allocator's memory grow


def others_cpu_s(folder: Path) -> dict[str, float]:
    """Return the processor time so far (s) of the server and the scheduler, by process id."""
    host = os.getppid()
    children = Path(f"/proc/{host}/task/{host}/children").read_text(encoding="ascii").split()
    others = [child for child in children if not (folder / f"worker-{child}").exists()]
    return {child: _cpu_s(Path(f"/proc/{child}/task")) for child in others}


def _cpu_s(threads: Path) -> float:
    return sum(int((each / "schedstat").read_text(encoding="ascii").split()[0]) for each in threads.iterdir()) / 1e9


def main() -> None:
    size_bytes = int(os.environ["PUSH_BYTES"])
    keys = int(os.environ["PUSH_KEYS"])
    store = connect()
    tensors = [torch.ones(size_bytes // 4 // keys) for _ in range(keys)]
    for key, tensor in enumerate(tensors):
        store.init(key, tensor)
    times_s = []
    faults = 0
    cpu_s = dict[str, float]()
    me = Path(os.environ["PUSH_RESULT"]).with_name(f"worker-{os.getpid()}")
    me.touch()
    for repeat in range(WARM_UP + int(os.environ["PUSH_REPEATS"])):
        if repeat == WARM_UP:
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            cpu_s = others_cpu_s(me.parent)
        store.barrier()
        begin_s = time.perf_counter()
        handles = [store.push(key, tensor) for key, tensor in enumerate(tensors)]
        for handle in handles:
            handle.wait()
        times_s.append(time.perf_counter() - begin_s)
    if store.rank == 0:
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
        moved = 2 * size_bytes * (len(times_s) - WARM_UP)
        used_s = max(after_s - cpu_s[child] for child, after_s in others_cpu_s(me.parent).items())  # the server's
        result = {
            "times_s": times_s[WARM_UP:],
            "faults_per_mb": faults / (moved / 1e6),
            "server_cpu_s_per_gb": used_s / (store.num_workers * moved / 1e9),
            "server_cpu_us_per_message": used_s * 1e6 / (store.num_workers * keys * (len(times_s) - WARM_UP)),
        }
        Path(os.environ["PUSH_RESULT"]).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
