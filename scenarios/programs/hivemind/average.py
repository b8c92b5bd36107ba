"""Averages of models by hivemind, on scikit-learn's digits: each process is a peer. It knows no testbed."""

import json
import os
import time
from pathlib import Path

import hivemind
import torch
from sklearn.datasets import load_digits

STEPS, BATCH, HIDDEN = 10, 32, 256  # between two averages; of a step; width of both hidden layers
STEP_S = 0.05  # as long as a step of a larger model would take
averages = int(os.environ.get("AVERAGES", "24"))
rank, peers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address, known = os.environ["ADDRESS"], Path(os.environ["KNOWN_PEERS"])

torch.set_num_threads(1)
torch.manual_seed(0)
digits = load_digits()
drawn = torch.randperm(len(digits.target))
images, labels = torch.tensor(digits.data, dtype=torch.float32)[drawn] / 16, torch.tensor(digits.target)[drawn]
own_images, own_labels = images[:1500][rank::peers], labels[:1500][rank::peers]
network = torch.nn.Sequential(
    torch.nn.Linear(64, HIDDEN),
    torch.nn.ReLU(),
    torch.nn.Linear(HIDDEN, HIDDEN),
    torch.nn.ReLU(),
    torch.nn.Linear(HIDDEN, 10),
)
optimizer = torch.optim.Adam(network.parameters(), lr=0.004)


def meet() -> hivemind.DHT:
    """Return this peer in the hash table. The first one writes where it is, and the others begin with it."""
    here = [f"/ip4/{address}/tcp/0"]
    if rank == 0:
        table = hivemind.DHT(host_maddrs=here, start=True)
        written = known.with_suffix(".new")
        written.write_text("\n".join(map(str, table.get_visible_maddrs())))
        written.rename(known)
        return table
    while not known.exists():
        time.sleep(0.1)
    return hivemind.DHT(known.read_text().split(), host_maddrs=here, start=True)


if __name__ == "__main__":
    table = meet()
    averager = hivemind.DecentralizedAverager(
        [parameter.data for parameter in network.parameters()],
        table,
        prefix="digits",
        target_group_size=peers,
        min_group_size=peers,
        min_matchmaking_time=3.0,
        request_timeout=1.0,
        sender_timeout=10.0,  # by default it waits for ever for what another peer does not send
        reducer_timeout=20.0,
        allreduce_timeout=60.0,
        start=True,
    )
    order = torch.Generator().manual_seed(rank)
    for average in range(averages):
        began = time.monotonic()
        for made in range(STEPS):
            chosen = torch.randint(len(own_images), (BATCH,), generator=order)
            loss = torch.nn.functional.cross_entropy(network(own_images[chosen]), own_labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            time.sleep(max(0.0, began + (made + 1) * STEP_S - time.monotonic()))
            optimizer.step()
        group = averager.step(timeout=120)
        seconds = time.monotonic() - began
        print(f"average {average}: {len(group)} peers, {seconds:.2f} s")
        print(json.dumps({"step": average, "loss": loss.item(), "samples": STEPS * BATCH, "seconds": seconds}))
        if rank == 0:
            with torch.no_grad():
                accuracy = (network(images[1500:]).argmax(1) == labels[1500:]).float().mean().item()
            print(json.dumps({"step": average, "accuracy": accuracy}))
    time.sleep(3)  # until other peers have all of the last average, and the hash table what this peer has told it
    averager.shutdown()
    table.shutdown()
