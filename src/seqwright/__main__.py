"""`seqwright` and `python -m seqwright`: Ctrl-C and SIGTERM exit with status 130 and 143, even while modules are
imported."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as in the package itself: what type checkers take for true

if TYPE_CHECKING:
    from typing import Any


def main() -> None:
    """Runs the command line.

    An interrupt can leave an import as another exception or be swallowed by it (the C extensions of torch go on without
    numpy then), or be lost in a callback, where Python only prints it. All end in status 128 + signal number.
    """
    status = 130
    try:
        import os
        import signal

        received: list[int] = []

        def interrupt(number: int, frame: Any) -> None:
            nonlocal status
            if not received:
                status = 128 + number
            received.append(number)
            while frame is not None:
                if frame.f_code.co_filename.startswith("<frozen importlib"):
                    os.write(2, b"stopped.\n")
                    os._exit(status)  # as safe as a kill
                frame = frame.f_back
            raise KeyboardInterrupt

        def unraisable(lost: Any) -> None:
            if lost.exc_type is KeyboardInterrupt:
                os._exit(status)  # as safe as a kill; raised here it would be lost again
            sys.__unraisablehook__(lost)

        handled = []
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else ignored, as in the background
            handled.append(signal.SIGINT)
        # The agent that starts ranks tells by their status which of them it ended itself.
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and "TORCHELASTIC_RUN_ID" not in os.environ:
            handled.append(signal.SIGTERM)
        for number in handled:
            signal.signal(number, interrupt)
        if handled:
            sys.unraisablehook = unraisable
        try:
            from seqwright.cli import main as run

            run()
        except SystemExit as end:
            if not received or end.code != 130:  # 130: interrupted, by whichever signal
                raise
            sys.exit(status)
        except Exception:
            if not received:
                raise
            sys.exit(status)
        finally:
            for number in handled:  # the result is out: Python's own exit is not interrupted
                signal.signal(number, signal.SIG_IGN)
    except KeyboardInterrupt:
        sys.exit(status)


if __name__ == "__main__":
    main()
