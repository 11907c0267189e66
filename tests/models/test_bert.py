"""BERT: equal to transformers' BertForMaskedLM; padding, masked loss and tied weights."""

from __future__ import annotations

import pytest
import torch

from seqwright import build
from seqwright.core.batch import IGNORE, Batch, EncoderSizes, OutputSpec, Source, Vocabulary

V, WIDTH, HEADS, LAYERS, CONTEXT = 23, 16, 4, 2, 12
VOCABULARY = Vocabulary(size=V, unk=0, pad=1, sos=2, eos=3, mask=4)


def bert(*, segments: int = 1, **options: object):
    table = {"kind": "bert", "width": WIDTH, "heads": HEADS, "layers": LAYERS, "context": CONTEXT, **options}
    sizes = EncoderSizes(answers=OutputSpec(kind="tokens", count=V), vocabulary=VOCABULARY, segments=segments)
    torch.manual_seed(3)
    model = build.model(build.model_config(table, task="masked"), sizes, task="masked").double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model


def rows() -> Batch:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, V, (3, CONTEXT), generator=generator)
    mask = torch.arange(CONTEXT) < torch.tensor([CONTEXT, 7, 4]).unsqueeze(1)
    segments = (torch.arange(CONTEXT) > 2).long().expand(3, -1)
    target = torch.where(mask & (ids % 3 == 0), ids, IGNORE)
    return Batch.of_source(Source(mask=mask, ids=ids, segments=segments), target)


def test_bert_logits_equal_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=V, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH, max_position_embeddings=CONTEXT, hidden_act="gelu",
    )  # fmt: skip
    theirs = transformers.BertForMaskedLM(config).double().eval()
    ours = bert(segments=2)
    mine = dict(ours.named_parameters())
    body, mlm_head = theirs.bert, theirs.cls.predictions
    pairs = [
        ("embedding.weight", body.embeddings.word_embeddings.weight),
        ("embedding.segments.weight", body.embeddings.token_type_embeddings.weight),
        ("encoder.positions.table.weight", body.embeddings.position_embeddings.weight),
        ("encoder.embedding_norm.weight", body.embeddings.LayerNorm.weight),
        ("encoder.embedding_norm.bias", body.embeddings.LayerNorm.bias),
        ("head.readout.bias", mlm_head.bias),
    ]
    for part in ("weight", "bias"):
        pairs += [
            (f"head.transform.0.{part}", getattr(mlm_head.transform.dense, part)),
            (f"head.transform.2.{part}", getattr(mlm_head.transform.LayerNorm, part)),
        ]
    for number, layer in enumerate(body.encoder.layer):
        block = f"encoder.blocks.{number}"
        for part in ("weight", "bias"):
            qkv = [getattr(layer.attention.self, name) for name in ("query", "key", "value")]
            names = {
                "attention.output": layer.attention.output.dense,
                "attention_norm": layer.attention.output.LayerNorm,
                "feed_forward.up": layer.intermediate.dense,
                "feed_forward.down": layer.output.dense,
                "feed_forward_norm": layer.output.LayerNorm,
            }
            pairs.append((f"{block}.attention.query_key_value.{part}", torch.cat([getattr(m, part) for m in qkv])))
            pairs += [(f"{block}.{name}.{part}", getattr(module, part)) for name, module in names.items()]
    assert {name for name, _ in pairs} == set(mine)
    with torch.no_grad():
        for name, value in pairs:
            mine[name].copy_(value)
        batch = rows()
        arguments = {"attention_mask": batch.source.mask.long(), "token_type_ids": batch.source.segments}
        expected = theirs(batch.source.ids, **arguments).logits
        real = batch.source.mask
        assert (ours(batch) - expected)[real].abs().max() < 1e-9


@pytest.mark.parametrize("options", [{}, {"norm_position": "pre"}, {"positions": "rope"}], ids=str)
def test_padding_does_not_change_bert_logits(options: dict[str, object]) -> None:
    model, batch = bert(**options), rows()
    together = model(batch)
    for row, length in enumerate(batch.source.mask.sum(1).tolist()):
        one = batch.rows_of(torch.tensor([row]))
        source = Source(mask=one.source.mask[:, :length], ids=one.source.ids[:, :length])
        alone = model(Batch.of_source(source, one.target[:, :length]))
        assert (together[row, :length] - alone[0]).abs().max() < 1e-9


def test_mlm_loss_of_masked_tokens_equals_cross_entropy_of_all_logits() -> None:
    model, batch = bert(), rows()
    hidden, _ = model.hidden(batch)
    total, count = model.head.loss(hidden, batch.target)
    expected = torch.nn.functional.cross_entropy(
        model(batch).flatten(0, 1), batch.target.flatten(), ignore_index=IGNORE, reduction="sum"
    )
    assert count == batch.count
    assert (total - expected).abs() < 1e-9


def test_mlm_head_is_tied_to_the_embedding() -> None:
    model = bert()
    assert model.head.readout.weight is model.embedding.weight
