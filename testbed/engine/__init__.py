"""The roles: worker, server, scheduler. Written once, against ``testbed.world.World``."""
