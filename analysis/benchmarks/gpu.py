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
from importlib.util import find_spec
from pathlib import Path
from statistics import median_high
from typing import Any

import torch
from torch import Tensor

from analysis.benchmarks.codecs import torch_topk
from analysis.benchmarks.harness import ROOT, Row
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


Finding = tuple[str, str, bool | None]
"""The measurement, its bound, and whether it is within the bound; ``None`` if there is no bound."""


class NotMeasuredError(Exception):
    """A check that this machine cannot make. ``cure``: the command that makes it possible; by default ``LATER``."""

    def __init__(self, why: str, cure: str = "") -> None:
        super().__init__(why)
        self.cure = cure


def measure(options: argparse.Namespace) -> Iterator[Row]:
    begin_s = time.monotonic()
    for name, check in _Bench(options.device).checks().items():
        if options.only and options.only not in name:
            continue
        later = f"{LATER} --only '{name}'"
        if time.monotonic() - begin_s > options.limit_s:
            yield _row(name, "not measured: the time is over", later, None)
            continue
        try:
            yield _row(name, *check())
        except NotMeasuredError as error:
            yield _row(name, f"not measured here: {error}", error.cure or later, None)
        except Exception as error:
            yield _row(name, f"{type(error).__name__}: {str(error)[:200]}", "", False)
    took_s = time.monotonic() - begin_s
    yield _row("time of all", f"{took_s:.0f} s", f"{options.limit_s:g} s", took_s <= options.limit_s)


def _row(name: str, found: str, bound: str, ok: bool | None) -> Row:
    return {"what": name, "found": found, "bound": bound, "ok": "" if ok is None else ok}


