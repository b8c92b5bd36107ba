"""The training job: models, data sets and their splits, optimizers. Independent of networks and servers."""
