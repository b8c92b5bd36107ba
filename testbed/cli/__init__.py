"""The command ``testbed``: one module per verb, which imports heavy packages only when it is executed."""

import signal
import sys

# Until a verb takes interrupts (``interrupts``), there is nothing to clean up, so Ctrl-C ends the process at once.
# Python's own handler would print a traceback of the imports or of the parser.
if (
    sys.argv[0].rpartition("/")[2] in ("testbed", "-m")
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    signal.signal(signal.SIGINT, signal.SIG_DFL)
