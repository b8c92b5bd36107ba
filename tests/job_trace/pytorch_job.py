"""A small job of two processes, traced by PyTorch itself: ``python -m tests.job_trace.pytorch_job FOLDER``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.multiprocessing
from torch import distributed, nn
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

STEPS = 3
RANKS = 2


def train(rank: int, folder: str, store: str) -> None:
    torch.set_num_threads(1)
    observer = ExecutionTraceObserver()
    observer.register_callback(f"{folder}/et_{rank}.json")
    with profile(activities=[ProfilerActivity.CPU], execution_trace_observer=observer) as profiled:
        distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
        layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
        model = nn.parallel.DistributedDataParallel(layers)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(torch.randn(64, 64)).square().mean().backward()
            optimizer.step()
        if rank == 0:
            distributed.send(torch.ones(1000), 1)
        else:
            distributed.recv(torch.ones(1000), 0)
        distributed.barrier()
    profiled.export_chrome_trace(f"{folder}/kineto_{rank}.json")
    distributed.destroy_process_group()


if __name__ == "__main__":
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    place = Path(sys.argv[1]).resolve()
    torch.multiprocessing.spawn(train, args=(str(place), str(place / "store")), nprocs=RANKS)
