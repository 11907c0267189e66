"""What tests share: where the larger corpora lie, for the tests that need one."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of corpora named by SEQWRIGHT_DATA; tests that ask for it are skipped where there is none."""
    named = os.environ.get("SEQWRIGHT_DATA", "")
    if not named or not Path(named).is_dir():
        pytest.skip("needs the corpora: set SEQWRIGHT_DATA to their folder")
    return Path(named)
