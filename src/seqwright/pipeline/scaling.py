"""What several ranks ask of a recipe: batches that they can divide, and options that they can train with."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from seqwright import build
from seqwright.core.batch import Batch
from seqwright.core.config import UserError
from seqwright.core.protocols import Feed
from seqwright.core.ranks import Ranks
from seqwright.pipeline.recipe import Recipe
from seqwright.runs.directory import RunDirectory
from seqwright.training import machine
from seqwright.training.config import TrainingConfig
from seqwright.training.parallel import reduces_unused
from seqwright.training.tensor_parallel import refuse_unsplit

SPLIT_OPTIMIZERS = ("adamw", "adam", "sgd")
"""Optimizers that take tensors of several device meshes, in a group of parameters each."""


def refuse_ranks(wanted: Recipe, size: int) -> None:
    """Raises where a recipe cannot be trained on so many ranks."""
    if size == 1:
        return
    config = wanted.training
    if wanted.kind in build.COUNTED:
        raise UserError(f"{wanted.kind} is counted in one pass, by one process; leave out --processes (or torchrun).")
    if config.tensor_parallel > 1:
        _refuse_split_options(wanted, size)
    shares = size // config.tensor_parallel
    if config.batch_size % shares and not getattr(wanted.data, "batch_tokens", None):
        below, above = config.batch_size // shares * shares, -(-config.batch_size // shares) * shares
        sizes = " or ".join(str(rows) for rows in (below, above) if rows)
        who = f"{shares} ranks" if shares == size else f"{shares} groups of {config.tensor_parallel} ranks"
        raise UserError(
            f"training.batch_size is {config.batch_size}, which {who} cannot share equally; try {sizes}. It is"
            " the size of the global batch, of which each rank computes its share."
        )
    if config.micro_batch_size == "auto":
        raise UserError(
            'training.micro_batch_size = "auto" needs one process: a rank that runs out of memory alone cannot try'
            " again. Set it to a number of rows of one rank."
        )
    if config.parallel == "fsdp":
        _refuse_sharded_options(config)


def refuse_without_blocks(model: nn.Module, config: TrainingConfig, ranks: Ranks) -> None:
    """Raises where a model has no Transformer blocks, or none that can be split, and an option works on them."""
    if ranks.size > 1 and config.tensor_parallel > 1:
        refuse_unsplit(model, config.tensor_parallel)
    if machine.transformer_blocks(model):
        return
    if config.activation_checkpointing:
        raise UserError(
            "training.activation_checkpointing recomputes Transformer blocks, and this model has none; leave it out."
        )
    if ranks.size > 1 and config.parallel == "fsdp":
        raise UserError(
            'training.parallel = "fsdp" shards Transformer blocks, and this model has none; use parallel = "ddp".'
        )


def refuse_idle_offload(config: TrainingConfig, size: int) -> None:
    """Raises where there is nothing to offload, or no GPU of this machine to offload from."""
    if not config.cpu_offload:
        return
    device = machine.device(config.device).type
    missing = "" if device == "cuda" else f"a GPU, not {device}"
    if config.parallel != "fsdp":
        missing = f'training.parallel = "fsdp", not "{config.parallel}"'
    if size == 1:
        missing = "several ranks (--processes, or torchrun)"
    if missing:
        raise UserError(
            f"training.cpu_offload moves what FSDP2 shards from GPUs to host memory, and needs {missing}; set it to"
            " false."
        )


def _refuse_split_options(wanted: Recipe, size: int) -> None:
    """Raises where so many ranks cannot split blocks with the recipe's other options."""
    config, number = wanted.training, wanted.training.tensor_parallel
    if size % number:
        raise UserError(
            f"training.tensor_parallel is {number}, and {size} ranks make no whole groups of it; start a multiple of"
            f" {number}."
        )
    wrong = {
        f'parallel = "{config.parallel}"; set it to "fsdp"': config.parallel != "fsdp",
        f'optimizer = "{config.optimizer}"; use "adamw", "adam" or "sgd"': config.optimizer not in SPLIT_OPTIMIZERS,
        "lora_rank; leave it out": config.lora_rank is not None,
        "cpu_offload; set it to false": config.cpu_offload,
        'data.examples = "bptt"; use "windows"': getattr(wanted.data, "examples", None) == "bptt",
    }
    for reason, applies in wrong.items():
        if applies:
            raise UserError(f"training.tensor_parallel = {number} cannot be used with {reason}.")


def _refuse_sharded_options(config: TrainingConfig) -> None:
    if not reduces_unused():
        raise UserError(
            f'training.parallel = "fsdp" needs PyTorch 2.12 or newer, not {torch.__version__}; use parallel = "ddp".'
        )
    if config.optimizer == "adafactor":
        raise UserError(
            'training.optimizer = "adafactor" factors whole matrices, which training.parallel = "fsdp" shards; use'
            ' "adamw", or parallel = "ddp".'
        )
    if config.unfreeze_every is not None:
        raise UserError('training.unfreeze_every needs training.parallel = "ddp": FSDP fixes what is trained.')


def order(settings: Recipe, directory: RunDirectory, corpus: str, *, resumes: bool) -> dict[str, Any]:
    """What rank 0 sends the others to train: recipe and tokenizers, the fingerprint of the data that they must have,
    and whether a checkpoint follows."""
    others = [directory.source_tokenizer_path, directory.labels_path, directory.degeneration_path]
    files = [path for path in (*directory.tokenizer_paths(), *others) if path.exists()]
    return {
        "recipe": settings.toml(),
        "files": {path.name: path.read_text(encoding="utf-8") for path in files},
        "corpus": corpus,
        "resumes": resumes,
    }


def described(config: TrainingConfig, ranks: Ranks) -> str:
    """` × 4 ranks (ddp)`, or nothing for one process."""
    if ranks.size == 1:
        return ""
    split = f", {config.tensor_parallel} to a block" if config.tensor_parallel > 1 else ""
    return f" × {ranks.size} ranks ({config.parallel}{split})"


class RankFeed:
    """A feed of this rank's rows alone, to measure their speed."""

    def __init__(self, feed: Feed, ranks: Ranks):
        self.feed, self.ranks = feed, ranks
        self.steps_per_epoch, self.carried = feed.steps_per_epoch, feed.carried

    def batch(self, step: int) -> Batch:
        batch = self.feed.batch(step)
        mine = self.ranks.rows(batch.rows) or range(1)
        return batch.rows_of(slice(mine.start, mine.stop))
