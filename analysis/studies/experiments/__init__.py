"""Experiments of our own: how much a technique is worth, and how good a prediction is."""
