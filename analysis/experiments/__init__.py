"""Experiments of several runs each, one small command per question."""
