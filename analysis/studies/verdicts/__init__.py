"""Verdicts: each technique where its paper says that it wins, and where it should not, beside its twin without it."""
