"""SessionActor: one lane, one actor; a thin shell over the lane's gate.

The only writer of its lane log and of the sessions bound to it. Runs on the loop dispatcher and never
blocks. What it lets out, it lets out with the permit of a durable commit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal

from attrs import Factory, frozen
from msgspec.structs import replace

from seriatim.actors.asks import Asks
from seriatim.actors.clockwork import signal_later
from seriatim.actors.delivery import Deliveries
from seriatim.actors.loading import LaneReader, ReadSession, ReadTranscript, TranscriptRead
from seriatim.actors.persistence import CommitPort
from seriatim.actors.pooled import PooledActor
from seriatim.actors.receipts import Receipts
from seriatim.actors.refs import Ref
from seriatim.actors.running import RunningTurns
from seriatim.actors.showing import Delta, Idle, Working
from seriatim.actors.slots import TurnSlots
from seriatim.actors.transcript import History, Transcript
from seriatim.actors.turns import TurnRunner
from seriatim.actors.upkeep import Bookmarks, CompactLane, Growth
from seriatim.albums import grouped
from seriatim.batch import Now
from seriatim.budgets import Budgets, person_of
from seriatim.clock import Clock, Timer
from seriatim.commits import Commit, Durable, Refused, Unknown
from seriatim.effects import (
    Ack,
    AckDuplicate,
    Answered,
    ApprovalDue,
    CancelTurn,
    CompressionWanted,
    CompressSession,
    Deliver,
    DropDelivery,
    EndDelegations,
    Finished,
    ForgetAgent,
    MoveHere,
    Nack,
    Owes,
    Permit,
    Proceed,
    ReadShown,
    ReleaseCalls,
    RestartGateway,
    ReturnSlot,
    Routed,
    RunTurn,
    SendPart,
    WantSlot,
    WishAnswered,
)
from seriatim.events import Data
from seriatim.gate import Gate, Out
from seriatim.inbox import target_of
from seriatim.lane import LaneState
from seriatim.ledger import draft_of
from seriatim.limits import KEYS_REMEMBERED_MAX
from seriatim.mail import (
    ApprovalExpired,
    Ask,
    AttemptWanted,
    Bounced,
    CompressionDue,
    DraftGone,
    DraftShown,
    Inbound,
    MoveRefused,
    PartAbandoned,
    PartFailed,
    PartSettled,
    Recover,
    SlotGranted,
    SummaryMade,
    TurnBroken,
)
from seriatim.media import Media
from seriatim.model import SessionSource, Target
from seriatim.outbox import Channel
from seriatim.pressure import stays
from seriatim.shown import Loaded
from seriatim.turn import (
    Approve,
    Claim,
    DelegationEnded,
    StepOffered,
    ToolFinished,
    TurnAsks,
    TurnDelta,
    TurnEnded,
    TurnJob,
)


@frozen
class Passivate:
    """Stop serving if nothing is open; answered to the supervisor with Passivated or Stay."""

    incarnation: int
    reason: str


@frozen
class Passivated:
    """The lane has no open work and its incarnation may end; ``bytes`` of warm state go with it."""

    key: str
    incarnation: int
    bytes: int


@frozen
class Stay:
    """The lane can't be put to rest now: ``why``."""

    key: str
    incarnation: int
    why: str


@frozen
class Calm:
    """Start no turn any more, but go on serving; tell the supervisor MidTurn if one runs, and Calmed when none can.

    ``starting``: the incarnation has just begun, and its recovery comes first.
    """

    incarnation: int
    starting: bool = False


@frozen
class MidTurn:
    """The lane's turn runs on."""

    key: str
    incarnation: int


@frozen
class Calmed:
    """No turn runs, and none will start."""

    key: str
    incarnation: int


@frozen
class Halt:
    """To a calm lane: be over when all is durable, and tell the supervisor Halted."""

    incarnation: int


@frozen
class Halted:
    """The lane has ended, and ``state`` is what its logs tell."""

    key: str
    incarnation: int
    state: LaneState


@frozen
class Unhalt:
    """Go on as if nothing had been said of being calm."""

    incarnation: int


