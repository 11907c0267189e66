"""Back-off: the order, count and discount behind every probability of an n-gram model."""

from __future__ import annotations

from seqwright.core.batch import IGNORE
from seqwright.inspection.figures import TokenTable
from seqwright.inspection.subject import Subject, ViewResult
from seqwright.studies.explain.explanation import Step
from seqwright.studies.explain.figures import joined
from seqwright.studies.explain.topics.ngram import CONTINUATION_COUNTS
from seqwright.tasks.language.task import LanguageRun


def back_off_view(subject: Subject) -> ViewResult:
    """Of n-grams."""
    run = subject.run
    assert isinstance(run, LanguageRun)
    ids = [id for id in subject.example.batch.target[0].tolist() if id != IGNORE]
    traced = run.back_off(ids)
    rows = tuple(
        (
            n,
            one.token,
            one.order,
            joined(one.context),
            one.count,
            one.discount,
            one.total,
            one.followers,
            one.interpolated,
            " · ".join(f"{weight:.4f}" for weight in one.weights),
            one.probability,
        )
        for n, one in enumerate(traced, 1)
    )
    counts = ("count", "discount", "total", "followers", "interpolated")
    columns = ("", "token", "order", "context used", *counts, "back-off weights", "probability")
    used = {order: sum(one.order == order for one in traced) for order in sorted({one.order for one in traced})}
    orders = ", ".join(f"order {order}: {count:,}" for order, count in used.items())
    step = Step(
        "Back-off: orders, counts and discounts",
        "The longest n-gram that was counted gives the probability: its share of all counts after its context (total;"
        " followers: how many different tokens they are of), plus the interpolated share of shorter contexts. Longer"
        " contexts, which lack it, multiply back-off weights. Total and interpolated are left out where a smoothing"
        f" divides otherwise (add-k, Witten-Bell, stupid back-off). {CONTINUATION_COUNTS} Tokens by order: {orders}.",
        "probability = ((count - discount) / total + interpolated) · back-off weights\n"
        "interpolated = weight(context) · p(w | shorter context)",
        [TokenTable("back-off", columns, rows[subject.options.shown(len(rows), 1)])],
    )
    return ViewResult(step, traced)
