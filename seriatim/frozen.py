"""JSON values that nobody can change: what readers of a session's log get (event-log seed, "deep-frozen").

They stay dicts and lists for ``json``, ``==`` and ``isinstance``; only changing them fails. A copy
(``copy``, ``deepcopy``, ``thaw``) is an ordinary dict or list again.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

from seriatim.errors import LosslessJsonError
from seriatim.events import check_lossless


def _refuse(self: object, *_: Any, **__: Any) -> NoReturn:
    raise TypeError("events of a session's log can't be changed; copy what you want to change")


class FrozenDict(dict[str, Any]):
    """A JSON object that can't be changed."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return thaw(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


class FrozenList(list[Any]):
    """A JSON array that can't be changed."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = append = clear = extend = insert = pop = remove = _refuse
    reverse = sort = _refuse

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return thaw(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


_FROZEN: Final = (FrozenDict, FrozenList)


def freeze(value: Any) -> Any:
    """A frozen copy of a JSON value. What is frozen already is returned as it is."""
    kind = type(value)
    if kind is dict:
        items = dict(value)
        for key, item in value.items():
            if type(item) is dict or type(item) is list:
                items[key] = freeze(item)
        return FrozenDict(items)
    if kind is list:
        return FrozenList(freeze(item) if type(item) is dict or type(item) is list else item for item in value)
    return value


def thaw(value: Any) -> Any:
    """An ordinary copy of a JSON value, its own all the way down."""
    if isinstance(value, dict):
        return {key: thaw(item) if isinstance(item, (dict, list)) else item for key, item in value.items()}
    if isinstance(value, list):
        return [thaw(item) if isinstance(item, (dict, list)) else item for item in value]
    return value


def snapshot(event_type: str, data: Any) -> Any:
    """A frozen copy of an event's data as it is now.

    Raises LosslessJsonError, naming ``event_type``, where JSON would change it. Frozen data was checked when it was
    frozen.
    """
    if type(data) in _FROZEN:
        return data
    check_lossless(event_type, data)
    return freeze(data)


def snapshot_object(event_type: str, data: Any) -> FrozenDict:
    """``snapshot`` of what must be a JSON object, as an event's data must. Raises LosslessJsonError."""
    frozen = snapshot(event_type, data)
    if type(frozen) is not FrozenDict:
        raise LosslessJsonError(event_type, "", "is not a JSON object")
    return frozen
