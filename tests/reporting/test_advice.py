"""What to do next: train longer where validation still falls, mix with an n-gram that is still better."""

from __future__ import annotations

from typing import Any

from seqwright.reporting.advice import advice


def log(*losses: float, counted: float | None = None) -> list[dict[str, Any]]:
    evaluations = [{"kind": "evaluation", "step": 100 * n, "nll": nll} for n, nll in enumerate(losses, 1)]
    baseline = {"kind": "baseline", "step": 0, "model": "ngram", "nll": counted, "seconds": 1.5, "bits_per_byte": 2.0}
    return [*([baseline] if counted else []), *evaluations]


def test_a_loss_that_still_falls_is_trained_on_for_twice_the_steps() -> None:
    ((sentence, command),) = advice("runs/a", log(5, 4, 3.5, 3.2, 3.0), {"nll": 3.0, "asked_steps": 500})
    assert "6.2% in the last fifth" in sentence
    assert command == "seqwright train --run runs/a --set training.steps=1000"
    assert not list(advice("runs/a", log(5, 4, 3.5, 3.2, 3.19), {"nll": 3.19, "asked_steps": 500}))
    assert not list(advice("runs/a", log(5), {"nll": 5}))
    assert not list(advice("runs/a", log(5, 1, 0.1, 0.004, 0.002), {"nll": 0.002, "asked_steps": 500}))  # learned
    assert not list(advice("runs/a", log(5, 2.0, 3.5, 3.2, 3.0), {"nll": 2.0, "asked_steps": 500}))  # best long ago


def test_an_ngram_that_is_still_better_is_mixed_in() -> None:
    ((sentence, command),) = advice("runs/a", log(3.0, 3.0, counted=2.0), {"nll": 3.0, "bits_per_byte": 2.5})
    assert sentence.startswith("2.500 bits/byte, and the n-gram has 2.000 bits/byte after 1.5")
    assert command == "seqwright mix runs/a --ngram --run runs/a-mixed"
    assert not list(advice("runs/a", log(3.0, 3.0, counted=3.1), {"nll": 3.0}))


def test_an_ngram_of_a_lossy_tokenizer_has_nats_per_token() -> None:
    lossy = [{"kind": "baseline", "step": 0, "model": "ngram", "nll": 2.0, "seconds": 1.5}]
    ((sentence, _),) = advice("runs/a", lossy, {"nll": 3.0})
    assert sentence.startswith("3.000 nats per token, and the n-gram has 2.000 nats per token after")


def test_a_single_validation_is_trained_on_before_it_is_mixed() -> None:
    summary = {"nll": 3.0, "asked_steps": 500, "seconds": 100.0}
    (longer, command), (mixed, _) = advice("runs/a", log(3.0, counted=2.0), summary)
    assert longer.endswith("train longer first")
    assert command == "seqwright train --run runs/a --set training.steps=1000"
    assert "the n-gram has" in mixed


def test_a_short_training_that_was_best_at_its_end_is_trained_on_before_it_is_mixed() -> None:
    summary = {"nll": 6.58, "asked_steps": 5, "seconds": 1.0}
    (longer, command), _ = advice("runs/a", log(6.66, 6.6, 6.58, counted=3.4), summary)
    assert longer == "a short training that was best at its end says little: train longer first"
    assert command == "seqwright train --run runs/a --set training.steps=100"


def test_a_short_time_budget_is_begun_anew_with_a_longer_one() -> None:
    """Its dropout was chosen for few passes: going on for many more overfits."""

    def anew(times: int) -> str:
        return f"seqwright train --text a.txt --minutes {times} --run runs/a-2"

    falling, summary = log(5, 4, 3.5, 3.2, 3.0), {"nll": 3.0, "asked_steps": 500, "seconds": 30.0}
    ((sentence, command),) = advice("runs/a", falling, summary, anew)
    assert sentence.endswith("train 10 times as long, anew, since sizes and dropout follow the time")
    assert command == "seqwright train --text a.txt --minutes 10 --run runs/a-2"
    ((sentence, command),) = advice("runs/a", falling, summary | {"seconds": 100.0}, anew)
    assert sentence.endswith("train twice as long")
    assert command == "seqwright train --run runs/a --set training.steps=1000"


def test_a_bleu_too_low_to_be_useful_is_trained_on_or_needs_more_pairs() -> None:
    falling, flat = log(5, 4, 3.5, 3.2, 3.0), log(5, 4, 3.5, 3.2, 3.19)
    ((sentence, command),) = advice("runs/a", falling, {"nll": 3.0, "bleu": 6.8, "asked_steps": 500})
    assert sentence.startswith("BLEU 6.800 is too low to be useful; validation was still falling")
    assert command == "seqwright train --run runs/a --set training.steps=1000"
    ((sentence, command),) = advice("runs/a", flat, {"nll": 3.19, "bleu": 6.8, "asked_steps": 500})
    assert "more pairs are needed" in sentence
    assert "--pairs MORE.SOURCE MORE.TARGET" in command
    ((sentence, _),) = advice("runs/a", log(5), {"nll": 5.0, "bleu": 0.0, "asked_steps": 4})
    assert sentence == "BLEU 0.000 is too low to be useful: train twice as long"
    hardly = {"nll": 8.2, "bleu": 0.0, "asked_steps": 4, "seconds": 1.0}
    ((sentence, _),) = advice("runs/a", log(8.22, 8.21, 8.2), hardly)  # still warming up
    assert sentence == "BLEU 0.000 is too low to be useful: train 20 times as long"
    assert not list(advice("runs/a", flat, {"nll": 3.19, "bleu": 25.0, "asked_steps": 500}))
    assert not list(advice("runs/a", flat, {"nll": 3.19, "bleu": 9.0, "bleu_lowercased": 42.6, "asked_steps": 500}))
