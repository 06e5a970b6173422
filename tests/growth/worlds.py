"""A gateway's actors on one thread over a store of either kind, with logs that are soon called long."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

from seriatim.actors.ids import Ids
from seriatim.actors.receipts import Receipt
from seriatim.actors.runtime import Dispatchers, Opened, Runtime, Settings
from seriatim.actors.simulation import SimulationDispatcher
from seriatim.actors.supervisor import PassivateLane
from seriatim.actors.upkeep import Growth
from seriatim.batch import Rules
from seriatim.config import GatewayConfig
from seriatim.events import LogId, lane_log
from seriatim.lane import LaneState
from seriatim.model import MessageEvent, SessionSource
from seriatim.storage.contract import Store, StoreReader
from seriatim.testing.clock import VirtualClock
from seriatim.testing.scripted import Script, ScriptedRunner
from seriatim.turn import Message, TurnJob

SOON = Growth(events=10, rest_events=1, compact_events=0)
"""Checkpoints soon, and no compaction that a test doesn't ask for."""
numbers = itertools.count()


class CountingReader:
    """A reader that notes how many events of which log were read."""

    def __init__(self, inner: StoreReader, read: list[tuple[LogId, int, int]]) -> None:
        self._inner = inner
        self._read = read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def read(self, log: LogId, from_seq: int = 0, limit: int | None = None) -> Any:
        """As ever."""
        events = self._inner.read(log, from_seq, limit)
        self._read.append((log, from_seq, len(events)))
        return events


class Life:
    """One life of the process. ``jobs``: turns that were started; ``read``: log, from where, how many events."""

    def __init__(self, open_store: Callable[[], Store], growth: Growth = SOON, seed: int = 1) -> None:
        self.clock = VirtualClock(1_800_000_000_000 + next(numbers) * 1_000_000)
        self.dispatcher = SimulationDispatcher(seed, self.clock, timer_bias=0.0)
        self.jobs: list[TurnJob] = []
        self.read: list[tuple[LogId, int, int]] = []
        self.errors: list[str] = []
        self.runner = ScriptedRunner(self._script)
        token = random.Random(next(numbers))
        self.runtime = Runtime(
            clock=self.clock,
            ids=Ids(self.clock, lambda digits: f"{token.getrandbits(4 * digits):0{digits}x}"),
            dispatchers=Dispatchers(self.dispatcher, self.dispatcher, self.dispatcher),
            settings=Settings(
                keys=GatewayConfig(),
                rules=Rules(),
                slots_max=4,
                warm_max=64,
                age_ms_max=1_000_000,
                dm_without_ids=False,
                growth=growth,
            ),
            runner=self.runner,
            rng=random.Random(seed),
            on_error=lambda where, error: self.errors.append(f"{where}: {type(error).__name__}: {error}"),
            on_fatal=lambda where, error: self.errors.append(f"fatal {where}: {error!r}"),
            at_once=True,
        )
        opened: list[Opened | BaseException] = []
        self.runtime.open(open_store, opened.append)
        self.run()
        (self.opened,) = opened
        assert isinstance(self.opened, Opened), self.opened
        self.store = self.opened.store
        self.readers: list[StoreReader] = []
        self.look = self.store.reader()
        self.runtime.begin(self._reader)
        self.runtime.recover(self.opened.open_work)
        self.run()

    def _script(self, job: TurnJob) -> Script:
        self.jobs.append(job)
        return Script(f"re: {job.claims[0].text}")

    def _reader(self) -> Any:
        reader = self.store.reader()
        self.readers.append(reader)
        return CountingReader(reader, self.read)

    def run(self) -> None:
        """Until nobody has anything to do now."""
        while not self.dispatcher.idle or self.runner.ready():
            while not self.dispatcher.idle:
                self.dispatcher.step()
            self.runner.run()

    def wait(self) -> None:
        """Until nothing is due at any time."""
        self.run()
        while self.clock.next_due_ms() is not None:
            self.clock.fire_next()
            self.run()

    def say(self, text: str, chat: str = "1", *, run: bool = True, message_id: str = "") -> Receipt:
        """Somebody writes; by default everything that follows is done."""
        source = SessionSource("fake", chat, user_id="u")
        event = MessageEvent(text, source, message_id=message_id or f"m{next(numbers)}")
        receipt = self.runtime.accept(event, "/", lambda _: None)
        if run:
            self.run()
        return receipt

    def talk(self, turns: int, chat: str = "1") -> None:
        """So many plain turns."""
        for number in range(turns):
            self.say(f"{number}", chat)

    @property
    def key(self) -> str:
        """The only live lane's."""
        (gate,) = self.runtime.directory.gates()
        return gate.durable.key

    @property
    def state(self) -> LaneState:
        """The only live lane's."""
        (gate,) = self.runtime.directory.gates()
        return gate.durable

    @property
    def log(self) -> LogId:
        """The only live lane's."""
        return lane_log(self.key)

    def rest(self) -> None:
        """Every lane is asked to rest."""
        for gate in self.runtime.directory.gates():
            self.runtime._supervisor.signal(PassivateLane(gate.durable.key, "test"))
        self.run()

    def end(self) -> None:
        """The process goes, with everything durable."""
        self.runtime.stop()
        self.run()
        for reader in (self.look, *self.readers):
            reader.close()


def texts(history: Any) -> list[str]:
    """What a turn was told of the past."""
    messages: list[Message] = list(history)
    return [message.text for message in messages]
