"""Heads: what is made of hidden vectors. Each owns its logits, its loss and its prediction."""

from __future__ import annotations

from torch import Tensor, nn

from seqwright.layers.cross_entropy import cross_entropy, exact, token_log_probs


class TokenHead(nn.Module):
    """One of V tokens for each hidden vector; its weight may be the embedding's (Press & Wolf 2017)."""

    def __init__(self, width: int, vocabulary: int, *, bias: bool = True):
        super().__init__()
        self.readout = nn.Linear(width, vocabulary, bias=bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits (..., V)."""
        return self.readout(hidden)

    def log_probs(self, hidden: Tensor) -> Tensor:
        """(..., V), natural log, at least float32."""
        return exact(self.readout(hidden)).log_softmax(-1)

    def score(self, hidden: Tensor, target: Tensor) -> Tensor:
        """log p(target), shaped like target."""
        return token_log_probs(hidden, self.readout.weight, self.readout.bias, target)

    def loss(self, hidden: Tensor, target: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        return cross_entropy(hidden, self.readout.weight, self.readout.bias, target, smoothing=smoothing)

    def predict(self, hidden: Tensor) -> Tensor:
        return self.readout(hidden).argmax(-1)
