"""`seqwright` and `python -m seqwright`: an interrupt exits with status 130, even while modules are imported."""

import sys
from typing import Any


def main() -> None:
    """Runs the command line.

    An interrupt can leave an import as another exception or be swallowed by it (the C extensions of torch go on without
    numpy then), or be lost in a callback, where Python only prints it. All end in status 130.
    """
    try:
        import os
        import signal

        interrupts: list[int] = []

        def interrupt(number: int, frame: Any) -> None:
            interrupts.append(number)
            while frame is not None:
                if frame.f_code.co_filename.startswith("<frozen importlib"):
                    os.write(2, b"stopped.\n")
                    os._exit(130)  # as safe as a kill
                frame = frame.f_back
            raise KeyboardInterrupt

        def unraisable(lost: Any) -> None:
            if lost.exc_type is KeyboardInterrupt:
                os._exit(130)  # as safe as a kill; raised here it would be lost again
            sys.__unraisablehook__(lost)

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else ignored, as in the background
            signal.signal(signal.SIGINT, interrupt)
            sys.unraisablehook = unraisable
        try:
            from seqwright.cli import main as run

            run()
        except Exception:
            if not interrupts:
                raise
            sys.exit(130)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the result is out: Python's own exit is not interrupted
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
