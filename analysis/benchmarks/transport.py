"""Push and pull through one parameter server on loopback, by authentication code, beside Gloo's all-reduce.

Workers push a tensor and pull the sum: real processes, sockets and authentication, no training. What counts for the
throughput is what all workers push and pull; of Gloo, the same bytes over the time of one all-reduce. The codes and
Gloo take turns, ``--turns`` times; shown are first quartiles over all, as other processes only add time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from analysis.benchmarks.harness import ROOT, Benchmark, Row, listed
from analysis.benchmarks.push_pull import WARM_UP

SCRIPT = Path(__file__).with_name("push_pull.py")
GLOO = "gloo"
DEADLINE_S = 600.0  # of one run


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """One row per size, number of keys and code."""
    for size_bytes, keys in product(options.size_bytes, options.keys):
        found: dict[str, list[dict[str, Any]]] = {}
        for _ in range(options.turns):
            for code in options.code:
                with tempfile.TemporaryDirectory() as folder:
                    run = _gloo if code == GLOO else _served
                    found.setdefault(code, []).append(run(code, size_bytes, keys, options, Path(folder)))
        quartile_s = {code: _quartile([s for turn in turns for s in turn["times_s"]]) for code, turns in found.items()}
        for code, time_s in quartile_s.items():
            yield {
                "size_bytes": size_bytes, "keys": keys, "code": code, "time_s": time_s,
                "throughput_bytes_per_s": 2 * options.workers * size_bytes / time_s,
                "times_the_first": quartile_s[options.code[0]] / time_s,
                "faults_per_mb": statistics.median(turn["faults_per_mb"] for turn in found[code]),
            }  # fmt: skip


def _quartile(times_s: list[float]) -> float:
    return sorted(times_s)[len(times_s) // 4]


def _served(code: str, size_bytes: int, keys: int, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    result = folder / "result.json"
    environment = {"PUSH_BYTES": size_bytes, "PUSH_KEYS": keys, "PUSH_REPEATS": options.repeats, "PUSH_RESULT": result}
    scenario = {
        "version": 1, "name": "transport", "seed": 1, "run": {"on": "local"},
        "topology": {"data_centers": [{"name": "a", "central": True, "workers": options.workers}]},
        "workload": {"script": SCRIPT.name}, "paradigm": "ps", "device": {"pace": "measured"},
        "training": {"rounds": WARM_UP + options.repeats}, "transport": {"mac": code},
    }  # fmt: skip
    shutil.copy(SCRIPT, folder)
    (folder / "scenario.yaml").write_text(json.dumps(scenario), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "testbed.cli.main",
        "run",
        "scenario.yaml",
        "--out",
        "run",
        "--quiet",
        "--allow-code",
    ]
    variables = {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
    variables |= {name: str(value) for name, value in environment.items()}
    subprocess.run(
        command, cwd=folder, env=os.environ | variables, check=True, timeout=DEADLINE_S, stdout=subprocess.DEVNULL
    )
    return dict(json.loads(result.read_text(encoding="utf-8")))


def _gloo(_: str, size_bytes: int, keys: int, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    from torch.multiprocessing.spawn import spawn

    arguments = (options.workers, size_bytes, keys, options.repeats, str(folder))
    spawn(_gloo_worker, arguments, nprocs=options.workers)  # type: ignore[no-untyped-call]
    return dict(json.loads((folder / "gloo.json").read_text(encoding="utf-8")))


def _gloo_worker(rank: int, workers: int, size_bytes: int, keys: int, repeats: int, folder: str) -> None:
    import resource

    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group(GLOO, init_method=f"file://{folder}/store", rank=rank, world_size=workers)
    tensors = [torch.ones(size_bytes // 4 // keys) for _ in range(keys)]
    times_s, faults = [], 0
    for repeat in range(WARM_UP + repeats):
        if repeat == WARM_UP:
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        distributed.barrier()
        begin_s = time.perf_counter()
        for work in [distributed.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()
        times_s.append(time.perf_counter() - begin_s)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    if rank == 0:
        result = {"times_s": times_s[WARM_UP:], "faults_per_mb": faults / (2 * size_bytes * repeats / 1e6)}
        (Path(folder) / "gloo.json").write_text(json.dumps(result), encoding="utf-8")
    distributed.destroy_process_group()


BENCHMARK = Benchmark(
    measure=measure,
    arguments={
        "--size-bytes": {"type": listed(int), "default": (65_536, 1_000_000, 10_000_000, 100_000_000)},
        "--keys": {"type": listed(int), "default": (1,), "help": "parts that the tensor is pushed in"},
        "--code": {"type": listed(str), "default": ("hmac-sha256", "aes-gmac", "crc32c", "none", GLOO)},
        "--workers": {"type": int, "default": 4},
        "--repeats": {"type": int, "default": 10, "help": "pushes and pulls of one run"},
        "--turns": {"type": int, "default": 2, "help": "runs of each code"},
    },
)
