"""The command ``testbed``: one module per verb, which imports heavy packages only when it is executed."""

import signal
import sys

# Until a verb takes interrupts (``interrupts``), nothing has begun that has to be ended: the process ends at once.
# Python's own handler would print where in the imports, or in the parser, it was.
if (
    sys.argv[0].rpartition("/")[2] in ("testbed", "-m")
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    signal.signal(signal.SIGINT, signal.SIG_DFL)
