"""Figures from papers."""
