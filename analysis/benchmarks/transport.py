"""Push and pull through one parameter server on one host, beside Gloo and a bare socket server.

Workers push a tensor and pull the sum: real processes, frames and authentication, no training. ``--code`` names what is
measured: an authentication code, through shared memory (``aes-gmac``) or over TCP (``aes-gmac:tcp``); or a peer:
``gloo`` (all-reduce of the same tensor), ``socket`` (a server without protocol). What counts for the throughput is what
all workers push and pull; of an all-reduce, the same bytes over its time. All take turns, ``--turns`` times; shown are
first quartiles over all, as other processes only add time. Processor time is the server's, after the warm-up: for each
GB, and for each push and pull of a key. What small messages cost shows ``--size-bytes 64000 --keys 64``.
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
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from analysis.benchmarks import transport_peers as peers
from analysis.benchmarks.harness import ROOT, Row, listed
from analysis.benchmarks.push_pull import WARM_UP
from analysis.benchmarks.transport_peers import Found, Job

SCRIPT = Path(__file__).with_name("push_pull.py")
PEERS = {"gloo": peers.measure_gloo, "socket": peers.measure_socket}
OVER_TCP = ":tcp"


def measure(options: argparse.Namespace) -> Iterator[Row]:
    for size_bytes, keys in product(options.size_bytes, options.keys):
        found: dict[str, list[Found]] = {}
        try:
            for _ in range(options.turns):
                for code in options.code:
                    with tempfile.TemporaryDirectory() as folder:
                        job = Job(options.workers, size_bytes, keys, options.repeats, Path(folder))
                        turn = _measured(code, job)
                        found.setdefault(code, []).append(turn)
        except KeyboardInterrupt:  # still show the measurements so far
            yield from _rows(options, size_bytes, keys, found)
            raise
        yield from _rows(options, size_bytes, keys, found)


def _rows(options: argparse.Namespace, size_bytes: int, keys: int, found: dict[str, list[Found]]) -> Iterator[Row]:
    """Yield a row for each code that has had a turn."""
    quartile_s = {code: _quartile([s for turn in turns for s in turn["times_s"]]) for code, turns in found.items()}
    for code, time_s in quartile_s.items():
        yield {
            "size_bytes": size_bytes,
            "keys": keys,
            "code": code,
            "time_s": time_s,
            "throughput_bytes_per_s": 2 * options.workers * size_bytes / time_s,
            "times_the_first": quartile_s[options.code[0]] / time_s,
            "server_cpu_s_per_gb": _median(found[code], "server_cpu_s_per_gb"),
            "server_cpu_us_per_message": _median(found[code], "server_cpu_us_per_message"),
            "worker_cpu_s_per_gb": _median(found[code], "worker_cpu_s_per_gb"),
            "faults_per_mb": _median(found[code], "faults_per_mb"),
        }


def _median(turns: list[Found], name: str) -> float | None:
    """Return the median over the turns; ``None`` for a quantity that a peer does not measure."""
    values = [turn[name] for turn in turns if name in turn]
    return statistics.median(values) if values else None


def _measured(code: str, job: Job) -> Found:
    return PEERS[code](job) if code in PEERS else _served(code, job)


def _quartile(times_s: list[float]) -> float:
    return sorted(times_s)[len(times_s) // 4]


def _served(code: str, job: Job) -> Found:
    folder = job.folder
    result = job.folder / "result.json"
    environment = {
        "PUSH_BYTES": job.size_bytes,
        "PUSH_KEYS": job.keys,
        "PUSH_REPEATS": job.repeats,
        "PUSH_RESULT": result,
    }
    scenario = {
        "version": 1,
        "name": "transport",
        "seed": 1,
        "run": {"on": "local"},
        "topology": {"data_centers": [{"name": "a", "central": True, "workers": job.workers}]},
        "workload": {"script": SCRIPT.name},
        "paradigm": "ps",
        "device": {"pace": "measured"},
        "training": {"rounds": WARM_UP + job.repeats},
        "transport": {"mac": code.removesuffix(OVER_TCP), "shared_memory": not code.endswith(OVER_TCP)},
    }
    shutil.copy(SCRIPT, folder)
    (folder / "scenario.yaml").write_text(json.dumps(scenario), encoding="utf-8")
    arguments = ["run", "scenario.yaml", "--out", "run", "--quiet", "--allow-code"]
    variables = {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
    variables |= {name: str(value) for name, value in environment.items()}
    subprocess.run(
        [sys.executable, "-m", "testbed.cli.main", *arguments],
        cwd=folder,
        env=os.environ | variables,
        check=True,
        timeout=peers.DEADLINE_S,
        stdout=subprocess.DEVNULL,
    )
    return dict(json.loads(result.read_text(encoding="utf-8")))


ARGUMENTS = {
    "--size-bytes": {"type": listed(int), "default": (65_536, 1_000_000, 10_000_000, 100_000_000)},
    "--keys": {"type": listed(int), "default": (1,), "help": "parts that the tensor is pushed in"},
    "--code": {
        "type": listed(str),
        "default": ("aes-gmac", "aes-gmac:tcp", "none:tcp", "socket", "gloo"),
        "help": "authentication codes and peers that are measured",
    },
    "--workers": {"type": int, "default": 4},
    "--repeats": {"type": int, "default": 10, "help": "pushes and pulls of one run"},
    "--turns": {"type": int, "default": 2, "help": "runs of each code"},
}
