"""What is outside of a simulated process: the people, and the platform between them and the process."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from seriatim.actors.delivery import SendDone
from seriatim.actors.receipts import Receipt
from seriatim.errors import SendError
from seriatim.model import MessageEvent, Outbound, Platform, SessionSource, Target
from seriatim.outbox import Channel
from seriatim.testing.fake_platform import FakePlatform, FaultKind, Posted
from seriatim.testing.process import Sending

if TYPE_CHECKING:
    from seriatim.testing.simulator import Simulator

_SEND_FAULTS: Final[tuple[FaultKind, ...]] = ("plain", "plain", "arrived", "arrived", "lost", "permanent")


COMMANDS: Final = (
    *("/status", "/help", "/what", "/queue", "/title t", "/resume", "/resume 1", "/compress"),
    *("/undo", "/undo", "/redo", "/retry", "/retry"),
)
"""What people type besides /queue with a text, /stop, /new and /reset."""


class Outside:
    """Outlives every process. ``sources``: who writes where; ``given``, ``refused``: as the judge wants them."""

    def __init__(self, world: Simulator, words: Sequence[str]) -> None:
        plan = world.plan
        self.platform = FakePlatform(capabilities=plan.able)
        self.sources = _people(plan.lanes)
        self.given: list[dict[str, str]] = []
        self.refused: set[str] = set()
        self.acts = plan.acts
        self.lull = False
        self._world = world
        self._words = words
        self._said = 0
        self._giving: deque[Posted] = deque()
        self._barred: set[str] = set()

    def choices(self) -> list[tuple[float, Callable[[], Any]]]:
        """What may happen out here, with weights."""
        world = self._world
        choices: list[tuple[float, Callable[[], Any]]] = [
            (1.0, partial(self._carry, sending)) for sending in world.process.sending
        ]
        if self.acts and not self.lull:
            choices.append((world.plan.people, self.act))
        if not self.platform.connected:
            choices.append((0.1, self.platform.come_back))
        elif self._giving:
            choices.append((2.0, self._give))
        return choices

    # --- people ----------------------------------------------------------------------------------------

    def act(self) -> None:
        """Somebody does something; perhaps then they all wait."""
        pick = self._world.dice.pick
        self.acts -= 1
        self.lull = self._world.dice.hits("lull", self._world.plan.lulls)
        source = pick("who", self.sources)
        what = self._world.dice.roll("what")
        if what < 0.55:
            for _ in range(pick("burst", (1, 1, 1, 2, 5))):
                self.say(source, pick("word", self._words))
        elif what < 0.7:
            self.say(source, "/queue " + pick("word", self._words))
        elif what < 0.8:
            self.say(source, "/stop")
        elif what < 0.87:
            self.say(source, pick("word", ("/new", "/reset")))
        elif what < 0.92:
            self.say(source, pick("word", COMMANDS))
        elif what < 0.96:
            self.say(source, f"{pick('word', ('/approve', '/deny'))} {self._last_asked()}")
        else:
            self.say(source, "plain wake", wake=True)

    def _last_asked(self) -> str:
        """The id of the question that arrived last, if one did."""
        for got in reversed(self.platform.received):
            found = re.search(r"/approve (\S+)", got.out.text)
            if found is not None:
                return found[1]
        return "1-1"

    def say(self, source: SessionSource, text: str, *, wake: bool = False) -> None:
        """Somebody writes ``text``; a number behind it tells it from others."""
        self._said += 1
        if not text.startswith("/") or " " in text:
            text = f"{text} {self._said}"
        self._world.note(source.chat_id, f"{source.user_id} says {text!r}")
        if source.platform.name == "host":  # nobody gives it again, and the reply is taken from the receipt
            self._hand_in(MessageEvent(text, source, internal=wake), self._told)
            return
        event = MessageEvent(text, source, account="fake", message_id=f"in{self._said}", internal=wake)
        self._giving.append(self.platform.post(event))

    # --- to the process --------------------------------------------------------------------------------

    def repeat(self) -> None:
        """Give a message again, acked or not."""
        if self.platform.posted:
            self._giving.append(self._world.dice.pick("which", self.platform.posted))

    def give_again(self) -> bool:
        """Give everything again that isn't acked; whether there is any."""
        waiting = [posted for posted in self.platform.pending() if posted not in self._giving]
        self._giving.extend(waiting)
        return bool(waiting)

    def _give(self) -> None:
        posted = self._giving.popleft()
        posted.given += 1
        self._hand_in(posted.event, partial(self._settled, posted))

    def _hand_in(self, event: MessageEvent, settled: Callable[[Receipt], None]) -> None:
        receipt = self._world.process.accept(event, settled)
        self.given[-1][receipt.message_id] = receipt.session_key

    def _settled(self, posted: Posted, receipt: Receipt) -> None:
        """The adapter's side of accept: what was taken is acked, what was refused is given again."""
        self._told(receipt)
        if receipt.outcome == "pending":
            return  # the gateway stops, and nobody knows: given again, it will be told
        if receipt.outcome != "refused":
            self._world.witness.acks(posted.event.message_id or "")
            self.platform.ack(posted)
        elif self._world.faults and self._world.dice.hits("again", 0.5):
            self._giving.append(posted)

    def _told(self, receipt: Receipt) -> None:
        self._world.note(receipt.session_key, f"{receipt.message_id} is {receipt.outcome} {receipt.reason or ''}")
        if receipt.outcome == "refused":
            self.refused.add(receipt.message_id)

    # --- from the process ------------------------------------------------------------------------------

    def at_once(self, out: Outbound) -> SendDone | None:
        """What came of a send that ends without waiting; None when it is on its way."""
        if not self._world.dice.hits("instant", self._world.plan.instant):
            return None
        sending = Sending(out, lambda _: None)
        self.arrive(sending)
        return sending.came

    def _carry(self, sending: Sending) -> None:
        """A send arrives; or, later, the news of it."""
        if sending.came is None:
            self.arrive(sending)
        else:
            self._world.process.sending.remove(sending)
            sending.done(sending.came)

    def arrive(self, sending: Sending) -> None:
        """A send reaches the platform, or fails."""
        world, out = self._world, sending.out
        fault: FaultKind | None = None
        if world.faults and world.dice.hits("bad send", world.plan.bad_send):
            fault = world.dice.pick("which send", _SEND_FAULTS)
        if not self.platform.connected:
            fault = None  # it fails anyway, surely
        elif fault == "permanent" or out.idempotency_key in self._barred:
            fault = "permanent"  # what is refused for good stays so
            self._barred.add(out.idempotency_key)
        if fault is not None:
            self.platform.fail_next(fault)
        message_id: str | None = None
        error: SendError | None = None
        try:
            message_id = self.platform.receive(out).message_id
        except SendError as refused:
            error = refused
        world.note(out.target.chat_id, f"send {out.delivery}.{out.part} came to {error or message_id}")
        sending.came = SendDone(out.delivery, out.part, message_id, error)

    def channel(self, target: Target) -> Channel:
        """The way to ``target`` as of now."""
        able = self.platform.capabilities
        return Channel(self.platform.connected, able.idempotent_send, able.text_max, able.text_unit, able.multiline)


def _people(lanes: int) -> list[SessionSource]:
    """Who writes where: a private chat; two in a group, of whom a role lets one in; the host itself."""
    private = SessionSource(platform=Platform("fake"), chat_id="1", user_id="ann")
    group = [
        SessionSource(platform=Platform("fake"), chat_id="2", chat_type="group", user_id="bob"),
        SessionSource(platform=Platform("fake"), chat_id="2", chat_type="group", user_id="cy", role_authorized=True),
    ]
    host = SessionSource(platform=Platform("host"), chat_id="3", user_id="dee")
    return [private, *(group if lanes > 1 else ()), *([host] if lanes > 2 else ())]