@frozen
class Ending:
    """The incarnation can't go on: its successor has to fold the logs again.

    ``live_generation``: the turn that goes on running, 0 when none does. ``lost``: not even the successor may
    write, because another process has taken over.
    """

    key: str
    incarnation: int
    live_generation: int
    lost: bool


@frozen
class Flush:
    """Make lazy events durable now."""


@frozen
class Tick:
    """The gate's time has come."""


class Switches:
    """What the gateway tells every lane at once. Loop thread only."""

    def __init__(self) -> None:
        self.draining = False
        """Start no turn."""
        self.stopped = False
        """Start no lane: what reports there still are, the next start finds in the ledger."""
        self.wave = 0
        """Inbound mail of an earlier wave is refused: it is kept elsewhere and will be offered again, in its order."""


@frozen
class LanePorts:
    """What every lane needs of its surroundings. All of it is used on the loop's thread."""

    clock: Clock
    writer: CommitPort
    receipts: Receipts
    asks: Asks
    runner: TurnRunner
    slots: TurnSlots
    deliveries: Deliveries
    budgets: Budgets | None
    """What people may use; None: as much as they like."""
    expects: Callable[[str, str], bool]
    """Whether an item of a lane's album is on its way in."""
    fresh_id: Callable[[], str]
    session_id: Callable[[], str]
    switches: Switches
    supervisor: Ref[Any]
    post: Callable[[str, Any], None]
    """Runtime mail to whichever incarnation of a lane serves now. Any thread."""
    reader: Ref[LaneReader]
    compact: Callable[[CompactLane], object]
    growth: Growth
    on_error: Callable[[str, BaseException], None]
    channel: Callable[[Target], Channel]
    """The way to a target as of now; one function for all lanes."""
    running: RunningTurns
    touched: Callable[[str, int], None]
    """Called when a turn starts, with the lane's key and its warm bytes: feeds the cache's order."""
    turned: Callable[[str, int], None]
    """The same when a turn has ended."""
    move: Callable[[str, MoveHere], object]
    """Called when a session of another lane is to be bound to this one (its key)."""
    counted: Callable[[str, int], object]
    """Called with the lane's key when it begins, and when its count of interruptions in a row has changed."""
    restart: Callable[[], object]
    """Called when an operator's command to start the gateway anew is durable."""
    sources: dict[str, tuple[Data, SessionSource]] = Factory(dict)
    """Where each lane's people spoke last, as logged and as checked; bounded, so that idle lanes keep none."""
    routed: Callable[[str], object] = lambda key: None
    """Called with the key of a lane that has been bound to another session, or to none."""
    streamed: Callable[[str, int], str] = Factory(lambda self: self.running.shown, takes_self=True)
    """What a lane's turn of that generation has shown; like ``output`` held here once, not by each lane."""
    output: Callable[[str, str], str] = Factory(lambda self: self.runner.output, takes_self=True)
    """What a lane's delegation has given so far."""


