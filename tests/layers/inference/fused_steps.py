"""Compares decoding steps in fused kernels with plain ones, for `test_fused_block.py`."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from seqwright import build
from seqwright.core.batch import Source, Vocabulary
from seqwright.layers.inference import decoding_attention
from seqwright.layers.inference.fused_block import FusedBlock
from seqwright.layers.inference.fused_linear import FusedLinear
from seqwright.layers.inference.top_k_kernel import largest_of_parts

VOCABULARY = Vocabulary(size=51, sos=1, eos=2, pad=0)
SIZES = {"kind": "gpt", "layers": 1, "width": 40, "heads": 4, "context": 40}
LLAMA = {"positions": "rope", "qk_norm": True, "kv_heads": 2, "norm": "rmsnorm", "activation": "swiglu", "bias": False}
KINDS: dict[str, dict[str, Any]] = {
    "gpt": {},
    "llama": LLAMA,
    "post-LN": {"norm_position": "post", "activation": "relu"},
    "window": {"attention_window": 5, "positions": "rope"},
    "gelu-tanh": {"activation": "gelu-tanh"},
    "relu2": {"activation": "relu2"},
    "split sums": {"ffn_width": 3072},
}


@torch.inference_mode()
def log_probs(model: Any, rows: int, beams: int) -> torch.Tensor:
    """Those after a prompt of several lengths, and after three steps over a static cache, beams reordered at random."""
    generator = torch.Generator().manual_seed(1)
    count = torch.randint(1, 10, (rows,), generator=generator)
    ids = torch.randint(3, 51, (rows, 9), generator=generator)
    first, state = model.step(ids, model.start(Source.empty(rows), capacity=30), count)
    found = [first.repeat_interleave(max(1, beams), 0)]
    if beams:
        state = state.select(torch.arange(rows).repeat_interleave(beams))
    state = state.static(8)
    for _ in range(3):
        if beams:
            parents = torch.randint(0, beams, (rows, beams), generator=generator)
            state = state.reorder((parents + beams * torch.arange(rows).unsqueeze(1)).flatten())
        one, state = model.step(torch.randint(3, 51, (rows * max(1, beams), 1), generator=generator), state)
        found.append(one)
    return torch.stack(found)


@torch.inference_mode()
def masked_step(model: Any) -> torch.Tensor:
    """Hidden states of a step over a static cache in which a mask hides the second token."""
    _, state = model.step(torch.arange(3, 12).view(3, 3), model.start(Source.empty(3), capacity=20))
    state = state.static(8)
    mask = torch.arange(int(state.extent)) != 1
    return model.encoder.run(model.embedding(torch.tensor([[8], [9], [10]])), state, mask=mask.view(1, 1, 1, -1))[0]


def top_k() -> None:
    """The largest values of rows are among those of their parts, ties and minus infinity included; of equal values the
    first comes first."""
    x = torch.randn(3, 700).round(decimals=1)
    x[0, 5:] = -torch.inf
    values, indices = largest_of_parts(x, 12, 256)
    assert values.topk(12).values.equal(x.topk(12).values)
    assert x.gather(1, indices).masked_fill(values == -torch.inf, 0).equal(values.masked_fill(values == -torch.inf, 0))
    first = x[1, :256].argsort(descending=True, stable=True)[:12]
    assert indices[1, :12].equal(first)


def main() -> None:
    top_k()
    decoding_attention.KEYS = 16  # so that several programs share the slots of a head
    for kind, options in KINDS.items():
        torch.manual_seed(1)
        plain: Any = build.model(build.model_config(SIZES | options), VOCABULARY).eval()
        fused = copy.deepcopy(plain)
        fused.encoder.blocks = nn.ModuleList(FusedBlock(block, 40) for block in fused.encoder.blocks)
        fused.head.readout = FusedLinear(fused.head.readout)
        many_queries = [(1, 9)] if kind == "llama" else []  # 9 beams × 2 query heads of a key-value head
        for rows, beams in ((1, 0), (6, 0), (2, 3), *many_queries):
            worst = (log_probs(plain, rows, beams) - log_probs(fused, rows, beams)).abs().max()
            assert worst < 2e-5, f"{kind}, {rows} rows of {beams} beams: {worst}"
        worst = (masked_step(plain) - masked_step(fused)).abs().max()
        assert worst < 2e-5, f"{kind}, masked: {worst}"


if __name__ == "__main__":
    main()
