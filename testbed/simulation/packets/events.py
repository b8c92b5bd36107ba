"""Kinds of events of a packet network; see ``machine.events``."""

from __future__ import annotations

# Timers, which are background events
SENDER_TIMER = 0
DELAY_TIMER = 1
# A packet gets to a link, gets to its receiver's port, has passed this port
AT_LINK = 2
AT_PORT = 3
ARRIVED = 4
# A link looks at its queues
LINK_TIMER = 5
# A connection: its node's port has room again, the process writes, the next burst may leave
PORT_HAS_ROOM = 6
WRITE = 7
PACER = 8
# The program reads what has arrived at a connection
READ = 9
