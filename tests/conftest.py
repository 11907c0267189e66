"""What tests share: where the larger corpora lie, and patience with a busy machine."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Property tests are judged by what they find, not by how long the first call of torch takes on a busy machine.
# `make test` draws the same examples every time, so that a commit has one verdict; `make test-all` draws new ones.
settings.register_profile("same", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("new", settings.get_profile("same"), derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("SEQWRIGHT_EXAMPLES", "same"))


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """SIGINT is handled even where the tests were started in the background of a script, which has it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def command_line_wording() -> Iterator[None]:
    """Messages are compared as they are written, with the options of the command line; tests/core/test_wording.py has
    what becomes of them in Python."""
    from seqwright.core.wording import on_command_line

    with on_command_line():
        yield


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of corpora named by SEQWRIGHT_DATA; tests that ask for it are skipped where there is none."""
    named = os.environ.get("SEQWRIGHT_DATA", "")
    if not named or not Path(named).is_dir():
        pytest.skip("needs the corpora: set SEQWRIGHT_DATA to their folder")
    return Path(named)
