"""The live side of a running turn: the object that its agent gets (public as ``seriatim.Turn``)."""

from __future__ import annotations

from collections.abc import Sequence

from seriatim.actors.mailbox import StopFlag
from seriatim.actors.outlet import Outlet
from seriatim.actors.steps import Step, StepGate
from seriatim.errors import InvalidInputError
from seriatim.events import mend_text
from seriatim.limits import REPLY_BYTES_MAX
from seriatim.media import Media
from seriatim.model import SessionSource
from seriatim.turn import (
    Boundary,
    Claim,
    Message,
    TurnDelta,
    TurnJob,
    inert_label,
    speaker_label,
    with_speaker,
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

    def __init__(self, job: TurnJob, outlet: Outlet, gate: StepGate) -> None:
        self._job = job
        self._outlet = outlet
        self._gate = gate
        self.cancelled = StopFlag()
        self.events: tuple[Claim, ...] = job.claims
        self.media: tuple[Media, ...] = tuple(media for claim in job.claims for media in claim.media)
        self.text: str = text_of(job)
        self.source: SessionSource = job.claims[0].source
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


def text_of(job: TurnJob) -> str:
    """The claims' texts joined by newlines, with sender prefixes where the session is shared; nobody said a wake's."""
    if not job.shared:
        if len(job.claims) == 1:
            return _words(job.claims[0])
        return "\n".join(map(_words, job.claims))
    return "\n".join(
        claim.text if claim.kind == "wake" else with_speaker(speaker_label(claim.source), _words(claim))
        for claim in job.claims
    )


def _words(claim: Claim) -> str:
    """Its text; of one that only carries something, what that is."""
    if not claim.media or claim.text.strip():
        return claim.text
    named = (f"{media.kind}: {inert_label(media.name)}" if media.name else media.kind for media in claim.media)
    return " ".join(f"[{label}]" for label in named)
