"""What becomes of a person's message while a turn runs (setting ``queue.busy``).

*queue*: it waits. *interrupt*: where it would be next, the running turn ends as aborted in the very commit that accepts
it. The interrupted messages have had their turn: they count as answered, and stand in the conversation with what the
agent had shown, so the next turn sees them. *steer*: it waits, and a running agent that asks for it (``turn.steering``)
takes it over. *refuse*: it isn't accepted, and the person is told.

Wakes never interrupt, steer or are refused, and neither a wake's turn nor that of a ``queue`` item is interrupted or
steered: each of these is promised a whole turn.
"""

from __future__ import annotations

from typing import Final

from seriatim.albums import grouped, quiet_at
from seriatim.batch import Batch
from seriatim.breaking import end_running
from seriatim.effects import WishAnswered
from seriatim.events import Data
from seriatim.limits import COMMIT_BYTES_MAX, COMMIT_MESSAGES_MAX
from seriatim.mail import Inbound
from seriatim.media import blobs_of
from seriatim.queueing import authority, size_of
from seriatim.turn import TurnAsks

BUSY: Final = "busy"
"""Why a message is refused while a turn runs."""


def refuses(batch: Batch, m: Inbound) -> bool:
    """Whether the message isn't taken because the lane has work already."""
    state = batch.state
    if batch.rules.busy != "refuse" or m.command or m.event.internal:
        return False
    return state.running is not None or bool(state.queue)


def interrupt(batch: Batch, inbox_id: str) -> None:
    """A person's message was accepted while a turn runs: end that turn, if the message is what comes next.

    Not while background work goes on: what it will tell belongs to what the turn does.
    """
    state, running = batch.state, batch.state.running
    if batch.rules.busy != "interrupt" or running is None or running.kind != "human" or state.delegations:
        return
    first = state.queue[0]
    if inbox_id in first.ids and first.auth == authority(state.waiting[running.ids[0]].data):
        end_running(batch, "interrupt")


def steer(batch: Batch, m: TurnAsks) -> None:
    """The running agent asks for what was said meanwhile: it gets it, durably as its own, or nothing."""
    state, running, part = batch.state, batch.state.running, batch.state.session
    given: tuple[tuple[Data, int], ...] = ()
    if running is not None and part is not None and part.open is not None and _may_take(batch):
        ids = state.queue[0].ids
        given = tuple(grouped([(state.waiting[i].data, state.waiting[i].time) for i in ids]))
        batch.lane("inbox/steered", {"ids": list(ids), "turn": running.turn, "generation": running.generation})
        for data, time in given:
            batch.size += size_of(data)
            if "media" in data:
                batch.blobs += tuple(blobs_of(data))
            batch.session("user/message", user_message(running.turn, data, time))
    batch.after.append(WishAnswered(m.generation, m.token, given))


def _may_take(batch: Batch) -> bool:
    """Whether what is next may join the running turn: only equals are answered together."""
    state, running = batch.state, batch.state.running
    if batch.rules.busy != "steer" or running is None or running.kind != "human" or not state.queue:
        return False
    first = state.queue[0]
    told = [state.waiting[i].data for i in running.ids]
    fits = len(told) + len(first.ids) <= COMMIT_MESSAGES_MAX
    fits = fits and sum(len(data["text"]) for data in told) + first.size <= COMMIT_BYTES_MAX
    if first.kind != "human" or first.auth != authority(told[0]) or not fits:
        return False
    return quiet_at(batch, first.ids) is None  # an album is handed over whole


def user_message(turn: int, data: Data, time: int) -> Data:
    """What a claimed message says in its session's log."""
    source = data["source"]
    message: Data = {"turn": turn, "id": data["id"], "text": data["text"], "at": time}
    name = source.get("user_name") or source.get("user_id")
    if name is not None:
        message["author"] = name
    if "messageId" in data:
        message["messageId"] = data["messageId"]
    if "media" in data:
        message["media"] = data["media"]
    if "items" in data:
        message["items"] = data["items"]
    if source["chat_type"] != "dm" and source.get("user_name") and (speaker := _speaker(source)):
        message["speaker"] = speaker  # a name alone doesn't tell two people apart
    return message


def _speaker(source: Data) -> str | None:
    return source.get("user_id_alt") or source.get("user_id")
