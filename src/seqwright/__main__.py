"""`python -m seqwright` is `seqwright`."""

from seqwright.cli import main

main()
