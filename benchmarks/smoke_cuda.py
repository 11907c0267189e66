"""A smoke test for a GPU: every law on CUDA, captured training steps and the fused loss among them, a short bf16
training, resume to the same bits, and tokens per second.

python benchmarks/smoke_cuda.py [--device cuda]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F

from laws import READERS, SPEAKERS, Rows
from peers.loop import Options
from peers.workloads import Workload, gpt, ours
from seqwright import build
from seqwright.api import open as open_run
from seqwright.core.batch import IGNORE, Source, Vocabulary
from seqwright.core.storage import load_tensors
from seqwright.layers.cross_entropy import cross_entropy, loss_and_gradient_
from seqwright.layers.gelu import GELU, joins_linear
from seqwright.layers.inference.optimize import optimize_for_inference
from seqwright.layers.transformer_block import FeedForward
from seqwright.pipeline import recipe
from seqwright.pipeline import training as session
from seqwright.studies.encoder_laws import ENCODER_LAWS
from seqwright.studies.laws import LAWS, Law
from seqwright.studies.training_laws import TRAINING_LAWS

TABLE = {
    "data": {"train": "embedded:topics", "split": "tail 10%"},
    "tokenizer": {"kind": "byte-bpe", "size": 512},
    "training": {
        "steps": 200,
        "batch_size": 32,
        "learning_rate": 2e-3,
        "warmup_steps": 20,
        "evaluate_every": 100,
        "keep_last": 9,
    },
}
MODELS = {
    "gpt": {
        "kind": "gpt",
        "layers": 4,
        "width": 256,
        "heads": 8,
        "context": 128,
        "positions": "rope",
        "dropout": 0.1,
    },
    "lstm": {"kind": "lstm", "width": 256, "dropout": 0.1},
}


@torch.no_grad()
def keeps(rows: Rows, laws: Mapping[str, Law], device: str) -> None:
    """Prints the worst difference of each neural kind over all laws, in float64."""
    for name, (make, given) in rows.items():
        model = make()
        if isinstance(model, torch.nn.Module):
            worst, law = max((ask(model.to(device), given().to(device)), law) for law, ask in laws.items())
            print(f"laws of {name:24} worst difference {worst:.1e} ({law})", flush=True)
            assert worst < 1e-8


def fused_loss(device: str) -> None:
    """The Triton kernel against PyTorch's operations in float64: loss and gradient, relative to their norms."""
    from seqwright.layers import softmax_gradient

    torch.manual_seed(1)
    for dtype, least in ((torch.float32, 1e-6), (torch.bfloat16, 4e-3)):
        for rows, size, width, smoothing in ((7, 50_257, 50_304, 0.0), (300, 1000, 1024, 0.1), (5, 3, 64, 0.0)):
            logits = (3 * torch.randn(rows, width, device=device)).to(dtype)
            target = torch.randint(size, (rows,), device=device)
            target[::3] = IGNORE
            logits[1::3, size - 1] = 60  # far above what comes before, and above their targets
            exact, ours = logits.double(), logits.clone()
            expected, _ = loss_and_gradient_(exact, target, size, smoothing)
            loss, factor = softmax_gradient.loss_and_gradient_(ours, target, size, smoothing)
            gradient = ours.double() if factor is None else ours.double() * factor.double().unsqueeze(1)
            off = float((gradient - exact).norm() / exact.norm())
            loss_off = float((loss.double() - expected).abs() / expected)
            print(f"fused loss, {dtype}, {rows} × {size}: loss within {loss_off:.1e}, gradient within {off:.1e}")
            assert off < least
            assert loss_off < 1e-5


def chunked_loss(device: str) -> None:
    """The loss in chunks against PyTorch's in float64, from bf16 weights and hidden states: value and gradients."""
    torch.manual_seed(1)
    for size in (1000, 1024):  # logits of the first are padded
        hidden = torch.randn(300, 64, device=device).bfloat16()
        weight = (0.3 * torch.randn(size, 64, device=device)).bfloat16()
        target = torch.randint(size, (300,), device=device)
        target[::3] = IGNORE
        found = []
        for dtype, max_logits in ((torch.float64, 1 << 26), (torch.bfloat16, 64 * size)):
            parameters = [each.to(dtype).requires_grad_() for each in (hidden, weight)]
            total, _ = cross_entropy(*parameters, None, target, max_logits=max_logits)
            found.append((total.detach(), *torch.autograd.grad(total, parameters)))
        off = [float((one.double() - other).norm() / other.norm()) for other, one in zip(*found, strict=True)]
        print(f"loss in chunks, bf16, {size} tokens: loss within {off[0]:.1e}, gradients within {max(off[1:]):.1e}")
        assert off[0] < 1e-3
        assert max(off[1:]) < 1e-2


