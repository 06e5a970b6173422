"""/resume: the lane goes on with a conversation that was left, found by number, title or id.

Without an argument it lists the titled ones; a number means what the last list in this lane said. Only what is in the
asker's scope is found (see ``seriatim.scope``); all else is answered like what doesn't exist.
"""

from __future__ import annotations

import re
from typing import Final

from seriatim.answering import accept_command, answer_command, say
from seriatim.batch import Batch
from seriatim.effects import ForgetAgent, MoveHere
from seriatim.events import lane_log
from seriatim.lane import LaneState
from seriatim.limits import RESUME_LISTED_MAX
from seriatim.mail import Inbound
from seriatim.moving import Moving
from seriatim.scope import asker_of, in_scope, prefix_of
from seriatim.shown import Shown, TitledOf
from seriatim.surface_commands import BUSY_TEXT, at_work, preview
from seriatim.wakes import leave_session

NOTHING_LISTED_TEXT: Final = "No conversation here has a title. Give this one a title: {0}title TITLE"
LIST_TEXT: Final = "Conversations:\n{1}\nTake one up again: {0}resume NUMBER, {0}resume TITLE or {0}resume ID"
NOT_FOUND_TEXT: Final = "There is no conversation {0} to take up again."
RESUMED_TEXT: Final = "Taken up again: {0}."
ALREADY_TEXT: Final = "You are in it already."

_ID: Final = re.compile(r"\w{1,64}")
_QUOTES: Final = "\"'“”«»[]()<> "

Titled = tuple[str, str]
"""A session's id and its title."""


def resume_command(batch: Batch, m: Inbound) -> None:
    """/resume [NUMBER, TITLE or ID]."""
    wanted = m.args.strip(_QUOTES)
    if not wanted:
        _list(batch, m)
        return
    if at_work(batch.state):
        say(batch, m, BUSY_TEXT.format(m.prefix))
        return
    known = titled(batch, m)
    shown = _found(batch, m, wanted, known)
    if shown is None:
        say(batch, m, NOT_FOUND_TEXT.format(preview(wanted)))
    elif shown.session == batch.state.bound and batch.state.suspended_at is None:
        say(batch, m, ALREADY_TEXT)
    else:
        _take_up(batch, m, shown, dict(known).get(shown.session, shown.session))


def titled(batch: Batch, m: Inbound) -> list[Titled]:
    """The titled conversations in scope, this lane's first, the newest first."""
    own = list(reversed(batch.state.titles))
    known = {session for session, _ in own}
    asker, prefix = asker_of(m.event.source), prefix_of(batch.state.key)
    if prefix is None:
        return own
    others: list[Titled] = batch.found(TitledOf(batch.state.key, asker, prefix))
    return own + [told for told in others if told[0] not in known]


def _list(batch: Batch, m: Inbound) -> None:
    found = titled(batch, m)[:RESUME_LISTED_MAX]
    if not found:
        say(batch, m, NOTHING_LISTED_TEXT.format(m.prefix))
        return
    lines = [
        f"{number}. {title} ({session})" + (" (this one)" if session == batch.state.bound else "")
        for number, (session, title) in enumerate(found, 1)
    ]
    accept_command(batch, m)
    batch.lane("route/listed", {"sessions": [session for session, _ in found]})
    answer_command(batch, m, LIST_TEXT.format(m.prefix, "\n".join(lines)))


def _found(batch: Batch, m: Inbound, wanted: str, known: list[Titled]) -> Shown | None:
    session = _numbered(batch.state, wanted)
    if session is None:
        named = [session for session, title in known if title.casefold() == wanted.casefold()]
        session = named[0] if named else wanted
    shown = batch.shown(session) if _ID.fullmatch(session) else None
    if shown is None or shown.lane is None:
        return None
    there = shown.lane.removeprefix("lane:")
    return shown if in_scope(batch.state.key, asker_of(m.event.source), there) else None


def _numbered(state: LaneState, wanted: str) -> str | None:
    number = int(wanted) if wanted.isascii() and wanted.isdigit() and len(wanted) <= 3 else 0
    return state.listed[number - 1] if 0 < number <= len(state.listed) else None


def _take_up(batch: Batch, m: Inbound, shown: Shown, title: str) -> None:
    if shown.lane != lane_log(batch.state.key):
        # Another lane's binding is the supervisor's to move, in a commit that takes the command in and answers it.
        raise Moving(MoveHere(shown.session, batch.state.bound, m, RESUMED_TEXT.format(title)))
    accept_command(batch, m)
    if shown.session != batch.state.bound:
        leave_session(batch)
    batch.bind_known(shown, "resume")
    answer_command(batch, m, RESUMED_TEXT.format(title))
    batch.after.append(ForgetAgent())
