"""The machine under the configuration: kinds, building, expansion, overriding."""

from __future__ import annotations

import attrs
import pytest

from seriatim import settings
from seriatim.errors import ConfigError
from seriatim.settings import REQUIRED, FromEnvironment, Kind, build, setting


@attrs.frozen(kw_only=True)
class Inner:
    """A table inside."""

    size: int = setting(3, settings.whole(1, 9), doc="A size.")


@attrs.frozen(kw_only=True)
class Outer:
    """A table with one of everything."""

    host: str = setting(REQUIRED, settings.text(), doc="A host.")
    password: str | None = setting(None, settings.optional(settings.text()), doc="A secret.", secret=True)
    channels: tuple[str, ...] = setting((), settings.texts(), doc="Some names.")
    tls: bool = setting(True, settings.flag(), doc="A switch.")
    wait_s: float = setting(1.0, settings.number(above=0), doc="A time, seconds.")
    inner: Inner = setting(Inner(), settings.section(Inner), doc="More.")


def test_every_kind_takes_its_own() -> None:
    """A mapping of right values becomes the class, lists as tuples and whole numbers as floats where one is held."""
    values: dict[str, object] = {
        "host": "h",
        "password": "p",
        "channels": ["#a", "#b"],
        "tls": False,
        "wait_s": 2,
        "inner": {"size": 9},
    }

    made = build(Outer, values)

    assert made == Outer(host="h", password="p", channels=("#a", "#b"), tls=False, wait_s=2.0, inner=Inner(size=9))
    assert isinstance(made.wait_s, float)


@pytest.mark.parametrize(
    ("values", "key", "reason"),
    [
        ({}, "a.host", "is missing; it must be text that isn't empty"),
        ({"host": ""}, "a.host", 'must be text that isn\'t empty, not ""'),
        ({"host": 3}, "a.host", "must be text that isn't empty, not 3"),
        ({"host": "h", "tls": 1}, "a.tls", "must be true or false, not 1"),
        ({"host": "h", "tls": "true"}, "a.tls", 'must be true or false, not "true"'),
        ({"host": "h", "wait_s": 0}, "a.wait_s", "must be a number above 0, not 0"),
        ({"host": "h", "wait_s": float("nan")}, "a.wait_s", "must be a number above 0, not nan"),
        ({"host": "h", "wait_s": True}, "a.wait_s", "must be a number above 0, not true"),
        ({"host": "h", "channels": "#a"}, "a.channels", 'must be a list of texts, not "#a"'),
        ({"host": "h", "channels": [1]}, "a.channels", "must be a list of texts, not a list"),
        ({"host": "h", "inner": 4}, "a.inner", "must be a table, not 4"),
        ({"host": "h", "inner": {"size": 10}}, "a.inner.size", "must be a whole number from 1 to 9, not 10"),
        ({"host": "h", "inner": {"sise": 1}}, "a.inner.sise", "unknown key; did you mean a.inner.size?"),
        ({"host": "h", "zebra": 1}, "a.zebra", "unknown key"),
    ],
)
def test_wrong_values_are_named(values: dict[str, object], key: str, reason: str) -> None:
    """What is wrong is refused with its full dotted key and with what it must be."""
    with pytest.raises(ConfigError) as refused:
        build(Outer, values, at="a")

    assert (refused.value.key, refused.value.reason) == (key, reason)


def test_a_class_built_by_hand_is_held_to_the_same_rules() -> None:
    """A program that makes the settings itself can't make wrong ones."""
    with pytest.raises(ConfigError, match=r"^size: must be a whole number from 1 to 9, not 0$"):
        Inner(size=0)


def test_a_secret_is_never_shown() -> None:
    """Neither the repr nor an error contains what a secret key holds."""
    assert "hunter2" not in repr(Outer(host="h", password="hunter2"))
    with pytest.raises(ConfigError) as refused:
        build(Outer, {"host": "h", "password": ["hunter2"]})
    assert "hunter2" not in str(refused.value)


