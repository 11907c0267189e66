"""Hyperparameters of training: the `[training]` section of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from seqwright.core.config import UserError, refuse, wrong_negatives, wrong_shares, wrong_sizes


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    steps: int | None = None
    """Optimizer steps; 2,000 by default (see epochs)."""
    epochs: float | None = None
    """Epochs (passes over the training data), instead of steps."""
    minutes: float | None = None
    """Time budget, instead of steps: as many steps as fit, by the speed measured before the first one. The run's recipe
    then has them as steps, and a resumed run keeps them. With epochs: those, or fewer that fit. Default models of your
    own files also get their size by it. A perceptron has no more models and epochs than fit."""
    batch_size: int = 32
    """Examples (rows) per optimizer step."""
    sequence_length: int | None = None
    """Tokens per row; by default the model's context length (128 for models without a limit)."""
    bptt_jitter: float = 0.0
    """Random BPTT lengths: standard deviation, in tokens, of the length of a step's rows around sequence_length (or
    half of it, in one step of twenty); the learning rate is scaled by the length (Merity et al. 2018, who use 5 of
    70). Needs sequence_length and data.examples = "bptt"; off by default."""
    micro_batch_size: int | Literal["auto"] | None = None
    """Gradient accumulation: rows per forward and backward pass, where a batch does not fit in memory; the result is
    that of the whole batch. auto halves them until they fit."""
    curriculum: bool = False
    """Curriculum learning: short examples first in the first epoch (data.examples documents or prefixes)."""
    optimizer: Literal["adamw", "muon", "schedule-free", "adam", "sgd", "adafactor"] = "adamw"
    """AdamW (Loshchilov & Hutter 2019), Muon (Jordan et al. 2024: orthogonalized momentum for hidden matrices, AdamW
    for other parameters), schedule-free AdamW (Defazio et al. 2024: an average of the weights in place of a schedule;
    needs schedule = "constant", and may be stopped at any step), Adam (Kingma & Ba 2015), SGD, or Adafactor, whose
    second moments are factored into rows and columns to save memory (Shazeer & Stern 2018)."""
    learning_rate: float = 1e-3
    """Peak learning rate of the schedule."""
    schedule: Literal["constant", "linear", "cosine", "wsd", "inverse-root", "one-cycle", "plateau"] = "cosine"
    """Learning-rate schedule after warmup: constant, linear or cosine decay, warmup-stable-decay (wsd: decay in the
    last fifth), inverse square root (inverse-root), one-cycle (with its own warmup), or reduced when validation stops
    improving (plateau)."""
    warmup_steps: int | None = None
    """Steps of linear learning-rate warmup; by default a tenth of all steps, at most 100."""
    final_lr_ratio: float = 0.1
    """Final learning rate (linear, cosine, wsd, one-cycle) or its lower bound (plateau), as a ratio of the peak."""
    plateau_patience: int = 2
    """Evaluations without improvement after which plateau reduces the learning rate."""
    plateau_factor: float = 0.5
    """Factor by which plateau reduces the learning rate."""
    weight_decay: float = 0.1
    """Weight decay (matrices only): decoupled in adamw, schedule-free and adafactor, an L2 penalty in adam and sgd."""
    beta1: float = 0.9
    """First-moment decay (β₁) of adam and adamw; of schedule-free, the weight of the average where gradients are
    taken."""
    beta2: float = 0.99
    """Second-moment decay (β₂) of adam, adamw and schedule-free."""
    momentum: float = 0.0
    """Momentum of sgd."""
    max_grad_norm: float = 1.0
    """Gradient clipping: maximum L2 norm of the gradient; 0 disables it."""
    ema_decay: float | None = None
    """Decay of an exponential moving average (EMA) of the weights, e.g. 0.999; the average is evaluated, sampled from
    and saved in place of the weights. Off by default."""
    asgd_trigger: int | None = None
    """NT-ASGD (Merity et al. 2018, who use 5): start to average the weights over steps at the first evaluation worse
    than the best of those at least this many evaluations before; the average is evaluated, sampled from and saved in
    place of the weights. For optimizer = "sgd" and schedule = "constant"; off by default."""
    patience: int | None = None
    """Early stopping: evaluations without improvement after which training ends. Off by default."""
    spike_threshold: float | None = None
    """Loss spikes: standard deviations above the moving average at which a loss counts as a spike; training then rolls
    back to the last checkpoint and skips that batch and the one before it. Off by default; try 6."""
    label_smoothing: float = 0.0
    """Label smoothing: probability of the target spread uniformly over all classes (Szegedy et al. 2016)."""
    init_from: str | None = None
    """Fine-tuning: a finished run whose weights and tokenizer (extended by new tokens) initialize this one. The model
    must have the same kind and sizes; `--from RUN` or model.from copies them."""
    lora_rank: int | None = None
    """LoRA (Hu et al. 2022): rank of the trainable updates of the weight matrices of encoder and decoder, which stay
    frozen; merged at the end. Embeddings and head are trained in full. Needs init_from; off by default."""
    lora_alpha: float = 16.0
    """LoRA alpha: low-rank updates are scaled by lora_alpha / lora_rank."""
    layer_decay: float = 1.0
    """Layer-wise learning-rate decay: factor per layer below the top (discriminative fine-tuning, Howard & Ruder 2018);
    1 disables it."""
    freeze: int | Literal["all"] | None = None
    """Number of layers to freeze from the bottom, including the embedding (0: the embedding alone); all trains only the
    head."""
    unfreeze_every: float | None = None
    """Gradual unfreezing (Howard & Ruder 2018): train the head alone at first, and unfreeze one more layer, from the
    top, every this many epochs."""
    auxiliary_loss_weight: float = 0.0
    """Weight of an auxiliary language modeling loss on the input text, for classifiers with a causal encoder (Radford
    et al. 2018 use 0.5)."""
    activation_l2: float = 0.0
    """Activation regularization (AR, Merity et al. 2018, who use 2): weight of the mean square of hidden states after
    dropout, for rnn, lstm and gru language models."""
    temporal_activation_l2: float = 0.0
    """Temporal activation regularization (TAR, Merity et al. 2018, who use 1): weight of the mean square of the change
    of hidden states from one position to the next."""
    r_drop: float = 0.0
    """R-Drop (Liang et al. 2021): weight of the KL divergence between two forward passes with different dropout; 5
    suits translation. Doubles the cost of a step."""
    precision: Literal["fp32", "tf32", "bf16"] = "fp32"
    """Precision of matrix products in training; weights and optimizer state stay fp32. tf32 (10 mantissa bits) needs a
    GPU of Ampere or later and is fp32 elsewhere; bf16 (7 mantissa bits) is autocast. On a GPU cuDNN uses tf32 for
    recurrent networks in any case, and for convolutions, but with bf16 it computes LSTM and GRU in fp16 (10 mantissa
    bits, gradients scaled) and convolutions in bf16."""
    activation_checkpointing: bool = False
    """Activation checkpointing (Chen et al. 2016): keep only the inputs of Transformer blocks, and recompute the rest
    in the backward pass. Saves most of the activations' memory for about a third more computation; steps are then not
    captured as CUDA graphs."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """Training on several ranks (--processes, torchrun): a copy of the model on each (ddp, DistributedDataParallel), or
    parameters, gradients and optimizer state sharded over them, blocks at a time (fsdp, FSDP2), for models that fill a
    GPU. Without effect on one process."""
    tensor_parallel: int = 1
    """Tensor parallelism, with parallel = "fsdp": ranks that share the heads and inner width of every Transformer block
    (Shoeybi et al. 2019; PyTorch's parallelize_module). Such groups of ranks, which should be on one machine, share
    batches and shards as single ranks do otherwise. For wide GPTs; without effect on one process."""
    reshard_after_forward: bool = True
    """With parallel = "fsdp": free gathered weights after the forward pass, and gather them again for the backward pass
    (ZeRO-3). false keeps them until the last backward pass of a step: they are gathered once a step, for the memory of
    all of them (2 bytes a parameter with bf16, else 4)."""
    stream_checkpoints: bool = False
    """With parallel = "fsdp": write checkpoints tensor by tensor as rank 0 gathers them, so that its host holds one of
    them rather than all (12 bytes a parameter). Steps then wait for the disk, too."""
    cpu_offload: bool = False
    """With parallel = "fsdp" on GPUs: keep sharded parameters, gradients and optimizer state in host memory (FSDP2's
    CPUOffloadPolicy). The optimizer then steps on the CPU, and every block waits for its weights: for models that do
    not fit otherwise."""
    compile: Literal["auto", "off", "cudagraphs", "inductor"] = "auto"
    """On a GPU, how steps are run: kernel by kernel (off), captured as CUDA graphs, which saves launching their kernels
    (cudagraphs), or also compiled by torch.compile, which fuses kernels (inductor). auto compiles Transformers where
    that saves more time than it takes, and is written to the run's recipe as what it chose. Several ranks do not
    capture steps, and compile them where inductor is set: as a whole (ddp), or each Transformer block (fsdp). Not used
    on a CPU."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Device; auto takes a GPU where there is one."""
    threads: int | None = None
    """CPU threads; by default all cores, or OMP_NUM_THREADS. Another number may change the last bits of sums."""
    deterministic: bool = False
    """Use deterministic GPU kernels only, which may be slower."""
    seed: int = 1
    """Random seed of initialization, data order and dropout."""
    log_every: int = 20
    """Steps between log lines."""
    evaluate_every: int | None = None
    """Steps between evaluations on the validation data; by default a tenth of all steps. 0 = only at the end."""
    sample_every: int | None = None
    """Steps between samples of the model's output in the log; as evaluate_every by default. 0 = never."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; as evaluate_every by default. 0 = only when interrupted and at the end."""
    keep_last: int = 2
    """Number of most recent checkpoints to keep."""
    keep_best: int = 1
    """Number of best checkpoints to keep."""
    weights: Literal["best", "last", "average-last", "average-best"] = "best"
    """Final weights: of the best checkpoint, of the last one, or the average of the keep_last most recent
    (average-last) or keep_best best (average-best) checkpoints."""
    writers: tuple[Literal["csv", "tensorboard"], ...] = ()
    """Additional log writers: log.csv, written when training stops (csv); TensorBoard event files (tensorboard)."""

    def check_feed(self, *, carried: bool) -> None:
        """Refuses options that need a state carried from step to step."""
        if self.bptt_jitter and not carried:
            raise UserError(
                "training.bptt_jitter varies the length of rows with carried state, which only rnn, lstm and gru"
                ' language models with data.examples = "bptt" have; leave it out.'
            )

    @property
    def averages_weights(self) -> bool:
        """Whether the weights are averaged over steps, now or after a trigger."""
        return self.ema_decay is not None or self.asgd_trigger is not None or self.optimizer == "schedule-free"

    def intervals(self, steps: int) -> dict[str, int]:
        """Steps between evaluations, samples and checkpoints in a training of `steps` steps; 0 = only at the end."""
        evaluate = self.evaluate_every if self.evaluate_every is not None else max(1, steps // 10)
        others = {"sample": self.sample_every, "checkpoint": self.checkpoint_every}
        return {"evaluate": evaluate} | {k: evaluate if v is None else v for k, v in others.items()}

    def __post_init__(self) -> None:
        problems = []
        if self.steps is not None and self.epochs is not None:
            problems.append("give steps or epochs, not both")
        problems += wrong_sizes(
            self,
            "steps",
            "sequence_length",
            "batch_size",
            "micro_batch_size",
            "tensor_parallel",
            "log_every",
            "keep_last",
            "keep_best",
        )
        problems += wrong_sizes(self, "patience", "plateau_patience", "asgd_trigger", "lora_rank", "threads")
        if self.bptt_jitter and self.sequence_length is None:
            problems.append("bptt_jitter varies sequence_length: set it too")
        if self.asgd_trigger is not None and self.ema_decay is not None:
            problems.append("give ema_decay or asgd_trigger, not both: each is an average of the weights")
        if self.optimizer == "schedule-free":
            if self.schedule != "constant":
                problems.append(
                    f'the optimizer schedule-free needs no decay of the learning rate: set schedule = "constant", not'
                    f" {self.schedule}"
                )
            if self.ema_decay is not None or self.asgd_trigger is not None:
                problems.append(
                    "the optimizer schedule-free averages the weights: leave ema_decay and asgd_trigger out"
                )
            if not self.beta1:
                problems.append("the optimizer schedule-free needs beta1 above 0; 0.9 is usual")
        for name in ("epochs", "minutes", "spike_threshold", "unfreeze_every", "layer_decay"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                problems.append(f"{name} must be above 0, not {value}")
        intervals = ("evaluate_every", "sample_every", "checkpoint_every")
        problems += wrong_negatives(
            self,
            "learning_rate",
            "weight_decay",
            "r_drop",
            "activation_l2",
            "temporal_activation_l2",
            "bptt_jitter",
            "auxiliary_loss_weight",
            "warmup_steps",
            "max_grad_norm",
            *intervals,
        )
        if not 0 <= self.seed < 1 << 63:
            problems.append(f"seed must be 0 or more and below 2^63, not {self.seed}")
        problems += wrong_shares(self, "label_smoothing", "beta1", "beta2", "momentum", "ema_decay")
        if isinstance(self.freeze, int) and self.freeze < 0:
            problems.append(f'freeze must be a number of layers or "all", not {self.freeze}')
        for name in ("final_lr_ratio", "plateau_factor", "layer_decay"):
            if not 0 <= getattr(self, name) <= 1:
                problems.append(f"{name} must be between 0 and 1, not {getattr(self, name)}")
        if self.lora_rank is not None and self.init_from is None:
            problems.append("lora_rank adapts a trained model; name one in training.init_from (or with --from)")
        refuse(problems)
