"""Blocks and linear layers in compiled C have the outputs of plain ones; a row alone equals itself in a batch."""

from __future__ import annotations

import copy
import ctypes
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from seqwright import build
from seqwright.core.batch import Source, Vocabularies, Vocabulary
from seqwright.decoding.generate import generate
from seqwright.decoding.options import SamplingOptions
from seqwright.layers.inference import native_linear, packed_linear
from seqwright.layers.inference.int8_linear import Int8Linear, quantize_weights_
from seqwright.layers.inference.native_block import CacheFields, NativeBlock
from seqwright.layers.inference.native_linear import NativeLinear, NativeTokenHead, PanelMemory
from seqwright.layers.inference.optimize import optimize_for_inference

SIZES = Vocabulary(size=70, unk=0, pad=1, sos=2, eos=3)
GPTS: dict[str, dict[str, Any]] = {
    "gpt-2": {"activation": "gelu-tanh"},
    "llama": {"positions": "rope", "norm": "rmsnorm", "activation": "swiglu", "bias": False, "kv_heads": 2},
    "windows": {"attention_window": 5, "activation": "gelu", "qk_norm": True},
    "post-LN": {"norm_position": "post", "activation": "relu", "positions": "sinusoidal"},
    "no norm": {"norm": "none", "activation": "relu2"},
    "heads of 64": {"width": 128, "heads": 2, "context": 48},
}

pytestmark = pytest.mark.skipif(native_linear.kernels() is None, reason="this machine has no C compiler")


def gpt(**table: Any) -> nn.Module:
    torch.manual_seed(0)
    config = {
        "kind": "gpt",
        "layers": 2,
        "width": 40,
        "heads": 4,
        "context": 32,
        **table,
    }  # heads of 10: no whole vector
    model = build.model(build.model_config(config), SIZES).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    return model


def steps(model: Any, ids: Tensor, count: Tensor | None = None) -> Tensor:
    """Log-probabilities (T, B, V) after a prompt of 7 ids, `count` of them real, and after each id that follows."""
    log_probs, state = model.step(ids[:, :7], model.start(Source.empty(len(ids)), capacity=20), count)
    out = [log_probs]
    for t in range(7, ids.size(1)):
        log_probs, state = model.step(ids[:, t : t + 1], state)
        out.append(log_probs)
    return torch.stack(out)


@pytest.mark.parametrize("name", GPTS)
@torch.inference_mode()
def test_compiled_steps_have_the_same_log_probs(name: str) -> None:
    """Law: also where rows have prompts of different lengths."""
    model = gpt(**GPTS[name])
    fast = optimize_for_inference(model)
    assert [type(block) for block in fast.encoder.blocks] == [NativeBlock, NativeBlock]
    assert not any(isinstance(part, NativeBlock | NativeLinear) for part in model.modules())
    ids = torch.randint(4, 70, (9, 18))
    count = torch.tensor([7, 1, 4, 7, 3, 2, 6, 5, 7])
    assert_close(steps(fast, ids, count), steps(model, ids, count), rtol=0, atol=2e-5)


@torch.inference_mode()
def test_a_step_of_no_tokens_changes_nothing() -> None:
    """Compiled C reads one embedding of each row."""
    fast, ids = optimize_for_inference(gpt()), torch.randint(4, 70, (3, 3))
    _, state = fast.step(ids[:, :2], fast.start(Source.empty(3), capacity=8))
    none, state = fast.step(ids[:, :0], state, all_positions=True)
    assert none.shape == (3, 0, 70)
    assert_close(fast.step(ids[:, 2:], state)[0], steps(gpt(), ids)[0], rtol=0, atol=2e-5)


@torch.inference_mode()
def test_a_row_alone_equals_itself_in_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: to the bit, whatever the number of rows."""
    monkeypatch.setattr(packed_linear, "MIN_WEIGHTS", 1)  # the small output layer, too
    fast = optimize_for_inference(gpt())
    ids = torch.randint(4, 70, (13, 18))
    together = steps(fast, ids)
    for rows in ([4], [0, 12], [*range(6)]):
        assert torch.equal(steps(fast, ids[rows]), together[:, rows])


@pytest.mark.parametrize("name", GPTS)
@torch.inference_mode()
def test_bfloat16_steps_are_as_near_to_float32_as_plain_ones(name: str) -> None:
    """Law: compiled steps round weights, products' inputs and KV cache only, plain ones everything between."""
    model = gpt(**GPTS[name]).bfloat16()
    fast, exact = optimize_for_inference(model), copy.deepcopy(model).float()
    assert all(isinstance(part, NativeLinear) for part in fast.encoder.blocks.modules() if isinstance(part, nn.Linear))
    ids = torch.randint(4, 70, (9, 18))
    count = torch.tensor([7, 1, 4, 7, 3, 2, 6, 5, 7])
    expected = steps(exact, ids, count)
    errors = [(steps(one, ids, count) - expected)[1:].square().mean().sqrt() for one in (fast, model)]
    assert 0 < errors[0] < errors[1]


