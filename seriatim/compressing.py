"""Compression: a summary takes the place of a conversation's older messages; the newest turns stay as they are.

The agent makes the summary, outside the lane and beside whatever the lane does. Its result is appended only if what it
stands for is still shown and unchanged; otherwise it is late and touches nothing. Nothing of it is durable before the
summary is: after a crash it has not happened. A /compress waits for its end like any message, so that whoever asked
hears of it whatever happens; it isn't begun again by itself, since it may be what the process died of.
"""

from __future__ import annotations

from typing import Final

from seriatim.answering import accept_command, say
from seriatim.batch import Batch
from seriatim.effects import Ack, CompressionWanted, CompressSession, Finished
from seriatim.events import Event, mend_text
from seriatim.inbox import reply_target
from seriatim.lane import LaneState
from seriatim.mail import CompressionDue, Inbound, SummaryMade
from seriatim.shown import Shown
from seriatim.surface import says_something
from seriatim.surface_commands import BUSY_TEXT, STOPPED_HINT_TEXT, at_work

COMPRESSING_TEXT: Final = "Compressing {0} messages; you will hear when it is done."
COMPRESSED_TEXT: Final = "Compressed: {0} messages became one."
NOTHING_TO_COMPRESS_TEXT: Final = "There is nothing to compress: only the newest turns are left as they are."
NOT_COMPRESSED_TEXT: Final = "Not compressed: {0}."
CHANGED: Final = "the conversation has changed meanwhile"
INTERRUPTED: Final = "it was interrupted; ask again if you still want it"


def compress_command(batch: Batch, m: Inbound) -> None:
    """/compress: begin now; what comes of it is told when it is there."""
    state = batch.state
    if at_work(state):
        say(batch, m, BUSY_TEXT.format(m.prefix))
        return
    if state.suspended_at is not None:
        say(batch, m, STOPPED_HINT_TEXT.format(m.prefix, state.bound))
        return
    shown = batch.shown()
    older = [] if shown is None else _older(shown, batch.rules.compress_keep_turns)
    if shown is None or not older:
        say(batch, m, NOTHING_TO_COMPRESS_TEXT)
        return
    accept_command(batch, m)
    batch.after.append(Ack(m.id, "accepted", batch.state.bound or "", 0))
    to = reply_target(batch, m.id)
    if to is not None:
        batch.owe(COMPRESSING_TEXT.format(len(older)), to)
    batch.after.append(_order(shown, older, m.id))


def is_crowded(batch: Batch) -> bool:
    """Whether the conversation is to be compressed before its next turn; asks for it then."""
    above, state = batch.rules.compress_above_tokens, batch.state
    part = state.session
    if not above or part is None or state.suspended_at is not None:
        return False
    prompt, turn = _prompt(state)
    if prompt < above or turn <= part.shrunk or batch.now.uncompressed == (part.id, turn):
        return False
    batch.internal.append(CompressionWanted(part.id, turn))
    return True


def compression_due(batch: Batch, m: CompressionDue) -> None:
    """The shell has nothing else to compress: give it the messages; where there are none, the turn goes on at once."""
    state = batch.state
    part = state.session
    if part is None or part.id != m.session or at_rest_or_running(state):
        return
    shown = batch.shown()
    older = [] if shown is None else _older(shown, batch.rules.compress_keep_turns)
    if shown is None or not older:
        batch.now.uncompressed = (m.session, m.turn)
    else:
        batch.after.append(_order(shown, older))


def at_rest_or_running(state: LaneState) -> bool:
    """Whether no turn waits for the compression: it ended, or something has let it go on."""
    return state.running is not None or not (state.queue or state.interrupted)


def summary_made(batch: Batch, m: SummaryMade) -> None:
    """The agent's summary, or why there is none."""
    state, order = batch.state, m.order
    if order.asked and order.asked not in state.waiting:
        return  # told as interrupted
    part = state.session
    if part is None or part.id != order.session or part.changed > order.head:
        why = CHANGED
    elif m.text is None:
        why = m.why
    else:
        data = {"turn": order.turn, "text": mend_text(m.text)[0], "summary": True}
        operation = {"op": "replace", "start": order.seqs[0], "end": order.seqs[-1]}
        sources = tuple(sorted(order.seqs))
        batch.append(part, (Event("assistant/message", part.head, batch.time, data, False, sources, operation),))
        batch.size += len(m.text)
        why = ""
    if order.asked:
        _answer(batch, order.asked, NOT_COMPRESSED_TEXT.format(why) if why else COMPRESSED_TEXT.format(len(order.seqs)))
    elif why and part is not None:
        batch.now.uncompressed = (part.id, _prompt(state)[1])


def close_compressions(batch: Batch) -> None:
    """A new incarnation: who waits for a summary of the one before is told that there will be none."""
    for held in list(batch.state.waiting.values()):
        if held.data.get("command") == "compress":
            _answer(batch, held.data["id"], NOT_COMPRESSED_TEXT.format(INTERRUPTED))


def _answer(batch: Batch, inbox_id: str, text: str) -> None:
    to = reply_target(batch, inbox_id)
    batch.lane("inbox/answered", {"id": inbox_id, "by": "command", "end": "completed"})
    batch.after.append(Finished(inbox_id, "answered", text, "completed"))
    batch.owe(text, to)


def _prompt(state: LaneState) -> tuple[int, int]:
    """Tokens of the last prompt that anybody told of, and the turn after which that was."""
    assert state.session is not None
    used, facts = state.session.used, state.facts
    if facts.prompt and facts.prompt_turn >= used.turn:
        return facts.prompt, facts.prompt_turn
    return used.prompt, used.turn


def _older(shown: Shown, keep_turns: int) -> list[Event]:
    """What the summary would stand for, oldest first: all before the newest turns, if that is more than a summary."""
    turns = shown.surface.visible_turns()
    if len(turns) <= keep_turns:
        return []
    begin = turns[-keep_turns].start
    older: list[Event] = []
    calls: set[str] = set()
    for node in shown.surface.nodes():
        event = shown.events[node.seq]
        if node.seq >= begin and not event.data.get("summary"):
            break
        older.append(event)
        calls ^= set(node.calls)
    worth = [event for event in older if not event.data.get("summary") and says_something(event)]
    return older if worth and not calls else []


def _order(shown: Shown, older: list[Event], asked: str = "") -> CompressSession:
    seqs = tuple(event.seq for event in older)
    said = tuple(event for event in older if says_something(event))
    turn = older[-1].data.get("turn", 0)
    return CompressSession(shown.session, shown.part.head, seqs, turn, said, asked)
