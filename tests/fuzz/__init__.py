"""Fuzzing of everything that the product reads: ``python -m tests.fuzz 100000``."""
