"""Sums of an array over MPI, as anybody would write them. It knows nothing of testbed."""

import socket
import time

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
values = np.full(250_000, world.Get_rank() + 1.0, dtype=np.float32)
total = np.empty_like(values)
print(f"rank {world.Get_rank()} of {world.Get_size()} on {socket.gethostname()}", flush=True)
for number in range(5):
    world.Barrier()
    begin = time.monotonic()
    world.Allreduce(values, total)
    if world.Get_rank() == 0:
        print(f"all-reduce {number}: {time.monotonic() - begin:.3f} s", flush=True)
assert (total == sum(range(1, world.Get_size() + 1))).all()
