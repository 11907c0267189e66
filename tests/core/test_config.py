"""Strict configuration loading: exact round trips; every problem has its origin, key and a suggestion."""

import tomllib
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqwright.core.config import (
    ConfigError,
    ConfigLoader,
    UserError,
    describe,
    did_you_mean,
    parse_override,
    pick,
    set_dotted,
    to_table,
    write_toml,
)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    rate: float = 0.1
    """How large a step is."""
    warmup: int = 0
    """Steps of rising rate,
    from zero."""
    betas: tuple[float, float] = (0.9, 0.99)

    def __post_init__(self) -> None:
        if self.warmup > 10:
            raise UserError(f"warmup {self.warmup} is longer than 10.")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    name: str
    shape: Literal["cosine", "linear"] = "cosine"
    files: tuple[str, ...] = ()
    limit: int | None = None
    fused: bool = False
    schedule: Schedule = Schedule()
    extra: Schedule | None = None


def problems(table: dict[str, Any], origins: dict[str, str] | None = None) -> list[str]:
    loader = ConfigLoader("r.toml", origins)
    assert loader.read(Recipe, table) is None
    with pytest.raises(ConfigError) as caught:
        loader.finish()
    assert str(caught.value) == "\n".join(loader.problems)
    return loader.problems


def test_valid_table_is_loaded_exactly() -> None:
    table = {"name": "x", "files": ["a", "b"], "schedule": {"rate": 1, "betas": [0, 0.5]}, "extra": {"warmup": 3}}
    loader = ConfigLoader("r.toml")
    recipe = loader.read(Recipe, table)
    loader.finish()
    assert recipe == Recipe(
        name="x", files=("a", "b"), schedule=Schedule(rate=1.0, betas=(0.0, 0.5)), extra=Schedule(warmup=3)
    )
    assert type(recipe.schedule.rate) is float


def test_all_problems_are_reported_at_once_with_file_key_and_suggestion() -> None:
    messages = problems({"shape": "cosin", "fused": 1, "limit": True, "schedule": {"rat": 1, "warmup": "3"}})
    assert messages == [
        "r.toml: shape is \"cosin\". Did you mean 'cosine'?",
        "r.toml: fused must be true or false, not 1.",
        "r.toml: limit must be a whole number, not true.",
        "r.toml: [schedule] has no key 'rat'. Did you mean 'rate'?",
        'r.toml: schedule.warmup must be a whole number, not "3".',
        "r.toml: a recipe needs the key 'name'.",
    ]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"schedule": 3}, "schedule must be a section, not 3."),
        ({"extra": "x"}, 'extra must be a section, not "x".'),
        ({"name": {"a": 1}}, 'name must be a string, not {"a": 1}.'),
        ({"files": "a"}, 'files must be a list of strings, as in ["a"], not "a".'),
        ({"files": ["a", 1]}, "files must be a string, not 1."),
        ({"limit": 1.0}, "limit must be a whole number, not 1.0."),
        ({"shape": 1}, "shape is 1. Known: cosine, linear."),
        ({"schedule": {"rate": float("nan")}}, "schedule.rate must be a number, not NaN."),
        ({"schedule": {"rate": 10**400}}, f"schedule.rate must be a number, not 1{'0' * 400}."),
        ({"schedule": {"rate": True}}, "schedule.rate must be a number, not true."),
        ({"schedule": {"betas": [0.9]}}, "schedule.betas must be a list [a number, a number], not [0.9]."),
        ({"schedule": {"warmup": 11}}, "[schedule] warmup 11 is longer than 10."),
        ({"extra": {"warmup": 11}}, "[extra] warmup 11 is longer than 10."),
    ],
)
def test_invalid_value_is_reported_with_its_key(table: dict[str, Any], message: str) -> None:
    assert problems({"name": "x", **table}) == [f"r.toml: {message}"]


