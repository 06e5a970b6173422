"""The live side of a running turn: the object that its agent gets (public as ``seriatim.Turn``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from seriatim.actors.backstage import Backstage
from seriatim.actors.delegating import Planned
from seriatim.actors.mailbox import StopFlag
from seriatim.actors.steps import Step, arguments, running_call
from seriatim.actors.wishes import given
from seriatim.errors import InvalidInputError
from seriatim.events import mend_text
from seriatim.limits import DELEGATIONS_MAX, QUESTION_CHARS_MAX, REPLY_BYTES_MAX
from seriatim.media import Media
from seriatim.model import SessionSource
from seriatim.prompts import Speakers, id_of
from seriatim.turn import (
    Approve,
    Boundary,
    Claim,
    Delegate,
    Message,
    Steer,
    TurnDelta,
    TurnJob,
    speaker_label,
    words_of,
)


class Turn:
    """One turn, as its agent sees it: facts, made up when they are first read, and what it may do.

    Attributes may be read on any thread; so may the methods be called.
    """

    def __init__(self, behind: Backstage) -> None:
        self._behind = behind

    @cached_property
    def text(self) -> str:
        """What the turn answers: its messages, joined by newlines; in a shared one each with a ``[name] `` prefix."""
        job = self._behind.job
        return "\n".join(map(self._speakers.said, job.claims)) if job.shared else text_of(job)

    @cached_property
    def events(self) -> tuple[Claim, ...]:
        """The same messages one by one, as authored, each with its own source."""
        return self._behind.job.claims

    @cached_property
    def media(self) -> tuple[Media, ...]:
        """All that they carry."""
        return tuple(media for claim in self._behind.job.claims for media in claim.media)

    @cached_property
    def source(self) -> SessionSource:
        """Where the first of them came from."""
        return self._behind.job.claims[0].source

    @cached_property
    def session(self) -> str:
        """The session's id."""
        return self._behind.job.session

    @cached_property
    def history(self) -> Sequence[Message]:
        """What was said before, oldest first."""
        return self._behind.job.history

    @cached_property
    def boundary(self) -> Boundary:
        """Is "fresh" or "suspended" on the first turn after a conversation boundary."""
        return self._behind.job.boundary

    @cached_property
    def had_activity(self) -> bool:
        """Whether the conversation before that boundary held turns."""
        return self._behind.job.had_activity

    @cached_property
    def number(self) -> int:
        """Of the turn in its session, from 1."""
        return self._behind.job.number

    @cached_property
    def attempt(self) -> int:
        """More than 1 after interruptions."""
        return self._behind.job.attempt

    @cached_property
    def resumed_from(self) -> int | None:
        """The number of the turn that broke off, where this is a further attempt."""
        return self._behind.job.resumed_from

    @cached_property
    def idempotency_key(self) -> str:
        """The same at each attempt."""
        return self._behind.job.idempotency_key

    @cached_property
    def deadline(self) -> int | None:
        """Epoch ms at which the turn ends if it gives no sign of life from its start (``agent.gateway_timeout``), None
        for never; text, steps, tool results and ``alive()`` are such signs, and put it off.
        """
        return self._behind.job.deadline

    @cached_property
    def shared(self) -> bool:
        """Whether several people write here."""
        return self._behind.job.shared

    @cached_property
    def cancelled(self) -> StopFlag:
        """Set once the answer is no longer wanted."""
        return self._behind.cancelled()

    def __repr__(self) -> str:
        return f"<Turn {self.number} of {self.session}, attempt {self.attempt}>"

    @property
    def speaker(self) -> str:
        """The first speaker's label: one short inert line."""
        return speaker_label(self.source)

    @property
    def speaker_handle(self) -> str:
        """The first speaker's handle: the same at each of their messages in this lane, and no id of theirs."""
        return self._behind.prompts.handle(self._behind.job.lane, id_of(self.source))

    @property
    def model_text(self) -> str:
        """``text`` as a model should read it: with the note of the message's id where the platform's tools need it."""
        return self.text + self._behind.prompts.note(self.source, self.events[0].message_id)

    def context_prompt(self) -> str:
        """The block for the system prompt: where this is, who speaks, what can be reached (gateway seed §9).

        Its bytes stay the same for as long as these facts do.
        """
        return self._behind.prompts.context(self.source)

    def told(self, message: Message) -> str:
        """A message of the history as a model should read it: in a shared session with its sender's prefix."""
        if not self.shared or message.role != "user":
            return message.text
        return self._speakers.told(message)

    @cached_property
    def _speakers(self) -> Speakers:
        job = self._behind.job
        return Speakers.of(self._behind.prompts, job.lane, job.claims, job.history)

    def emit(self, delta: str) -> None:
        """Show a piece of the reply while it is being made. Shown at best; only the returned reply counts.

        Raises InvalidInputError when ``delta`` is not text.
        """
        if not isinstance(delta, str):
            raise InvalidInputError("delta", f"text is needed, not {type(delta).__name__}")
        if delta:
            self._show(mend_text(delta)[0])

    def alive(self) -> None:
        """Say that the work goes on, where it shows neither text nor steps for long. One message to the lane each."""
        self._show("")

    def _show(self, delta: str) -> None:
        job = self._behind.job
        self._behind.outlet.say(TurnDelta(job.number, job.generation, delta))

    @property
    def call_id(self) -> str | None:
        """Within a tool: the id of the call that runs it, under which its effect may be made idempotent; else None.

        As it stands in the log (``tool/call``). A turn that runs again makes calls of other ids.
        """
        return running_call()

    def approve(self, question: str) -> Any:
        """Ask the people whose messages this turn answers; True once one of them, or the host, allowed it.

        False: refused, or not answered in time (``turns.approval_timeout_s``). On a thread with a running loop it
        returns an awaitable, elsewhere it blocks; in tools as well. The question is sent with its id, durable and asked
        once: a turn that runs again after a restart and asks the same gets the answer that was given. Waiting isn't
        silence. Asked in parallel, by two tools say, the same question is one, and its answer is both's. Raises
        InvalidInputError, TurnCancelledError.
        """
        text = _short_text("question", question)
        return given(self._behind.asks().ask(f"approve {text}", Approve(text), joins=True), bool)

    def steering(self) -> Any:
        """What was said since the turn began, oldest first, as ``events``; from then on it is this turn's to answer.

        Empty unless the setting ``queue.busy`` is "steer" and something waits that may join. Awaitable or blocking, as
        ``approve``; for agents with several steps, between them. Raises TurnCancelledError.
        """
        return given(self._behind.asks().ask("steer", Steer()), self._steered)

    def delegate(self, name: str, fn: Callable[..., Any], args: Mapping[str, Any] | None = None) -> Any:
        """Begin ``fn(**args)`` in the background, for this conversation; gives its id once its start is durable.

        It outlives the turn. Its end comes as a wake with its status (completed, failed, interrupted) and its output:
        what it returned, or what a generator had yielded when it broke off. /stop, /new and /reset end it, a restart as
        well; it isn't begun again. Awaitable or blocking, as ``approve``. Raises InvalidInputError, also where the lane
        has as much background work as it may, and TurnCancelledError.
        """
        title = _short_text("name", name)
        if not callable(fn):
            raise InvalidInputError("fn", "a function is needed")
        named = {} if args is None else arguments(args)
        behind, delegations = self._behind, self._behind.delegations
        if delegations is None:
            raise InvalidInputError("delegate", "this runner has no background work")
        lane, generation, planned = behind.job.lane, behind.job.generation, Planned(fn, named, behind.tell)

        def plan(token: str) -> None:
            delegations.plan(lane, generation, token, planned)

        return given(behind.asks().ask(f"delegate {title}", Delegate(title), plan), _begun)

    def _steered(self, claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
        self.events = (*self.events, *claims)
        return claims

    def step(self, message: str = "", *, serial: bool = False) -> Step:
        """Begin a step: one message of the model and the tool calls that it asks for.

        ``message``: the model's text beside the calls. ``serial``: run the calls one after another in the
        order in which they are declared, each starting with the commit of the result before it. Nothing
        is recorded until the first call. Raises InvalidInputError.
        """
        if not isinstance(message, str):
            raise InvalidInputError("message", f"text is needed, not {type(message).__name__}")
        text = mend_text(message)[0]
        if len(text.encode()) > REPLY_BYTES_MAX:
            raise InvalidInputError("message", f"larger than {REPLY_BYTES_MAX} bytes")
        return Step(self._behind.steps(), text, serial=serial)


def _short_text(name: str, text: Any) -> str:
    if not isinstance(text, str) or not text.strip():
        raise InvalidInputError(name, "some text is needed")
    if len(text) > QUESTION_CHARS_MAX:
        raise InvalidInputError(name, f"longer than {QUESTION_CHARS_MAX} characters")
    return mend_text(text)[0]


def _begun(name: str | None) -> str:
    if name is None:
        raise InvalidInputError("delegate", f"more than {DELEGATIONS_MAX} at a time")
    return name


def text_of(job: TurnJob) -> str:
    """The claims' words joined by newlines, as authored."""
    if len(job.claims) == 1:
        return words_of(job.claims[0].text, job.claims[0].media)
    return "\n".join(words_of(claim.text, claim.media) for claim in job.claims)