class _Bench:
    """The checks. ``kind``: ``cuda``, or ``cpu`` for a rehearsal."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.rehearses = kind == "cpu"
        self.device = torch_device(kind)
        self.accelerator = accelerator_of(self.device) or HostAccelerator(self.device)
        torch.set_num_threads(1)

    def checks(self) -> dict[str, Callable[[], Finding]]:
        local = partial(self.whole_run, "local", *FEW)
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
            "simulate": partial(self.whole_run, "simulate", *FEW),
            "local: six workers share the GPU": local,
            "local: Bi-Sparse": partial(local, "codec={kind: bisparse, bound: 100}"),
            "local: P3 by layers": partial(local, "order={kind: p3, overlap: layers}"),
            "local: servers on the GPU": partial(local, SPARSE, f"device.server_device={self.kind}"),
            "emulate: fidelity ok": partial(self.whole_run, "emulate", *FEW, needs_fidelity=True),
            "profile, then simulate": self.predicted,
            "NCCL without a GPU for each worker is refused": self.nccl,
            "ResNet-50, eight workers, emulated, to the end": partial(self.large, RESNET50),
            "GPT-2 124 M, eight workers, emulated, to the end": partial(self.large, GPT2),
        }

    def _needs_gpu(self) -> None:
        if self.rehearses:
            raise NotMeasuredError("needs a GPU")

    def _later(self, bound: str) -> str:
        """Return a bound as text; in a rehearsal, with the command that will compare with it."""
        return f"{bound}; {LATER}" if self.rehearses else bound

    # ---- facts and bits -----------------------------------------------------------------------------------------

    def facts(self) -> Finding:
        about = described()
        gpus = ", ".join(f"{gpu['name']} ({gpu['driver']})" for gpu in about["gpus"]) or "no GPU"
        return f"{gpus}; torch {torch.__version__}, CUDA {about['cuda']}", "", None

    def payloads(self) -> Finding:
        """Compare the payloads of every codec, in both directions, over three rounds."""
        different = [kind for kind in CODECS if not _same_payloads(kind, self.accelerator)]
        return f"differ: {', '.join(different) or 'none'} of {len(CODECS)}", "none", not different

    def choices(self) -> Finding:
        sizes = [(1000, 10), (40_007, 400), (40 * 1024, 41)]
        if not self.rehearses:
            sizes += [(4_000_003, 40_000), (25_000_000, 25_000)]
        elif find_spec("triton") is None:
            raise NotMeasuredError("Triton is not installed", "pip install triton")
        bad = sum(not self._same_choice(size, k, momentum) for size, k in sizes for momentum in (None, 0.9))
        how = "" if not self.rehearses else " (in Triton's interpreter)" if _interprets() else " (in torch)"
        return f"{bad} of {2 * len(sizes)} cases differ{how}", "0", bad == 0

    def _same_choice(self, size: int, k: int, momentum: float | None) -> bool:
        add = exact if self.rehearses and not _interprets() else TritonSweep(size, self.device)
        here = HostMemory(size, SampleAndSweep(), momentum)
        there = DeviceMemory(size, self.device, momentum, add)
        generator = torch.Generator().manual_seed(size)
        for _ in range(3):
            gradient = torch.randn(size, generator=generator).pow_(3)
            pairs = zip(here.take(gradient, k), there.take(gradient.to(self.device), k), strict=True)
            if not all(torch.equal(a, b.cpu()) for a, b in pairs):
                return False
        return torch.equal(here.state()["unsent"], there.state()["unsent"].cpu())

    # ---- speed of kernels and copies ----------------------------------------------------------------------------

    def _ms(self, function: Callable[[], Any], repeats: int = 10) -> float:
        for _ in range(3):
            function()
        return 1e3 * self.accelerator.timed(lambda: [function() for _ in range(repeats)])[1] / repeats

    def _memory(self, size: int) -> DeviceMemory:
        return DeviceMemory(size, self.device, None, TritonSweep(size, self.device))

    def bandwidth(self) -> Finding:
        self._needs_gpu()
        size = 100_000_000
        k = 1_000_000
        gradient = torch.randn(size, device=self.device)
        other = torch.empty_like(gradient)
        memory = self._memory(size)
        copy_ms = self._ms(lambda: other.copy_(gradient))
        ours_ms = self._ms(lambda: memory.take(gradient, k))
        # GB/s, by the bytes that each has to move
        copy = 8 * size / copy_ms / 1e6
        ours = 12.6 * size / ours_ms / 1e6
        return f"{ours:.0f} of {copy:.0f} GB/s, {ours / copy:.0%}", "60 %", ours / copy >= 0.6

    def against_topk(self) -> Finding:
        self._needs_gpu()
        size = 100_000_000
        k = 1_000_000
        gradient = torch.randn(size, device=self.device)
        unsent = torch.zeros(size, device=self.device)
        memory = self._memory(size)
        theirs_ms = self._ms(lambda: torch_topk(gradient, unsent, k))
        ours_ms = self._ms(lambda: memory.take(gradient, k))
        found = f"{theirs_ms:.2f} ms against {ours_ms:.2f} ms, {theirs_ms / ours_ms:.1f}x"
        return found, "5x", theirs_ms / ours_ms >= 5

    def latency(self) -> Finding:
        """Measure the time from the complete gradient on the device to the payload in main memory."""
        codec, gradient = self._topk(1_000_000 if self.rehearses else 100_000_000)
        times_ms = []
        for _ in range(8):
            begin_s = time.perf_counter()
            codec.encode(0, gradient)
            times_ms.append(1e3 * (time.perf_counter() - begin_s))
        found = min(times_ms[3:])
        if self.rehearses:
            return f"not measured here; of 1 M on this processor {found:.2f} ms", LATER, None
        return f"{found:.2f} ms", "1.5 ms", found < 1.5

    def _topk(self, size: int) -> tuple[OnDevice, Tensor]:
        """Return a codec that sends 1 % of a gradient of ``size`` elements, and the gradient."""
        codec = OnDevice(make_codec("topk", {"ratio": 0.01}), self.accelerator)
        gradient = torch.randn(size)
        gradient = gradient.to(self.device)
        codec.begin(0, gradient)
        return codec, gradient

    def host_bytes(self) -> Finding:
        """Count the bytes that an encoding copies to the host: by the profiler, or in a rehearsal by the requests."""
        codec, gradient = self._topk(1_000_000)
        codec.encode(0, gradient)
        if isinstance(self.accelerator, HostAccelerator):
            self.accelerator.copied_bytes = 0
            payload = sum(part.nbytes for part in codec.encode(0, gradient))
            moved = self.accelerator.copied_bytes
        else:
            from torch.profiler import ProfilerActivity, profile

            with profile(activities=[ProfilerActivity.CUDA]) as profiled:
                payload = sum(part.nbytes for part in codec.encode(0, gradient))
            events: list[Any] = [event for event in profiled.events() or () if "Memcpy DtoH" in event.name]
            moved = sum(int(getattr(event, "bytes", 0) or getattr(event, "nbytes", 0) or 0) for event in events)
        return f"{moved} B for a payload of {payload} B", "± 1 %", abs(moved / payload - 1) <= 0.01

    def overlap(self) -> Finding:
        """Check that copies on the codecs' stream overlap a large multiplication on the default stream."""
        self._needs_gpu()
        matrix = torch.randn(8192, 8192, device=self.device)
        payload = (torch.randn(2_000_000, device=self.device),)
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
        return f"{share:.0%} of {copy_ms:.2f} ms", "80 %", share >= 0.8

    # ---- training -----------------------------------------------------------------------------------------------

    def _trainer(self, device: torch.device, computing: Computing | None = None) -> Trainer:
        data = load_dataset("digits", {}, 1)
        model = build_model("cnn", {}, data.input_shape, data.classes, 1)
        return Trainer(model, data, Batches(torch.arange(640), 32, 1, 0), device, computing or Computing())

    def gradient(self) -> Finding:
        here, there, again = (self._trainer(device) for device in (torch.device("cpu"), self.device, self.device))
        worst = 0.0
        repeats = True
        for step in range(20):
            expected, found, same = (one.gradient(step).gradients for one in (here, there, again))
            pairs = [(a, b.cpu()) for a, b in zip(expected, found, strict=True)]
            worst = max(worst, *(float((a - b).norm() / (a.norm() + 1e-12)) for a, b in pairs))
            repeats &= all(torch.equal(a, b) for a, b in zip(found, same, strict=True))
        return f"relative error {worst:.1e}; {'same' if repeats else 'other'} bits again", "1e-3", worst < 1e-3

    def determinism(self) -> Finding:
        configure("float32", True, self.device)
        try:
            first = self._trained()
            second = self._trained()
        finally:
            configure("float32", False, self.device)
        same = all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
        return "equal bits" if same else "other bits", "equal", same

    def _trained(self, steps: int = 30) -> list[Tensor]:
        one = self._trainer(self.device)
        optimizer = ModelOptimizer("adam", {}, one.values())
        for step in range(steps):
            optimizer.step(one.gradient(step).gradients)
            one.load(optimizer.values())
        return one.values()

    def settings(self) -> Finding:
        settings = [Computing("bf16"), Computing(accumulate=4)]
        settings += [Computing("tf32"), Computing("bf16", compiled=True)] if not self.rehearses else []
        losses = [self._trainer(self.device, computing).gradient(0).loss for computing in settings]
        expected = self._trainer(self.device).gradient(0).loss
        worst = max(abs(loss / expected - 1) for loss in losses)
        return f"{len(losses)} settings, loss within {worst:.1%}", "5 %", worst < 0.05

    def local_step(self) -> Finding:
        """Compare the step of an HFA worker with the same step in plain PyTorch: model, loss, backward, Adam."""
        timed = self.accelerator.timed
        one = self._trainer(self.device)
        plain = self._trainer(self.device)
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
        ours_s, pytorch_s = (median_high(found[each][10:]) for each in ("ours", "pytorch"))
        ratio = ours_s / pytorch_s
        within = None if self.rehearses else ratio <= 1.1
        return f"{ratio:.2f} times {1e3 * pytorch_s:.2f} ms", self._later("1.1"), within

    # ---- whole runs ---------------------------------------------------------------------------------------------

    def whole_run(self, on: str, *overrides: str, needs_fidelity: bool = False) -> Finding:
        result = _run(QUICKSTART, on, f"device.kind={self.kind}", *overrides)
        fidelity = result.get("fidelity", {}).get("status", "")
        good = result["status"] == "done" and (not needs_fidelity or fidelity == "ok" or self.rehearses)
        sha256 = str(result.get("parameters_sha256"))[:12]
        message = result.get("message", "")[:150]
        found = f"{result['status']}, {sha256}, fidelity {fidelity} {message}"
        return found, "done, fidelity ok" if needs_fidelity else "done", good

    def large(self, overrides: tuple[str, ...]) -> Finding:
        self._needs_gpu()
        return self.whole_run("emulate", *overrides)

    def predicted(self) -> Finding:
        """Compare the round time of a measured run on loopback with that of its simulation from a profile."""
        with tempfile.TemporaryDirectory() as folder:
            scenario = Path(folder) / "scenario.yaml"
            scenario.write_text(PREDICTED.format(kind=self.kind))
            profiled = _testbed("profile", str(scenario), "--on", "local", "--out", folder, "--no-costs", "--json")
            simulated = _run(scenario, "simulate", "device.profile={file: profile.csv}")
            local = _run(scenario, "local", "device.pace=measured")
        if "error" in profiled or simulated["status"] != "done" or local["status"] != "done":
            return f"{profiled} {simulated.get('message')} {local.get('message')}"[:200], "", False
        found = f"a round {1e3 * simulated['round_time_s']:.1f} ms simulated, {1e3 * local['round_time_s']:.1f} ms here"
        ratio = simulated["round_time_s"] / local["round_time_s"]
        within = None if self.rehearses else abs(ratio - 1) <= 0.05
        return f"{found}, {ratio - 1:+.0%}", self._later("5 %"), within

    def nccl(self) -> Finding:
        result = _run(ROOT / "scenarios" / "paradigms" / "gloo.yaml", "local", "paradigm.backend=nccl")
        found = str(result.get("message"))
        return found[:120], "refused", "nccl needs a GPU for each of" in found


