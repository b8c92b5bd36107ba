"""MPI's all-reduce between the workers of a run: MPICH through mpi4py, started without ``mpirun``.

``mpirun`` would start ranks of its own, outside the emulated hosts of a run. MPICH needs only a process manager that
speaks PMI-1 over an inherited descriptor, which each worker serves for itself.
"""
