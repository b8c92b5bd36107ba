"""Benchmarks of this machine and of this project: ``python -m analysis.benchmarks`` lists them."""
