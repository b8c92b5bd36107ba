"""Training samples that are loaded from memory, disk, a neighbour, another data centre or a remote store."""
