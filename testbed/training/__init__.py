"""The training job: models, data sets and their splits, optimizers. Knows nothing of networks or servers."""
