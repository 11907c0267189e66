"""`seqwright` and `python -m seqwright`: an interrupt exits with status 130, even while modules are imported."""

import sys


def main() -> None:
    """Runs the command line."""
    try:
        from seqwright.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
