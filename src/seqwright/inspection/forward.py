"""One forward pass with everything recorded: log-probabilities, attention weights, inputs of recurrent networks and
hidden states after each block."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from seqwright.core.protocols import AttendsSource, Autoregressive
from seqwright.inspection.labeled import CLASS_TOKEN, Attention, Heads
from seqwright.layers.attention import Attend
from seqwright.layers.attention_scores import GlobalAttention
from seqwright.layers.heads import MLMHead, TokenHead
from seqwright.layers.mogrifier import MogrifierLSTM
from seqwright.layers.recording import Arguments, Options, attention_weights, recorded_calls
from seqwright.layers.transformer_stack import Stack
from seqwright.runs.run import Run
from seqwright.tasks.example import ENCODER, Example


@dataclass(frozen=True)
class RecurrentCalls:
    """The inputs of a recurrent network in a forward pass."""

    name: str
    network: nn.RNNBase | MogrifierLSTM
    inputs: Tensor  # (1, T, size)
    states: tuple[Tensor, ...]
    """Initial hidden (and cell) state of all layers, (L · directions, 1, D); () for zeros."""
    outputs: Tensor  # (1, T, D)


@dataclass(frozen=True)
class Lens:
    """A Transformer stack whose hidden states the output head can decode after any block."""

    stack: Stack
    head: TokenHead
    hidden: list[Tensor] = field(default_factory=list)
    """(T, D): the embeddings, then the residual stream after each block."""

    @property
    def modules(self) -> list[nn.Module]:
        """The modules whose outputs are the hidden states."""
        return [self.stack.dropout, *self.stack.blocks]

    def log_probs(self, layer: int) -> Tensor:
        """(T, V): log-probabilities from the hidden states of a layer, normalized as the last one is."""
        return self.head.log_probs(self.stack.norm(self.hidden[layer]))


@dataclass(frozen=True)
class Forward:
    """What a model computed on an example."""

    log_probs: Tensor | None
    """(T, V) of decoders; None for encoder models."""
    attention: Attention
    recurrent: list[RecurrentCalls]
    lens: Lens | None


@torch.inference_mode()
def forward(run: Run, example: Example) -> Forward:
    """The recorded forward pass of an example; fused kernels run as always."""
    model = run.model
    named: dict[str, nn.Module] = dict(model.named_modules()) if isinstance(model, nn.Module) else {}
    attending = {name: module for name, module in named.items() if isinstance(module, Attend | GlobalAttention)}
    recurrent = {name: module for name, module in named.items() if isinstance(module, nn.LSTM | nn.GRU | MogrifierLSTM)}
    lens = find_lens(model)
    residual = [] if lens is None else lens.modules
    with ExitStack() as stack:
        weights = stack.enter_context(recorded_calls(list(attending.values()), attention_weights))
        calls = stack.enter_context(recorded_calls(list(recurrent.values()), _call))
        hidden = stack.enter_context(recorded_calls(residual, output_of))
        outputs = model(example.batch) if isinstance(model, nn.Module | Autoregressive) else None
    if lens is not None:
        # A prefix language model reads its source in front of the input.
        lens.hidden.extend(module_calls[-1][0, -len(example.tokens) :] for module_calls in hidden)
    log_probs = (
        outputs[0].float().log_softmax(-1).cpu() if isinstance(model, Autoregressive) and outputs is not None else None
    )
    attention = _attention(model, example, dict(zip(attending, weights, strict=True)))
    networks = [
        _joined(name, module, module_calls)
        for (name, module), module_calls in zip(recurrent.items(), calls, strict=True)
        if module_calls
    ]
    return Forward(log_probs, attention, networks, lens)


def find_lens(model: Any) -> Lens | None:
    """The stack of a decoder or masked language model and its output head, where the one's hidden states are the input
    of the other."""
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    stacks = [module for module in modules if isinstance(module, Stack)]
    heads = [module for module in modules if isinstance(module, TokenHead)]
    if not stacks or len(heads) != 1:
        return None
    first: Any = heads[0].transform[0] if isinstance(heads[0], MLMHead) else heads[0].readout
    return Lens(stacks[-1], heads[0]) if first.in_features == stacks[-1].width else None


def output_of(module: nn.Module, arguments: Arguments, options: Options, output: Any) -> Tensor:
    """What `recorded_calls` keeps of a call: the output."""
    tensor: Tensor = output
    return tensor


def _call(module: nn.Module, arguments: Arguments, options: Options, output: Any) -> tuple[Tensor, Any, Tensor]:
    return arguments[0], arguments[1] if len(arguments) > 1 else None, output[0]


def _joined(name: str, network: Any, calls: list[tuple[Tensor, Any, Tensor]]) -> RecurrentCalls:
    """Consecutive calls as one: with input feeding, a decoder calls its network once for each position."""
    first = calls[0][1]
    states = () if first is None else first if isinstance(first, tuple) else (first,)
    inputs, outputs = torch.cat([call[0] for call in calls], 1), torch.cat([call[2] for call in calls], 1)
    return RecurrentCalls(name, network, inputs, states, outputs)


def _attention(model: Any, example: Example, calls: dict[str, list[Tensor]]) -> Attention:
    """Recorded weights by kind: cross (of the source), self, encoder."""
    over_source = set(map(id, model.source_attention)) if isinstance(model, AttendsSource) else set()
    names = dict(model.named_modules()) if calls else {}
    layers: dict[str, list[Tensor]] = {"cross": [], "self": [], "encoder": []}
    for name, module_calls in calls.items():
        kind = "cross" if id(names[name]) in over_source else "encoder" if name.startswith(ENCODER) else "self"
        if module_calls:
            joined = torch.cat([call if call.dim() == 4 else call.unsqueeze(1) for call in module_calls], 2)
            layers[kind].append(joined[0].float().cpu())  # (H, T, K)
    # The decoder of a masked autoencoder reads more patches than its encoder: layers like the first are kept.
    alike = {kind: [one for one in heads if one.shape == heads[0].shape] for kind, heads in layers.items() if heads}
    return Attention({kind: _heads(kind, heads, example) for kind, heads in alike.items()})


def _heads(kind: str, layers: list[Tensor], example: Example) -> Heads:
    """Rows of cross-attention are named for the token that is predicted with them, as `translate --attention` does."""
    source = example.source or example.tokens
    rows = {"cross": example.targets, "self": example.tokens, "encoder": source}[kind]
    columns = {"cross": source, "self": example.tokens, "encoder": source}[kind]
    if layers[0].size(2) == len(source) + len(example.tokens):  # a prefix language model reads both as one
        rows, columns = (*example.source, *example.tokens)[-layers[0].size(1) :], (*example.source, *example.tokens)
    if kind == "self" and layers[0].size(2) == len(columns) + 1:  # a ViT
        rows = columns = (CLASS_TOKEN, *columns)
    return Heads(kind, layers, rows, columns)
