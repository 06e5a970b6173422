"""What people see while a turn runs: the reply as it grows, where messages can be edited, and the typing hint.

Part of the delivery of one account, on its thread; it decides nothing durable. A draft is explained by the commit that
started its turn. The message that shows it is told to the lane, so that the final text is edited into it, also after a
crash. Both are shown at best: a platform that refuses one is left alone with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define
from msgspec import Struct

from seriatim.actors.clockwork import signal_later
from seriatim.actors.refs import Ref
from seriatim.clock import Clock
from seriatim.limits import DRAFT_CHARS_MAX
from seriatim.mail import DraftShown, Mail
from seriatim.model import Outbound, Target
from seriatim.outbox import Channel, fitted
from seriatim.silence import may_become_silence

if TYPE_CHECKING:
    from seriatim.actors.delivery import SendDone

DRAFT_FIRST_MS = 300
"""Pieces that come so soon after the first one are shown with it."""
DRAFT_EVERY_MS = 1_000
"""How often a draft is edited at most: platforms bound edits to about one a second in a chat."""
UNSAID_TEXT = "(no answer)"
"""What a draft is edited into whose turn ends in silence: nobody is to wait for the rest of it."""
UNSAID_TRIES_MAX = 5
"""How often that is tried."""
TYPING_MS = 4_000
"""How often the hint is repeated: the shortest-lived one known to us goes out after five seconds."""


class Working(Struct, frozen=True):
    """A turn runs for somebody at ``target``. ``draft``: the message that shows its reply from an earlier attempt."""

    lane: str
    generation: int
    claim: str
    target: Target
    draft: str


class Delta(Struct, frozen=True):
    """The turn has said a little more."""

    lane: str
    generation: int
    text: str


class Idle(Struct, frozen=True):
    """The lane's turn is over. ``silent``: it has ended well, and nothing is owed for it."""

    lane: str
    generation: int
    silent: bool = False


class _Show(Struct, frozen=True):
    """The time to show a draft, or (without a lane) to type, has come."""

    lane: str
    generation: int


class _Shown(Struct, frozen=True):
    lane: str
    generation: int
    done: SendDone


class Shower(Protocol):
    """The port to one account's adapter, as far as it is needed here; see ``actors.delivery.Sender``."""

    def send(self, out: Outbound, done: Callable[[SendDone], None]) -> SendDone | None:
        """Begin to send or edit."""
        ...

    def channel(self, target: Target) -> Channel:
        """The way to ``target`` as of now."""
        ...

    def typing(self, target: Target) -> None:
        """Show the hint; returns at once and never raises."""
        ...


@define
class _Draft:
    """A running turn's reply so far; ``delivery``: the reply that it has become, once the turn has ended; ``tries``:
    those that are left to take it back, where it has become none.
    """

    working: Working
    message_id: str
    text: str = ""
    shown: str = ""
    sending: bool = False
    timed: bool = False
    over: bool = False
    delivery: str = ""
    tries: int = 0


