"""A laboratory for training neural networks across data centres: emulated, simulated or local, from one scenario."""

__version__ = "0.1.0"
