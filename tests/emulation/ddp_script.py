"""A plain data-parallel script, as anybody would write it: knows nothing of this project. Run by the shell's test."""

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", rank=int(sys.argv[1]), world_size=2, init_method=f"tcp://{sys.argv[2]}:29500")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(250, 1000))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(4):
    begin = time.monotonic()
    model(torch.randn(8, 250)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        print("step", time.monotonic() - begin, flush=True)  # noqa: T201
dist.destroy_process_group()
