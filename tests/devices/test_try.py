from pathlib import Path
import pytest
from tests.devices import stand_in
from tests.end_to_end.runs import run_scenario
from tests.devices.conftest import *
FEW = ("training.rounds=6", "training.evaluate_every=3", "training.target_accuracy=null")
@pytest.mark.parametrize("back_end", ["simulate", "local"])
@pytest.mark.parametrize("more", [(), ("codec=fp16",), ("codec={kind: topk, bound: 100}",), ("codec={kind: bisparse, bound: 100}",), ("codec=mpq",), ("codec=twobit",), ("codec={kind: randomk, bound: 100}",), ("sync={kind: hfa, k1: 2}","optimizer={kind: adam, at: worker}"), ("sync={kind: diloco, h: 2}","optimizer={kind: adam, at: worker}")
 , ("device.server_device=cuda",), ("device.server_device=cuda","codec={kind: topk, bound: 100}"), ("order={kind: p3, overlap: layers}",), ("paradigm=allreduce",), ("overlay=tsengine",), ("order=dgt",), ("paradigm=gossip",)])
def test_it(tmp_path, gpu, more, back_end):
    torch_cpu = run_scenario(tmp_path/"cpu", "simulate", *FEW, *[m for m in more if "server_device" not in m])
    assert torch_cpu.outcome.status=="done", torch_cpu.outcome
    stand_in.forget()
    on = run_scenario(tmp_path/"gpu", back_end, *FEW, *more, "device.kind=cuda")
    assert on.outcome.status=="done", on.outcome
    print(stand_in.has_context(), stand_in.copies("to host",1000)[-10:], stand_in.copies("to device",1000)[-10:])
    assert on.hashes("worker")==torch_cpu.hashes("worker")
