"""An ordinary PyTorch training loop, made geo-distributed by the two lines marked with an arrow (and one import).

Alone: ``python plain_pytorch.py``. On every worker of every data centre: ``testbed run plain_pytorch.yaml``.
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from testbed.kvstore import GeoOptimizer, connect

BATCH, STEPS = 32, 120

store = connect()
digits = load_digits()
order = np.random.default_rng(0).permutation(len(digits.target))  # the same split at every worker
images = torch.tensor(digits.images[order], dtype=torch.float32)[:, None] / 16
labels = torch.tensor(digits.target[order])
test_images, test_labels = images[:360], labels[:360]
images, labels = images[360:], labels[360:]
images, labels = images[store.rank :: store.num_workers], labels[store.rank :: store.num_workers]  # <- my share

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(16, 16, 3),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(144, 64),
    nn.ReLU(),
    nn.Linear(64, 10),
)
optimizer = GeoOptimizer(torch.optim.Adam(model.parameters(), lr=0.002, fused=True), store)  # <- wrapped


def report(step: int) -> None:
    with store.untimed(), torch.no_grad():
        scores = model(test_images)
        accuracy = (scores.argmax(1) == test_labels).float().mean().item()
        loss = functional.cross_entropy(scores, test_labels).item()
    store.report(accuracy=accuracy, loss=loss)
    print(f"step {step + 1}: accuracy {accuracy:.4f}")


for step in range(STEPS):
    chosen = torch.randint(len(labels), (BATCH,))
    loss = functional.cross_entropy(model(images[chosen]), labels[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19 and step < STEPS - 1 and store.rank == 0:
        report(step)

optimizer.finish()  # where no worker waits for all others, worker 0 has the final model only now
if store.rank == 0:
    report(step)
