"""The house stays as drawn: imports point down, verbs and models meet only in build.py, files keep to one reason."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "seqwright"

LEVELS = [
    ("core", {"core"}),
    ("parts", {"layers", "text"}),
    ("nouns", {"models", "data"}),
    ("verbs", {"training", "decoding", "metrics", "reporting"}),
    ("run directories", {"runs"}),
    ("tasks", {"tasks"}),
    ("tables of kinds", {"build"}),
    ("pipeline", {"pipeline"}),
    ("studies", {"studies", "interop"}),
    ("inspection", {"inspection"}),
    ("Python API", {"api"}),
    ("edges", {"cli", "commands", "__main__", "__init__"}),
]
"""From the ground up. A new top-level name is a decision: put it here, and say why in docs/decisions/."""

LEVEL = {name: height for height, (_, names) in enumerate(LEVELS) for name in names}
EDGES = len(LEVELS) - 1
NOUNS = {"models", "data"}
VERBS = LEVELS[3][1]
HEAVY = {"torch", "numpy", "tokenizers", "safetensors", "rich"}
"""What `seqwright --help` has no time for."""
DATA_FOLDERS = {"recipes"}
"""Folders of the package that hold no code."""
DISTRIBUTED = {
    "core/ranks.py",
    *(
        f"training/{name}.py"
        for name in ("launcher", "parallel", "process_group", "sharded_tensors", "tensor_parallel")
    ),
}
"""Files that know torch.distributed."""
LONGEST = 400

FILES = sorted(PACKAGE.rglob("*.py"))
by_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))


def module_of(path: Path) -> str:
    """`seqwright.models.encoders.gpt` for src/seqwright/models/encoders/gpt.py."""
    parts = ["seqwright", *path.relative_to(PACKAGE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


MODULES = {module_of(path) for path in FILES}


def top(module: str) -> str:
    """The name under which a module stands in LEVELS."""
    return module.split(".")[1]


def imported(path: Path) -> Iterator[str]:
    """The modules of ours a file imports, anywhere in it: an import inside a function is still a dependency."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("seqwright."))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: say where the import comes from; it is relative"
            if node.module == "seqwright" or (node.module or "").startswith("seqwright."):
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    if inner in MODULES:
                        yield inner
                    elif node.module != "seqwright":
                        yield str(node.module)
                    elif alias.name != "__version__":  # the version is a fact; the rest of the API is for users
                        yield "seqwright.__init__"


def fault(importer: str, target: str) -> str | None:
    """Why one module may not import another, or None where it may."""
    here, there = top(importer), top(target)
    if here == there:
        return None
    if unlisted := {here, there} - LEVEL.keys():
        return f"{unlisted} is not in LEVELS"
    if LEVEL[there] > LEVEL[here]:
        return f"{here} is below {there}"
    if LEVEL[there] == LEVEL[here] and LEVEL[here] != EDGES:
        return f"{here} and {there} stand on the same level"
    if here in VERBS and there in NOUNS:
        return "verbs know core/protocols.py, never a model or a corpus"
    if there == "models" and here != "build":
        return "verbs and models meet only in build.py"
    return None


def test_every_top_level_name_is_listed() -> None:
    names = {p.stem for p in PACKAGE.iterdir() if p.suffix == ".py"}
    names |= {p.name for p in PACKAGE.iterdir() if p.is_dir() and any(p.glob("**/*.py"))}
    assert names - DATA_FOLDERS <= LEVEL.keys()


@by_file
def test_imports_point_down(path: Path) -> None:
    faults = {target: fault(module_of(path), target) for target in imported(path)}
    assert not {target: why for target, why in faults.items() if why}


