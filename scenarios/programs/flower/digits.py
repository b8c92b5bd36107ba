"""A Flower app as its documentation has them: federated averaging of a linear classifier of digits, on numpy."""

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from sklearn.datasets import load_digits

digits = load_digits()
images, labels = digits.data / 16, np.eye(10)[digits.target]
client = ClientApp()
server = ServerApp()


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@client.train()
def train(message: Message, context: Context) -> Message:
    part, parts = context.node_config["partition-id"], context.node_config["num-partitions"]
    x, y = images[:1500][part::parts], labels[:1500][part::parts]
    weights = message.content["arrays"].to_numpy_ndarrays()[0]
    for _ in range(20):
        weights = weights - 0.5 * x.T @ (softmax(x @ weights) - y) / len(x)
    loss = float(-np.log(softmax(x @ weights)[y > 0]).mean())
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(x)})
    return Message(RecordDict({"arrays": ArrayRecord([weights]), "metrics": metrics}), reply_to=message)


@client.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    weights = message.content["arrays"].to_numpy_ndarrays()[0]
    right = (images[1500:] @ weights).argmax(axis=1) == digits.target[1500:]
    metrics = MetricRecord({"accuracy": float(right.mean()), "num-examples": len(right)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    strategy = FedAvg(min_available_nodes=2)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord([np.zeros((64, 10))]),
        train_config=ConfigRecord({}),
        num_rounds=context.run_config["rounds"],
    )
    print(f"accuracy {result.evaluate_metrics_clientapp[context.run_config['rounds']]['accuracy']:.3f}")
