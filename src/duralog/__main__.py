"""The `duralog` command, also as `python -m duralog`: it loads the command line, and runs it."""

from __future__ import annotations

import signal


def main() -> None:
    # Loading takes a moment, and Ctrl-C would show a traceback of imports. In the background of a shell it is ignored.
    is_handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_handled:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from duralog.command_line import main as run

    if is_handled:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
