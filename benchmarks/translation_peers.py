"""Other engines' beam searches over the weights of one of our post-LN Transformers, for `beam_translation.py`.

Each function takes our model and answers with the peer's search: source rows of ids in, the best ids of each out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

UNK, PAD, SOS, EOS = range(4)
Search = Callable[[list[list[int]]], list[list[int]]]


def ctranslate2(mine: Any, *, beam: int, length: int, shortest: int) -> Search:
    """CTranslate2 (`pip install ctranslate2`): float32, one thread."""
    import ctranslate2 as engine
    from ctranslate2.specs import TransformerSpec

    layers, heads = len(mine.decoder.blocks), mine.decoder.blocks[0].attention.heads
    spec = TransformerSpec.from_config(layers, heads, pre_norm=False)
    words = ["<unk>", "<pad>", "<s>", "</s>", *map(str, range(4, mine.source_embedding.num_embeddings))]
    memories = mine.decoder.keys_values.weight.chunk(layers), mine.decoder.keys_values.bias.chunk(layers)
    for side, stack in ((spec.encoder, mine.reader), (spec.decoder, mine.decoder)):
        for table in side.embeddings if isinstance(side.embeddings, list) else [side.embeddings]:
            table.weight = mine.source_embedding.weight.detach().numpy()
        side.position_encodings.encodings = stack.positions.table.numpy()
        for layer, (to, block) in enumerate(zip(side.layer, stack.blocks, strict=True)):
            own = block.attention
            _copy(to.self_attention.linear, own.query_key_value, own.output)
            _copy([to.ffn.linear_0, to.ffn.linear_1], block.feed_forward.up, block.feed_forward.down)
            norms = [(to.self_attention, block.attention_norm), (to.ffn, block.feed_forward_norm)]
            if block.cross is not None:
                memory = SimpleNamespace(weight=memories[0][layer], bias=memories[1][layer])
                _copy(to.attention.linear, block.cross.query, memory, block.cross.output)
                norms.append((to.attention, block.cross_norm))
            for part, norm in norms:
                part.layer_norm.gamma, part.layer_norm.beta = norm.weight.detach().numpy(), norm.bias.detach().numpy()
    spec.decoder.projection.weight = mine.head.readout.weight.detach().numpy()
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    with tempfile.TemporaryDirectory() as folder:
        spec.validate()
        spec.save(folder)
        translator = engine.Translator(folder, compute_type="float32", inter_threads=1, intra_threads=1)
    ids = {word: id for id, word in enumerate(words)}

    def search(rows: list[list[int]]) -> list[list[int]]:
        found = translator.translate_batch(
            [[words[id] for id in row] for row in rows], beam_size=beam, max_decoding_length=length,
            min_decoding_length=shortest, length_penalty=1.0, suppress_sequences=[["<pad>"]],
        )  # fmt: skip
        return [[ids[word] for word in one.hypotheses[0]] for one in found]

    return search


def _copy(to: list[Any], *maps: Any) -> None:
    for linear, ours in zip(to, maps, strict=True):
        linear.weight, linear.bias = ours.weight.detach().numpy(), ours.bias.detach().numpy()


def joeynmt(mine: Any, *, beam: int, length: int, shortest: int) -> Search:
    """JoeyNMT (`pip install joeynmt importlib_metadata`)."""
    from joeynmt.model import build_model
    from joeynmt.search import beam_search

    size, width = mine.source_embedding.weight.shape
    first = mine.decoder.blocks[0]
    side = {
        "type": "transformer", "num_layers": len(mine.decoder.blocks), "num_heads": first.attention.heads,
        "hidden_size": width, "ff_size": first.feed_forward.up.out_features, "dropout": 0.0, "layer_norm": "post",
        "embeddings": {"embedding_dim": width, "scale": True, "dropout": 0.0},
    }  # fmt: skip

    class Vocabulary(SimpleNamespace):
        def __len__(self) -> int:
            return int(size)

    names = Vocabulary(
        pad_index=PAD, bos_index=SOS, eos_index=EOS, unk_index=UNK, sep_index=None, special_tokens=[], lang_tags=[]
    )
    config = {"encoder": side, "decoder": dict(side), "tied_embeddings": True, "tied_softmax": True}
    model: Any = build_model(config, names, names).eval()
    _copy_joeynmt(mine, model)

    def search(rows: list[list[int]]) -> list[list[int]]:
        longest = max(map(len, rows))
        ids = torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])
        given = {"src": ids, "src_length": torch.tensor([len(row) for row in rows]), "src_mask": (ids != PAD)[:, None]}
        memory, _, mask, _ = model(return_type="encode", **given)
        mask = given["src_mask"] if mask is None else mask
        out, _, _ = beam_search(model, beam, memory, None, mask, length, 1.0, min_output_length=shortest)
        return [ended(row) for row in out.tolist()]

    return search


def ended(row: list[int], eos: int = EOS) -> list[int]:
    """What was said before the end."""
    return row[: row.index(eos)] if eos in row else row


@torch.no_grad()
def _copy_joeynmt(mine: Any, peer: nn.Module) -> None:
    width = mine.source_embedding.weight.size(1)
    table: Any = peer.get_submodule("src_embed").get_parameter("lut.weight")
    table.copy_(mine.source_embedding.weight)
    memory = list(
        zip(mine.decoder.keys_values.weight.split(width), mine.decoder.keys_values.bias.split(width), strict=True)
    )
    for side, stack in (("encoder", mine.reader), ("decoder", mine.decoder)):
        for layer, block in enumerate(stack.blocks):
            at = f"{side}.layers.{layer}."
            own = "src_src_att" if side == "encoder" else "trg_trg_att"
            fused = block.attention.query_key_value
            parts = zip(fused.weight.split(width), fused.bias.split(width), strict=True)
            pairs: dict[str, tuple[Tensor, Tensor]] = dict(zip([f"{own}.{n}_layer" for n in "qkv"], parts, strict=True))
            pairs[f"{own}.output_layer"] = _both(block.attention.output)
            pairs["feed_forward.pwff_layer.0"] = _both(block.feed_forward.up)
            pairs["feed_forward.pwff_layer.3"] = _both(block.feed_forward.down)
            pairs["feed_forward.layer_norm"] = _both(block.feed_forward_norm)
            pairs["layer_norm" if side == "encoder" else "x_layer_norm"] = _both(block.attention_norm)
            if block.cross is not None:
                pairs["src_trg_att.q_layer"] = _both(block.cross.query)
                pairs["src_trg_att.k_layer"], pairs["src_trg_att.v_layer"] = memory[2 * layer : 2 * layer + 2]
                pairs["src_trg_att.output_layer"] = _both(block.cross.output)
                pairs["dec_layer_norm"] = _both(block.cross_norm)
            for name, (weight, bias) in pairs.items():
                to: Any = peer.get_submodule(at + name)
                to.weight.copy_(weight)
                to.bias.copy_(bias)
    for part in peer.modules():
        if isinstance(part, nn.LayerNorm):
            part.eps = 1e-5


def _both(part: Any) -> tuple[Tensor, Tensor]:
    return part.weight, part.bias