class SessionActor(PooledActor):
    """The shell. ``gate``, ``transcript``, ``bookmarks`` come from the fold; ``shared``: several people write here."""

    def __init__(
        self, key: str, gate: Gate, transcript: Transcript, bookmarks: Bookmarks, shared: bool, ports: LanePorts
    ) -> None:
        super().__init__()
        self.key = key
        self._gate = gate
        self._transcript = transcript
        self._bookmarks = bookmarks
        self._shared = shared
        self._ports = ports
        self._offered: Commit | None = None
        self._granted = 0
        self._timer: Timer | None = None
        self._timer_at = 0
        self._over = False
        self._counted = 0
        self._calm: Literal["", "wanted", "told mid-turn", "calm", "halting"] = ""
        self._unread: RunTurn | None = None
        """The turn that waits for its history."""
        self._compressing = False
        """Whether a summary is being made, or about to be: there is one at a time."""
        self._shown: tuple[Target, int] | None = None
        """To whom it is shown what the turn of that generation does."""
        now = self._now = Now(0, ports.fresh_id, ports.session_id, self._take_slot, ports.channel)
        now.started = ports.clock.now_ms()
        now.streamed, now.output, now.expects = ports.streamed, ports.output, ports.expects
        if ports.budgets is not None:
            self._now.standing = ports.budgets.standing

    # --- mail in ---------------------------------------------------------------------------------------

    def on_receive(self, message: Any) -> None:
        """Take one message in, do what the gate then allows."""
        if self._over:
            # Whoever ends this incarnation takes it: sent back by mail, it would come behind what is said meanwhile.
            if isinstance(message, FOR_SUCCESSOR):
                self._gate.pass_on(message)
            return
        now, ports, gate = self._now, self._ports, self._gate
        now.time = ports.clock.now_ms()
        now.draining = ports.switches.draining or self._calm != ""
        kind = type(message)
        if kind is Durable:
            offered = self._offered
            if offered is not None and offered.id == message.commit:
                self._offered = None  # an idle lane keeps no copy of what the log has
                self._transcript.take(offered)
            self._act(gate.settled(message, now))
            self._keep(ports.growth.events)
        elif (kind is TurnEnded and ports.budgets is None) or (kind is Inbound and message.wave >= ports.switches.wave):
            self._act(gate.offer(message, now))  # as below, where the rarer kinds are told apart first
        elif kind is PartSettled:
            self._wake_at(gate.put_off(message, now.time))
        elif (news := _NEWS.get(kind)) is not None:
            news(self, message)
        elif (order := _ORDERS.get(kind)) is not None:
            order(self, message)
            return
        else:
            heed = _HEED.get(kind)
            if heed is not None:
                heed(self, message)
            self._act(gate.offer(message, now))
        if self._calm:
            self._come_to_rest()

    def _unsettled(self, message: Refused | Unknown) -> None:
        self._act(self._gate.settled(message, self._now))

    def _ticked(self, message: Tick) -> None:
        self._timer = None
        self._act(self._gate.tick(self._now))

    def _delta_came(self, message: TurnDelta) -> None:
        self._ports.running.says(self.key, message.generation, message.text)
        self._show_delta(message)

    def _loaded(self, message: Loaded) -> None:
        self._act(self._gate.read(message, self._now))

    def _turned_away(self, message: Inbound) -> None:
        """It is of a wave that was turned away: kept elsewhere, it will be offered again."""
        self._ports.receipts.refuse(message.id, "storage_unavailable")

    def _flush(self, message: Flush) -> None:
        self._act(self._gate.flush(self._now))

    # --- halting ---------------------------------------------------------------------------------------

    def _calm_down(self, message: Calm) -> None:
        if message.incarnation == self._gate.incarnation and not self._calm:
            self._calm = "wanted"
            self._now.draining = True
        if not message.starting:
            self._come_to_rest()

    def _halt(self, message: Halt) -> None:
        if message.incarnation == self._gate.incarnation and self._calm == "calm":
            self._calm = "halting"
            self._act(self._gate.flush(self._now))
            self._come_to_rest()

    def _come_to_rest(self) -> None:
        """See how far the lane is on its way to its end."""
        gate, tell = self._gate, self._ports.supervisor.signal
        if self._over or gate.over:
            return
        if gate.durable.running is not None:
            if self._calm == "wanted":
                self._calm = "told mid-turn"
                tell(MidTurn(self.key, gate.incarnation))
        elif not gate.may_end():
            pass  # what is in flight may be a turn's start; of what comes later none is
        elif self._calm == "halting":
            self._over = True
            tell(Halted(self.key, gate.incarnation, gate.durable))
        elif self._calm != "calm":
            self._calm = "calm"
            tell(Calmed(self.key, gate.incarnation))

    def _unhalt(self, message: Unhalt) -> None:
        if message.incarnation == self._gate.incarnation and self._calm:
            self._calm = ""
            self._now.draining = self._ports.switches.draining
            self._act(self._gate.offer(SlotGranted(), self._now))  # only to look for work again

    # --- what the gate says ----------------------------------------------------------------------------

    def _count(self, message: Recover | None = None) -> None:
        """Tell how often in a row the lane's turn was interrupted, as durable."""
        self._counted = self._gate.durable.interruptions
        self._ports.counted(self.key, self._counted)

    def _slot_came(self, message: SlotGranted) -> None:
        self._granted += 1

    def _compression_came(self, message: CompressionDue | SummaryMade) -> None:
        self._compressing = False

    def _step_came(self, message: StepOffered) -> None:
        self._ports.running.tells(self.key, message.generation, text=bool(message.text), calls=len(message.calls))

    def _wish_came(self, message: TurnAsks) -> None:
        self._ports.running.asks(self.key, message.generation, 1, people=type(message.wish) is Approve)

    def _result_came(self, message: ToolFinished) -> None:
        self._ports.running.tells(self.key, message.generation, calls=len(message.next) - 1)

    def _end_came(self, message: TurnEnded) -> None:
        budgets, usage = self._ports.budgets, message.usage
        if budgets is None or usage is None:
            return
        running = self._gate.durable.running
        if running is None or running.generation != message.generation:
            return
        person = person_of(self._gate.durable.waiting[running.ids[0]].data["source"])
        tokens = usage.total or usage.input + usage.output
        budgets.spent(person, self._now.time, tokens, usage.estimated_cost_usd)

    def _act(self, out: Out) -> None:
        ports = self._ports
        effect: Any
        if out.effects:
            for permit, effect in out.effects:
                kind = type(effect)
                # What each turn lets out goes straight to its place, with no call more; the rest by the table.
                if kind is Ack:
                    ports.receipts.accepted(effect)
                elif kind is Finished:
                    ports.receipts.finished(effect)
                elif kind is Deliver:
                    ports.deliveries.take_up(self.key, effect)
                else:
                    _LEAVE[kind](self, permit, effect)
        if out.internal:
            for internal in out.internal:
                _LEAVE[type(internal)](self, None, internal)
        if out.slots_back:
            ports.slots.give_back(self.key, out.slots_back)
        if self._granted and not self._gate.holds(SlotGranted):
            # Decided, and no turn started with it: the slot goes to somebody else.
            ports.slots.give_back(self.key, self._granted)
            self._granted = 0
        if (commit := out.commit) is not None:
            self._offered = commit
            ports.writer.offer(commit, self.own_ref)
        if out.wake_at is not None:
            self._wake_at(out.wake_at)
        if out.stale or out.lost:
            self._end(lost=out.lost)
        elif out.failed is not None:
            raise out.failed

    def _end(self, *, lost: bool) -> None:
        running = self._gate.durable.running
        live = running.generation if running is not None and self._unread is None else 0
        self._over = True
        self._ports.supervisor.signal(Ending(self.key, self._gate.incarnation, live, lost))

    def _passivate(self, message: Passivate) -> None:
        gate = self._gate
        why = stays(gate) if message.incarnation == gate.incarnation else "another incarnation was meant"
        if why == "unflushed":
            self._act(gate.flush(self._now))
        if why is None:
            self._over = True
            self._keep(self._ports.growth.rest_events)
            self._ports.supervisor.signal(Passivated(self.key, gate.incarnation, self._transcript.bytes))
        else:
            self._ports.supervisor.signal(Stay(self.key, gate.incarnation, why))

    def _keep(self, events: int) -> None:
        """Tell and keep what has changed: count, checkpoints, a compaction of a log that has grown. Between commits."""
        ports, marks, state = self._ports, self._bookmarks, self._gate.durable
        if state.interruptions != self._counted:
            self._count()
        growth, head, part = ports.growth, state.head, state.session
        # Each commit comes by here, and nearly none has anything due: looked at before the calls.
        grown = part is not None and (part.id != marks.session or part.head - marks.session_at >= events)
        if (grown or head - marks.lane >= events) and (checkpoints := marks.due(state, events)):
            ports.writer.keep(checkpoints)
        if 0 < growth.compact_events <= head - marks.base and (wish := marks.compaction(state, growth)) is not None:
            ports.compact(wish)

    # --- time and slots --------------------------------------------------------------------------------

    def _wake_at(self, at: int | None) -> None:
        if at is None or (self._timer is not None and at >= self._timer_at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = signal_later(self._ports.clock, max(0, at - self._now.time), self.own_ref, TICK)

    def _take_slot(self) -> bool:
        if self._granted:
            self._granted -= 1
            return True
        return self._ports.slots.try_take(self.key, self._now.person or self.key)

    def _want_slot(self, permit: Permit | None, effect: WantSlot) -> None:
        self._ports.slots.want(self.key, self.own_ref, effect.person or self.key, resumes=effect.resumes)

    def _return_slot(self, permit: Permit | None, effect: ReturnSlot) -> None:
        ports, key = self._ports, self.key
        ports.running.over(key)
        ports.turned(key, self._transcript.bytes)
        ports.slots.give_back(key)
        if self._shown is not None:
            self._show_idle(silent=effect.silent)

    # --- what a running turn shows -----------------------------------------------------------------------

    def _show_working(self, generation: int) -> None:
        """Explained by the commit that started the turn; told to platforms that show such things."""
        running = self._gate.durable.running
        if running is None or running.generation != generation:
            return  # the commit that starts it ended it, too
        first = self._gate.durable.waiting[running.ids[0]].data
        target = target_of(first)
        if target is not None:
            self._shown = (target, generation)
            draft = draft_of(self._gate.durable, running)
            working = Working(self.key, generation, running.ids[0], target, draft)
            self._ports.deliveries.show(target.platform, target.account, working)

    def _show_delta(self, delta: TurnDelta) -> None:
        if self._shown is None and self._ports.deliveries.shows:
            self._show_working(delta.generation)  # the turn began under the incarnation before
        shown, running = self._shown, self._gate.durable.running
        if shown is None or running is None or not shown[1] == running.generation == delta.generation:
            return
        target = shown[0]
        self._ports.deliveries.show(target.platform, target.account, Delta(self.key, delta.generation, delta.text))

    def _show_idle(self, *, silent: bool) -> None:
        assert self._shown is not None
        (target, generation), self._shown = self._shown, None
        self._ports.deliveries.show(target.platform, target.account, Idle(self.key, generation, silent))

    def _read_shown(self, permit: Permit | None, effect: ReadShown) -> None:
        self._ports.reader.tell(ReadSession(effect.session, effect.whole, self.own_ref, effect.besides))

    def _routed(self, permit: Permit | None, effect: Routed) -> None:
        self._ports.routed(self.key)

    # --- what leaves -----------------------------------------------------------------------------------

    def _nack(self, permit: Permit | None, effect: Nack) -> None:
        self._ports.receipts.refuse(effect.id, effect.reason)

    def _ack_duplicate(self, permit: Permit | None, effect: AckDuplicate) -> None:
        self._ports.receipts.duplicate(effect)

    def _answered(self, permit: Permit | None, effect: Answered) -> None:
        self._ports.asks.answered(effect)
        # A lane that was woken only to be asked is one that may rest: the cache's order has to know it.
        self._ports.touched(self.key, self._transcript.bytes)

    def _run_turn(self, permit: Permit | None, effect: RunTurn) -> None:
        assert permit is not None
        if (budgets := self._ports.budgets) is not None and effect.attempt == 1:
            person = person_of(effect.claims[0][0]["source"])
            if person and effect.claims[0][0]["kind"] != "wake":
                now_ms = self._now.time
                budgets.began(person, now_ms, budgets.standing(person, now_ms).tell)
        if self._transcript.missing:
            self._unread = effect
            self._read_history()
        else:
            self._start_turn(effect)

    def _read_history(self) -> None:
        transcript = self._transcript
        assert transcript.session is not None
        self._ports.reader.tell(ReadTranscript(transcript.session, transcript.missing, self.own_ref))

    def _history_read(self, message: TranscriptRead) -> None:
        """The history of the turn that waits is there; or it can't be read, and the turn ends as failed."""
        transcript = self._transcript
        answered = (message.session, message.upto) == (transcript.session, transcript.missing)
        if answered and message.error is None:
            transcript.complete(message.messages)
        effect = self._unread
        if effect is None:
            return
        if transcript.missing and not answered:
            self._read_history()
            return
        self._unread = None
        if not transcript.missing:
            self._start_turn(effect)
        else:
            assert message.error is not None
            self._ports.on_error("history", message.error)
            self._act(self._gate.offer(TurnBroken(effect.number, effect.generation, "no history"), self._now))

    def _start_turn(self, effect: RunTurn) -> None:
        running = self._ports.running
        several = len(effect.claims) - 1
        timed = grouped(effect.claims) if several else effect.claims
        claims = tuple([self._claim(data, time) for data, time in timed])
        job = TurnJob(
            self.key,
            effect.session,
            effect.number,
            effect.generation,
            effect.attempt,
            claims,
            self._transcript.before(effect.number) if effect.resumed_from is None else self._history_of(effect),
            effect.boundary,
            effect.had_activity,
            effect.resumed_from,
            effect.claims[0][0].get("again", claims[0].id),
            self._shared,
            self._now.time + running.silence_ms if running.silence_ms else None,
        )
        running.begin(self.key, effect.number, effect.generation)
        self._ports.touched(self.key, self._transcript.bytes)
        if self._ports.deliveries.shows:
            self._show_working(effect.generation)
        self._ports.runner.start(job, partial(self._ports.post, self.key))

    def _history_of(self, effect: RunTurn) -> History:
        """What was said before a turn that runs again: it has logged its own messages already."""
        return self._transcript.before(effect.number, frozenset(data["id"] for data, _ in effect.claims))

    def _claim(self, data: Data, time: int) -> Claim:
        told = data["source"]
        # People rarely change places between two messages: one source serves them all, and is checked once.
        sources = self._ports.sources
        known = sources.get(self.key)
        if known is None or known[0] != told:
            if len(sources) >= KEYS_REMEMBERED_MAX:
                sources.clear()
            known = sources[self.key] = (told, SessionSource.from_dict(told))
        claim = Claim(data["id"], data["text"], known[1], data.get("messageId"), time, data["kind"])
        if "media" in data or "items" in data:
            media = tuple(map(Media.from_data, data.get("media", ())))
            return replace(claim, media=media, items=tuple(data.get("items", ())))
        return claim

    def _cancel_turn(self, permit: Permit | None, effect: CancelTurn) -> None:
        assert permit is not None
        if self._unread is not None and self._unread.generation == effect.generation:
            self._unread = None
        else:
            self._ports.runner.cancel(self.key, effect.generation, effect.why)

    def _release_calls(self, permit: Permit | None, effect: ReleaseCalls) -> None:
        assert permit is not None
        self._ports.running.goes_on(self.key, effect.generation)
        self._ports.runner.release(self.key, effect.generation, effect.calls)

    def _proceed(self, permit: Permit | None, effect: Proceed) -> None:
        self._ports.running.goes_on(self.key, effect.generation)
        self._ports.runner.proceed(self.key, effect.generation, (effect.call_id,))

    def _wish_answered(self, permit: Permit | None, effect: WishAnswered) -> None:
        assert permit is not None
        value = effect.value
        self._ports.running.asks(self.key, effect.generation, -1, people=type(value) is bool)
        if type(value) is tuple:
            value = tuple([self._claim(data, time) for data, time in value])
        self._ports.runner.answered(self.key, effect.generation, effect.token, value)

    def _approval_due(self, permit: Permit | None, effect: ApprovalDue) -> None:
        wait_ms = max(0, effect.at - self._now.time)
        self._ports.clock.call_later(wait_ms, partial(self._ports.post, self.key, ApprovalExpired(effect.id)))

    def _end_delegations(self, permit: Permit | None, effect: EndDelegations) -> None:
        assert permit is not None
        self._ports.runner.end_delegations(self.key, effect.ids)

    def _owes(self, permit: Permit | None, effect: Owes) -> None:
        self._ports.deliveries.owes(self.key, effect)

    def _send_part(self, permit: Permit | None, effect: SendPart) -> None:
        assert permit is not None
        self._ports.deliveries.tell(effect.target, effect)

    def _drop_delivery(self, permit: Permit | None, effect: DropDelivery) -> None:
        self._ports.deliveries.tell(effect.target, effect)

    def _forget_agent(self, permit: Permit | None, effect: ForgetAgent) -> None:
        self._ports.runner.evict(self.key)

    def _move_here(self, permit: Permit | None, effect: MoveHere) -> None:
        self._ports.move(self.key, effect)

    def _compression_wanted(self, permit: Permit | None, effect: CompressionWanted) -> None:
        if not self._compressing:
            self._compressing = True
            self.own_ref.signal(CompressionDue(effect.session, effect.turn))

    def _compress_session(self, permit: Permit | None, effect: CompressSession) -> None:
        assert permit is not None
        self._compressing = True

        def done(text: str | None, why: str) -> None:
            self._ports.post(self.key, SummaryMade(effect, text, why))

        history = History(list(effect.said), len(effect.said))
        self._ports.runner.compress(self.key, effect.session, history, done)

    def _restart_gateway(self, permit: Permit | None, effect: RestartGateway) -> None:
        assert permit is not None
        self._ports.restart()


TICK = Tick()
_NEWS: Final[dict[type[Any], Callable[[SessionActor, Any], None]]] = {
    Refused: SessionActor._unsettled,
    Unknown: SessionActor._unsettled,
    Tick: SessionActor._ticked,
    TurnDelta: SessionActor._delta_came,
    TranscriptRead: SessionActor._history_read,
    Loaded: SessionActor._loaded,
    Inbound: SessionActor._turned_away,
}
"""What is no mail for the rules, or none any more."""
_ORDERS: Final[dict[type[Any], Callable[[SessionActor, Any], None]]] = {
    Flush: SessionActor._flush,
    Passivate: SessionActor._passivate,
    Calm: SessionActor._calm_down,
    Halt: SessionActor._halt,
    Unhalt: SessionActor._unhalt,
}
"""What the supervisor and the gateway want of a lane, besides its mail."""
_LEAVE: Final[dict[type[Any], Callable[[SessionActor, Permit | None, Any], None]]] = {
    Nack: SessionActor._nack,
    AckDuplicate: SessionActor._ack_duplicate,
    Answered: SessionActor._answered,
    RunTurn: SessionActor._run_turn,
    CancelTurn: SessionActor._cancel_turn,
    ReleaseCalls: SessionActor._release_calls,
    Proceed: SessionActor._proceed,
    WishAnswered: SessionActor._wish_answered,
    ApprovalDue: SessionActor._approval_due,
    EndDelegations: SessionActor._end_delegations,
    Owes: SessionActor._owes,
    SendPart: SessionActor._send_part,
    DropDelivery: SessionActor._drop_delivery,
    ForgetAgent: SessionActor._forget_agent,
    RestartGateway: SessionActor._restart_gateway,
    MoveHere: SessionActor._move_here,
    CompressionWanted: SessionActor._compression_wanted,
    CompressSession: SessionActor._compress_session,
    WantSlot: SessionActor._want_slot,
    ReturnSlot: SessionActor._return_slot,
    ReadShown: SessionActor._read_shown,
    Routed: SessionActor._routed,
}
"""How effects leave, all but those that ``_act`` itself lets out."""
_HEED: Final[dict[type[Any], Callable[[SessionActor, Any], None]]] = {
    Recover: SessionActor._count,
    SlotGranted: SessionActor._slot_came,
    CompressionDue: SessionActor._compression_came,
    SummaryMade: SessionActor._compression_came,
    StepOffered: SessionActor._step_came,
    ToolFinished: SessionActor._result_came,
    TurnAsks: SessionActor._wish_came,
    TurnEnded: SessionActor._end_came,
}
"""What the shell itself takes from mail before the rules decide it."""

# What an ending incarnation still finds in its mailbox and its successor must hear.
FOR_SUCCESSOR = (
    *(Inbound, Ask, MoveRefused, StepOffered, ToolFinished, TurnAsks, TurnEnded, TurnBroken, DelegationEnded),
    *(ApprovalExpired, AttemptWanted, PartSettled, PartFailed, PartAbandoned, Bounced, DraftShown, DraftGone),
)

__all__ = [
    "FOR_SUCCESSOR",
    "Calm",
    "Calmed",
    "Ending",
    "Flush",
    "Halt",
    "Halted",
    "LanePorts",
    "MidTurn",
    "Passivate",
    "Passivated",
    "SessionActor",
    "Stay",
    "Switches",
    "Unhalt",
]
