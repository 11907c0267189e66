"""The [model] section: a flat table of keys as the options of an encoder and of a head, beside the model's kind."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from seqwright.core.config import ConfigLoader, Key, UserError, describe, did_you_mean, to_table
from seqwright.layers.encoder import EncoderConfig
from seqwright.layers.heads import HeadConfig


@dataclass(frozen=True)
class ModelConfig:
    """A model's kind and options: those of its encoder and its head, or of a model that is no such combination."""

    kind: str
    config: Any
    head: HeadConfig | None = None

    def to_table(self) -> dict[str, Any]:
        """The flat [model] table."""
        table = {"kind": self.kind} | to_table(self.config)
        if self.head is not None:
            fixed = self.config.head_fixed.get(self.head.name, {})
            table |= {key: value for key, value in to_table(self.head).items() if key not in fixed}
        return table


def encoder_and_head_keys(encoder: type[EncoderConfig], head: type[HeadConfig]) -> tuple[Key, ...]:
    """The keys of a [model] table: those of the encoder, then those of the head with the encoder's defaults."""
    defaults, fixed = head_defaults(encoder, head), encoder.head_fixed.get(head.name, {})
    keys = list(describe(encoder))
    for key in describe(head):  # type: ignore[arg-type]
        if key.name not in fixed:
            keys.append(replace(key, default=defaults.get(key.name, key.default)))
            if key.name == "pooling":
                choices = " | ".join(map(json.dumps, encoder.poolings))
                keys[-1] = replace(keys[-1], type=f"{choices} or a list of them")
    return tuple(keys)


def head_defaults(encoder: type[EncoderConfig], head: type[HeadConfig]) -> dict[str, Any]:
    """Defaults of a head's keys that an encoder changes."""
    pooling = {"pooling": encoder.poolings[0]} if "pooling" in {field.name for field in fields(head)} else {}
    return pooling | dict(encoder.head_defaults.get(head.name, {}))


def read_encoder_and_head(
    loader: ConfigLoader, kind: str, table: Mapping[str, Any], encoder: type[EncoderConfig], head: type[HeadConfig]
) -> ModelConfig | None:
    """The configuration of a flat table, or None with the reasons in the loader's `problems`."""
    known = [key.name for key in encoder_and_head_keys(encoder, head)]
    for key in (key for key in table if key not in known):
        loader.problem(f"model.{key}", f"[model] has no key '{key}'.{did_you_mean(key, known)}")
    names = {field.name for field in fields(encoder)}
    encoder_options = {key: value for key, value in table.items() if key in names}
    preset = {**head_defaults(encoder, head), **encoder.head_fixed.get(head.name, {})}
    head_options = {
        key: list(value) if isinstance(value, tuple) else value for key, value in preset.items() if value is not None
    }
    head_options |= {key: value for key, value in table.items() if key in known and key not in names}
    encoder_config = loader.read(encoder, encoder_options, "model")
    head_config = loader.read(head, head_options, "model")
    if encoder_config is None or head_config is None:
        return None
    try:
        head_config.check(encoder_config)
    except UserError as error:
        named = next((key for key in table if key in re.findall(r"\w+", str(error))), "kind")
        loader.problem(f"model.{named}", f"[model] {error}")
        return None
    return ModelConfig(kind, encoder_config, head_config)
