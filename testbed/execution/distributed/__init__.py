"""Data-parallel training over the collectives of torch.distributed, on the same hosts and links.

Job, scheduler and the worker's round are the engine's; only the sum of gradients is the library's. A library's sockets
do not exist in virtual time, so these roles are for the real world alone.
"""
