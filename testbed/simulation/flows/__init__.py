"""Connections as flows that share links, without packets: rates, windows, and messages one after another."""
