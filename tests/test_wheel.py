"""The wheel holds all of the package and works away from the source."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import seqwright

ROOT = Path(__file__).parents[1]


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built in a copy: a build leaves things behind."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", ".*"))
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", cwd=copy)
    (built,) = (copy / "dist").glob("*.whl")
    return built


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "src"
    files = [p.relative_to(package) for p in package.rglob("*") if p.is_file()]
    ours = {str(p) for p in files if not re.search(r"__pycache__|(^|/)\.", str(p))}
    assert names >= ours  # the recipes and the page among them
    assert "seqwright/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0] for name in names} == {"seqwright", f"seqwright-{seqwright.__version__}.dist-info"}


def test_the_wheel_works_away_from_the_source(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", site, wheel, cwd=tmp_path)
    code = f"import sys; sys.path.insert(0, {str(site)!r}); import seqwright; print(seqwright.__file__)"
    assert run(sys.executable, "-I", "-c", code, cwd=tmp_path) == f"{site}/seqwright/__init__.py"
