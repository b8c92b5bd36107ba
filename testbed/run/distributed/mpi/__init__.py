"""MPI's all-reduce between the workers of a run: MPICH through mpi4py, started by ourselves and not by ``mpirun``.

``mpirun`` would start ranks of its own, outside the hosts of a run. MPICH needs of it no more than a process manager
that speaks PMI-1 over an inherited descriptor, and each worker is its own.
"""
