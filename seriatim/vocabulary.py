"""The event types that this version knows, and what each holds. ``docs/events.md`` is made from this.

A type that is not here is refused by readers, unless its event is marked ``ignorable``. Adding one needs no new
format version: an older reader then refuses the log instead of misreading it (event-log seed, "format refusal").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from attrs import frozen

Kind = Literal["lane", "session", "system"]


@frozen
class EventType:
    """One event type.

    ``log``: the kind of log that holds it. ``told``: what it says. ``fields``: its data by name, with the meaning; a
    name with "?" may be absent. ``surface``: it carries ``surfaceOp`` and ``sourceEventSeqs``. ``ignorable``: its
    writer marks it so. ``version``: of its data. ``since``: the release that brought it.
    """

    name: str
    log: Kind
    told: str
    fields: Mapping[str, str]
    surface: bool = False
    ignorable: bool = False
    version: int = 1
    since: str = "0.1.0"


_TURN = "number of the turn in its session, from 1"
_STEP = "number of the step in its turn, from 1"
_INBOX_ID = "id of an accepted message"
_DELIVERY = "id of the owed reply"
_PART = "which platform message of it, from 0"
_CALL = "the call's id, unique in its turn"
_WORK = "id of the background work"

EXTRA: Final = "further fields of a message that a host appended"
_SAID: Final = "when it was said, epoch ms, where the host that appended it told"

_SESSION: Final = (
    EventType(
        "turn/start",
        "session",
        "A turn begins; its claims' messages follow.",
        {
            "turn": _TURN,
            "claims": "ids of the messages that it answers",
            "resumedFrom?": "number of the turn that it takes up again; that turn's user messages aren't repeated",
        },
    ),
    EventType(
        "turn/end",
        "session",
        "The open turn is over.",
        {
            "turn": _TURN,
            "reason": (
                "an object: `kind` is completed, failed, aborted, timeout or interrupted (only recovery writes that), "
                "`detail?` a text"
            ),
        },
    ),
    EventType("step/start", "session", "One call of the model begins.", {"turn": _TURN, "step": _STEP}),
    EventType(
        "step/end",
        "session",
        "The step and its tools are through; calls without a result stay so.",
        {"turn": _TURN, "step": _STEP},
    ),
    EventType(
        "user/message",
        "session",
        "What a person (or a wake) said, as authored.",
        {
            "turn": _TURN,
            "id": _INBOX_ID,
            "text": "without sender prefix and platform notes",
            "at": "when it was accepted, epoch ms; of one that a host appended, when it was said",
            "author?": "display name, else the user's id",
            "speaker?": "outside direct chats, the stable id of who bears that name",
            "media?": "as in `inbox/accepted`; of an album all of its items",
            "messageId?": "the platform's id of it",
            "note?": "true: word of an edit or a deletion, not a message to answer",
            "items?": "of an album: the ids of its messages, in the platform's order",
            "extra?": EXTRA,
        },
        surface=True,
    ),
    EventType(
        "assistant/message",
        "session",
        "What the model said in a step; the last one of a turn is its answer. With `summary`, what stands for older "
        "messages.",
        {
            "turn": _TURN,
            "step?": _STEP + "; absent on a summary",
            "text": "may be empty",
            "calls?": "tool calls that it asks for, each `{id}`; present (also empty) on all but the answer",
            "usage?": (
                "token counts: input, output, cacheRead, cacheWrite, total, lastPromptTokens; and estimatedCostUsd, "
                "costStatus"
            ),
            "finish?": "why the model stopped, in its own word",
            "mended?": "true: the text held what JSON can't carry, now U+FFFD",
            "extra?": EXTRA,
            "at?": _SAID,
            "partial?": "how the turn ended that showed so much of an answer: failed, aborted or timeout",
            "summary?": "true: it replaces the messages that it cites",
        },
        surface=True,
    ),
    EventType(
        "assistant/chunk",
        "session",
        "A piece of a streamed message. Known for imported logs only; never written.",
        {"turn": _TURN, "step": _STEP},
    ),
    EventType(
        "tool/call",
        "session",
        "A call that may start now; recorded before it runs.",
        {
            "turn": _TURN,
            "step": _STEP,
            "id": _CALL,
            "name": "the tool",
            "args": "an object",
            "effects": "none, read or write; a write waits for this record",
        },
    ),
    EventType(
        "tool/result",
        "session",
        "What a call gave, or why it gave nothing.",
        {
            "turn": _TURN,
            "step": _STEP,
            "id": _CALL,
            "content": "any JSON; for a synthetic one what the model is told",
            "mended?": "true: what JSON can't carry, or a log can't hold, is told as text, or cut",
            "error?": "true: the tool raised, or there is no result",
            "outcome?": "of a synthetic result: `unknown` (recorded, may have run) or `not started` (only asked for)",
            "synthetic?": "true: no tool gave it; it closes a turn that was cut off",
            "extra?": EXTRA,
            "at?": _SAID,
        },
        surface=True,
    ),
    EventType(
        "surface/reset",
        "session",
        "What the model sees becomes what it was after the first `asOf` events.",
        {"asOf": "count of events", "reason": "undo, redo, retry, rewrite or wipe"},
    ),
    EventType(
        "session/end-seed",
        "session",
        "Everything before it was given when the session was made; the last one counts.",
        {},
    ),
    EventType(
        "request/header",
        "session",
        "The request's fixed part (configuration, system text, tools), whole, when it changes. Imported logs only.",
        {"reason": "initial, resume or change"},
    ),
    EventType(
        "request/context",
        "session",
        "Which model, with which room, when it changes. Imported logs only.",
        {"provider": "its name", "model": "its name", "contextWindow?": "tokens"},
    ),
    EventType("todo/write", "session", "The agent's list, whole; the last one counts. Imported logs only.", {}),
    EventType(
        "wake/notice",
        "session",
        "What a wake had to say that came too late to run: the conversation was left.",
        {"id": _INBOX_ID, "text": "the wake's", "kind?": "what it was about, in the host's word"},
    ),
)

_LANE: Final = (
    EventType(
        "inbox/accepted",
        "lane",
        "A message is taken in. From here on it gets exactly one of answered, merged, dropped.",
        {
            "id": _INBOX_ID,
            "kind": "human, queue, wake, command or edit",
            "place": "slot, join (into the entry it finds), album (into that of its album), tail, or none (commands)",
            "text": "as authored; a command's arguments",
            "source": "where it came from: the fields of SessionSource that aren't at their default",
            "account?": "the bot account that received it",
            "messageId?": "the platform's id",
            "replyTo?": "the platform's id of the message that it replies to",
            "receivedAt?": "when the platform had it, epoch ms",
            "door?": "receipt: the host takes the answer from the receipt, nothing is owed",
            "command?": "its name, without prefix",
            "album?": "the platform's id of the album that it is an item of",
            "media?": "what it carries: a list of `{kind, url?, blob?, name?, mime?, caption?, size?}`",
            "editOf?": "the platform's id of the earlier message that says this now",
            "deleted?": "true: that message was taken back",
            "asks?": "of a retry: accepted data of the questions that it asks again; `at`: when they were accepted",
            "asksTurn?": "of a retry: number of the turn that they stand in",
            "asksSession?": "of a retry: the session of that turn",
            "wakeSession?": "the session that a wake is for; it runs in no other",
            "wakeKind?": "what a wake is about, in the host's word",
            "mended?": "true: the text held what JSON can't carry, now U+FFFD",
        },
    ),
    EventType(
        "inbox/claimed",
        "lane",
        "A turn starts for these messages.",
        {
            "ids": "the messages, oldest first",
            "kind": "human, queue or wake",
            "session": "the session's id",
            "turn": _TURN,
            "generation": "number of the turn in its lane; fences late results",
            "attempt": "1, or more after interruptions",
        },
    ),
    EventType(
        "inbox/answered",
        "lane",
        "The message's outcome: it had a turn or was a command.",
        {
            "id": _INBOX_ID,
            "by": "turn, command or edit",
            "end": "how that ended: completed, failed, aborted, timeout; of an edit replaced, removed, noted, ignored, "
            "not_author: new words for what somebody else wrote (a deletion is taken from the platform, whoever asked)",
        },
    ),
    EventType(
        "inbox/merged",
        "lane",
        "The messages' outcome: another's turn answered them too.",
        {"ids": "the messages", "into": "the message that counts as answered"},
    ),
    EventType(
        "inbox/dropped",
        "lane",
        "The messages' outcome: they get no answer.",
        {
            "ids": "the messages",
            "reason": "superseded, reset, stop, interrupted, stale, session_left, cancelled, expired, cleared, …",
            "notice?": "what a wake had to say whose session was left",
        },
    ),
    EventType(
        "inbox/interrupted",
        "lane",
        "The running turn ended with its process; its messages wait again.",
        {
            "ids": "its messages",
            "generation": "the turn's",
            "waited?": "true: it waited for a person's answer when the gateway stopped, so it doesn't count",
        },
    ),
    EventType(
        "inbox/edited",
        "lane",
        "A waiting message says something else; it keeps its place.",
        {
            "id": _INBOX_ID,
            "text": "what it says from here on",
            "media?": "what it carries from here on",
            "by?": "id of the accepted edit; absent where the host or a command changed it",
        },
    ),
    EventType(
        "inbox/noted",
        "lane",
        "The next turn is told of an edit or a deletion.",
        {"id": "id of the accepted edit", "text": "what it is told"},
    ),
    EventType(
        "queue/moved",
        "lane",
        "The entry that holds a message stands elsewhere in the queue.",
        {"id": _INBOX_ID, "to": "where, once it is taken out: 0 is the slot"},
    ),
    EventType(
        "delivery/owed",
        "lane",
        "A reply that must be delivered.",
        {
            "id": _DELIVERY,
            "parts": "texts of the platform messages that it takes",
            "to": (
                "where it goes: platform, account, chat_id, and where they matter chat_type, thread_id, user_id, "
                "reply_to_id"
            ),
            "turn?": _TURN + "; absent for a command's answer",
            "attempt?": "1: this record counts as the first attempt",
            "first?": "at so many parts, the first ones; absent: at all of them",
            "draft?": "the platform's id of the message that the first part is edited into",
            "tells?": "ids of the replies given up that this one tells of",
            "again?": "id of the reply given up that somebody had sent again",
        },
    ),
    EventType(
        "delivery/none",
        "lane",
        "Nothing is owed for a turn or command.",
        {
            "turn": _TURN + "; 0 for a command",
            "reason": "receipt, empty, silence marker, the silence's own reason, or aborted: why",
            "text?": "a command's answer, which its receipt gives",
        },
    ),
    EventType(
        "delivery/attempt",
        "lane",
        "A part is about to be sent.",
        {
            "id": _DELIVERY,
            "part": _PART,
            "n": "which attempt, from 1",
            "marked?": "true: with the notice that it may be a repeat",
        },
    ),
    EventType(
        "delivery/failed",
        "lane",
        "The last attempt at a part surely did not arrive.",
        {"id": _DELIVERY, "part": _PART, "reason": "what the platform said"},
    ),
    EventType(
        "delivery/waits",
        "lane",
        "The platform asked to be left alone for a while.",
        {"id": _DELIVERY, "until": "epoch ms before which nothing more of this reply is sent"},
    ),
    EventType(
        "delivery/draft",
        "lane",
        "A message of the platform shows a reply before it is owed; its final text is edited into it.",
        {
            "claim": "the first message of the turn; empty with an empty messageId",
            "messageId": "the platform's id of it; empty: it is gone, the reply becomes a message of its own",
            "delivery?": "id of the owed reply, where the turn has ended by now",
        },
    ),
    EventType(
        "delivery/bounced",
        "lane",
        "The platform had taken a part and reports now that it can't be delivered.",
        {"id": _DELIVERY, "part": _PART, "reason": "what the platform said"},
    ),
    EventType(
        "delivery/retried",
        "lane",
        "An operator wants the reply tried on: its age begins again.",
        {"id": _DELIVERY},
    ),
    EventType(
        "delivery/settled",
        "lane",
        "A part arrived.",
        {"id": _DELIVERY, "part": _PART, "messageId?": "the platform's id of it"},
    ),
    EventType(
        "delivery/abandoned",
        "lane",
        "A part is given up.",
        {
            "id": _DELIVERY,
            "part": _PART,
            "reason": "too old, too many attempts of unknown outcome, blocked, gone, too_long, refused, stop, operator",
            "detail?": "what the platform said",
        },
    ),
    EventType(
        "route/bound",
        "lane",
        "The lane's conversation is this session from here on.",
        {
            "session": "its id",
            "reason": "first, reset, suspended, …",
            "previous?": "the session before it",
            "hadActivity?": "true: that one had turns",
            "boundary?": "suspended: what the next turn is told",
            "head?": "of a session that was there before: how many events it held",
            "createdAt?": "when that one was made, epoch ms",
            "source?": "where it came from, when the host made it, as in inbox/accepted",
            "displayName?": "how the host calls it",
            "activeAt?": "of an imported record: the last activity, epoch ms",
            "used?": "of an imported record: what had been counted, as in assistant/message",
            "finalized?": "true, of an imported record: it is not to be resumed",
        },
    ),
    EventType(
        "route/titled",
        "lane",
        "A session's title, as people of this lane know it.",
        {"session": "its id", "title": "one line"},
    ),
    EventType(
        "route/listed",
        "lane",
        "People were shown a numbered list of sessions; a number means one of these until the next list.",
        {"sessions": "their ids, in the order of their numbers"},
    ),
    EventType(
        "route/suspended",
        "lane",
        "The next message of a person starts a fresh session.",
        {"reason": "stop or interrupted"},
    ),
    EventType(
        "route/released",
        "lane",
        "The lane has no conversation any more; its next message starts a fresh one.",
        {"reason": "moved: another lane has the session; pruned", "session?": "its id"},
    ),
    EventType(
        "entry/touched",
        "lane",
        "The host was active on the conversation, without a message.",
        {
            "lastPromptTokens?": "tokens of the last prompt, by the host's word",
            "turn?": "with it: number of the session's last turn then",
        },
    ),
    EventType(
        "lane/merged",
        "lane",
        "Two lanes turned out to be one conversation's. Told in both by one commit: the one that goes has `into`, the "
        "one that stays has the rest.",
        {
            "into?": "key of the lane that has everything now",
            "ids?": "with `into`: the messages that waited; they count there from now on",
            "from?": "key of the lane whose holdings these are",
            "waiting?": "its messages without an outcome: accepted data, 1 if none of its suspensions came later, time",
            "queue?": "its slot and overflow: kind, ids, authority, size of each entry",
            "interrupted?": "its turns that are to run again",
            "owed?": "what it owes",
            "interruptions?": "in a row",
            "generation?": "of its last turn",
            "session?": "its session, where that one goes on",
            "previous?": "the session that it replaces",
            "boundary?": "what the next turn is told",
            "hadActivity?": "true: the session before had turns",
            "suspended?": "the session that goes on is suspended: true for all messages, false for later ones",
            "resume?": "reason and time (ms) of its mark",
            "titles?": "its sessions' titles",
            "facts?": "with `session`: what this log tells of it",
            "approvals?": "its turns' questions and their answers",
            "renamed?": "this lane's questions of the same name: name and new name",
            "delegations?": "its background work, which the merge ends",
            "unreached?": "its replies given up that the next turn tells of: delivery, time (ms), reason",
            "bounced?": "its replies whose late failure is known",
            "notes?": "its edits that the next turn is told of: data, time (ms)",
            "drafts?": "what shows the replies of its turns so far: first claim, the platform's message id",
            "bots?": "its messages of bots in a row, and when the last one came (ms)",
            "listed?": "the sessions of the last list that its people saw",
            "activeAt?": "when its people did something last, epoch ms",
        },
    ),
    EventType(
        "resume/marked",
        "lane",
        "The lane's work is to be taken up again after the restart.",
        {
            "reason": "restart_interrupted, shutdown_timeout, shutdown_waiting, …",
            "at?": "of an imported record: since when, epoch ms",
        },
    ),
    EventType("resume/cleared", "lane", "Taken up, or given up.", {}),
    EventType(
        "inbox/steered",
        "lane",
        "The running turn takes waiting messages over; from here on they share its end.",
        {"ids": "the messages", "turn": _TURN, "generation": "the turn's"},
    ),
    EventType(
        "approval/asked",
        "lane",
        "A turn asks its people for leave, and waits. Asked once, however often the turn is run again.",
        {
            "id": "what people name it by",
            "claim": "the turn's first message",
            "token": "names the question in its turn",
            "question": "as the people read it",
        },
    ),
    EventType(
        "approval/resolved",
        "lane",
        "The question has its answer.",
        {
            "id": "the question's",
            "answer": "approved or denied",
            "by": "a person's id, host, timeout, or how the turn ended",
        },
    ),
    EventType(
        "delegation/started",
        "lane",
        "A turn's background work begins.",
        {
            "id": _WORK,
            "name": "what it is",
            "session": "the session's id",
            "turn": _TURN,
            "origin": "where its end is told: source, account, door of the message that the turn answers",
        },
    ),
    EventType(
        "delegation/ended",
        "lane",
        "The background work is over; a wake tells its session.",
        {"id": _WORK, "status": "completed, failed or interrupted"},
    ),
    EventType(
        "turn/late",
        "lane",
        "A turn's end that came after the lane had moved on; it touched nothing.",
        {"turn": _TURN, "generation": "the turn's", "reason": "how it ended"},
    ),
)

_SYSTEM: Final = (
    EventType(
        "log/erased",
        "system",
        "A log was erased for good; its name isn't told, since it may be a person's.",
        {
            "digest": "HMAC-SHA-256 of the log's name under the store's id: who knows the name can find it again",
            "incarnation": "number of the log that is gone; a log made again under the name has another",
            "events": "how many it held",
            "keysDropped": "how many unique keys went with it",
            "reason": "why, in the host's words",
        },
    ),
    EventType(
        "alias/learnt",
        "system",
        "Two ids of a platform mean the same person or chat. In the log `aliases`, the table's only truth.",
        {
            "platform": "its name",
            "kind": "user; or chat: the platform replaced the old id, what is owed goes to the new one",
            "old": "an id",
            "new": "the id that lanes are named by from now on",
            "account?": "which of the host's accounts told",
            "scope?": "the guild or workspace in which the ids hold",
        },
    ),
)

EVENT_TYPES: Final[Mapping[str, EventType]] = {known.name: known for known in (*_SESSION, *_LANE, *_SYSTEM)}
"""Every known type by its name."""

KNOWN_SESSION_EVENT_TYPES: Final = frozenset(known.name for known in _SESSION)
"""The types that a session's log may hold without being marked ignorable."""

KNOWN_LANE_EVENT_TYPES: Final = frozenset(known.name for known in _LANE)
"""The types that a lane's log may hold without being marked ignorable."""

KNOWN_SYSTEM_EVENT_TYPES: Final = frozenset(known.name for known in _SYSTEM)
"""The types that the store's own log may hold."""
