"""Training samples that come from somewhere: a store, another data centre, a neighbour, the disk, the memory."""