def fused_gelu(device: str) -> None:
    """GELU of half precision against PyTorch's, with its gradient: norms of differences from float64, and compiled."""
    torch.manual_seed(1)
    for dtype in (torch.bfloat16, torch.float16):
        x, upstream = ((4 * torch.randn(37, 1001, device=device)).to(dtype) for _ in range(2))
        exact = x.double().requires_grad_()
        (expected := F.gelu(exact)).backward(upstream.double())
        compiled = torch.compile(GELU())
        found: dict[str, list[float]] = {}
        for name, function in (("PyTorch's", F.gelu), ("ours", GELU()), ("compiled", compiled)):
            given = x.clone().requires_grad_()
            (output := function(given)).backward(upstream)
            pairs = ((output, expected.detach()), (given.grad, exact.grad))
            found[name] = [float((one.detach().double() - other).norm() / other.norm()) for one, other in pairs]
        shown = ", ".join(f"{name} {value:.2e} and {slope:.2e}" for name, (value, slope) in found.items())
        print(f"GELU and its gradient, {dtype}: {shown} from float64", flush=True)
        assert all(mine <= 1.01 * theirs for mine, theirs in zip(found["ours"], found["PyTorch's"], strict=True))
        assert found["compiled"] == found["ours"]


JOINS = "seqwright.layers.transformer_block.joins_linear"


def never(*modules: object) -> bool:
    return False


def joined_gelu(device: str) -> None:
    """Feed-forward networks whose product of the gradient multiplies by GELU's slope, against plain ones: norms of
    differences from float64, of the output and all gradients. Tiles end beyond the rows; in the last case they are few.
    """
    from seqwright.layers import gelu_kernel

    plain = mock.patch(JOINS, never)
    for rows, width, inner, bias in ((4099, 768, 3072, False), (4099, 200, 1000, True), (8, 64, 256, True)):
        torch.manual_seed(1)
        network = FeedForward(width, inner, bias=bias).to(device)
        x, upstream = torch.randn(2, rows, width, device=device).bfloat16()
        hidden = torch.empty(rows, inner, device=device, dtype=torch.bfloat16)
        fused = gelu_kernel.pays(hidden, upstream, network.down.weight.bfloat16().contiguous())
        assert fused == (rows > 8) or torch.cuda.get_device_capability()[0] != 9
        assert joins_linear(hidden, network.activation, network.down)

        def outcome(network: Any, x: Any, upstream: Any) -> list[Any]:
            x = x.clone().requires_grad_()
            with torch.autocast("cuda", torch.bfloat16, enabled=x.dtype != torch.float64):
                output = network(x)
            return [output, *torch.autograd.grad(output, [x, *network.parameters()], upstream)]

        found = {"ours": outcome(network, x, upstream), "compiled": outcome(torch.compile(network), x, upstream)}
        with plain:
            found["plain"] = outcome(network, x, upstream)
            exact = outcome(network.double(), x.double(), upstream.double())
        off = {
            name: [float((one.double() - right).norm() / right.norm()) for one, right in zip(each, exact, strict=True)]
            for name, each in found.items()
        }
        shown = ", ".join(f"{name} {max(each):.2e}" for name, each in off.items())
        print(
            f"feed-forward {rows} × {width} × {inner}{', in one kernel' if fused else ''}: {shown} from float64",
            flush=True,
        )
        for name in ("ours", "compiled"):
            assert all(mine <= 1.2 * theirs + 1e-5 for mine, theirs in zip(off[name], off["plain"], strict=True))


def pattern(workload: Workload) -> Any:
    """Ids that a model learns in few steps."""
    return (np.arange(2_000_000) * 7 % 89 + 5).astype(np.uint16)


