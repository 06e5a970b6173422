"""/undo, /redo and /retry: what the conversation shows, taken back and asked again. Nothing is deleted.

Each needs a lane at rest and what its session shows; where that isn't loaded the gate asks for it first (see
``seriatim.shown``), so these look before they draft anything.
"""

from __future__ import annotations

from typing import Any, Final

from seriatim.answering import accept_command, answer_command, say
from seriatim.batch import Batch
from seriatim.edits import Undo, redo, retry, undo
from seriatim.effects import Ack, ForgetAgent
from seriatim.errors import SurfaceHorizonError
from seriatim.events import Data, Event
from seriatim.inbox import accepted_data
from seriatim.lane import LaneState
from seriatim.limits import PREVIEW_CHARS_MAX
from seriatim.mail import Inbound
from seriatim.queueing import authority
from seriatim.shown import AcceptedOf, Shown
from seriatim.surface import walk_nodes

BUSY_TEXT: Final = "Something runs or waits in this conversation. Try again when it is answered, or {0}stop it first."
STOPPED_HINT_TEXT: Final = "This conversation was stopped. {0}resume {1} takes it up again."
NOTHING_TEXT: Final = "There is nothing to take back."
UNDO_USAGE_TEXT: Final = "Say how many turns to take back: {0}undo, or {0}undo 3"
UNDONE_TEXT: Final = "Taken back: {0}. {1}redo brings it back."
TOOLS_STAY_TEXT: Final = " What tools did meanwhile stays done."
NOTHING_TO_REDO_TEXT: Final = "There is nothing to bring back."
REDONE_TEXT: Final = "Brought back."
NOTHING_TO_RETRY_TEXT: Final = "There is no question to ask again."
OTHERS_TEXT: Final = "That was asked with other rights than yours; whoever asked may ask again."


def undo_command(batch: Batch, m: Inbound) -> None:
    """/undo [N]: the last N turns are as if they had never been, for the model."""
    count = _count(m.args)
    if count is None:
        say(batch, m, UNDO_USAGE_TEXT.format(m.prefix))
        return
    if refused(batch, m):
        return
    shown = batch.shown()
    if shown is None:
        say(batch, m, NOTHING_TEXT)
        return
    shown, change, asked = taken_back(batch, shown, count)
    if not change.events:
        say(batch, m, NOTHING_TEXT)
        return
    turns = "the last turn" if change.turns == 1 else f"the last {change.turns} turns"
    told = turns if asked is None else f"{turns}, from: {preview(asked)}"
    text = UNDONE_TEXT.format(told, m.prefix)
    if any(node.type == "tool/result" for node in change.removed):
        text += TOOLS_STAY_TEXT
    _change(batch, m, shown, change.events, text)


def taken_back(batch: Batch, shown: Shown, turns: int) -> tuple[Shown, Undo, str | None]:
    """What taking the last turns back does, and the text of the first message that goes; drafts nothing.

    Where what is loaded doesn't reach so far, or a summary stands for that message, the whole session is asked for.
    """
    try:
        change = undo(shown.surface, turns, batch.time)
    except SurfaceHorizonError:
        change = None
    if change is None or (change.target is not None and change.target not in shown.events):
        whole = batch.shown(shown.session, whole=True)
        assert whole is not None
        shown, change = whole, undo(whole.surface, turns, batch.time)
    text: str | None = None if change.target is None else shown.events[change.target].data["text"]
    return shown, change, text


def redo_command(batch: Batch, m: Inbound) -> None:
    """/redo: the last /undo is taken back, until something is said after it."""
    if refused(batch, m):
        return
    shown = batch.shown()
    events = () if shown is None else redo(shown.surface, batch.time)
    if shown is None or not events:
        say(batch, m, NOTHING_TO_REDO_TEXT)
    else:
        _change(batch, m, shown, events, REDONE_TEXT)


