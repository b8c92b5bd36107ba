"""Data-parallel training on scikit-learn's digits over MPI, as anybody would write it: it knows no testbed."""

import argparse
import json
import time

import numpy as np
import torch
from mpi4py import MPI
from sklearn.datasets import load_digits

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--lr", type=float, default=0.005)
options = parser.parse_args()

ranks = MPI.COMM_WORLD
rank, size = ranks.Get_rank(), ranks.Get_size()
torch.set_num_threads(1)
torch.manual_seed(0)  # equal first values at all ranks
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
network = torch.nn.Sequential(
    torch.nn.Conv2d(1, 16, 3),
    torch.nn.ReLU(),
    torch.nn.Conv2d(16, 32, 3),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    torch.nn.Linear(512, 10),
)
optimizer = torch.optim.Adam(network.parameters(), options.lr)
mine = torch.arange(rank, 1500, size)  # this rank's samples
draws = torch.Generator().manual_seed(rank)

for step in range(options.steps):
    begin = time.monotonic()
    batch = mine[torch.randint(len(mine), (options.batch,), generator=draws)]
    loss = torch.nn.functional.cross_entropy(network(images[batch]), labels[batch])
    optimizer.zero_grad()
    loss.backward()
    gradient = torch.cat([parameter.grad.flatten() for parameter in network.parameters()]).numpy()
    total = np.empty_like(gradient)
    ranks.Allreduce(gradient, total)
    mean = torch.from_numpy(total / size)
    torch.nn.utils.vector_to_parameters(mean, [parameter.grad for parameter in network.parameters()])
    optimizer.step()
    if rank == 0:
        seconds = time.monotonic() - begin
        print(json.dumps({"step": step, "loss": loss.item(), "samples": size * options.batch, "seconds": seconds}))
        if step % 10 == 9:
            with torch.no_grad():
                accuracy = (network(images[1500:]).argmax(1) == labels[1500:]).float().mean().item()
            print(json.dumps({"step": step, "accuracy": accuracy}), flush=True)