def joined_training(device: str) -> None:
    """Losses of a small GPT with these and with plain feed-forward networks: the same but for rounding."""
    losses: dict[bool, list[float]] = {}
    for joined in (True, False):
        workload = gpt(2, 256, 4, rows=32, length=256, vocabulary=512, bias=True, name="small", device=device)
        options = Options(device=torch.device(device), dtype=torch.bfloat16)
        with mock.patch("peers.workloads.ids", pattern), mock.patch(JOINS, joins_linear if joined else never):
            _, step = ours(
                workload,
                options,
                ["training.compile=inductor", "training.warmup_steps=0", "training.learning_rate=0.001"],
            )
            trainer: Any = step.__self__  # type: ignore[attr-defined]
            losses[joined] = []
            for _ in range(20):
                step()
                losses[joined].append(float(trainer.step_loss))
    apart = max(abs(one - other) for one, other in zip(*losses.values(), strict=True))
    first, last = losses[True][0], losses[True][-1]
    print(f"20 steps of a small GPT: loss {first:.3f} to {last:.3f}, within {apart:.1e} of plain layers", flush=True)
    assert last < first - 1
    assert apart < 0.03


@torch.inference_mode()
def fused_steps(device: str) -> None:
    """Decoding steps in fused kernels against PyTorch's own over a static cache: log-probabilities."""
    torch.backends.cuda.matmul.allow_tf32 = False
    vocabulary = Vocabulary(size=501, sos=1, eos=2, pad=0)
    llama = {
        "positions": "rope",
        "norm": "rmsnorm",
        "activation": "swiglu",
        "kv_heads": 2,
        "qk_norm": True,
        "bias": False,
    }
    tables = {"gpt": {}, "llama": llama, "post": {"norm_position": "post"}, "window": {"attention_window": 9}}
    for dtype, most in ((torch.float32, 1e-4), (torch.bfloat16, 0.1)):
        for name, table in tables.items():
            torch.manual_seed(1)
            sizes = {"kind": "gpt", "layers": 3, "width": 192, "heads": 4, "context": 96}
            plain: Any = build.model(build.model_config(sizes | table), vocabulary).to(device, dtype).eval()
            worst = 0.0
            for rows in (1, 2, 9, 80):
                ids = torch.randint(3, 501, (rows, 40), generator=torch.Generator().manual_seed(2)).to(device)
                found = []
                for model in (plain, optimize_for_inference(plain)):
                    first, state = model.step(ids[:, :20], model.start(Source.empty(rows, device), capacity=96))
                    state, log_probs = state.static(20), [first]
                    for place in range(20, 40):
                        one, state = model.step(ids[:, place : place + 1], state)
                        log_probs.append(one)
                    found.append(torch.stack(log_probs))
                worst = max(worst, float((found[0] - found[1]).abs().max()))
            print(f"fused decoding steps of {name}, {dtype}: log-probabilities within {worst:.1e}", flush=True)
            assert worst < most


def resume(device: str) -> None:
    """Trains in bf16, once through and once stopped half-way: same weights."""
    for name, model in MODELS.items():
        whole = TABLE | {"model": model}
        whole["training"] = TABLE["training"] | {"device": device, "precision": "bf16", "deterministic": True}
        half = whole | {"training": whole["training"] | {"steps": 100, "schedule": "constant"}}
        whole["training"] |= {"schedule": "constant"}
        with tempfile.TemporaryDirectory() as folder:
            first, second = Path(folder) / "whole", Path(folder) / "halves"
            summary = session.train(recipe.make(whole), first).summary
            session.train(recipe.make(half), second)
            session.train(recipe.make(whole), second)
            one, other = (load_tensors(path / "model.safetensors")[0] for path in (first, second))
            equal = all(torch.equal(one[key], other[key]) for key in one)
            assert summary is not None
            rate = summary["trained_tokens"] / summary["seconds"]
            text = open_run(first, device=device).generate("The ", max_tokens=20).text
            print(f"{name}: bits/byte {summary['bits_per_byte']:.3f}, {rate:,.0f} tokens/s, resumed equal: {equal}")
            print(f"    {text!r}")
            assert equal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    device = parser.parse_args().device
    if device == "cuda" and not torch.cuda.is_available():
        print("there is no GPU here; nothing was asked.")
        return
    keeps(SPEAKERS, LAWS, device)
    keeps(READERS, ENCODER_LAWS, device)
    keeps({**SPEAKERS, **READERS}, TRAINING_LAWS, device)
    fused_loss(device)
    chunked_loss(device)
    fused_gelu(device)
    joined_gelu(device)
    joined_training(device)
    fused_steps(device)
    resume(device)


if __name__ == "__main__":
    main()