class Drafts:
    """Drafts and hints of one account. ``edits``, ``types``: what its platform can do.

    ``busy``: whether a chat has replies on their way; a draft would overtake them. ``settled`` is told of a reply whose
    draft was on its way when the turn ended, with the platform's id of it or "".
    """

    def __init__(
        self, sender: Shower, post: Callable[[str, Mail], None], clock: Clock, *, edits: bool, types: bool
    ) -> None:
        self._sender = sender
        self._post = post
        self._clock = clock
        self._edits = edits
        self._types = types
        self._running: dict[str, _Draft] = {}
        self._waited_for: dict[str, _Draft] = {}
        self._unsaid: dict[tuple[str, int], _Draft] = {}
        self._ticking = False
        self.ref: Ref[Any] | None = None
        self.busy: Callable[[Target], bool] = lambda target: False
        self.settled: Callable[[str, str], None] = lambda delivery, message_id: None

    def on_receive(self, message: Any) -> None:
        """Take a turn's news, or hear what came of showing them."""
        kind = type(message)
        if kind is Delta:
            self._said(message)
        elif kind is Working:
            self._working(message)
        elif kind is Idle:
            draft = self._running.get(message.lane)
            if draft is not None and draft.working.generation == message.generation:
                del self._running[message.lane]
                if message.silent and (draft.message_id or draft.sending):
                    self._unsay(draft)
        elif kind is _Show:
            self._show_due(message)
        elif kind is _Shown:
            self._shown(message)

    def ended(self, lane: str, claim: str, delivery: str) -> str:
        """The turn is over and owes ``delivery``: the message to edit it into, "" where there is none by now."""
        draft = self._running.get(lane)
        if draft is None or draft.working.claim != claim:
            return ""
        draft.over = True
        if draft.sending:
            draft.delivery = delivery
            self._waited_for[delivery] = draft
        return draft.message_id

    def under_way(self, delivery: str) -> bool:
        """Whether the reply's draft is being sent or edited just now, so that its end has to be waited for."""
        return delivery in self._waited_for

    # --- the hint --------------------------------------------------------------------------------------

    def _working(self, message: Working) -> None:
        known = self._running.get(message.lane)
        draft = self._running[message.lane] = _Draft(message, message.draft)
        if not message.draft and known is not None and known.message_id and known.working.claim == message.claim:
            # Its lane died before it had recorded the id: the same messages' next turn goes on in the same place.
            draft.message_id = known.message_id
            self._post(message.lane, DraftShown(message.generation, message.claim, known.message_id))
        if self._types:
            self._sender.typing(message.target)
            self._tick()

    def _tick(self) -> None:
        if not self._ticking:
            self._ticking = True
            self._later(TYPING_MS, _Show("", 0))

    def _type(self) -> None:
        self._ticking = False
        targets = dict.fromkeys(draft.working.target for draft in self._running.values() if not draft.over)
        for target in targets:
            self._sender.typing(target)
        if targets:
            self._tick()

    # --- the draft -------------------------------------------------------------------------------------

    def _said(self, message: Delta) -> None:
        draft = self._running.get(message.lane)
        if draft is None or draft.working.generation != message.generation or draft.over or not self._edits:
            return
        if len(draft.text) < DRAFT_CHARS_MAX:
            draft.text += message.text
            self._time(draft, DRAFT_EVERY_MS if draft.shown else DRAFT_FIRST_MS)

    def _time(self, draft: _Draft, wait_ms: float) -> None:
        if not draft.timed and not draft.sending:
            draft.timed = True
            self._later(wait_ms, _Show(draft.working.lane, draft.working.generation))

    def _show_due(self, message: _Show) -> None:
        if not message.lane:
            self._type()
            return
        draft = self._unsaid.get((message.lane, message.generation)) or self._running.get(message.lane)
        if draft is None or draft.working.generation != message.generation:
            return
        draft.timed = False
        if not draft.over and not draft.sending:
            self._show(draft)
        self._forget_unsaid(draft)

    def _unsay(self, draft: _Draft) -> None:
        """What is shown won't be said: the message is to say so, when nothing of it is on its way any more."""
        draft.text, draft.over, draft.tries = UNSAID_TEXT, False, UNSAID_TRIES_MAX
        self._unsaid[draft.working.lane, draft.working.generation] = draft
        if not draft.sending:
            self._show(draft)
            self._forget_unsaid(draft)

    def _forget_unsaid(self, draft: _Draft) -> None:
        if not draft.sending and not draft.timed:
            self._unsaid.pop((draft.working.lane, draft.working.generation), None)

    def _show(self, draft: _Draft) -> None:
        target = draft.working.target
        channel = self._sender.channel(target)
        if not channel.up or may_become_silence(draft.text):
            return
        if not draft.message_id and self.busy(target):
            return  # what is owed from before comes first; the next piece tries again
        text = fitted(draft.text, channel)
        if not text or text == draft.shown:
            return
        draft.sending, draft.shown = True, text
        lane, generation, claim = draft.working.lane, draft.working.generation, draft.working.claim
        name = f"draft {claim}"
        out = Outbound(name, 0, 1, text, target, f"{name}.{generation}", 1, False, draft.message_id)
        done = self._sender.send(out, lambda done: self._tell(_Shown(lane, generation, done)))
        if done is not None:
            self._shown(_Shown(lane, generation, done), draft)

    def _shown(self, message: _Shown, sent: _Draft | None = None) -> None:
        draft = sent or self._sent(message)
        if draft is None:
            return
        draft.sending = False
        error, wait_ms = message.done.error, float(DRAFT_EVERY_MS)
        if error is None:
            new = message.done.message_id or ""
            if new and new != draft.message_id:
                draft.message_id = new
                working = draft.working
                self._post(working.lane, DraftShown(working.generation, working.claim, new, draft.delivery))
            draft.over = draft.over or not draft.message_id  # without an id there is nothing to edit
        elif error.permanent or error.ambiguous:
            draft.over = True
        elif error.retry_after_s is not None:
            wait_ms = max(wait_ms, error.retry_after_s * 1000)
        if error is not None:
            draft.shown = ""
            draft.tries -= 1
            draft.over = draft.over or not draft.tries
        if draft.delivery:
            self._waited_for.pop(draft.delivery, None)
            self.settled(draft.delivery, draft.message_id)
        elif not draft.over and draft.text:
            self._time(draft, wait_ms)
        self._forget_unsaid(draft)

    def _sent(self, message: _Shown) -> _Draft | None:
        for draft in (self._running.get(message.lane), *self._waited_for.values(), *self._unsaid.values()):
            if draft is None or not draft.sending:
                continue
            if (draft.working.lane, draft.working.generation) == (message.lane, message.generation):
                return draft
        return None

    def _later(self, wait_ms: float, message: _Show) -> None:
        assert self.ref is not None
        signal_later(self._clock, wait_ms, self.ref, message)

    def _tell(self, message: _Shown) -> None:
        assert self.ref is not None
        self.ref.signal(message)