@pytest.mark.parametrize(
    ("importer", "target", "allowed"),
    [
        ("models.encoders.gpt", "layers.attention", True),
        ("models.encoders.gpt", "models.language_model", True),
        ("models.encoders.gpt", "data.text.corpus", False),
        ("data.text.corpus", "models.encoders.gpt", False),
        ("data.text.corpus", "text.tokenizer", True),
        ("layers.attention", "text.tokenizer", False),
        ("training.trainer", "core.protocols", True),
        ("training.trainer", "layers.heads", True),
        ("training.trainer", "models.encoders.gpt", False),
        ("training.trainer", "data.text.corpus", False),
        ("training.trainer", "decoding.generate", False),
        ("training.trainer", "runs.directory", False),
        ("runs.run", "tasks.base", False),
        ("tasks.base", "runs.run", True),
        ("tasks.base", "studies.laws", False),
        ("build", "models.encoders.gpt", True),
        ("pipeline.training", "models.encoders.gpt", False),
        ("pipeline.training", "data.text.corpus", True),
        ("pipeline.training", "runs.directory", True),
        ("pipeline.recipe", "studies.laws", False),
        ("cli", "commands.train", True),
        ("cli", "models.encoders.gpt", False),
        ("core.storage", "core.config", True),
        ("core.config", "layers.attention", False),
    ],
)
def test_the_rule_says_what_the_drawing_says(importer: str, target: str, allowed: bool) -> None:
    assert (fault(f"seqwright.{importer}", f"seqwright.{target}") is None) == allowed


def test_there_are_no_cycles() -> None:
    graph = {module_of(path): set(imported(path)) - {module_of(path)} for path in FILES}
    TopologicalSorter(graph).prepare()


@by_file
def test_a_file_has_one_reason_and_a_limit(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= LONGEST
    if path.name == "__init__.py" and path.parent != PACKAGE:
        assert text == "", "only the top-level __init__.py re-exports, for users"
    else:
        assert ast.get_docstring(ast.parse(text)), "a file opens by saying its reason"


@by_file
def test_nothing_is_unpickled(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    names |= {str(node.module).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not names & {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
    calls = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not calls & {"torch.load", "torch.save"}


@by_file
def test_ranks_are_the_business_of_a_few_files(path: Path) -> None:
    """Models, data and tasks are the same on one process and on many (decision 173)."""
    if str(path.relative_to(PACKAGE)) not in DISTRIBUTED:
        text = path.read_text(encoding="utf-8")
        assert "torch.distributed" not in text
        assert "DistributedDataParallel" not in text.replace("(ddp, DistributedDataParallel)", "")


@by_file
def test_models_are_known_by_declared_capabilities(path: Path) -> None:
    """What a model can do beyond the seam is a protocol of core/protocols.py, never a probe for an attribute."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            subject = ast.unparse(node.args[0]).split(".")[-1]
            if node.func.id in ("getattr", "hasattr"):
                assert subject not in ("model", "encoder", "decoder"), f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("name", ["__init__.py", "cli.py", "__main__.py"])
def test_the_doors_are_light(name: str) -> None:
    source = (PACKAGE / name).read_text(encoding="utf-8")
    outside = [n for n in ast.parse(source).body if isinstance(n, ast.Import | ast.ImportFrom)]
    names = {alias.name for n in outside if isinstance(n, ast.Import) for alias in n.names}
    names |= {str(n.module) for n in outside if isinstance(n, ast.ImportFrom)}
    assert not {name.split(".")[0] for name in names} & HEAVY


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--help", "Usage"),
        ("train --text nowhere.txt", "no file nowhere.txt"),
        ("train --text README.md --set training.device=tpu", "Did you mean 'cpu'?"),
        ("train --text README.md --set training.stepz=3", "Did you mean 'steps'?"),
        ("train --text README.md --set lr=3", "Did you mean training.learning_rate?"),
        ("train --text README.md --steps 3", "--set training.steps="),
        ("train nowhere.toml", "no recipe 'nowhere.toml'"),
        ("generate nowhere", "no run at nowhere"),
        ("evaluate nowhere --on nowhere.txt", "no file nowhere.txt"),
        ("recipes shakespeare-cpu", "tiny Shakespeare"),
        ("recipes --lectures", "lecture-generation-ngram"),
    ],
)
def test_help_and_wrong_names_do_not_wait_for_torch(arguments: str, message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "seqwright", *arguments.split()],
        capture_output=True,
        text=True,
        cwd=PACKAGE.parents[1],
    )
    assert message in done.stdout + done.stderr
    loaded = set(re.findall(r"\| +([\w.]+)$", done.stderr, flags=re.MULTILINE))
    assert "seqwright" in loaded
    assert not {name.split(".")[0] for name in loaded} & (HEAVY - {"rich"})
