"""Tables of kinds: rows that resolve, flat [model] tables, imports on first use, and encoders of the user."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

import seqwright as sw
from seqwright import build
from seqwright.cli import COMMANDS
from seqwright.core.batch import Batch, Source, Vocabulary
from seqwright.core.config import ConfigLoader
from seqwright.layers.encoder import EncoderConfig, EncoderOutput
from seqwright.runs.run import VERBS

ROWS = [(task, kind) for task, spec in build.TASKS.items() for kind in spec.models]
NEURAL = [(task, kind) for task, kind in ROWS if kind not in {*build.COUNTED, *build.DERIVED}]


@pytest.mark.parametrize("task", build.TASKS)
def test_the_names_of_a_task_resolve(task: str) -> None:
    spec = build.task_spec(task)
    for name in spec.names:
        assert isinstance(getattr(spec, name), type)
    assert spec.default_model in spec.models


@pytest.mark.parametrize("task", build.TASKS)
def test_the_verbs_of_a_run_are_methods_and_commands(task: str) -> None:
    """A verb that is missing in VERBS would fail on other runs with a traceback instead of the verbs they support."""
    run = build.task_spec(task).run
    assert {*run.verbs} <= {*VERBS}
    for verb in run.verbs:
        assert callable(getattr(run, verb))
        assert verb.replace("_", "-") in COMMANDS


@pytest.mark.parametrize(("task", "kind"), ROWS)
def test_a_row_has_keys_and_a_builder(task: str, kind: str) -> None:
    assert callable(build.task_spec(task).models[kind].build)
    names = [key.name for key in build.model_keys(kind, task=task)]
    assert len(names) == len(set(names)), "a key of the encoder and of the head"


@pytest.mark.parametrize(("task", "kind"), NEURAL)
def test_a_configuration_is_its_flat_table(task: str, kind: str) -> None:
    config = build.model_config({"kind": kind}, task=task)
    table = config.to_table()
    assert table["kind"] == kind
    assert build.model_config(table, task=task) == config
    defaults = {key.name: key.default for key in build.model_keys(kind, task=task) if key.default is not None}
    assert table == {"kind": kind} | {k: list(v) if isinstance(v, tuple) else v for k, v in defaults.items()}


def test_unknown_keys_are_compared_with_those_of_encoder_and_head() -> None:
    with pytest.raises(sw.UserError, match=r"no key 'headdropout'. Did you mean 'head_dropout'\?"):
        build.model_config({"kind": "lstm", "headdropout": 0.1}, task="labeled")
    with pytest.raises(sw.UserError, match=r"no key 'n_layer'. Did you mean 'layers'\?"):
        build.model_config({"kind": "lstm", "n_layer": 1}, task="labeled")
    with pytest.raises(sw.UserError, match="no key 'tied'"):  # fixed by the encoder
        build.model_config({"kind": "feedforward", "tied": True})


def test_an_error_of_encoder_and_head_names_the_override_that_is_wrong() -> None:
    loader = ConfigLoader("recipe.toml", {"model.pooling": "--set model.pooling=final"})
    assert build.model_config({"kind": "bert", "pooling": "final"}, loader, task="labeled") is None
    [problem] = loader.problems
    assert problem.startswith(
        "--set model.pooling=final: [model] pooling 'final' is not defined for this encoder. Known"
    )


def test_opening_a_bigram_imports_no_other_family(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("to be or not to be\n" * 200, encoding="utf-8")
    sw.train(text=str(tmp_path / "text.txt"), model="neural-bigram", set=["training.steps=1"], run=tmp_path / "run")
    script = (
        f"import sys, seqwright; seqwright.open({str(tmp_path / 'run')!r}).generate('to', max_tokens=2);"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert "seqwright.models.encoders.feedforward" in modules
    families = {f"seqwright.models.encoders.{name}" for name in ("vit", "bert", "gpt", "recurrent", "cnn")}
    families |= {"seqwright.models.tagger", "seqwright.models.seq2seq", "seqwright.models.ngram.model"}
    assert not modules & (families | {"seqwright.layers.crf", "sacrebleu", "sklearn"})


@dataclass(frozen=True, kw_only=True)
class GatedCNNConfig(EncoderConfig):
    channels: int = 16
    """Size of embeddings and hidden states."""
    kernel: int = 3
    """Width of the causal convolutions."""
    context: int = 32
    """Maximum input length in tokens."""

    autoregressive: ClassVar[bool] = True

    @property
    def input_width(self) -> int:
        return self.channels


class GatedCNN(nn.Module):
    """Causal convolution with a gated linear unit (Dauphin et al. 2017)."""

    def __init__(self, config: GatedCNNConfig):
        super().__init__()
        self.width, self.context = config.channels, config.context
        self.convolution = nn.Conv1d(config.channels, 2 * config.channels, config.kernel)

    def forward(self, x: Tensor, mask: Tensor) -> EncoderOutput:
        padded = nn.functional.pad((x * mask.unsqueeze(-1)).transpose(1, 2), (self.convolution.kernel_size[0] - 1, 0))
        return EncoderOutput(x + nn.functional.glu(self.convolution(padded), 1).transpose(1, 2), mask)


@pytest.fixture
def gated_cnn() -> Iterator[None]:
    sw.register_encoder("gated-cnn", GatedCNNConfig, GatedCNN)
    yield
    del build.REGISTERED["gated-cnn"]


STEPS = ["training.steps=4", "training.batch_size=4"]
TRAININGS = {
    "text": ({"text": "embedded:topics"}, ["tokenizer.size=300"]),
    "labeled": ({"labeled": "embedded:languages"}, ["tokenizer.kind=characters"]),
    "tagged": ({"tagged": "tagged.tsv"}, []),
    "masked": ({"masked": "embedded:topics"}, ["tokenizer.size=300"]),
    "images": ({"images": "embedded:digits"}, ["model.context=64"]),
}


@pytest.mark.usefixtures("gated_cnn")
@pytest.mark.parametrize("task", TRAININGS)
def test_an_encoder_of_the_user_works_with_every_head(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tagged.tsv").write_text("the\tD\nold\tA\nman\tN\n\nthey\tP\nman\tV\nboats\tN\n\n" * 20, encoding="utf-8")
    files, keys = TRAININGS[task]
    sw.train(**files, model="gated-cnn", set=[*STEPS, *keys], run=tmp_path / "run")  # type: ignore[arg-type]
    run = sw.open(tmp_path / "run")
    assert run.settings.kind == "gated-cnn"
    assert all(result.holds for result in sw.check(run))
    if task == "text":
        output = run.generate("The", max_tokens=8, temperature=0)
        assert output.ids


@pytest.mark.usefixtures("gated_cnn")
def test_a_classifier_starts_from_a_language_model_of_the_same_encoder(tmp_path: Path) -> None:
    files, keys = TRAININGS["text"]
    sw.train(**files, model="gated-cnn", set=[*STEPS, *keys], run=tmp_path / "lm")  # type: ignore[arg-type]
    run = sw.train(labeled="embedded:languages", base=tmp_path / "lm", set=STEPS, run=tmp_path / "run")
    assert run.settings.kind == "gated-cnn"


@pytest.mark.usefixtures("gated_cnn")
def test_recomputed_steps_equal_teacher_forcing() -> None:
    torch.manual_seed(0)
    model = build.model(build.model_config({"kind": "gated-cnn"}), Vocabulary(size=9)).double().eval()
    ids = torch.randint(9, (3, 6))
    expected = model(Batch.of_text(ids, ids)).log_softmax(-1)
    state = model.start(Source.empty(3), capacity=6)
    counts = torch.tensor([1, 3, 2])
    log_probs, state = model.step(ids[:, :3], state, counts)
    torch.testing.assert_close(log_probs, expected[torch.arange(3), counts - 1])
    rows = torch.arange(3).unsqueeze(1)
    following = ids[rows, counts.unsqueeze(1) + torch.arange(2)]
    log_probs, _ = model.step(following, state.select(torch.tensor([0, 1, 2])))
    torch.testing.assert_close(log_probs, expected[torch.arange(3), counts + 1])


def test_encoders_that_cannot_be_registered_are_refused() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Pooled(EncoderConfig):
        pooling: str = "mean"

    @dataclass(frozen=True, kw_only=True)
    class Required(EncoderConfig):
        causal: bool  # type: ignore[misc]

    with pytest.raises(sw.UserError, match="'lstm' is a kind of model already"):
        sw.register_encoder("lstm", GatedCNNConfig, GatedCNN)
    with pytest.raises(sw.UserError, match=r"must be a dataclass that extends seqwright\.EncoderConfig"):
        sw.register_encoder("mine", dict, GatedCNN)  # type: ignore[arg-type]
    with pytest.raises(sw.UserError, match=r"Pooled\.pooling has the name of a key"):
        sw.register_encoder("mine", Pooled, GatedCNN)
    with pytest.raises(sw.UserError, match=r"Required\.causal is a property of every encoder"):
        sw.register_encoder("mine", Required, GatedCNN)
    with pytest.raises(sw.UserError, match=r"registered first: seqwright\.register_encoder"):
        build.model_config({"kind": "zzz"})
    assert not build.REGISTERED


def test_a_stateless_language_model_needs_a_context() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Config(GatedCNNConfig):
        context: int | None = None  # type: ignore[assignment]

    sw.register_encoder("endless", Config, GatedCNN)
    try:
        with pytest.raises(sw.UserError, match="give it a `context`"):
            build.model(build.model_config({"kind": "endless"}), Vocabulary(size=9))
    finally:
        del build.REGISTERED["endless"]
