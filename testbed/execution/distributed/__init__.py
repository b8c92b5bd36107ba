"""Data-parallel training over the collectives of torch.distributed, on the same hosts and links.

Job, scheduler and the worker's round are those of the engine; the library only sums gradients. The sockets of a library
do not exist in virtual time, so these roles run only in the real world.
"""