class HostAccelerator(Accelerator):
    """For rehearsals: the processor instead of a GPU, with a count of copied bytes."""

    copied_bytes = 0

    timed = staticmethod(timed_on_core)

    def on(self, stream: str) -> Any:
        return nullcontext()

    def to_host(self, parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        self.copied_bytes += sum(part.nbytes for part in parts)
        return parts

    def to_device(self, parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return parts


def _same_payloads(kind: str, accelerator: Accelerator, size: int = 20_011) -> bool:
    here = make_codec(kind, {}, 2, 1)
    there = OnDevice(make_codec(kind, {}, 2, 1), accelerator)
    generator = torch.Generator().manual_seed(0)
    value = torch.randn(size, generator=generator)
    for codec in (here, there):
        codec.begin(0, value)
    for _ in range(3):
        gradient = torch.randn(size, generator=generator)
        mine = here.encode(0, gradient)
        other = there.encode(0, gradient)
        if not all(torch.equal(a, b) for a, b in zip(mine, other, strict=True)):
            return False
        if not torch.equal(here.decode(0, mine, size), there.decode(0, other, size).cpu()):
            return False
    return True


def _interprets() -> bool:
    return find_spec("triton") is not None and os.environ.get("TRITON_INTERPRET") == "1"


def _run(scenario: Path, on: str, *overrides: str) -> dict[str, Any]:
    settings = [word for override in overrides for word in ("--set", override)]
    with tempfile.TemporaryDirectory() as folder:
        answer = _testbed("run", str(scenario), "--on", on, "--out", f"{folder}/run", "--json", *settings)
    failed = {"status": "failed", "message": str(answer.get("error", answer))}
    result: dict[str, Any] = answer.get("result", failed)
    return result


def _testbed(*arguments: str) -> dict[str, Any]:
    """Return the last JSON line of a command; if there is none, or it is an error, a dict with the key ``error``."""
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
    *_EIGHT_WORKERS,
    "training.model=resnet50",
    "training.batch=16",
    "training.precision=bf16",
    "training.data={kind: teacher, side: 224, channels: 3, classes: 1000, train_samples: 512, test_samples: 16}",
)
GPT2 = (
    *_EIGHT_WORKERS,
    "training.model={kind: transformer, layers: 12, heads: 12, head_width: 64}",
    "training.batch=4",
    "training.data={kind: tokens, train_samples: 256, test_samples: 8}",
    "training.precision=bf16",
)


ARGUMENTS = {
    "--device": {"choices": ("cpu", "cuda"), "default": "cuda", "help": "cuda (default), or cpu for a rehearsal"},
    "--only": {"default": "", "metavar": "TEXT", "help": "lines with this text"},
    "--limit-s": {"type": float, "default": 480.0, "metavar": "S", "help": "then no further check begins"},
}
