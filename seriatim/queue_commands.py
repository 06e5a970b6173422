"""``/queue`` without a text of its own: see what waits, and change what one has said oneself.

``/queue cancel 2``, ``/queue edit 2 TEXT``, ``/queue move 2 1``, ``/queue clear``, ``/queue list``; numbers are those
of the list. One of these without all that it takes is told how it is written. Anything else is a text that gets a
turn; ``/queue -- clear`` queues even a word that means something here.
"""

from __future__ import annotations

import re
from typing import Final

from seriatim.answering import accept_command, answer_command
from seriatim.batch import Batch
from seriatim.errors import InvalidInputError
from seriatim.events import Data
from seriatim.inbox import reply_target
from seriatim.limits import QUEUE_LISTED_MAX
from seriatim.mail import Inbound
from seriatim.queue_edits import drop, find, replace_text
from seriatim.queueing import Entry
from seriatim.turn import inert_label

EMPTY_TEXT: Final = "Nothing waits. {0}queue TEXT gives TEXT a turn of its own after the others."
NO_SUCH_TEXT: Final = "There is no number {1} in what waits; {0}queue shows it."
NOT_YOURS_TEXT: Final = "Number {0} holds nothing of yours, so it stays as it is."
QUEUED_TEXT: Final = "That is number {1} of what waits; {0}queue shows it."
LACKING_TEXT: Final = "Write {0}queue {1}; {0}queue shows the numbers. {0}queue -- TEXT queues any text."
SHOWN_CHARS: Final = 60

_STEERING: Final = re.compile(
    r"(?P<name>list|clear)|(?P<one>cancel) +(?P<number>\d{1,5})|(?P<move>move) +(?P<from>\d{1,5}) +(?P<to>\d{1,5})"
    r"|(?P<edit>edit) +(?P<which>\d{1,5})\s+(?P<text>\S.*)",
    re.IGNORECASE | re.DOTALL,
)
_LACKING: Final = re.compile(r"cancel|(?:move|edit)(?: +\d{1,5})?", re.IGNORECASE)
_FORMS: Final = {"cancel": "cancel N", "edit": "edit N TEXT", "move": "move N M"}


def queued_text(args: str) -> str | None:
    """The text that ``/queue ARGS`` gives a turn; None where it asks for something else."""
    if args == "--" or not args:
        return None
    if args.startswith("--") and args[2:3].isspace():
        return args[2:].strip()
    return None if _STEERING.fullmatch(args) or _LACKING.fullmatch(args) else args


def tell_queued(batch: Batch, m: Inbound) -> None:
    """A text that got a place behind something: whoever queued it hears which, a host from its receipt."""
    state = batch.state
    at = find(state, m.id)
    if at is None or not (at or state.running is not None or state.interrupted):
        return
    to = reply_target(batch, m.id)
    if to is not None:
        batch.owe(QUEUED_TEXT.format(m.prefix, at + 1), to)


def queue_command(batch: Batch, m: Inbound) -> None:
    """Answer the list, or do one of the changes and tell it."""
    accept_command(batch, m)
    answer_command(batch, m, _done(batch, m))


def _done(batch: Batch, m: Inbound) -> str:
    if _LACKING.fullmatch(m.args):
        return LACKING_TEXT.format(m.prefix, _FORMS[m.args.split()[0].lower()])
    asked = _STEERING.fullmatch(m.args)
    if asked is None or (asked["name"] or "").lower() == "list":
        return _listed(batch, m)
    if asked["name"]:
        return _cleared(batch, m)
    number = int(asked["number"] or asked["from"] or asked["which"])
    if not 1 <= number <= len(batch.state.queue):
        return NO_SUCH_TEXT.format(m.prefix, number)
    entry = batch.state.queue[number - 1]
    own = [inbox_id for inbox_id in entry.ids if _is_own(batch, inbox_id, m)]
    if not own or (asked["move"] and len(own) < len(entry.ids)):
        return NOT_YOURS_TEXT.format(number)
    if asked["one"]:
        told = _shown(batch, entry)
        drop(batch, own, "cancelled")
        return f"Cancelled: {told}"
    if asked["move"]:
        return _moved(batch, number, int(asked["to"]))
    return _edited(batch, own[-1], asked["text"])


def _listed(batch: Batch, m: Inbound) -> str:
    queue = batch.state.queue
    if not queue:
        return EMPTY_TEXT.format(m.prefix)
    lines = [f"{number}. {_shown(batch, entry)}" for number, entry in enumerate(queue[:QUEUE_LISTED_MAX], 1)]
    if len(queue) > QUEUE_LISTED_MAX:
        lines.append(f"and {len(queue) - QUEUE_LISTED_MAX} more")
    return "\n".join(["What waits, next first:", *lines])


def _shown(batch: Batch, entry: Entry) -> str:
    texts = [
        inert_label(batch.state.waiting[inbox_id].data["text"] or "(media)", SHOWN_CHARS) for inbox_id in entry.ids
    ]
    more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
    return {"queue": "", "human": "", "wake": "(internal) "}[entry.kind] + texts[0] + more


def _cleared(batch: Batch, m: Inbound) -> str:
    ids = [
        inbox_id
        for entry in batch.state.queue
        if entry.kind != "wake"
        for inbox_id in entry.ids
        if _is_own(batch, inbox_id, m)
    ]
    if not ids:
        return "Nothing of yours waits."
    drop(batch, ids, "cleared")
    return f"Cleared: {len(ids)} of yours waited."


def _moved(batch: Batch, number: int, to: int) -> str:
    queue = batch.state.queue
    entry, to = queue[number - 1], min(max(to, 1), len(queue))
    if to != number:
        moved: Data = {"id": entry.ids[0], "to": to - 1}
        batch.lane("queue/moved", moved)
    return f"Number {to} now: {_shown(batch, entry)}"


def _edited(batch: Batch, inbox_id: str, text: str) -> str:
    try:
        replace_text(batch, inbox_id, text)
    except InvalidInputError:
        return "That is too long."
    return f"It says now: {inert_label(text, SHOWN_CHARS)}"


def _is_own(batch: Batch, inbox_id: str, m: Inbound) -> bool:
    """Whether who asks has said it: in a shared conversation nobody changes another's words, or takes them back."""
    data = batch.state.waiting[inbox_id].data
    source, asking = data["source"], m.event.source
    return data["kind"] != "wake" and (source.get("user_id"), source.get("user_id_alt")) == (
        asking.user_id,
        asking.user_id_alt,
    )