def test_an_error_is_one_line() -> None:
    """However long or broken a value is, its error stays one short line."""
    with pytest.raises(ConfigError) as refused:
        build(Outer, {"host": "h", "tls": "a\nb" * 1000})

    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 120


@pytest.mark.parametrize(
    ("kind", "word", "value"),
    [
        (settings.whole(1), "7", 7),
        (settings.number(at_least=0), "0.5", 0.5),
        (settings.flag(), "On", True),
        (settings.flag(), "0", False),
        (settings.text(), "7", "7"),
        (settings.texts(), "#a, #b", ("#a", "#b")),
        (settings.optional(settings.whole(1)), "7", 7),
    ],
)
def test_text_from_the_environment_is_read_by_kind(kind: Kind, word: str, value: object) -> None:
    """A variable is text; the key that it sets decides what is read out of it."""

    @attrs.frozen
    class One:
        key: object = setting(REQUIRED, kind, doc="Something.")

    assert build(One, {"key": FromEnvironment(word, "X")}).key == value


@pytest.mark.parametrize("word", ["", "seven", "7.5"])
def test_unreadable_text_from_the_environment_names_its_variable(word: str) -> None:
    """A variable that can't be read as its key's kind is named in the error."""
    with pytest.raises(ConfigError, match=r"size: must be a whole number .* \(from SIZE\)$"):
        build(Inner, {"size": FromEnvironment(word, "SIZE")})


def test_expansion_reaches_every_text() -> None:
    """``${NAME}`` is put in at any depth, more than once in a text, and ``$${`` and a lone ``$`` stay characters."""
    values: dict[str, object] = {"a": "${X}-${Y}", "b": {"c": ["${X}", "$${X} costs $5"]}, "n": 3}

    assert settings.expand(values, {"X": "1", "Y": "2"}) == {"a": "1-2", "b": {"c": ["1", "${X} costs $5"]}, "n": 3}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${GONE}", "the environment variable GONE isn't set"),
        ("${", '"${" is no variable'),
        ("${A B}", '"${A B}" is no variable'),
        ("${}", '"${}" is no variable'),
    ],
)
def test_expansion_refuses_what_it_cannot_resolve(text: str, reason: str) -> None:
    """A missing variable is named, with the key whose text asks for it; a broken reference too."""
    with pytest.raises(ConfigError) as refused:
        settings.expand({"b": {"c": [text]}}, {})

    assert refused.value.key == "b.c"
    assert refused.value.reason.startswith(reason)


def test_what_the_environment_holds_is_not_expanded_again() -> None:
    """A password with ``${`` in it is taken as it is."""
    assert settings.expand({"a": "${X}"}, {"X": "${Y}"}) == {"a": "${Y}"}


def test_overrides_lie_over_the_file_without_changing_it() -> None:
    """A variable replaces one key and leaves its neighbours and the mapping handed in alone."""
    values: dict[str, object] = {"a": {"b": {"c": 1, "d": 2}}}

    laid = settings.overridden(values, {"P_A__B__C": "9", "P_TOP": "t", "P_OTHER": "o"}, prefix="P_", top=["top"])

    assert laid == {"a": {"b": {"c": "9", "d": 2}}, "top": "t"}
    assert values == {"a": {"b": {"c": 1, "d": 2}}}


@pytest.mark.parametrize("variable", ["P_A____B", "P___A", "P_A__"])
def test_a_variable_without_a_key_is_refused(variable: str) -> None:
    """Underscores that leave a part of the key empty are an error that names the variable."""
    with pytest.raises(ConfigError, match=f"^{variable}: "):
        settings.overridden({}, {variable: "x"}, prefix="P_", top=[])


def test_every_key_is_described() -> None:
    """The table of keys has each key once, with what it must be and what it means."""
    rows = list(settings.described(Outer))

    assert [key for key, *_ in rows] == list(settings.dotted_keys(Outer))
    assert all(says and doc for _, _, says, doc in rows)
