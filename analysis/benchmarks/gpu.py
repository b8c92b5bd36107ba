"""First contact with a GPU: whether runs on it are right, and how fast kernels, copies and whole runs are.

Each row is one line of what is to be shown on a GPU: what was measured, its bound, and whether it is within; or that it
is not measured here, and by which command it will be. `--device cpu` rehearses everything without one: kernels in
Triton's interpreter where it is installed, small sizes, and no bounds on times.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from analysis.benchmarks.codecs import torch_topk
from analysis.benchmarks.harness import ROOT, Benchmark, Row
from analysis.profile import timed_on_core
from testbed.codec.memory import HostMemory
from testbed.codec.on_device import OnDevice
from testbed.codec.options import CODECS
from testbed.codec.selectors.on_device import DeviceMemory, TritonSweep, exact
from testbed.codec.selectors.sweep import SampleAndSweep
from testbed.codec.table import make_codec
from testbed.devices.accelerator import CODING, Accelerator, accelerator_of, torch_device
from testbed.devices.inventory import described
from testbed.training.batches import Batches
from testbed.training.datasets import load_dataset
from testbed.training.models import build_model
from testbed.training.optimizers import ModelOptimizer
from testbed.training.trainer import Computing, Trainer, configure

QUICKSTART = ROOT / "scenarios" / "quickstart.yaml"
LATER = "testbed bench gpu --device cuda"
_RUN_LIMIT_S = 120.0
FEW = ("training.rounds=10", "training.evaluate_every=10", "training.target_accuracy=null")
SPARSE = "codec={kind: topk, ratio: 0.01, bound: 100}"


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row per line of the list."""
    begin_s = time.monotonic()
    bench = _Bench(options.device)
    for name, check in bench.checks().items():
        if options.only and options.only not in name:
            continue
        if time.monotonic() - begin_s > options.limit_s:
            yield _row(name, "not measured: the time is over", f"{LATER} --only '{name}'", None)
            continue
        try:
            yield check(name)
        except Exception as error:
            yield _row(name, f"{type(error).__name__}: {str(error)[:200]}", "", False)
    yield _row("time of all", f"{time.monotonic() - begin_s:.0f} s", f"{options.limit_s:g} s",
               time.monotonic() - begin_s <= options.limit_s)  # fmt: skip


def _row(name: str, found: str, bound: str, ok: bool | None) -> Row:
    return {"what": name, "found": found, "bound": bound, "ok": "" if ok is None else ok}


