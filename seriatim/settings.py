"""How a mapping becomes a frozen value: the machine under the configuration, and under each adapter's options.

A class of settings is an attrs class whose fields are made by ``setting``::

    @attrs.frozen(kw_only=True)
    class IrcOptions:
        host: str = setting(REQUIRED, text(), doc="Name or address of the server.")
        port: int = setting(6697, whole(1, 65535), doc="TCP port.")

    options = build(IrcOptions, {"host": "irc.example"}, at="adapters.irc")

Each field's *kind* checks the value, so that a class built by hand in a program is held to the same rules as a
file. Whatever is wrong raises ``ConfigError`` with the full dotted key. Nothing here reads a file, a clock or the
environment; the environment is a mapping handed in.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self, TypeVar, cast

import attrs

from seriatim.errors import ConfigError

T = TypeVar("T")

REQUIRED = attrs.NOTHING
"""Default of a setting that has none."""

_KIND = "seriatim.kind"
_DOC = "seriatim.doc"
_VARIABLE = re.compile(r"\$(?:(?P<escaped>\$)\{|\{(?P<name>[^}]*)\}?)")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


class FromEnvironment(str):
    """Text that came from the environment: a kind that isn't text may be read out of it.

    ``origin`` names the variables that it came from.
    """

    __slots__ = ("origin",)
    origin: str

    def __new__(cls, value: str, origin: str) -> Self:
        """Mark ``value`` as taken from the variables named in ``origin``."""
        made = super().__new__(cls, value)
        made.origin = origin
        return made


@attrs.frozen
class Kind:
    """What a setting may hold.

    ``check`` returns the value in its final form, or raises ``ValueError``. ``read`` makes a value out of text from
    the environment, or raises ``ValueError``. ``says`` completes the sentence "must be …".
    """

    says: str
    check: Callable[[object], object]
    read: Callable[[str], object] = str


def text(*, matching: str | None = None, says: str = "text", empty: bool = False) -> Kind:
    """Text; ``matching`` is a pattern for the whole of it, described by ``says``."""
    pattern = None if matching is None else re.compile(matching)

    def check(value: object) -> object:
        if not isinstance(value, str) or not (value or empty):
            raise ValueError
        if pattern is not None and not (empty and not value) and not pattern.fullmatch(value):
            raise ValueError
        return str(value)

    return Kind(says if empty or matching else f"{says} that isn't empty", check)


def choice(*options: str) -> Kind:
    """One of a few words."""

    def check(value: object) -> object:
        if not isinstance(value, str) or value not in options:
            raise ValueError
        return str(value)

    quoted = [f'"{option}"' for option in options]
    return Kind(" or ".join([", ".join(quoted[:-1]), quoted[-1]] if quoted[1:] else quoted), check)


def flag() -> Kind:
    """True or false."""

    def check(value: object) -> object:
        if not isinstance(value, bool):
            raise ValueError  # noqa: TRY004  (build turns every refusal of a kind into one ConfigError)
        return value

    def read(word: str) -> object:
        if word.lower() in _TRUE | _FALSE:
            return word.lower() in _TRUE
        raise ValueError

    return Kind("true or false", check, read)


def whole(at_least: int, at_most: int | None = None) -> Kind:
    """A whole number, both bounds included."""

    def check(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError  # noqa: TRY004  (see flag)
        if value < at_least or (at_most is not None and value > at_most):
            raise ValueError
        return value

    bound = f"of at least {at_least}" if at_most is None else f"from {at_least} to {at_most}"
    return Kind(f"a whole number {bound}", check, int)


def number(*, above: float | None = None, at_least: float | None = None) -> Kind:
    """A finite number, held as a float."""

    def check(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError
        if (above is not None and value <= above) or (at_least is not None and value < at_least):
            raise ValueError
        return float(value)

    bound = f" above {above:g}" if above is not None else f" of at least {at_least:g}" if at_least is not None else ""
    return Kind(f"a number{bound}", check, float)


class _MisfitError(ValueError):
    """Not the list is to blame but its ``entry``, the ``number``th."""

    def __init__(self, entry: object, number: int) -> None:
        super().__init__()
        self.entry = entry
        self.number = number


def texts(*, matching: str = "", says: str = "a list of texts") -> Kind:
    """A list of texts, held as a tuple; from the environment: separated by commas.

    ``matching`` is a pattern for the whole of each, described by ``says``; the first that it doesn't fit is named.
    """

    def check(value: object) -> object:
        if not isinstance(value, list | tuple):
            raise ValueError  # noqa: TRY004  (see flag)
        for number, part in enumerate(value, 1):
            if not isinstance(part, str) or not part or (matching and not re.fullmatch(matching, part)):
                raise _MisfitError(part, number) if matching else ValueError
        return tuple(str(part) for part in value)

    return Kind(says, check, lambda line: [part.strip() for part in line.split(",") if part.strip()])


def optional(kind: Kind) -> Kind:
    """As ``kind``, or absent (None, which a file can't say and needn't)."""
    return attrs.evolve(kind, check=lambda value: None if value is None else kind.check(value))


def section(cls: type[Any]) -> Kind:
    """A table of settings of its own."""

    def check(value: object) -> object:
        if not isinstance(value, cls):
            raise ValueError  # noqa: TRY004  (see flag)
        return value

    return _SectionKind("a table", check, settings=cls)


@attrs.frozen
class _SectionKind(Kind):
    settings: type[Any] = attrs.field(kw_only=True)


def setting(default: object, kind: Kind, *, doc: str, secret: bool = False) -> Any:
    """Make one field: its default, what it may hold and what it means.

    A ``secret`` is shown neither in the class's ``repr`` nor in an error.
    """

    def checked(value: object, _instance: object, field: attrs.Attribute[Any]) -> object:
        return _checked(kind, field.name, value, secret=secret)

    return attrs.field(
        default=default,
        converter=attrs.Converter(checked, takes_self=True, takes_field=True),
        repr=not secret,
        metadata={_KIND: kind, _DOC: doc},
    )


def _checked(kind: Kind, key: str, value: object, *, secret: bool) -> object:
    try:
        if isinstance(value, FromEnvironment):
            return kind.check(kind.read(value))
        return kind.check(value)
    except ValueError as error:
        if isinstance(error, _MisfitError):
            got = f"; entry {error.number}" + ("" if secret else f", {_shown(error.entry)},") + " isn't one"
        else:
            got = "" if secret else f", not {_shown(value)}"
        raise ConfigError(key, f"must be {kind.says}{got}{_origin(value)}") from None


def _origin(value: object) -> str:
    return f" (from {value.origin})" if isinstance(value, FromEnvironment) else ""


def _shown(value: object) -> str:
    names: dict[type, str] = {dict: "a table", list: "a list", type(None): "nothing"}
    for held, name in names.items():
        if isinstance(value, held):
            return name
    if isinstance(value, bool):
        return str(value).lower()
    shown = f'"{" ".join(value.split())}"' if isinstance(value, str) else repr(value)  # an error is one line
    return shown if len(shown) <= 60 else shown[:57] + '..."'


def build(cls: type[T], values: Mapping[str, object], *, at: str = "", known: Iterable[str] = ()) -> T:
    """Make a settings class out of a mapping.

    Args:
        cls: an attrs class whose fields were made by ``setting``.
        values: key to value; a table is a mapping.
        at: the dotted key of the mapping itself, empty for the root.
        known: further dotted keys that a misspelt or misplaced key may have meant.

    Raises:
        ConfigError: an unknown key, a missing one, or a value of the wrong type or range. ``key`` is the full
            dotted key.

    """
    fields = {field.alias: field for field in attrs.fields(cast("type[attrs.AttrsInstance]", cls))}
    for key, value in values.items():
        if key not in fields:
            error = unknown_key(_dotted(at, key), [_dotted(at, name) for name in fields], known)
            raise ConfigError(error.key, error.reason + _origin(value))
    arguments: dict[str, object] = {}
    for name, field in fields.items():
        kind = field.metadata[_KIND]
        if name not in values:
            if field.default is attrs.NOTHING:
                raise ConfigError(_dotted(at, name), f"is missing; it must be {kind.says}")
            continue
        value = values[name]
        if isinstance(kind, _SectionKind) and isinstance(value, Mapping):
            value = build(kind.settings, value, at=_dotted(at, name), known=known)
        arguments[name] = value
    try:
        return cls(**arguments)
    except ConfigError as error:
        raise ConfigError(_dotted(at, error.key), error.reason) from None


def dotted_keys(cls: type[Any], at: str = "") -> Iterator[str]:
    """Every dotted key that a settings class knows, tables left out and their keys put in."""
    for field in attrs.fields(cls):
        key, kind = _dotted(at, field.alias), field.metadata[_KIND]
        if isinstance(kind, _SectionKind):
            yield from dotted_keys(kind.settings, key)
        else:
            yield key


def described(cls: type[Any], at: str = "") -> Iterator[tuple[str, object, str, str]]:
    """Each key with its default, what it must be and what it means: the source of the configuration's table."""
    for field in attrs.fields(cls):
        key, kind = _dotted(at, field.alias), field.metadata[_KIND]
        if isinstance(kind, _SectionKind):
            yield from described(kind.settings, key)
        else:
            yield key, field.default, kind.says, field.metadata[_DOC]