def retry_command(batch: Batch, m: Inbound) -> None:
    """/retry: the last question is answered anew; the reply before stays in the log, and the agent doesn't see it.

    The command waits like a /queue item and holds the question whole, so that neither a crash nor a lack of turn slots
    can lose it.
    """
    if refused(batch, m):
        return
    shown = batch.shown()
    events = () if shown is None else retry(shown.surface, batch.time)
    if shown is None or not events:
        say(batch, m, NOTHING_TO_RETRY_TEXT)
        return
    turn = shown.surface.turns
    assert turn is not None
    kept = set() if turn.nodes is None else {node.seq for node in walk_nodes(turn.nodes)}
    nodes = [node for node in walk_nodes(turn.asked_nodes) if node.type == "user/message" and node.seq not in kept]
    said = [event for node in reversed(nodes) if "note" not in (event := shown.events[node.seq]).data]
    if not said:
        say(batch, m, NOTHING_TO_RETRY_TEXT)
        return
    asks = _asks(batch, m, said)
    if any(authority(ask) != authority(asks[0]) or authority(ask) != _authority(m) for ask in asks):
        say(batch, m, OTHERS_TEXT)
        return
    batch.append(shown.part, events)
    data = accepted_data(m, "queue", "slot")
    data |= {"text": "", "asks": asks, "asksTurn": turn.asked_number, "asksSession": shown.session}
    batch.lane("inbox/accepted", data)
    batch.size += sum(len(ask["text"]) for ask in asks)
    batch.after.append(Ack(m.id, "accepted", batch.state.bound or "", 0))
    batch.after.append(ForgetAgent())


def refused(batch: Batch, m: Inbound) -> bool:
    """Whether the conversation can't be changed now; then the command is answered with the reason."""
    state = batch.state
    if at_work(state):
        say(batch, m, BUSY_TEXT.format(m.prefix))
    elif state.suspended_at is not None:
        say(batch, m, STOPPED_HINT_TEXT.format(m.prefix, state.bound))
    else:
        return False
    return True


def at_work(state: LaneState) -> bool:
    """Whether a turn runs, waits, or is to run again."""
    return state.running is not None or bool(state.interrupted or state.queue)


def preview(text: str) -> str:
    """The beginning of a text, in quotes, on one line."""
    line = " ".join(text.split())
    return f"“{line if len(line) <= PREVIEW_CHARS_MAX else line[: PREVIEW_CHARS_MAX - 1] + '…'}”"


def _count(args: str) -> int | None:
    if not args:
        return 1
    number = int(args) if args.isascii() and args.isdigit() and len(args) <= 6 else 0
    return number or None


def _change(batch: Batch, m: Inbound, shown: Shown, events: tuple[Event, ...], text: str) -> None:
    accept_command(batch, m)
    batch.append(shown.part, events)
    answer_command(batch, m, text)
    batch.after.append(ForgetAgent())


def _asks(batch: Batch, m: Inbound, said: list[Event]) -> list[Data]:
    """The questions as they were accepted, with all that came with them; in the words that the conversation has."""
    ids = tuple(event.data["id"] for event in said)
    found: dict[str, Data] = batch.found(AcceptedOf(batch.state.key, ids))
    own = accepted_data(m, "human")
    del own["command"]
    asks: list[Data] = []
    for event in said:
        data = found.get(event.data["id"])
        if data is None:  # too long ago: the words and who said them are all that is left
            data = {**own, "id": event.data["id"]}
            if "author" in event.data:
                data["source"] = {**data["source"], "user_name": event.data["author"]}
        # An album was several messages; it is the one that it became.
        whole: Data = {name: event.data[name] for name in ("messageId", "media", "items") if name in event.data}
        ask = {**data, **whole, "text": event.data["text"], "at": event.data.get("at", event.time)}
        ask.pop("album", None)
        asks.append(ask)
    return asks


def _authority(m: Inbound) -> str:
    source: dict[str, Any] = m.event.source.to_dict()
    return authority({"source": source})
