"""A user-mode Linux kernel in virtual time, for runs that do not depend on the machine's speed or load."""