def unknown_key(key: str, siblings: Iterable[str], known: Iterable[str] = ()) -> ConfigError:
    """Make the error for a key that nobody reads, with the nearest one that somebody does."""
    name = key.rpartition(".")[2]
    near = difflib.get_close_matches(key, list(siblings), n=1, cutoff=0.75)
    elsewhere = [other for other in known if other.rpartition(".")[2] == name]
    meant = (near or elsewhere or difflib.get_close_matches(key, list(known), n=1, cutoff=0.8))[:1]
    return ConfigError(key, f"unknown key; did you mean {meant[0]}?" if meant else "unknown key")


def expand(values: Mapping[str, object], environ: Mapping[str, str], *, at: str = "") -> dict[str, object]:
    """Put the environment into every text: ``${NAME}``; ``$${`` stands for ``${`` itself.

    Raises:
        ConfigError: a variable that isn't set, or a reference that isn't closed or names none.

    """
    return {key: _expanded(value, environ, _dotted(at, key)) for key, value in values.items()}


def _expanded(value: object, environ: Mapping[str, str], key: str) -> object:
    if isinstance(value, Mapping):
        return expand(value, environ, at=key)
    if isinstance(value, list):
        return [_expanded(part, environ, key) for part in value]
    if not isinstance(value, str):
        return value
    used: list[str] = []

    def put(found: re.Match[str]) -> str:
        if found["escaped"]:
            return "${"
        name = found["name"]
        if not found[0].endswith("}") or not _VARIABLE_NAME.fullmatch(name):
            raise ConfigError(key, f'"{found[0]}" is no variable; write ${{NAME}}, or $${{ for these characters')
        if name not in environ:
            raise ConfigError(key, f"the environment variable {name} isn't set")
        used.append(f"${{{name}}}")
        return environ[name]

    expanded = _VARIABLE.sub(put, value)
    return FromEnvironment(expanded, " ".join(used)) if used else expanded