@pytest.mark.parametrize(
    "override", ["sched.rate=1", "schedule.rat=1", "schedule={rat=1}", "schedule.rate=fast", "schedule.warmup=11"]
)
def test_problem_of_an_override_has_the_override_as_its_origin(override: str) -> None:
    table: dict[str, Any] = {"name": "x"}
    key, value = parse_override(override)
    set_dotted(table, key, value)
    (problem,) = problems(table, {key: f"--set {override}"})
    assert problem.startswith(f"--set {override}: ")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b=100", 100),
        ("a.b= ", " "),
        ("a.b=1e-3", 1e-3),
        ("a.b=true", True),
        ('a.b="100"', "100"),
        ("a.b=[1, 2]", [1, 2]),
        ("a.b=[text, more]", ["text", "more"]),
        ("a.b={c=1}", {"c": 1}),
        ("a.b=gpt", "gpt"),
        ("a.b= tail 10% ", "tail 10%"),
        ("a.b=x=y", "x=y"),
        ("a.b=2025-03-03", "2025-03-03"),
        ("a.b=10:30:00", "10:30:00"),
        ("a.b=1\ny=2", "1\ny=2"),
        ("a.b=", ""),
        (" a.b =1", 1),
    ],
)
def test_overrides_are_toml_values_or_strings(text: str, value: Any) -> None:
    parsed = parse_override(text)
    assert parsed == ("a.b", value)
    assert type(parsed[1]) is type(value)


@pytest.mark.parametrize("text", ["a.b", "=3", ""])
def test_override_without_key_or_value_is_rejected(text: str) -> None:
    with pytest.raises(UserError, match="expected key=value"):
        parse_override(text)


def test_override_inside_a_value_is_rejected() -> None:
    with pytest.raises(UserError, match="'steps' is a value, not a section"):
        set_dotted({"training": {"steps": 3}}, "training.steps.more", 1)


def test_did_you_mean_ignores_case_and_lists_few_known_names() -> None:
    assert did_you_mean("GTP", ["lstm", "gpt"]) == " Did you mean 'gpt'?"
    assert did_you_mean("jobs", ["", "Bill", "bill"]) == " Known: '', Bill, bill."
    assert did_you_mean("mean.csv", ["Mean.csv"]) == " Did you mean 'Mean.csv'?"
    assert did_you_mean("zzz", ["lstm", "gpt"]) == " Known: lstm, gpt."
    assert did_you_mean("zzz", []) == ""
    assert did_you_mean("zzz", map(str, range(25))) == ""


def test_pick_suggests_a_known_kind() -> None:
    assert pick("gpt", {"gpt": 1}, "model") == 1
    with pytest.raises(UserError, match=r"no model kind 'gbt'\. Did you mean 'gpt'\?"):
        pick("gbt", {"gpt": 1}, "model")


def test_recipe_round_trips_through_toml() -> None:
    recipe = Recipe(name='a "b"\n\\', files=("x", "ÿ"), extra=Schedule(rate=1e-5, warmup=2))
    loaded = ConfigLoader("r.toml").read(Recipe, tomllib.loads(write_toml(to_table(recipe))))
    assert loaded == recipe


def test_none_cannot_be_written_where_the_default_is_a_value() -> None:
    @dataclass(frozen=True)
    class Clip:
        norm: float | None = 1.0

    with pytest.raises(UserError, match=r"Clip\.norm cannot be None"):
        to_table(Clip(norm=None))


characters = st.characters(exclude_categories=["Cs"])  # lone surrogates cannot be encoded
values = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(characters),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
tables = st.recursive(
    st.dictionaries(st.text(characters), values, max_size=4),
    lambda inner: st.dictionaries(st.text(characters), values | inner, max_size=4),
    max_leaves=6,
)


@given(tables)
def test_any_table_round_trips_through_toml(table: dict[str, Any]) -> None:
    assert tomllib.loads(write_toml(table)) == table


def test_describe_takes_the_string_under_a_field_as_help() -> None:
    rate, warmup, betas = describe(Schedule)
    assert (rate.name, rate.type, rate.default, rate.help) == ("rate", "a number", 0.1, "How large a step is.")
    assert warmup.help == "Steps of rising rate, from zero."
    assert betas.help == ""
    assert [key.type for key in describe(Recipe)] == [
        "a string",
        '"cosine" | "linear"',
        "a list of strings",
        "a whole number",
        "true or false",
        "a section",
        "a section",
    ]
