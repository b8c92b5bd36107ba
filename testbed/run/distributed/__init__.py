"""Data-parallel training over other people's collectives (torch.distributed, MPI), on the same hosts and links.

Of our engine it uses the job, the scheduler and the worker's round; the sum of gradients alone is theirs. Virtual time
cannot see sockets that are not ours, so these roles are for the real world alone, which itself knows no roles.
"""
