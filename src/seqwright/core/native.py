"""C sources of the package, compiled by the machine's own compiler when they are first used, and kept.

Without a compiler nothing is missing but speed: whoever asks for a library has another way (decision 192).
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

FLAGS = ("-O3", "-march=native", "-fPIC")
OPENMP = ("-fopenmp",)
INCLUDE = re.compile(r'^#include "(.+)"$', re.MULTILINE)
SWITCH = "SEQWRIGHT_NATIVE"
"""Environment variable; "off": nothing is compiled, nor are compiled libraries used."""


def cache_folder() -> Path:
    """Where compiled code is kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seqwright"


@functools.cache
def library(source: Path) -> ctypes.CDLL | None:
    """The functions of a C source; None where no compiler is found, or `SEQWRIGHT_NATIVE=off`."""
    compiler = shutil.which(os.environ.get("CC") or "cc")
    if compiler is None or os.environ.get(SWITCH) == "off":
        return None
    for flags in (FLAGS + OPENMP, FLAGS):  # not every compiler has OpenMP, nor is it loaded everywhere
        try:
            return ctypes.CDLL(str(_compiled(source, compiler, flags)))
        except (OSError, subprocess.CalledProcessError, RuntimeError):  # RuntimeError: a user without a home
            continue
    return None


def _compiled(source: Path, compiler: str, flags: tuple[str, ...]) -> Path:
    """The shared library of a source and the headers that it includes, from the cache where it was compiled before on
    such a machine."""
    text = source.read_text(encoding="utf-8")
    headers = [(source.parent / name).read_text(encoding="utf-8") for name in INCLUDE.findall(text)]
    parts = [text, *headers, compiler, *flags, _processor()]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    path = cache_folder() / "native" / f"{source.stem}-{key[:16]}.so"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        part, whole = Path(folder) / "part.o", Path(folder) / "whole.so"
        # Linked without OpenMP: its functions are those of the library that PyTorch has loaded, with its threads.
        for command in ([*flags, "-c", str(source), "-o", str(part)], ["-shared", str(part), "-o", str(whole), "-lm"]):
            subprocess.run([compiler, *command], check=True, capture_output=True)
        whole.replace(path)
    return path


def _processor() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    features = [line for line in lines if line.startswith(("flags", "Features"))]
    return " ".join([platform.machine(), platform.processor(), *features[:1]])
