"""The stand-in for a GPU is as strict as it claims to be."""

from __future__ import annotations

import os

import pytest
import torch

from testbed.devices.accelerator import CODING, Accelerator, accelerator_of, torch_device
from tests.devices import stand_in

pytestmark = pytest.mark.usefixtures("gpu")


@pytest.fixture
def device() -> torch.device:
    return torch_device("cuda")


@pytest.fixture
def accelerator(device: torch.device) -> Accelerator:
    found = accelerator_of(device)
    assert found is not None
    return found


def in_child(device: torch.device) -> str:
    """Return what a process that is forked from here says when it uses the device."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            torch.zeros(3, device=device)
            os.write(write, b"well")
        except RuntimeError as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said


def test_a_context_does_not_survive_a_fork(device: torch.device) -> None:
    assert in_child(device) == "well"
    assert not stand_in.has_context()
    torch.zeros(3, device=device)
    assert "Cannot re-initialize CUDA in forked subprocess" in in_child(device)


def test_memory_is_not_shared_with_the_host(device: torch.device) -> None:
    with pytest.raises(RuntimeError, match=r"same device|one device"):
        torch.ones(3, device=device) + torch.ones(3)
    with pytest.raises(TypeError):
        torch.ones(3, device=device).numpy()


def test_copies_are_counted(device: torch.device, accelerator: Accelerator) -> None:
    parts = accelerator.to_device((torch.arange(100.0), torch.arange(7, dtype=torch.int32)))
    assert stand_in.copies("to device") == [400 + 28 + 4]  # one copy, the parts at multiples of 16 bytes
    back = accelerator.to_host(parts)
    assert stand_in.copies("to host") == [432]
    assert torch.equal(back[0], torch.arange(100.0)) and torch.equal(back[1], torch.arange(7, dtype=torch.int32))


def test_a_stream_may_not_read_what_another_computes(device: torch.device, accelerator: Accelerator) -> None:
    value = torch.ones(5, device=device)
    with accelerator.on(CODING), pytest.raises(RuntimeError, match="coding reads what stream default"):
        value + 1
    complete, _ = accelerator.timed(lambda: torch.ones(5, device=device))
    with accelerator.on(CODING):
        assert (complete + 1).sum().item() == 10


def test_a_copy_arrives_with_its_event(device: torch.device, accelerator: Accelerator) -> None:
    value, target = torch.ones(4, device=device), accelerator.locked(4, torch.float32)
    target.copy_(value, non_blocking=True)
    assert not torch.equal(target, torch.ones(4))
    event = accelerator.event()
    event.record()
    assert not torch.equal(target, torch.ones(4))
    event.synchronize()
    assert torch.equal(target, torch.ones(4))
