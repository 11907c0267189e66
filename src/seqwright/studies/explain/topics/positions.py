"""Positional encodings (worked example 7): candidates tested, sinusoids as rotations, rotary embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqwright.core.config import UserError
from seqwright.layers.positions import Rotary, sinusoids
from seqwright.runs.run import Run
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import matrix, table
from seqwright.studies.explain.heat_map import heat_map
from seqwright.studies.explain.options import TopicOptions, Vector
from seqwright.studies.explain.position_similarity import position_module, similarity_step
from seqwright.training.config import TrainingConfig
from seqwright.training.optimizer import optimizer

FAR = 1000
"""Positions up to which candidates are tested for bounds and uniqueness."""
TOLERANCE = 1e-6
MAP_POSITIONS, MAP_WIDTH = 24, 16
"""Size of the heat map."""
LEARNED = (0, 1, 2, 5, 10, 20, 40)
"""Steps of gradient descent that are shown."""


@dataclass(frozen=True, kw_only=True)
class PositionsOptions(TopicOptions):
    n: int = 5
    """Number of positions."""
    d: int = 4
    """Width of the encoding."""
    odd: int = 5
    """An odd width."""
    shift: int = 1
    """Distance c of the rotation P(t + c) = M_c P(t)."""
    query: Vector = (1.0, 2.0)
    """Query that RoPE rotates."""
    key: Vector = (3.0, -1.0)
    """Key that RoPE rotates."""

    def __post_init__(self) -> None:
        for name, low in (("n", 1), ("d", 2), ("odd", 1)):
            if not low <= getattr(self, name) <= 64:
                raise UserError(f"{name} must be {low} to 64, not {getattr(self, name)}.")
        if not 0 <= self.shift <= FAR:
            raise UserError(f"shift must be 0 to {FAR}, not {self.shift}.")


def positions(options: PositionsOptions, run: Run | None = None) -> Explanation:
    """What a positional encoding must do, and how sinusoids and RoPE do it; or the positions of a run."""
    if run is not None:
        return _of_run(run)
    steps_of = torch.arange(options.n)
    rows = [f"t={t}" for t in range(options.n)]
    encoded, odd = sinusoids(steps_of, options.d), sinusoids(steps_of, options.odd)
    similarity = encoded @ encoded.T
    wide = sinusoids(torch.arange(MAP_POSITIONS), MAP_WIDTH)
    columns = [f"{'sin' if i % 2 == 0 else 'cos'}(t/{10000 ** (i // 2 * 2 / options.d):.4g})" for i in range(options.d)]
    steps = [
        Step(
            "Candidates",
            "A code for position t should be unique, bounded, and relative: the code of t + c should follow from that"
            f" of t by one linear map M_c, whatever t is. Each candidate is tested on {FAR:,} positions; codes that"
            f" differ by less than {TOLERANCE:g}, as those of 2^-t soon do, count as equal.",
            "P(t + c) = M_c P(t) for all t",
            [table("candidates", ["candidate", "P(t)", "unique", "bounded", "relative"], _tested())],
        ),
        Step(
            "Sinusoids",
            "Pairs of sine and cosine with wavelengths from 2π up; wide codes come near to 10000 · 2π, and the longest"
            f" of d = {options.d} is {10000 ** ((options.d - 1) // 2 * 2 / options.d):.4g} · 2π.",
            "P(t, 2i) = sin(t / 10000^(2i/d))    P(t, 2i+1) = cos(t / 10000^(2i/d))",
            [matrix("P", encoded, rows=rows, columns=columns)],
            ["the d = 4 table prints 0.0017, 0.0033, …; 10000^(2/4) = 100, so the third column is 0.01, 0.02, …"],
        ),
        Step(
            "Many positions",
            f"The first {MAP_POSITIONS} positions in {MAP_WIDTH} dimensions: fast waves on the left, slow ones on the"
            " right; below zero in the other color (in a terminal: minus signs). Beside it, the cosines between codes:"
            " near positions are alike.",
            "",
            [
                heat_map("P of many positions", wide, ("position", "dimension")),
                heat_map("cosines of positions", wide @ wide.T * 2 / MAP_WIDTH, ("position", "position")),
            ],
        ),
        Step(
            f"An odd width, d = {options.odd}",
            "The last column is a sine without its cosine.",
            "",
            [matrix("P of odd width", odd, rows=rows)],
        ),
        Step(
            "Similarity depends on distance only",
            "The products of two codes are the same along every diagonal (Toeplitz). They do not fall steadily with"
            " distance.",
            "P(s) · P(t) = Σᵢ cos((s - t) / 10000^(2i/d))",
            [
                matrix("P Pᵀ", similarity, rows=rows, columns=rows),
                matrix("by distance", similarity[0], columns=[f"distance {c}" for c in range(options.n)]),
            ],
            [
                "the P Pᵀ beside the table is the product of neither its printed nor the right numbers; similarity is"
                " not monotone in distance."
            ],
        ),
        _rotation(options),
        _learned_rotation(options),
        _rope(options),
    ]
    about = (
        "Attention does not know order, so positions are added to embeddings (sinusoidal, learned) or rotate queries"
        " and keys (RoPE)."
    )
    return Explanation("positions", "Positions", about, steps)


CANDIDATES: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "counter": ("t", lambda t: t.double().unsqueeze(-1)),
    "exponential": ("2^t", lambda t: 2.0 ** t.double().unsqueeze(-1)),
    "exponential decay": ("2^-t", lambda t: 2.0 ** -t.double().unsqueeze(-1)),
    "periodic": ("t mod 10", lambda t: (t % 10).double().unsqueeze(-1)),
    "powers of a unitary matrix": ("Uᵗ e, U a rotation by 1 rad", lambda t: _unitary_powers(t)),
    "sinusoids": ("sin, cos (d = 4)", lambda t: sinusoids(t, 4)),
}


def _unitary_powers(t: Tensor) -> Tensor:
    """Uᵗ e₁ for a rotation U of the plane by one radian."""
    u = torch.tensor([[math.cos(1), -math.sin(1)], [math.sin(1), math.cos(1)]], dtype=torch.float64)
    powers = [torch.eye(2, dtype=torch.float64)]
    for _ in range(int(t.max())):
        powers.append(u @ powers[-1])
    return torch.stack(powers)[t, :, 0]


def _tested() -> list[tuple[str, ...]]:
    t = torch.arange(FAR)
    rows: list[tuple[str, ...]] = []
    for name, (formula, code) in CANDIDATES.items():
        codes = code(t)
        tests = (_unique(codes), _bounded(codes), _relative(code))
        rows.append((name, formula, *("yes" if passed else "no" for passed in tests)))
    return rows


def _unique(codes: Tensor) -> bool:
    """Whether all codes differ by more than float32 can blur."""
    distance = torch.cdist(codes, codes, compute_mode="donot_use_mm_for_euclid_dist")
    return bool((distance + torch.eye(len(codes)) > TOLERANCE).all())


def _bounded(codes: Tensor) -> bool:
    """Whether later codes are no larger than those of the first tenth."""
    return bool(codes.abs().max() <= codes[: FAR // 10].abs().max() + 0.01)


def _relative(code: Callable[[Tensor], Tensor], shift: int = 3) -> bool:
    """Whether one linear map takes P(t) to P(t + c) for 20 positions: least squares without residual."""
    before, after = code(torch.arange(20)), code(torch.arange(20) + shift)
    solution = torch.linalg.lstsq(before, after, driver="gelsd").solution
    return bool(((before @ solution - after).abs() <= TOLERANCE * (1 + after.abs())).all())


def _rotation(options: PositionsOptions) -> Step:
    """The map M_c by least squares from the codes themselves."""
    width = options.d - options.d % 2  # pairs of sine and cosine
    t = torch.arange(4 * width)
    before, after = sinusoids(t, width), sinusoids(t + options.shift, width)
    m = torch.linalg.lstsq(before, after, driver="gelsd").solution.T  # P(t + c) = M P(t), codes as columns
    m = torch.where(m.abs() < 1e-9, 0.0, m)
    return Step(
        f"A shift by {options.shift} is a rotation",
        "One matrix, the same for all t, moves every code on by c. It is orthogonal: a rotation of each pair.",
        "P(t + c) = M_c P(t)    M_c M_cᵀ = I",
        [
            matrix("M_c", m),
            matrix("M_c M_cᵀ", torch.where((m @ m.T).abs() < 1e-9, 0.0, m @ m.T)),
            matrix("largest error of P(t + c) = M_c P(t)", float((before @ m.T - after).abs().max())),
        ],
    )


class Rotation(nn.Module):
    """Rotates each pair (sine, cosine) of a code by an angle of its own."""

    def __init__(self, pairs: int):
        super().__init__()
        self.angles = nn.Parameter(torch.zeros(pairs, dtype=torch.float64))

    def forward(self, codes: Tensor) -> Tensor:
        sine, cosine = codes[..., 0::2], codes[..., 1::2]
        cos, sin = self.angles.cos(), self.angles.sin()
        return torch.stack([sine * cos + cosine * sin, cosine * cos - sine * sin], -1).flatten(-2)


def _learned_rotation(options: PositionsOptions) -> Step:
    """The angles of M_c by gradient descent from zero."""
    width = options.d - options.d % 2
    t = torch.arange(4 * width)
    before, after = sinusoids(t, width), sinusoids(t + options.shift, width)
    model = Rotation(width // 2)
    sgd = optimizer(model, TrainingConfig(optimizer="sgd", learning_rate=0.25, weight_decay=0.0, device="cpu"))
    rows: list[list[float]] = []
    for step in range(LEARNED[-1] + 1):
        loss = (model(before) - after).square().sum(-1).mean()
        if step in LEARNED:
            rows.append([*model.angles.tolist(), loss.item()])
        sgd.zero_grad()
        loss.backward()
        sgd.step()
    angles = options.shift / 10000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    turns = torch.atan2(angles.sin(), angles.cos())  # between -π and π
    columns = [f"pair {n}" for n in range(1, width // 2 + 1)]
    return Step(
        "The rotation can be learned",
        "Gradient descent on one angle for each pair, from zero, finds the same rotation: what a network needs to look"
        " c positions back is easy to learn.",
        "minimize over θ: mean over t of |R(θ) P(t) - P(t + c)|²",
        [
            matrix("learned angles", rows, rows=[f"step {n}" for n in LEARNED], columns=[*columns, "loss"]),
            matrix("angles of M_c", turns, columns=columns),
        ],
    )


@torch.no_grad()
def _rope(options: PositionsOptions) -> Step:
    rotary = Rotary(2, 16)
    places = [(0, 0), (7, 7), (1, 0), (3, 2), (10, 9), (2, 0), (5, 3)]
    rows = []
    for first, second in places:
        query = _rotated(rotary, options.query, first)
        key = _rotated(rotary, options.key, second)
        rows.append((first, second, first - second, float((query * key).sum())))
    return Step(
        "RoPE: rotate queries and keys",
        "Rotated by angles proportional to their positions, their dot product depends on the distance alone. Nothing is"
        " added to the embeddings (Su et al. 2021).",
        "q_m · k_n = (R_m q) · (R_n k) = q · R_(n-m) k",
        [
            matrix("query and key", [options.query, options.key], rows=["q", "k"]),
            table("rotary dot products", ["position of q", "position of k", "distance", "q · k"], rows),
        ],
        ["GPT-2's positions are learned, not a formula."],
    )


def _rotated(rotary: Rotary, vector: Vector, position: int) -> Tensor:
    return rotary(torch.tensor([[[list(vector)]]], dtype=torch.float64), torch.tensor([[position]]))


def _of_run(run: Run) -> Explanation:
    module = position_module(run.model)
    if module is None:
        raise UserError(
            f"{run.path} holds a model of kind '{run.settings.kind}', which encodes no positions; train one: --model"
            " gpt."
        )
    step, _ = similarity_step(module, run.model.context)
    return Explanation("positions", f"Positions of {run.path}", "How a trained model distinguishes positions.", [step])
