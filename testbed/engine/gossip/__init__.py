"""Decentralised training over a World's messages: every worker mixes its model with its neighbours'."""
