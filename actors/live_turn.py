"""The live side of a running turn: the object that its agent gets (public as ``seriatim.Turn``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seriatim.actors.delegating import Delegations, Planned
from seriatim.actors.mailbox import StopFlag
from seriatim.actors.outlet import Outlet, Tell
from seriatim.actors.steps import Step, StepGate, arguments, running_call
from seriatim.actors.wishes import Wishes, given
from seriatim.errors import InvalidInputError
from seriatim.events import mend_text
from seriatim.limits import DELEGATIONS_MAX, QUESTION_CHARS_MAX, REPLY_BYTES_MAX
from seriatim.media import Media
from seriatim.model import SessionSource
from seriatim.prompts import Prompts, Speakers, id_of
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
    """One turn, as its agent sees it.

    ``text``: what the turn answers, its messages joined by newlines; in a shared session each with a
    ``[name] `` prefix. ``events``: the same messages one by one, as authored, each with its own source.
    ``media``: all that they carry.
    ``source`` and ``speaker``: origin and label of the first. ``session``: session id. ``history``: what was
    said before, oldest first. ``boundary``: "fresh" or "suspended" on the first turn after a conversation
    boundary. ``had_activity``: the conversation before that boundary held turns. ``number``: of the turn
    in its session, from 1. ``attempt``: more than 1 after interruptions; ``resumed_from`` is then the
    number of the turn that broke off. ``idempotency_key``: the same at each attempt. ``deadline``: epoch
    ms at which the turn ends if it gives no sign of life from its start (``agent.gateway_timeout``), None for never;
    text, steps, tool results and ``alive()`` are such signs, and put it off. ``shared``: several people write here.
    ``cancelled``: set once the answer is no longer wanted.

    Attributes may be read on any thread; so may the methods be called.
    """

    def __init__(
        self,
        job: TurnJob,
        outlet: Outlet,
        gate: StepGate,
        wishes: Wishes | None = None,
        background: tuple[Delegations, Tell] | None = None,
        prompts: Prompts | None = None,
    ) -> None:
        self._job = job
        self._outlet = outlet
        self._gate = gate
        self._background = background
        self._wishes = Wishes(job, outlet) if wishes is None else wishes
        self.cancelled = StopFlag()
        self._prompts = prompts or Prompts()
        self._speakers: Speakers | None = None
        self.events: tuple[Claim, ...] = job.claims
        first = job.claims[0]
        self.media: tuple[Media, ...] = first.media
        if len(job.claims) > 1:
            self.media = tuple(media for claim in job.claims for media in claim.media)
        self.text: str = self._text()
        self.source: SessionSource = first.source
        self.session: str = job.session
        self.history: Sequence[Message] = job.history
        self.boundary: Boundary = job.boundary
        self.had_activity: bool = job.had_activity
        self.number: int = job.number
        self.attempt: int = job.attempt
        self.resumed_from: int | None = job.resumed_from
        self.idempotency_key: str = job.idempotency_key
        self.deadline: int | None = job.deadline
        self.shared: bool = job.shared

    def __repr__(self) -> str:
        return f"<Turn {self.number} of {self.session}, attempt {self.attempt}>"

    @property
    def speaker(self) -> str:
        """The first speaker's label: one short inert line."""
        return speaker_label(self.source)

    @property
    def speaker_handle(self) -> str:
        """The first speaker's handle: the same at each of their messages in this lane, and no id of theirs."""
        return self._prompts.handle(self._job.lane, id_of(self.source))

    @property
    def model_text(self) -> str:
        """``text`` as a model should read it: with the note of the message's id where the platform's tools need it."""
        return self.text + self._prompts.note(self.source, self.events[0].message_id)

    def context_prompt(self) -> str:
        """The block for the system prompt: where this is, who speaks, what can be reached (gateway seed §9).

        Its bytes stay the same for as long as these facts do.
        """
        return self._prompts.context(self.source)

    def told(self, message: Message) -> str:
        """A message of the history as a model should read it: in a shared session with its sender's prefix."""
        if not self.shared or message.role != "user":
            return message.text
        return self._who().told(message)

    def _text(self) -> str:
        job = self._job
        return "\n".join(map(self._who().said, job.claims)) if job.shared else text_of(job)

    def _who(self) -> Speakers:
        if self._speakers is None:
            job = self._job
            self._speakers = Speakers.of(self._prompts, job.lane, job.claims, job.history)
        return self._speakers

    def emit(self, delta: str) -> None:
        """Show a piece of the reply while it is being made. Shown at best; only the returned reply counts.

        Raises InvalidInputError when ``delta`` is not text.
        """
        if not isinstance(delta, str):
            raise InvalidInputError("delta", f"text is needed, not {type(delta).__name__}")
        if delta:
            self._outlet.say(TurnDelta(self.number, self._job.generation, mend_text(delta)[0]))

    def alive(self) -> None:
        """Say that the work goes on, where it shows neither text nor steps for long. One message to the lane each."""
        self._outlet.say(TurnDelta(self.number, self._job.generation, ""))

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
        return given(self._wishes.ask(f"approve {text}", Approve(text), joins=True), bool)

    def steering(self) -> Any:
        """What was said since the turn began, oldest first, as ``events``; from then on it is this turn's to answer.

        Empty unless the setting ``queue.busy`` is "steer" and something waits that may join. Awaitable or blocking, as
        ``approve``; for agents with several steps, between them. Raises TurnCancelledError.
        """
        return given(self._wishes.ask("steer", Steer()), self._steered)

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
        if self._background is None:
            raise InvalidInputError("delegate", "this runner has no background work")
        delegations, tell = self._background
        lane, generation, planned = self._job.lane, self._job.generation, Planned(fn, named, tell)

        def plan(token: str) -> None:
            delegations.plan(lane, generation, token, planned)

        return given(self._wishes.ask(f"delegate {title}", Delegate(title), plan), _begun)

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
        return Step(self._gate, text, serial=serial)


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
