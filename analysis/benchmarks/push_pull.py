"""The script of the benchmark ``transport``: every worker pushes and pulls a tensor, in as many keys as asked, again
and again; worker 0 writes the seconds of each time and the page faults per MB to a file. Settings come as environment.
"""

from __future__ import annotations

import json
import os
import resource
import time
from pathlib import Path

import torch

from testbed.kvstore import connect

WARM_UP = 3  # TCP's windows and the allocator's memory grow meanwhile


def main() -> None:
    size_bytes, keys = int(os.environ["PUSH_BYTES"]), int(os.environ["PUSH_KEYS"])
    store = connect()
    tensors = [torch.ones(size_bytes // 4 // keys) for _ in range(keys)]
    for key, tensor in enumerate(tensors):
        store.init(key, tensor)
    times_s, faults = [], 0
    for repeat in range(WARM_UP + int(os.environ["PUSH_REPEATS"])):
        if repeat == WARM_UP:
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        store.barrier()
        begin_s = time.perf_counter()
        handles = [store.push(key, tensor) for key, tensor in enumerate(tensors)]
        for handle in handles:
            handle.wait()
        times_s.append(time.perf_counter() - begin_s)
    if store.rank == 0:
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
        moved = 2 * size_bytes * (len(times_s) - WARM_UP)
        result = {"times_s": times_s[WARM_UP:], "faults_per_mb": faults / (moved / 1e6)}
        Path(os.environ["PUSH_RESULT"]).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