class _Bench:
    """``kind``: ``cuda``, or ``cpu`` for a rehearsal."""

    def __init__(self, kind: str) -> None:
        self.kind, self.device = kind, torch_device(kind)
        self.accelerator = accelerator_of(self.device)
        torch.set_num_threads(1)

    def checks(self) -> dict[str, Callable[[str], Row]]:
        return {
            "facts": self.facts,
            "codecs: payloads have the processor's bits": self.payloads,
            "kernels: choices have the processor's bits": self.choices,
            "kernels: at least 60 % of the bandwidth of a copy": self.bandwidth,
            "kernels: at least 5 times as fast as torch.topk": self.against_topk,
            "top-k 1 % of 100 M: gradient to payload under 1.5 ms": self.latency,
            "bytes to the host: payload ± 1 %": self.host_bytes,
            "copies overlap backward by at least 80 %": self.overlap,
            "gradient: close to the processor's, repeatable": self.gradient,
            "deterministic: two trainings end with equal bits": self.determinism,
            "bf16 and torch.compile train": self.settings,
            "HFA's local step: at most 1.1 times plain PyTorch": self.local_step,
            "simulate": lambda name: self.whole_run(name, "simulate"),
            "local: six workers share the GPU": lambda name: self.whole_run(name, "local"),
            "local: Bi-Sparse": lambda name: self.whole_run(name, "local", "codec={kind: bisparse, bound: 100}"),
            "local: P3 by layers": lambda name: self.whole_run(name, "local", "order={kind: p3, overlap: layers}"),
            "local: servers on the GPU": lambda name: self.whole_run(name, "local", SPARSE, self._servers),
            "emulate: fidelity ok": lambda name: self.whole_run(name, "emulate", ok="fidelity"),
            "profile, then simulate": self.predicted,
            "NCCL without a GPU for each worker is refused": self.nccl,
            "ResNet-50, eight workers, emulated, to the end": lambda name: self.large(name, RESNET50),
            "GPT-2 124 M, eight workers, emulated, to the end": lambda name: self.large(name, GPT2),
        }

    @property
    def _servers(self) -> str:
        return f"device.server_device={self.kind}"

    def _only_on_gpu(self, name: str) -> Row | None:
        if self.kind == "cpu":
            return _row(name, "not measured here: needs a GPU", f"{LATER} --only '{name}'", None)
        return None

    # ---- facts and bits -----------------------------------------------------------------------------------------

    def facts(self, name: str) -> Row:
        about = described()
        gpus = ", ".join(f"{gpu['name']} ({gpu['driver']})" for gpu in about["gpus"]) or "no GPU"
        return _row(name, f"{gpus}; torch {torch.__version__}, CUDA {about['cuda']}", "", None)

    def payloads(self, name: str) -> Row:
        """Compare the payloads of every codec, in both directions, over three rounds."""
        accelerator = self.accelerator or HostAccelerator(self.device)
        different = [kind for kind in CODECS if not _same_payloads(kind, accelerator)]
        return _row(name, f"differ: {', '.join(different) or 'none'} of {len(CODECS)}", "none", not different)

    def choices(self, name: str) -> Row:
        sizes = [(1000, 10), (40_007, 400), (40 * 1024, 41)]
        if self.kind != "cpu":
            sizes += [(4_000_003, 40_000), (25_000_000, 25_000)]
        elif not _has_triton():
            return _row(name, "not measured here: Triton is not installed", "pip install triton", None)
        bad = 0
        for size, k in sizes:
            for momentum in (None, 0.9):
                bad += not self._same_choice(size, k, momentum)
        how = "" if self.kind != "cpu" else " (in Triton's interpreter)" if _interprets() else " (in torch)"
        return _row(name, f"{bad} of {2 * len(sizes)} cases differ{how}", "0", bad == 0)

    def _same_choice(self, size: int, k: int, momentum: float | None) -> bool:
        add = TritonSweep(size, self.device) if self.kind != "cpu" or _interprets() else exact
        here, there = HostMemory(size, SampleAndSweep(), momentum), DeviceMemory(size, self.device, momentum, add)
        generator = torch.Generator().manual_seed(size)
        for _ in range(3):
            gradient = torch.randn(size, generator=generator).pow_(3)
            pairs = zip(here.take(gradient, k), there.take(gradient.to(self.device), k), strict=True)
            if not all(torch.equal(a, b.cpu()) for a, b in pairs):
                return False
        return torch.equal(here.unsent(), there.unsent().cpu())

    # ---- speed of kernels and copies ----------------------------------------------------------------------------

    def _ms(self, function: Callable[[], Any], repeats: int = 10) -> float:
        assert self.accelerator is not None
        for _ in range(3):
            function()
        return 1e3 * self.accelerator.timed(lambda: [function() for _ in range(repeats)])[1] / repeats

    def bandwidth(self, name: str) -> Row:
        if (absent := self._only_on_gpu(name)) is not None:
            return absent
        size, k = 100_000_000, 1_000_000
        gradient = torch.randn(size, device=self.device)
        other, memory = (
            torch.empty_like(gradient),
            DeviceMemory(size, self.device, None, TritonSweep(size, self.device)),
        )
        copy_ms, ours_ms = self._ms(lambda: other.copy_(gradient)), self._ms(lambda: memory.take(gradient, k))
        copy, ours = 8 * size / copy_ms / 1e6, 12.6 * size / ours_ms / 1e6  # GB/s: bytes that each has to move
        return _row(name, f"{ours:.0f} of {copy:.0f} GB/s, {ours / copy:.0%}", "60 %", ours / copy >= 0.6)

    def against_topk(self, name: str) -> Row:
        if (absent := self._only_on_gpu(name)) is not None:
            return absent
        size, k = 100_000_000, 1_000_000
        gradient, unsent = torch.randn(size, device=self.device), torch.zeros(size, device=self.device)
        memory = DeviceMemory(size, self.device, None, TritonSweep(size, self.device))
        theirs_ms, ours_ms = (
            self._ms(lambda: torch_topk(gradient, unsent, k)),
            self._ms(lambda: memory.take(gradient, k)),
        )
        found = f"{theirs_ms:.2f} ms against {ours_ms:.2f} ms, {theirs_ms / ours_ms:.1f}x"
        return _row(name, found, "5x", theirs_ms / ours_ms >= 5)

    def latency(self, name: str) -> Row:
        """Gradient complete on the device, to the payload in main memory."""
        size = 1_000_000 if self.accelerator is None else 100_000_000
        accelerator = self.accelerator or HostAccelerator(self.device)
        codec = OnDevice(make_codec("topk", {"ratio": 0.01}), accelerator)
        gradient = torch.randn(size, device=self.device)
        codec.begin(0, gradient)
        times_ms = []
        for _ in range(8):
            begin_s = time.perf_counter()
            codec.encode(0, gradient)
            times_ms.append(1e3 * (time.perf_counter() - begin_s))
        found = min(times_ms[3:])
        if self.kind == "cpu":
            return _row(name, f"not measured here; of 1 M on this processor {found:.2f} ms", f"{LATER}", None)
        return _row(name, f"{found:.2f} ms", "1.5 ms", found < 1.5)

    def host_bytes(self, name: str) -> Row:
        """Copies to the host of an encoding, by the profiler; without a GPU, what the accelerator is told to copy."""
        accelerator = self.accelerator or HostAccelerator(self.device)
        size = 1_000_000
        codec, gradient = OnDevice(make_codec("topk", {"ratio": 0.01}), accelerator), torch.randn(size)
        gradient = gradient.to(self.device)
        codec.begin(0, gradient)
        codec.encode(0, gradient)
        if isinstance(accelerator, HostAccelerator):
            accelerator.copied_bytes = 0
            payload = sum(part.nbytes for part in codec.encode(0, gradient))
            moved = accelerator.copied_bytes
        else:
            from torch.profiler import ProfilerActivity, profile

            with profile(activities=[ProfilerActivity.CUDA]) as profiled:
                payload = sum(part.nbytes for part in codec.encode(0, gradient))
            moved = sum(_bytes_of(event) for event in _to_host(profiled))
        return _row(name, f"{moved} B for a payload of {payload} B", "± 1 %", abs(moved / payload - 1) <= 0.01)

    def overlap(self, name: str) -> Row:
        """While a large multiplication runs on the default stream, copies on the codecs' own end before it does."""
        if (absent := self._only_on_gpu(name)) is not None:
            return absent
        assert self.accelerator is not None
        matrix, payload = torch.randn(8192, 8192, device=self.device), (torch.randn(2_000_000, device=self.device),)
        alone_ms = self._ms(lambda: [matrix @ matrix for _ in range(4)], 3)
        accelerator = self.accelerator

        def both() -> None:
            for _ in range(4):
                matrix @ matrix
            with accelerator.on(CODING):
                for _ in range(4):
                    accelerator.to_host(payload)

        with accelerator.on(CODING):
            copy_ms = 4 * self._ms(lambda: accelerator.to_host(payload), 5)
        both_ms = self._ms(both, 3)
        share = max(0.0, min(1.0, 1 - (both_ms - alone_ms) / copy_ms))
        return _row(name, f"{share:.0%} of {copy_ms:.2f} ms", "80 %", share >= 0.8)

    # ---- training -----------------------------------------------------------------------------------------------

    def _trainer(self, device: torch.device, computing: Computing | None = None) -> Trainer:
        data = load_dataset("digits", {}, 1)
        model = build_model("cnn", {}, data.input_shape, data.classes, 1)
        return Trainer(model, data, Batches(torch.arange(640), 32, 1, 0), device, computing or Computing())

    def gradient(self, name: str) -> Row:
        here, there, again = (self._trainer(device) for device in (torch.device("cpu"), self.device, self.device))
        worst, repeats = 0.0, True
        for step in range(20):
            expected, found, same = (one.gradient(step).gradients for one in (here, there, again))
            worst = max(worst, *(_distance(a, b.cpu()) for a, b in zip(expected, found, strict=True)))
            repeats &= all(torch.equal(a, b) for a, b in zip(found, same, strict=True))
        return _row(
            name, f"relative error {worst:.1e}; {'same' if repeats else 'other'} bits again", "1e-3", worst < 1e-3
        )

    def determinism(self, name: str) -> Row:
        configure("float32", True, self.device)
        try:
            first, second = self._trained(), self._trained()
        finally:
            configure("float32", False, self.device)
        same = all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
        return _row(name, "equal bits" if same else "other bits", "equal", same)

    def _trained(self, steps: int = 30) -> list[Tensor]:
        one = self._trainer(self.device)
        optimizer = ModelOptimizer("adam", {}, one.values())
        for step in range(steps):
            optimizer.step(one.gradient(step).gradients)
            one.load(optimizer.values())
        return one.values()

    def settings(self, name: str) -> Row:
        settings = [Computing("bf16"), Computing(accumulate=4)]
        settings += [Computing("tf32"), Computing("bf16", compiled=True)] if self.kind != "cpu" else []
        losses = [self._trainer(self.device, computing).gradient(0).loss for computing in settings]
        expected = self._trainer(self.device).gradient(0).loss
        worst = max(abs(loss / expected - 1) for loss in losses)
        return _row(name, f"{len(losses)} settings, loss within {worst:.1%}", "5 %", worst < 0.05)

    def local_step(self, name: str) -> Row:
        """Compare the step of an HFA worker with the same in plain PyTorch: model, loss, backward, Adam."""
        timed = self.accelerator.timed if self.accelerator else timed_on_core
        one, plain = self._trainer(self.device), self._trainer(self.device)
        mine = ModelOptimizer("adam", {"learning_rate": 1e-3}, one.values())
        model = plain.model
        theirs = torch.optim.Adam(model.parameters(), lr=1e-3)
        inputs, labels = plain._batch(0)

        def ours(step: int) -> None:
            mine.step(one.gradient(step).gradients)
            one.load(mine.values())

        def pytorch(step: int) -> None:
            theirs.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            torch.autograd.backward(loss)
            theirs.step()
            loss.item()

        found: dict[str, list[float]] = {"ours": [], "pytorch": []}
        for step in range(60):
            found["pytorch"].append(timed(partial(pytorch, step))[1])
            found["ours"].append(timed(partial(ours, step))[1])
        medians = {each: sorted(times[10:])[len(times[10:]) // 2] for each, times in found.items()}
        ratio = medians["ours"] / medians["pytorch"]
        bound = f"1.1; {LATER}" if self.kind == "cpu" else "1.1"
        return _row(name, f"{ratio:.2f} times {1e3 * medians['pytorch']:.2f} ms", bound,
                    None if self.kind == "cpu" else ratio <= 1.1)  # fmt: skip

    # ---- whole runs ---------------------------------------------------------------------------------------------

    def whole_run(self, name: str, on: str, *overrides: str, ok: str = "done") -> Row:
        given = (*FEW, f"device.kind={self.kind}", *overrides)
        result = _run(QUICKSTART, on, *given)
        return self._told(name, result, ok)

    def large(self, name: str, overrides: tuple[str, ...]) -> Row:
        if (absent := self._only_on_gpu(name)) is not None:
            return absent
        return self._told(name, _run(QUICKSTART, "emulate", f"device.kind={self.kind}", *overrides), "done")

    def _told(self, name: str, result: dict[str, Any], ok: str) -> Row:
        fidelity = result.get("fidelity", {}).get("status", "")
        sha256 = str(result.get("parameters_sha256"))[:12]
        good = result["status"] == "done" and (ok != "fidelity" or fidelity == "ok" or self.kind == "cpu")
        wanted = "done" if ok != "fidelity" else "done, fidelity ok"
        return _row(
            name, f"{result['status']}, {sha256}, fidelity {fidelity} {result.get('message', '')[:150]}", wanted, good
        )

    def predicted(self, name: str) -> Row:
        """Compare the round of a measured run on loopback with its simulation from a profile."""
        with tempfile.TemporaryDirectory() as folder:
            scenario = Path(folder) / "scenario.yaml"
            scenario.write_text(PREDICTED.format(kind=self.kind))
            told = _testbed("profile", str(scenario), "--on", "local", "--out", folder, "--no-costs", "--json")
            simulated = _run(scenario, "simulate", "device.profile={file: profile.csv}")
            local = _run(scenario, "local", "device.pace=measured")
        if "error" in told or simulated["status"] != "done" or local["status"] != "done":
            return _row(name, f"{told} {simulated.get('message')} {local.get('message')}"[:200], "", False)
        found = f"a round {1e3 * simulated['round_time_s']:.1f} ms simulated, {1e3 * local['round_time_s']:.1f} ms here"
        ratio = simulated["round_time_s"] / local["round_time_s"]
        return _row(name, f"{found}, {ratio - 1:+.0%}", "5 %" if self.kind != "cpu" else f"5 %; {LATER}",
                    None if self.kind == "cpu" else abs(ratio - 1) <= 0.05)  # fmt: skip

    def nccl(self, name: str) -> Row:
        result = _run(ROOT / "scenarios" / "paradigms" / "gloo.yaml", "local", "paradigm.backend=nccl")
        found = str(result.get("message"))
        return _row(name, found[:120], "refused", "nccl needs a GPU for each of" in found)


class HostAccelerator(Accelerator):
    """For rehearsals: the processor in the place of a GPU, and a count of bytes."""

    copied_bytes = 0

    def timed(self, function: Callable[[], Any]) -> tuple[Any, float]:
        begin_s = time.perf_counter()
        return function(), time.perf_counter() - begin_s

    def on(self, stream: str) -> Any:
        return nullcontext()

    def to_host(self, parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        self.copied_bytes += sum(part.nbytes for part in parts)
        return parts

    def to_device(self, parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return parts


def _same_payloads(kind: str, accelerator: Accelerator, size: int = 20_011) -> bool:
    here, there = make_codec(kind, {}, 2, 1), OnDevice(make_codec(kind, {}, 2, 1), accelerator)
    generator = torch.Generator().manual_seed(0)
    value = torch.randn(size, generator=generator)
    for codec in (here, there):
        codec.begin(0, value)
    for _ in range(3):
        gradient = torch.randn(size, generator=generator)
        mine, other = here.encode(0, gradient), there.encode(0, gradient)
        if not all(torch.equal(a, b) for a, b in zip(mine, other, strict=True)):
            return False
        if not torch.equal(here.decode(0, mine, size), there.decode(0, other, size).cpu()):
            return False
    return True


def _distance(expected: Tensor, found: Tensor) -> float:
    return float((expected - found).norm() / (expected.norm() + 1e-12))


def _has_triton() -> bool:
    from importlib.util import find_spec

    return find_spec("triton") is not None


def _interprets() -> bool:
    return _has_triton() and os.environ.get("TRITON_INTERPRET") == "1"


def _to_host(profiled: Any) -> list[Any]:
    return [event for event in profiled.events() if "Memcpy DtoH" in event.name]


def _bytes_of(event: Any) -> int:
    return int(getattr(event, "bytes", 0) or getattr(event, "nbytes", 0) or 0)


def _run(scenario: Path, on: str, *overrides: str) -> dict[str, Any]:
    settings = [word for override in overrides for word in ("--set", override)]
    with tempfile.TemporaryDirectory() as folder:
        told = _testbed("run", str(scenario), "--on", on, "--out", f"{folder}/run", "--json", *settings)
    result: dict[str, Any] = told.get("result", {"status": "failed", "message": str(told.get("error", told))})
    return result


def _testbed(*arguments: str) -> dict[str, Any]:
    """Return the last JSON line of a command; ``error`` without one."""
    command = [sys.executable, "-m", "testbed.cli.main", *arguments]
    try:
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_RUN_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"no end within {_RUN_LIMIT_S:g} s"}
    for line in reversed(ended.stdout.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and found.get("kind") in ("result", "profile", "error"):
            return {"error": found.get("message", "")} if found["kind"] == "error" else found
    return {"error": (ended.stderr or ended.stdout).strip()[-300:]}


PREDICTED = """version: 1
name: predicted
seed: 1
topology:
  data_centers:
    - {{name: hub, central: true, workers: 1}}
  links: []
training: {{model: cnn, data: digits, rounds: 20, evaluate_every: 20}}
device: {{kind: {kind}}}
"""
_EIGHT_WORKERS = (
    "topology.data_centers[0].workers=4",
    "training.rounds=6",
    "training.evaluate_every=6",
    "training.target_accuracy=null",
    SPARSE,
)
RESNET50 = (
    *_EIGHT_WORKERS, "training.model=resnet50", "training.batch=16", "training.precision=bf16",
    "training.data={kind: teacher, side: 224, channels: 3, classes: 1000, train_samples: 512, test_samples: 16}",
)  # fmt: skip
GPT2 = (
    *_EIGHT_WORKERS, "training.model={kind: transformer, layers: 12, heads: 12, head_width: 64}", "training.batch=4",
    "training.data={kind: tokens, train_samples: 256, test_samples: 8}", "training.precision=bf16",
)  # fmt: skip


def _device(text: str) -> str:
    if text not in ("cpu", "cuda"):
        raise argparse.ArgumentTypeError(f"'{text}' is not one of cpu, cuda")
    return text


BENCHMARK = Benchmark(
    measure=measure,
    arguments={
        "--device": {"type": _device, "default": "cuda", "help": "cuda (default), or cpu for a rehearsal"},
        "--only": {"default": "", "metavar": "TEXT", "help": "lines with this text"},
        "--limit-s": {"type": float, "default": 480.0, "metavar": "S", "help": "begin nothing after so long"},
    },
)
