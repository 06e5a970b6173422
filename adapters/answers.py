"""What an adapter says of a send, in a form that the ledger can hold.

The platform has answered by then, so nothing is refused any more: what can't be held is left out and told as the
adapter's fault. A number where a platform's id is needed stands for its digits, a text that tells a number for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar, cast, get_args

from seriatim.errors import InvalidInputError, SendCode, SendError
from seriatim.events import mend_text
from seriatim.limits import ID_CHARS_MAX
from seriatim.model import Sent

T = TypeVar("T")
Fault = Callable[[InvalidInputError], object]
"""Told what was left out, by its name."""

_CODES: Final = frozenset(get_args(SendCode))
_NUMBER_MAX: Final = 2**64


def message_id_of(sent: Any, fault: Fault) -> str | None:
    """The id under which the platform has the part; None where it gave none, or none that can be kept.

    Raises InvalidInputError for what is no Sent: a False, say, may mean that nothing was sent.
    """
    if sent is None:
        return None
    if not isinstance(sent, Sent):
        raise InvalidInputError("send", f"a Sent is needed, not {type(sent).__name__}")
    given = sent.message_id
    if type(given) is str and given.isascii() and len(given) <= ID_CHARS_MAX and "\0" not in given:
        return given or None  # as good as all of them; _id says the same
    return _kept("message_id", given, _id, fault) or None


def refusal_of(error: SendError, fault: Fault) -> SendError:
    """The same refusal, without what can't be held of it."""
    given, asked = getattr(error, "reason", None), getattr(error, "retry_after_s", None)
    about, where = getattr(error, "code", None), getattr(error, "moved_to", None)
    reason = _reason(given, error)
    retry_after_s = _kept("retry_after_s", asked, _seconds, fault)
    code: SendCode | None = _kept("code", about, _code, fault)
    moved_to = _kept("moved_to", where, _place, fault)
    if reason is given and retry_after_s is asked and code is about and moved_to is where:
        return error
    return SendError(
        reason,
        ambiguous=bool(getattr(error, "ambiguous", False)),
        permanent=bool(getattr(error, "permanent", False)),
        retry_after_s=retry_after_s,
        code=code,
        moved_to=moved_to,
    )


def refuse_text_max(text_max: Any) -> NoReturn:
    """How much one message holds is no whole number. Raises InvalidInputError."""
    raise InvalidInputError("text_max", f"a whole number is needed, not {type(text_max).__name__}")


def _kept(name: str, given: Any, check: Callable[[Any], T | None], fault: Fault) -> T | None:
    if given is None:
        return None
    try:
        return check(given)
    except (ValueError, TypeError, OverflowError) as error:
        fault(InvalidInputError(name, str(error)))
        return None


def _id(given: Any) -> str:
    if type(given) is int and -_NUMBER_MAX < given < _NUMBER_MAX:
        return str(given)
    if type(given) is not str or len(given) > ID_CHARS_MAX or "\0" in given or mend_text(given)[1]:
        raise ValueError(f"an id of up to {ID_CHARS_MAX} characters is needed")
    return given


def _place(given: Any) -> str:
    place = _id(given)
    if not place:
        raise ValueError("an id is needed")
    return place


def _seconds(given: Any) -> float:
    seconds: float = float(given) if type(given) is str else given
    if type(seconds) not in (int, float) or not seconds >= 0:  # not a number is no time either
        raise ValueError("a number of seconds is needed")
    return seconds


def _code(given: Any) -> SendCode:
    if type(given) is not str or given not in _CODES:
        raise ValueError(f"none of {', '.join(sorted(_CODES))}")
    return cast("SendCode", given)


def _reason(given: Any, error: SendError) -> str:
    if type(given) is not str:
        try:
            given = str(error if given is None else given)
        except Exception:  # noqa: BLE001  (a platform's error that can't tell itself)
            given = type(given).__name__
    text: str = given
    return mend_text(text)[0]
