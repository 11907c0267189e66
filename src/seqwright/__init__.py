"""Train, compare, look inside and ship sequence models on your own data, from counting n-grams to GPT."""

__version__ = "0.1.0"
