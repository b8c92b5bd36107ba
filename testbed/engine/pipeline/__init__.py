"""Training steps that several workers make together, each with one stage of the model."""
