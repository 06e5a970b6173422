"""Solo: lanes without a gateway. The same rules and gates, driven on the caller's thread, one lane at a time.

No turn starts here and nothing is sent: what a lane owes, or still has to answer, waits in its log for a gateway.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from seriatim.actors.ids import Ids, NowMs
from seriatim.actors.loading import read_state
from seriatim.actors.surfaces import read_shown
from seriatim.batch import Now, Rules
from seriatim.commits import Commit, Durable, Outcome, Refused
from seriatim.effects import Answered, ReadShown, Routed
from seriatim.errors import LaneBusyError, OwnershipLostError, StoreError, StoreUnhealthyError, WriteUnknownError
from seriatim.events import session_log
from seriatim.gate import Gate, Out
from seriatim.lane import LaneState
from seriatim.limits import SOLO_GATES_MAX
from seriatim.mail import Ask
from seriatim.merging import move
from seriatim.outbox import Channel
from seriatim.shown import Loaded
from seriatim.storage.contract import Store

_STRIPES: Final = 64
_TRIES_MAX: Final = 4
"""Offers of a commit whose outcome stays unknown."""
_NOWHERE: Final = Channel()


class Solo:
    """The lanes of ``store``, of which this is the only writer. Any thread; calls for one lane wait for each other.

    ``routed`` is called with the key of a lane that is bound to another session than before.
    """

    def __init__(
        self, store: Store, clock: NowMs, ids: Ids, rules: Rules, routed: Callable[[str], object] = lambda key: None
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._rules = rules
        self._routed = routed
        self._stripes = [threading.RLock() for _ in range(_STRIPES)]
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._reader = store.reader()
        self._gates: OrderedDict[str, Gate] = OrderedDict()
        self._listing = threading.Lock()
        self._pause = threading.Event()

    def ask(self, key: str, question: Any) -> Any:
        """Decide a question and make it durable; its answer.

        Raises what the rule raises, StoreError where the store refuses, and WriteUnknownError where that stays unknown.
        """
        with self._alone(key):
            try:
                answer = self._decide(key, Ask(self._ids.fresh(), question))
            except BaseException:  # a Ctrl-C, too: the gate may wait for a commit that nobody offers any more
                self._forget(key)
                raise
        if answer.error is not None:
            raise answer.error
        return answer.value

    def present(self, key: str) -> str:
        """The lane that a lane has gone into; itself, if into none. A gateway has merged them."""
        seen = {key}
        while True:
            with self._alone(key):  # else a state that was read before another's first commit could replace its gate
                into = self._gate(key).durable.merged_into
            if into is None or into in seen:
                return key
            seen.add(into)
            key = into

    def move_session(self, session_id: str, key: str, expected: str | None) -> bool:
        """Bind another lane's session to ``key``, if that is still bound to ``expected`` (None: to whatever it is).

        False when it isn't, or there is no such session. Raises LaneBusyError, and as ``ask``.
        """
        log = session_log(session_id)
        with self._reading:
            holder, there = self._reader.binding(log), self._reader.info(log) is not None
        other = None if holder is None else holder.removeprefix("lane:")
        with self._alone(key, *(() if other is None else (other,))):
            with self._reading:
                if not there or self._reader.binding(log) != holder:
                    return False
            target, source = self._gate(key).durable, None if other is None else self._gate(other).durable
            if target.bound is None or (expected is not None and target.bound != expected):
                return False
            if target.running is not None or (source is not None and source.running is not None):
                raise LaneBusyError("switch", "a turn is open; switch again when it has ended")
            pair = move(
                target,
                session_id,
                other,
                source,
                reason="switch",
                rules=self._rules,
                now=self._now(),
                commit_id=self._ids.fresh(),
                incarnation=1,
            )
            moved = (key, *(() if other is None else (other,)))
            try:
                self._write(pair.commit)
            finally:  # what their gates know is over, or nobody knows whether it is
                for lane in moved:
                    self._forget(lane)
            for lane in moved:
                self._routed(lane)
            return True

    def any_open_turn(self) -> bool:
        """Whether a turn was left open by a process that is gone."""
        with self._reading:
            return any(hot.open_turn for _, hot in self._reader.open_work())

    def close(self) -> None:
        """Give the reader back; the store is its owner's."""
        self._pause.set()
        with self._reading:
            self._reader.close()

    # --- one lane at a time ----------------------------------------------------------------------------

    @contextmanager
    def _alone(self, *keys: str) -> Iterator[None]:
        with ExitStack() as held:
            for stripe in sorted({hash(key) % _STRIPES for key in keys}):
                held.enter_context(self._stripes[stripe])
            yield

    def _decide(self, key: str, mail: Ask) -> Answered:
        gate, now = self._gate(key), self._now()
        answer: Answered | None = None
        tries = 0
        out = gate.offer(mail, now)
        while True:
            loaded = None
            for effect in (*(effect for _, effect in out.effects), *out.internal):
                if type(effect) is Answered and effect.token == mail.token:
                    answer = effect
                elif type(effect) is ReadShown:
                    loaded = self._read(effect)
                elif type(effect) is Routed:
                    self._routed(key)
            if loaded is not None:
                out = gate.read(loaded, now)
            elif out.commit is not None:
                out = gate.settled(self._commit(out.commit), now)
            elif answer is not None:
                return answer
            else:
                tries += 1
                out = self._again(gate, out, now, tries)

    def _again(self, gate: Gate, out: Out, now: Now, tries: int) -> Out:
        """Nobody knows what became of the commit: offer it again after a while, some times."""
        if out.lost:
            raise OwnershipLostError("another process writes to this home, or owned it before a fork; open it anew")
        if out.stale or out.failed is not None or out.wake_at is None or tries > _TRIES_MAX:
            if isinstance(out.failed, StoreError):
                raise out.failed
            raise WriteUnknownError("whether this was written is not known; look again")
        self._pause.wait(max(0, out.wake_at - now.time) / 1000)
        now.time = max(out.wake_at, self._clock.now_ms())
        return gate.tick(now)

    def _gate(self, key: str) -> Gate:
        with self._listing:
            gate = self._gates.get(key)
            if gate is not None:
                self._gates.move_to_end(key)
                return gate
        with self._reading:
            state: LaneState = read_state(self._reader, key)
        gate = Gate(1, state, self._rules, self._ids.fresh)
        with self._listing:
            self._gates[key] = gate
            while len(self._gates) > SOLO_GATES_MAX:
                self._gates.popitem(last=False)
        return gate

    def _forget(self, key: str) -> None:
        with self._listing:
            self._gates.pop(key, None)

    def _now(self) -> Now:
        return Now(
            self._clock.now_ms(), self._ids.fresh, self._ids.session, lambda: False, lambda to: _NOWHERE, draining=True
        )

    def _read(self, wanted: ReadShown) -> Loaded:
        try:
            with self._reading:
                return Loaded(
                    wanted.session, wanted.whole, read_shown(self._reader, wanted.session, whole=wanted.whole)
                )
        except Exception as error:
            return Loaded(wanted.session, wanted.whole, None, error)

    def _commit(self, commit: Commit) -> Outcome:
        with self._writing:
            return self._store.commit([commit])[0]

    def _write(self, commit: Commit) -> None:
        outcome = self._commit(commit)
        if type(outcome) is Refused:
            raise outcome.error
        if type(outcome) is not Durable:
            again = self._commit(commit)
            if type(again) is not Durable:
                raise StoreUnhealthyError("whether the session was moved is not known; look again")