def overridden(
    values: Mapping[str, object], environ: Mapping[str, str], *, prefix: str, top: Iterable[str]
) -> dict[str, object]:
    """Lay the environment's ``<prefix><SECTION>__<KEY>`` over ``values``, each variable over one key.

    Two underscores stand for the dot, and letters are lowered. A variable without them is taken only if it names a
    key in ``top``, since other variables of the same prefix belong to other tools; one with them is always taken,
    so that a misspelt one is refused like a misspelt key.

    Raises:
        ConfigError: a variable that reaches into a key which isn't a table.

    """
    laid = {key: dict(value) if isinstance(value, Mapping) else value for key, value in values.items()}
    top = frozenset(top)
    for variable in sorted(environ):
        if not variable.startswith(prefix):
            continue
        path = variable.removeprefix(prefix).lower().split("__")
        if len(path) == 1 and path[0] not in top:
            continue
        if not all(path):
            raise ConfigError(variable, f"is no key; write {prefix}SECTION__KEY")
        _lay(laid, path, FromEnvironment(environ[variable], variable), variable)
    return laid


def _lay(table: dict[str, object], path: list[str], value: FromEnvironment, variable: str) -> None:
    for depth, part in enumerate(path[:-1], start=1):
        inner = table.get(part, {})
        if not isinstance(inner, Mapping):
            raise ConfigError(".".join(path[:depth]), f"is no table, and {variable} sets a key inside it")
        table[part] = table = dict(inner)
    table[path[-1]] = value


def _dotted(at: str, key: str) -> str:
    return f"{at}.{key}" if at else key
