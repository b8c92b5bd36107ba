"""Torch's compiler is imported where something compiles, and only there."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from testbed.execution import compiler

CODE = """
import inspect, os, sys
from testbed.execution.compiler import bring_compiler, leave_out_compiler
leave_out_compiler()
import torch
value = torch.nn.Parameter(torch.ones(3))
for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD):
    optimizer = kind([value], lr=0.1, foreach=False)
    value.grad = torch.ones(3)
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.zero_grad()
inspect.getmodule(inspect.currentframe())  # looks at all modules
assert "torch._dynamo.eval_frame" not in sys.modules, "training has imported the compiler"
brings = os.fork() > 0  # one process brings it, the other has it imported by what compiles
if brings:
    bring_compiler()
    assert "torch._dynamo.eval_frame" in sys.modules
assert torch.compile(lambda x: 2 * x, backend="eager")(torch.ones(1)) == 2
from torch._dynamo.backends.registry import list_backends
assert "inductor" in list_backends() and torch._dynamo is sys.modules["torch._dynamo"]
leave_out_compiler()
assert "torch._dynamo.eval_frame" in sys.modules and torch._dynamo.config is not None
assert not brings or os.wait()[1] == 0, "the other process has failed"
"""


def test_what_is_absent_is_imported_when_something_of_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a module of the standard library in place of the compiler, which this process may have imported already."""
    monkeypatch.setattr(compiler, "NAME", "colorsys")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    compiler.leave_out_compiler()
    absent = importlib.import_module("colorsys")
    assert absent.disable(len) is len and sys.modules["colorsys"] is absent
    assert absent.rgb_to_hls(0.0, 0.0, 0.0) == (0.0, 0.0, 0.0)
    assert sys.modules["colorsys"] is not absent


@pytest.mark.slow  # 13 s; by default, all tests train without it
def test_optimizers_step_without_it_and_what_compiles_gets_it() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
