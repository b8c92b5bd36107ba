"""Benchmarks of this machine and of this project: ``testbed bench`` lists them."""
