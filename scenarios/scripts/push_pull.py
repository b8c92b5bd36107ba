"""Training by hand with the key-value store: keys, priorities, asynchronous handles, an optimizer on the servers.

Linear regression whose answer is known; every worker sees its own samples.
"""

import torch

from testbed.kvstore import connect

STEPS, RATE = 60, 0.05

store = connect()
truth = torch.linspace(-1, 1, 20)
inputs = torch.randn(200, 20)  # each worker draws its own: its generator is seeded by the run and its rank
targets = inputs @ truth + 0.5

store.set_optimizer("sgd", learning_rate=RATE)  # along the mean gradient of the workers that push together
store.init("weight", torch.zeros(20))
store.init("bias", torch.zeros(1))
weight, bias = store.pull("weight"), store.pull("bias")

for step in range(STEPS):
    chosen = slice(step * 32 % 192, step * 32 % 192 + 32)
    error = inputs[chosen] @ weight + bias - targets[chosen]
    # what the next step needs first goes first; both travel while we do something else
    later = [
        store.push("weight", 2 * inputs[chosen].T @ error / 32, priority=1),
        store.push("bias", 2 * error.mean().reshape(1), priority=0),
    ]
    weight, bias = (handle.wait() for handle in later)

store.barrier()
print(f"worker {store.rank}: distance from the truth {(weight - truth).norm():.5f}, bias {bias.item():.4f}")
