"""The `[training]` section of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from seqwright.core.config import refuse, wrong_negatives, wrong_shares, wrong_sizes


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    steps: int | None = None
    """Optimizer steps; 2,000 unless steps or epochs are given."""
    epochs: float | None = None
    """Passes over the training data, instead of steps."""
    batch_size: int = 32
    """Rows of each step; 1 is stochastic gradient descent in the strict sense."""
    sequence_length: int | None = None
    """Tokens of a row that a step reads; the model's context unless given (128 for models that see any length)."""
    micro_batch_size: int | Literal["auto"] | None = None
    """Rows computed at a time where a whole batch does not fit in memory; the result is that of the whole batch. auto
    halves them until they fit."""
    curriculum: bool = False
    """Whether the first epoch goes from short examples to long ones (data.examples documents or prefixes)."""
    optimizer: Literal["adamw", "adam", "sgd", "adafactor"] = "adamw"
    """AdamW (Loshchilov & Hutter 2019), Adam (Kingma & Ba 2015), gradient descent (sgd), or Adafactor, which remembers
    rows and columns only (Shazeer & Stern 2018)."""
    learning_rate: float = 1e-3
    """The learning rate at the top of the schedule."""
    schedule: Literal["constant", "linear", "cosine", "wsd", "inverse-root", "one-cycle", "plateau"] = "cosine"
    """How the rate falls after the warm-up: not at all (constant), in a straight line, in half a cosine, in the last
    fifth only (wsd), with the root of the step (inverse-root), after a rise of its own (one-cycle), or whenever
    validation stands still (plateau)."""
    warmup_steps: int | None = None
    """Steps over which the rate rises in a straight line from near 0; a tenth of them, at most 100, unless given."""
    final_lr_ratio: float = 0.1
    """The share of the rate left at the last step (linear, cosine, wsd, one-cycle), or at least (plateau)."""
    plateau_patience: int = 2
    """Evaluations without a new best after which plateau lowers the rate."""
    plateau_factor: float = 0.5
    """What plateau multiplies the rate by."""
    weight_decay: float = 0.1
    """Pull of matrices towards zero, in units of the rate."""
    beta1: float = 0.9
    """Adam's and AdamW's memory of gradients."""
    beta2: float = 0.99
    """Adam's and AdamW's memory of squared gradients."""
    momentum: float = 0.0
    """Gradient descent's memory of gradients."""
    max_grad_norm: float = 1.0
    """The largest gradient norm; longer gradients are shortened to it. 0 means no limit."""
    ema_decay: float | None = None
    """Decay of a running average of the weights, as in 0.999; evaluated, sampled and kept in place of the weights."""
    patience: int | None = None
    """Evaluations without a new best after which training ends early; never unless given."""
    spike_threshold: float | None = None
    """Standard deviations above its recent course at which a loss counts as a spike: training then goes back to the
    last checkpoint and leaves out the batch and the one before it. Never unless given; 6 is a good number."""
    label_smoothing: float = 0.0
    """Label smoothing: the share of the target spread over the whole vocabulary."""
    init_from: str | None = None
    """A finished run to begin with: its weights, and its tokenizer with what is new added. The model must be of the
    same kind and sizes; `--from RUN` or model.from sees to that."""
    lora_rank: int | None = None
    """Rank of the corrections that are learned in place of the encoder's own matrices, which stay as base has them
    (LoRA); they are merged at the end. All weights are learned unless given."""
    lora_alpha: float = 16.0
    """What LoRA's corrections are multiplied by, over their rank."""
    layer_decay: float = 1.0
    """What the rate is multiplied by for every layer below the top (discriminative rates); 1 learns all alike."""
    freeze: int | Literal["all"] | None = None
    """How many layers, from the bottom, stay as they are, and the embedding with them (0: it alone); all leaves only
    what answers."""
    unfreeze_every: float | None = None
    """Gradual unfreezing: what answers learns alone at first, and after every so many epochs one layer more, the top
    one first."""
    auxiliary_loss_weight: float = 0.0
    """Weight of a text's own likelihood, each token from those before it, in the loss of a classifier whose encoder
    reads from left to right (Radford et al. 2018 take 0.5)."""
    r_drop: float = 0.0
    """R-Drop: weight of the divergence between two passes under different dropout; 5 suits translation. Doubles the
    cost of a step."""
    precision: Literal["fp32", "tf32", "bf16"] = "fp32"
    """What matrix products are computed in while training: tf32 rounds their factors to ten bits on a GPU (Ampere or
    later; elsewhere it is fp32), bf16 to seven. Weights and optimizer stay fp32. On a GPU cuDNN rounds recurrent
    networks to ten bits whatever is asked for, and convolutions, too, unless bf16 is."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto takes a GPU where there is one."""
    deterministic: bool = False
    """Only kernels that give the same bits every time, where a GPU has faster ones that do not."""
    seed: int = 1
    """Fixes fresh weights, data order and dropout."""
    log_every: int = 20
    """Steps between lines of the log."""
    evaluate_every: int | None = None
    """Steps between evaluations; a tenth of the training unless given. 0 = only at the end."""
    sample_every: int | None = None
    """Steps between samples of the model's text in the log; as evaluations unless given. 0 = never."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; as evaluations unless given. 0 = only when stopped and at the end."""
    keep_last: int = 2
    """Newest checkpoints kept."""
    keep_best: int = 1
    """Best checkpoints kept."""
    weights: Literal["best", "last", "average-last", "average-best"] = "best"
    """What the run ends with: the best checkpoint's weights, the last one's, or the mean of those that keep (last) or
    keep_best (best) names."""
    writers: tuple[Literal["csv", "tensorboard"], ...] = ()
    """Further places for the log: log.csv, written when training stops (csv); TensorBoard's files, as training goes
    (tensorboard)."""

    def __post_init__(self) -> None:
        problems = []
        if self.steps is not None and self.epochs is not None:
            problems.append("give steps or epochs, not both")
        problems += wrong_sizes(
            self, "steps", "sequence_length", "batch_size", "micro_batch_size", "log_every", "keep_last", "keep_best"
        )
        problems += wrong_sizes(self, "patience", "plateau_patience", "lora_rank")
        for name in ("epochs", "spike_threshold", "unfreeze_every", "layer_decay"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                problems.append(f"{name} must be above 0, not {value}")
        pauses = ("evaluate_every", "sample_every", "checkpoint_every")
        problems += wrong_negatives(
            self,
            "learning_rate",
            "weight_decay",
            "r_drop",
            "auxiliary_loss_weight",
            "warmup_steps",
            "max_grad_norm",
            *pauses,
        )
        if not 0 <= self.seed < 1 << 63:
            problems.append(f"seed must be 0 or more and below 2^63, not {self.seed}")
        problems += wrong_shares(self, "label_smoothing", "beta1", "beta2", "momentum", "ema_decay")
        if isinstance(self.freeze, int) and self.freeze < 0:
            problems.append(f'freeze counts layers or is "all", not {self.freeze}')
        for name in ("final_lr_ratio", "plateau_factor", "layer_decay"):
            if not 0 <= getattr(self, name) <= 1:
                problems.append(f"{name} is a share between 0 and 1, not {getattr(self, name)}")
        if self.lora_rank is not None and self.init_from is None:
            problems.append("lora corrects a trained model; name one in training.init_from (or with --from)")
        refuse(problems)
