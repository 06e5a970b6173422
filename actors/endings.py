"""How a turn ends: what an agent gave back, or how it failed, as the one `TurnEnded` of the turn."""

from __future__ import annotations

import math
from typing import Any, Final

import attrs
from msgspec.structs import replace

from seriatim.errors import InvalidInputError, ReplyTooLargeError
from seriatim.events import SAFE_INTEGER_MAX, mend_text
from seriatim.limits import DETAIL_CHARS_MAX, REPLY_BYTES_MAX
from seriatim.turn import Reply, Silence, TurnEnded, TurnJob, Usage

_FINISH_CHARS_MAX: Final = 100
_PLAIN_CHARS_MAX: Final = REPLY_BYTES_MAX // 4


def completed(job: TurnJob, result: Any) -> TurnEnded:
    """The end for what an agent returned: str, Reply, Silence or None (= Silence("none")).

    An empty reply is silence. Raises InvalidInputError for anything else, ReplyTooLargeError.
    """
    if type(result) is str and not result.isspace() and result:
        # Nothing to mend or to measure in most: each turn ends with one.
        text = result if len(result) <= _PLAIN_CHARS_MAX and result.isascii() else checked_text(result)
        return TurnEnded(job.number, job.generation, "completed", text)
    if result is None:
        result = Silence("none")
    elif isinstance(result, str):
        result = Reply(result)
    if isinstance(result, Silence):
        reason = _short(str(result.reason), DETAIL_CHARS_MAX)
        return TurnEnded(job.number, job.generation, "completed", None, detail=reason)
    if not isinstance(result, Reply):
        wanted = "str, Reply, Silence or None is needed"
        raise InvalidInputError("reply", f"{wanted}, the agent returned {type(result).__name__}")
    text = checked_text(result.text)
    finish = None if result.finish is None else _short(str(result.finish), _FINISH_CHARS_MAX)
    usage = sound_usage(result.usage)
    if not text.strip():
        return TurnEnded(job.number, job.generation, "completed", None, usage, finish, "empty")
    return TurnEnded(job.number, job.generation, "completed", text, usage, finish)


def failed(job: TurnJob, error: BaseException) -> TurnEnded:
    """The end for an agent that raised ``error``, or whose reply could not be taken."""
    text = None
    if isinstance(error, ReplyTooLargeError):
        text = f"The reply was too large to be kept or sent (more than {REPLY_BYTES_MAX // 2**20} MiB)."
    return TurnEnded(job.number, job.generation, "failed", text, detail=error_text(error))


def aborted(job: TurnJob, why: str, late: TurnEnded | None = None) -> TurnEnded:
    """The end of a cancelled turn; ``late``: the end that its agent came to all the same."""
    detail = _short(why, DETAIL_CHARS_MAX)
    if late is None or late.reason != "completed":
        return TurnEnded(job.number, job.generation, "aborted", None, detail=detail)
    return replace(late, reason="aborted", detail=detail)


def interrupted(job: TurnJob, why: str) -> TurnEnded:
    """The end of a turn whose runner goes away; the lane leaves it open for recovery."""
    return TurnEnded(job.number, job.generation, "interrupted", None, detail=_short(why, DETAIL_CHARS_MAX))


def checked_text(text: Any) -> str:
    """Text with lone surrogates mended. Raises InvalidInputError, ReplyTooLargeError."""
    if not isinstance(text, str):
        raise InvalidInputError("reply", f"its text is {type(text).__name__}, not str")
    # Characters first: no need to encode what is surely too large.
    if len(text) > REPLY_BYTES_MAX:
        raise ReplyTooLargeError(REPLY_BYTES_MAX)
    whole = mend_text(text)[0]
    if len(whole) > REPLY_BYTES_MAX // 4 and len(whole.encode()) > REPLY_BYTES_MAX:
        raise ReplyTooLargeError(REPLY_BYTES_MAX)
    return str(whole)


def sound_usage(usage: Any) -> Usage | None:
    """``usage`` if each figure is one that a log can hold; a reply isn't lost for bad figures, they are."""
    if not isinstance(usage, Usage):
        return None
    for name in ("input", "output", "cache_read", "cache_write", "total", "last_prompt_tokens"):
        figure = getattr(usage, name)
        if type(figure) is not int or not 0 <= figure <= SAFE_INTEGER_MAX:
            return None
    cost: Any = usage.estimated_cost_usd
    if type(cost) not in (int, float) or not math.isfinite(cost) or cost < 0:
        return None
    return attrs.evolve(usage, estimated_cost_usd=float(cost) + 0.0, cost_status=_short(str(usage.cost_status), 100))


def error_text(error: BaseException) -> str:
    """An error's class and text, mended and cut to DETAIL_CHARS_MAX."""
    name = type(error).__name__
    try:
        said = str(error)
    except Exception:  # an error that can't even say what it is still ends its turn
        said = "(its text can't be read)"
    return _short(f"{name}: {said}" if said else name, DETAIL_CHARS_MAX)


def _short(text: str, chars_max: int) -> str:
    whole = mend_text(text)[0]
    return whole if len(whole) <= chars_max else whole[: chars_max - 1] + "…"
