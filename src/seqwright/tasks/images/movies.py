"""Next frames of movies: rollout on the model's predictions, and images of predicted against true frames."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from seqwright.core.batch import IGNORE, Batch
from seqwright.data.images.files import Pixels
from seqwright.data.images.patches import SEEN_FRAMES, Grid, to_pixels
from seqwright.metrics.score import Floats
from seqwright.reporting.png import sheet

SHOWN_MOVIES = 3
"""Movies in an image."""
CAPTION = (
    "three rows per movie: true frames; each predicted from the true ones before it; rolled out from the middle on, or"
    " from the first frame that is predicted"
)


def rollout_start(length: int) -> int:
    """The first frame that a rollout predicts: the middle, but none that training does not predict."""
    return max(SEEN_FRAMES, length // 2)


@torch.no_grad()
def rollout(model: Any, batch: Batch) -> Floats:
    """Frames (B, S, P), from `rollout_start` on each predicted from the true ones before and the predictions since."""
    assert batch.source.features is not None
    frames = batch.source.features.clone()  # (B, S, P): the frame before each position
    length = frames.size(1)
    for position in range(rollout_start(length), length):
        outputs = model(replace(batch, source=replace(batch.source, features=frames)))
        if position + 1 < length:  # causal: later positions do not affect this one
            frames[:, position + 1] = outputs[:, position].to(frames.dtype)
    return outputs.double().cpu().numpy()


def rollout_target(target: Floats) -> Floats:
    """The target frames that a rollout predicts: those before are IGNORE."""
    seen = np.arange(target.shape[1]) < rollout_start(target.shape[1])
    return np.where(seen[:, None], IGNORE, target)


def movie_sheet(movies: Pixels, batch: Batch, outputs: Floats, rolled_out: Floats, grid: Grid) -> Pixels:
    """Image of the first movies: true, predicted and rolled-out frames below each other."""
    target = batch.target.cpu().numpy()
    rows = [movies]
    for frames, expected in ((outputs, target), (rolled_out, rollout_target(target))):
        rows.append(np.where(grid.images(expected) == IGNORE, movies, to_pixels(grid.images(frames))))
    return sheet([_frames(row[n], grid) for n in range(min(SHOWN_MOVIES, len(movies))) for row in rows])


def _frames(movie: Pixels, grid: Grid) -> Pixels:
    """Frames (F, H, W, C) of a strip (H, F · W, C)."""
    return movie.reshape(grid.height, -1, grid.wide, grid.channels).swapaxes(0, 1)
