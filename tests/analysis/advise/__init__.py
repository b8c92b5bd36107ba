"""Advice: which technique for a network."""