@torch.inference_mode()
def test_bfloat16_rows_alone_equal_themselves_in_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: to the bit, with an output layer in C, whose log-probabilities are float32."""
    monkeypatch.setattr(packed_linear, "MIN_WEIGHTS", 1)
    fast = optimize_for_inference(gpt().bfloat16())
    assert isinstance(fast.head, NativeTokenHead)
    ids = torch.randint(4, 70, (13, 1))
    state = fast.start(Source.empty(13), capacity=4)
    together, _ = fast.step(ids, state)
    assert together.dtype == torch.float32
    alone, _ = fast.step(ids[4:5], fast.start(Source.empty(1), capacity=4))
    assert torch.equal(alone, together[4:5])


@torch.inference_mode()
def test_compiled_heads_normalize(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_linear, "MIN_WEIGHTS", 1)
    model = gpt()
    head = optimize_for_inference(model).head
    assert isinstance(head, NativeTokenHead)
    hidden = 20 * torch.randn(5, 3, 40)
    assert_close(head.log_probs(hidden), model.head.log_probs(hidden), rtol=1e-6, atol=1e-5)
    first = torch.eye(40)[:1]
    model.head.readout.weight[:, 0] = 1e6 - torch.arange(70) % 5  # near it floats are rounded to sixteenths
    exact = copy.deepcopy(model).double().head.log_probs(first.double())
    assert_close(optimize_for_inference(model).head.log_probs(first).double(), exact, rtol=1e-6, atol=0)


@torch.inference_mode()
def test_compiled_decoders_attend_to_their_source() -> None:
    sizes = Vocabularies(source=SIZES, target=SIZES, joint=True)
    torch.manual_seed(0)
    table = {"kind": "transformer", "layers": 2, "width": 32, "heads": 4}
    model = build.model(build.model_config(table, task="pairs"), sizes, task="pairs").eval()
    source = Source(mask=torch.ones(3, 5, dtype=torch.bool), ids=torch.arange(4, 19).view(3, 5))
    log_probs = []
    for one in (model, optimize_for_inference(model)):
        state = one.start(source, capacity=4)
        first, state = one.step(torch.tensor([[2, 7], [2, 8], [2, 9]]), state)
        second, _ = one.step(torch.tensor([[4], [5], [6]]), state)
        log_probs.append(torch.stack([first, second]))
    assert_close(*log_probs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"temperature": 0.9, "top_k": 20}])
def test_compiled_steps_generate_the_same_ids(options: dict[str, Any]) -> None:
    """Law: beyond the context too, whose recent half is read again."""
    model = gpt()
    prompts = [[2, *range(5, 5 + n)] for n in (1, 9, 4)]
    wanted = SamplingOptions(max_tokens=40, **options)
    outputs = [generate(one, prompts, wanted, seeds=[1, 2, 3]) for one in (model, optimize_for_inference(model))]
    assert [row.ids for row in outputs[0]] == [row.ids for row in outputs[1]]


@pytest.mark.parametrize("rows", [1, 5, 16, 33])
@torch.inference_mode()
def test_products_equal_those_of_plain_layers(rows: int) -> None:
    torch.manual_seed(1)
    for layer in (nn.Linear(50, 130), nn.Linear(64, 64, bias=False), Int8Linear(nn.Linear(50, 130))):
        x = torch.randn(rows, layer.in_features)
        fast = NativeLinear(layer, PanelMemory([layer]), "gelu")
        expected = nn.functional.gelu(nn.functional.linear(x, layer.weight, layer.bias))
        assert_close(fast(x), expected, rtol=0, atol=1e-5)
        assert torch.equal(fast(x.view(rows, 1, -1)), fast(x).view(rows, 1, -1))


@pytest.mark.parametrize("rows", [1, 5, 16, 33, 300])
@torch.inference_mode()
def test_bfloat16_products_equal_those_of_plain_layers(rows: int) -> None:
    """Also of so many rows that plain products are taken, and in autocast: the activation comes after both."""
    torch.manual_seed(1)
    for layer in (nn.Linear(50, 130).bfloat16(), nn.Linear(64, 64, bias=False).bfloat16()):
        x = torch.randn(rows, layer.in_features).bfloat16()
        fast = NativeLinear(layer, PanelMemory([layer]), "relu2")
        bias = None if layer.bias is None else layer.bias.float()
        expected = nn.functional.linear(x.float(), layer.weight.float(), bias).relu().square()
        assert_close(fast(x).float(), expected, rtol=2**-6, atol=1e-4)
        with torch.autocast("cpu", torch.bfloat16):
            assert_close(fast(x.float()).float(), expected, rtol=2**-6, atol=1e-4)


@torch.inference_mode()
def test_int8_weights_are_read_by_compiled_blocks() -> None:
    """Law: log-probabilities of the rounded weights, whatever the number of rows."""
    model = quantize_weights_(gpt())
    fast = optimize_for_inference(model)
    assert not any(isinstance(part, Int8Linear) for part in fast.modules())
    ids = torch.randint(4, 70, (12, 16))  # more rows than PyTorch's own int8 kernel takes: plain products
    assert_close(steps(fast, ids), steps(model, ids), rtol=0, atol=2e-5)
    assert torch.equal(steps(fast, ids[:1]), steps(fast, ids)[:, :1])


@torch.inference_mode()
def test_no_memory_for_a_step_is_an_error() -> None:
    """Scratch memory of a step that no machine has: C returns, and writes nothing."""
    fast: Any = optimize_for_inference(gpt())
    block, stack = fast.encoder.blocks[0], fast.encoder.blocks
    x, long = torch.zeros(1, 40), torch.zeros(1, dtype=torch.long)
    cache = CacheFields(row_stride=0, slots=1 << 50, half=0)
    pointers = x.data_ptr(), 1, long.data_ptr(), long.data_ptr(), ctypes.byref(cache)
    functions = native_linear.kernels()
    with pytest.raises(MemoryError, match="fewer rows"):
        functions.attention_sublayer(ctypes.addressof(block.fields), *pointers, x.data_ptr(), 1)
    with pytest.raises(MemoryError):
        functions.run_stack(ctypes.addressof(stack.fields), *pointers, 0, 1)
    with pytest.raises(MemoryError):
        functions.feed_forward_sublayer(ctypes.addressof(block.fields), x.data_ptr(), 1 << 50, x.data_ptr(), 1)
