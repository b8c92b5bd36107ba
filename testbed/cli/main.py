"""The command ``testbed``: parses the command line, executes the verb, and reports every error as one message."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper

from testbed.cli.interrupts import take_interrupts
from testbed.errors import ScenarioError, TestbedError, of_os
from testbed.garbage import relaxed_garbage_collection
from testbed.version import VERSION

VERBS = (
    "run",
    "sweep",
    "advise",
    "shell",
    "validate",
    "check",
    "plan",
    "show",
    "view",
    "events",
    "compare",
    "report",
    "figure",
    "export",
    "calibrate",
    "profile",
    "validate-sim",
    "bench",
    "doctor",
    "clean",
    "exact",
    "topology",
    "trace",
    "schema",
    "matrix",
    "new",
    "scenarios",
)

DESCRIPTION = "Train neural networks across data centres: emulated, simulated or local, from one scenario file."
EXIT_CODES = """\
exit codes:
    0  done
    1  an error of this program
    2  the scenario or the command line is wrong; nothing was created, unless only the nodes could tell
    3  this machine cannot do what was asked; `testbed doctor` names the cures
    4  a node failed; the message names node, step and cause
    5  a wait passed its deadline, or no node could advance any more
    6  the emulated links do not match the plan
    7  the training diverged; the results are kept
  130  interrupted (143 by SIGTERM or SIGHUP); the results so far are kept
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; entry point of the console script. Return the exit code."""
    _open_closed_streams()
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        with suppress(OSError):
            sys.stdout.reconfigure(errors="replace")  # tables have characters that latin-1, for example, lacks
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:  # inherited from a daemon; one could not wait for children
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    given = sys.argv[1:] if argv is None else list(argv)
    at = given.index("--") if given[:1] == ["shell"] and "--" in given else len(given)
    arguments = build_parser().parse_args(given[:at])
    arguments.command = given[at + 1 :]  # of `testbed shell … --in NODE -- COMMAND`
    code = 0
    try:
        # taking interrupts lets a verb clean up its files and processes after SIGTERM, too; without relaxed garbage
        # collection, the collector takes a fifth of the time of a large run
        with take_interrupts(), relaxed_garbage_collection():
            outcome = arguments.execute(arguments)
        if isinstance(outcome, int):
            code = outcome
        else:
            code, output = outcome if isinstance(outcome, tuple) else (0, outcome)
            from testbed.display.look import json_line

            print(json_line(output))
    except TestbedError as error:
        code = _report(arguments, str(error), error.exit_code, error)
    except KeyboardInterrupt as error:
        code = _interrupted(arguments, error)
    except BrokenPipeError:
        pass  # `testbed show RUN | head` is not an error
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # Python 3.11 wraps what is raised while it makes a class
            code = _interrupted(arguments, error.__cause__)
        else:
            code = _report(arguments, *unforeseen(error), error)
    _leave_closed_pipes()
    return int(code)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="testbed",
        description=DESCRIPTION,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"testbed {VERSION}")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    common.add_argument("--json", action="store_true", help="JSON on standard output, for scripts")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for name in VERBS:
        verb = import_module(f"testbed.cli.{name.replace('-', '_')}")
        described = verbs.add_parser(name, help=verb.HELP, description=verb.__doc__, parents=[common])
        if hasattr(verb, "add_arguments"):
            verb.add_arguments(described)
        described.set_defaults(execute=verb.execute)
    return parser


def unforeseen(error: Exception) -> tuple[str, int]:
    """Return message and exit code for an error that no verb expects.

    The error is an unusable path, or a defect of a user's technique or of the testbed.
    """
    if isinstance(error, OSError) and (ours := of_os(error, unnamed="output")) is not None:
        return str(ours), ours.exit_code
    from testbed.axes import place_in_code

    if place := place_in_code(error):
        return f"{place}: {type(error).__name__}: {error} (--debug shows the traceback)", ScenarioError.exit_code
    return f"{type(error).__name__}: {error} (an error of testbed itself; --debug shows where)", 1


def _interrupted(arguments: argparse.Namespace, error: KeyboardInterrupt) -> int:
    return _report(arguments, "interrupted", 143 if error.args in (("SIGTERM",), ("SIGHUP",)) else 130, error)


def _report(arguments: argparse.Namespace, message: str, code: int, error: BaseException) -> int:
    with suppress(BrokenPipeError):
        if arguments.debug:
            import traceback

            traceback.print_exception(error)
        if arguments.json:
            print(json.dumps({"kind": "error", "message": message, "exit_code": code}))
        lines = message.splitlines() or [type(error).__name__]
        print("testbed: " + "\n         ".join(lines), file=sys.stderr)
    return code


def _open_closed_streams() -> None:
    """Connect closed standard streams (`>&-`) to ``/dev/null``; otherwise the next opened file would replace them."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, that of the stream
            os.set_inheritable(descriptor, True)
            setattr(sys, name, open(descriptor, mode, closefd=False))


def _leave_closed_pipes() -> None:
    """Discard output left for a pipe without a reader; otherwise Python would report an error at its exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        except OSError:
            pass  # a full disk, for example; Python reports it at its exit


if __name__ == "__main__":
    sys.exit(main())
