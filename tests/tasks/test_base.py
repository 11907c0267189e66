"""Notes on the validation data, for all tasks."""

from __future__ import annotations

from seqwright.tasks.base import FEW_HELD_OUT, held_out_notes


def test_few_held_out_examples_are_pointed_out() -> None:
    named, few = held_out_notes("documents 5%", 1, "texts")
    assert named == "held out for validation: documents 5% of the texts (1)."
    assert "validation texts: 1 only" in few
    assert "--valid FILE" in few
    assert held_out_notes(None, FEW_HELD_OUT - 1, "texts")[0].startswith(f"validation texts: {FEW_HELD_OUT - 1} only")
    assert held_out_notes(None, FEW_HELD_OUT, "texts") == []
