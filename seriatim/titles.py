"""Titles: the names that people give conversations, so that they find them again.

A title is untrusted: one short inert line. It is told in the lane's log, because it belongs to where people look for
it; a lane keeps its newest ones.
"""

from __future__ import annotations

from typing import Final

from seriatim.answering import say
from seriatim.batch import Batch
from seriatim.lane import LaneState
from seriatim.limits import TITLE_CHARS_MAX
from seriatim.mail import Inbound
from seriatim.turn import inert_label

TITLED_TEXT: Final = "This conversation is now called {}."
IS_TITLED_TEXT: Final = "This conversation is called {}."
UNTITLED_TEXT: Final = "This conversation has no title. Give it one: {0}title TITLE"
NO_CONVERSATION_TEXT: Final = "There is no conversation yet."


def entitle(batch: Batch, text: str) -> str:
    """Draft the bound session's title; what it is now, "" where ``text`` says nothing."""
    if not text.split() or batch.state.bound is None:
        return ""
    title = inert_label(text, TITLE_CHARS_MAX)
    batch.lane("route/titled", {"session": batch.state.bound, "title": title})
    return title


def title_of(state: LaneState, session: str | None) -> str:
    """The session's title, "" without one."""
    return next((title for named, title in reversed(state.titles) if named == session), "")


def title_command(batch: Batch, m: Inbound) -> None:
    """/title: name the conversation, or tell its name."""
    state = batch.state
    if state.bound is None:
        say(batch, m, NO_CONVERSATION_TEXT)
    elif m.args.split():
        title = inert_label(m.args, TITLE_CHARS_MAX)
        say(batch, m, TITLED_TEXT.format(title))
        entitle(batch, title)
    elif title := title_of(state, state.bound):
        say(batch, m, IS_TITLED_TEXT.format(title))
    else:
        say(batch, m, UNTITLED_TEXT.format(m.prefix))
