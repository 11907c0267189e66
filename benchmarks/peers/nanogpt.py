"""nanoGPT's model and loop (Karpathy 2022), written anew from GPT-2's paper (Radford et al. 2019) and their structure.

Pre-LN blocks without biases, learned positions, output layer tied to the embedding, scaled_dot_product_attention; AdamW
with decay of matrices only, random windows of one long array of ids, the next batch moved while the GPU computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from peers.loop import Options, Step, adamw


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    layers: int = 12
    heads: int = 12
    width: int = 768
    context: int = 1024
    vocabulary: int = 50304
    """GPT-2's 50,257, up to a multiple of 64 for efficiency."""
    dropout: float = 0.0
    bias: bool = False


class CausalSelfAttention(nn.Module):
    def __init__(self, config: GPTConfig):
        super().__init__()
        self.heads, self.dropout = config.heads, config.dropout
        self.query_key_value = nn.Linear(config.width, 3 * config.width, bias=config.bias)
        self.output = nn.Linear(config.width, config.width, bias=config.bias)
        self.residual_dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        B, T, D = x.shape
        query, key, value = (
            part.view(B, T, self.heads, D // self.heads).transpose(1, 2) for part in self.query_key_value(x).split(D, 2)
        )  # (B, H, T, E)
        attended = F.scaled_dot_product_attention(
            query, key, value, dropout_p=self.dropout if self.training else 0.0, is_causal=True
        )
        return self.residual_dropout(self.output(attended.transpose(1, 2).contiguous().view(B, T, D)))


class MLP(nn.Module):
    def __init__(self, config: GPTConfig):
        super().__init__()
        self.up = nn.Linear(config.width, 4 * config.width, bias=config.bias)
        self.activation = nn.GELU()
        self.output = nn.Linear(4 * config.width, config.width, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.output(self.activation(self.up(x))))


class Block(nn.Module):
    def __init__(self, config: GPTConfig):
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width, bias=config.bias)
        self.attention = CausalSelfAttention(config)
        self.mlp_norm = nn.LayerNorm(config.width, bias=config.bias)
        self.mlp = MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class GPT(nn.Module):
    def __init__(self, config: GPTConfig):
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width, bias=config.bias)
        self.readout = nn.Linear(config.width, config.vocabulary, bias=False)
        self.readout.weight = self.tokens.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:  # output projections of residual branches smaller, as in GPT-2
                residual = name.endswith("output.weight")
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * config.layers) if residual else 0.02)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """The mean loss."""
        x = self.dropout(self.tokens(ids) + self.positions(torch.arange(ids.size(1), device=ids.device)))
        for block in self.blocks:
            x = block(x)
        logits = self.readout(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


def step(
    config: GPTConfig,
    ids: NDArray[np.integer],
    rows: int,
    options: Options,
    *,
    learning_rate: Callable[[int], float] = lambda step: 6e-4,
    betas: tuple[float, float] = (0.9, 0.95),
) -> tuple[GPT, Step]:
    """The model and one step of its training: gradients clipped at 1.0, learning rate set anew at every step."""
    if options.device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    model = GPT(config).to(options.device).train()
    optimizer = adamw(model, options, learning_rate=learning_rate(0), betas=betas)
    run = torch.compile(model) if options.compile else model
    data = ids.astype(np.uint16)
    batch, taken = windows(data, rows, config.context, options), 0

    def step() -> None:
        nonlocal batch, taken
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(taken)
        with options.autocast():
            loss = run(*batch)
        batch, taken = windows(data, rows, config.context, options), taken + 1  # while the GPU computes
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return model, step


def windows(data: NDArray[np.uint16], rows: int, context: int, options: Options) -> tuple[Tensor, ...]:
    """A batch of random windows, and the token after each of theirs."""
    starts = torch.randint(len(data) - context, (rows,)).tolist()
    input = torch.stack([torch.from_numpy(data[i : i + context].astype(np.int64)) for i in starts])
    target = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + context].astype(np.int64)) for i in starts])
    return options.move(input, target)
