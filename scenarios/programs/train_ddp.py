"""Data-parallel training on scikit-learn's digits, as anybody would write it for torchrun: it knows no testbed."""

import argparse
import json
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--hidden", type=int, default=256)
parser.add_argument("--lr", type=float, default=0.1)
options = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
train, test = TensorDataset(images[:1500], labels[:1500]), (images[1500:], labels[1500:])
sampler = DistributedSampler(train, seed=0)
loader = DataLoader(train, batch_size=options.batch, sampler=sampler, drop_last=True)
network = torch.nn.Sequential(
    torch.nn.Linear(64, options.hidden),
    torch.nn.ReLU(),
    torch.nn.Linear(options.hidden, options.hidden),
    torch.nn.ReLU(),
    torch.nn.Linear(options.hidden, 10),
)
model = DistributedDataParallel(network)
optimizer = torch.optim.SGD(model.parameters(), options.lr, momentum=0.9)

step = 0
for epoch in range(options.epochs):
    sampler.set_epoch(epoch)
    for batch, target in loader:
        begin = time.monotonic()
        loss = torch.nn.functional.cross_entropy(model(batch), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seconds = time.monotonic() - begin
        print(json.dumps({"step": step, "loss": loss.item(), "samples": len(target), "seconds": seconds}))
        step += 1
    if dist.get_rank() == 0:
        with torch.no_grad():
            accuracy = (network(test[0]).argmax(1) == test[1]).float().mean().item()
        print(json.dumps({"step": step - 1, "accuracy": accuracy}))
dist.destroy_process_group()
