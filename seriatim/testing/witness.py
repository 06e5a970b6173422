"""What is durable, by the store's own word, and whether each effect is explained by it (laws 1 and 2).

Beside the product, not part of it: it reads events by their plain meaning, never by the rules' own fold. Whoever
watches a run (the simulator, the crash enumerator) tells it of each effect as it leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from attrs import Factory, define

from seriatim.aliases import ALIASES
from seriatim.commits import Commit, Durable, Hot, Outcome
from seriatim.events import Data, Event, LogId
from seriatim.model import Outbound
from seriatim.storage.checkpoints import read_whole
from seriatim.storage.contract import Archive, Checkpoint, Store, StoreReader
from seriatim.testing.scripted import Ran
from seriatim.testing.wrapped_store import WrappedStore
from seriatim.turn import TurnJob

Complain = Callable[[str], None]


@define
class Effects:
    """What has left in all lives of a run: turns that were started, parts that were given to the platform."""

    started: Counter[tuple[str, int]] = Factory(Counter)
    sent: Counter[tuple[str, int]] = Factory(Counter)


_Told = tuple[int, str | None, str]
"""A shown message: its turn, its text (None for a tool's), the id of what it asks ("" for none)."""


class Witness:
    """The facts of all durable events; filled from the store, then commit by commit.

    ``complain`` takes what is wrong, as text, and may be called inside an actor: it must not raise. ``checked`` counts
    what was judged, by invariant.
    """

    def __init__(self, complain: Complain, effects: Effects, *, idempotent: bool) -> None:
        self.checked: Counter[str] = Counter()
        self.messages: set[str] = set()
        self.running: dict[str, int | None] = {}
        self.claimed: set[tuple[str, int]] = set()
        self.begun: set[str] = set()
        self.calls: set[tuple[str, str]] = set()
        self.results: set[tuple[str, str]] = set()
        self.attempts: Counter[tuple[str, int]] = Counter()
        self.owed: set[str] = set()
        self.works: set[str] = set()
        self.over: set[str] = set()
        self.steered: set[str] = set()
        self.heads: dict[str, int] = {}
        self._said: dict[str, list[_Told]] = {}
        self._moments: dict[str, list[tuple[int, list[_Told]]]] = {}
        self._waiting: dict[str, set[str]] = {}
        self._counts: dict[str, Counter[str]] = {}
        self._incarnations: dict[LogId, int] = {}
        self._commits: set[str] = set()
        self._complain = complain
        self._effects = effects
        self._idempotent = idempotent

    # --- what is durable -------------------------------------------------------------------------------

    def read(self, reader: StoreReader, whole: Callable[[StoreReader, LogId], Sequence[Event]]) -> None:
        """Take in what the store holds; ``whole`` gives all events of a log."""
        for log in all_logs(reader):
            self.take(log, whole(reader, log))

    def reborn(self) -> None:
        """A new process counts its incarnations from the beginning."""
        self._incarnations.clear()

    def wrote(self, commit: Commit) -> None:
        """A commit is durable: law 1 holds at this point, and no earlier incarnation wrote after a later one."""
        if commit.id in self._commits:
            return  # offered again: nothing was written
        self._commits.add(commit.id)
        self.checked["one_actor_per_key"] += 1
        before = self._incarnations.get(commit.lane, 0)
        if commit.incarnation < before:
            self._complain(f"{commit.lane}: incarnation {commit.incarnation} wrote after {before}")
        self._incarnations[commit.lane] = max(before, commit.incarnation)
        for part in commit.parts:
            self.take(part.log, part.events)
            if part.hot is not None:
                self._law_1(part.log, part.hot)

    def take(self, log: LogId, events: Sequence[Event]) -> None:
        """Take in durable events; those that are known are passed over."""
        for event in events:
            if event.seq == self.heads.get(log, 0):
                self.heads[log] = event.seq + 1
                self._take(log, event)

    def _say(self, owner: str, event: Event, said: _Told) -> None:
        """The session shows one more message; what it showed at each moment is kept, since one may go back there."""
        told = self._said.setdefault(owner, [])
        told.append(said)
        self._moments.setdefault(owner, []).append((event.seq + 1, list(told)))

    def _go_back(self, owner: str, event: Event) -> None:
        moments = [(0, []), *self._moments.get(owner, [])]
        told = next(told for count, told in reversed(moments) if count <= event.data["asOf"])
        self._said[owner] = list(told)
        self._moments.setdefault(owner, []).append((event.seq + 1, list(told)))

    def _take(self, log: LogId, event: Event) -> None:  # noqa: C901  (one case for each event)
        data = event.data
        owner = log.partition(":")[2]
        match event.type:
            case "inbox/accepted":
                self.messages.add(data.get("messageId", ""))
                self._waiting.setdefault(owner, set()).add(data["id"])
                self._counts.setdefault(owner, Counter())["accepted"] += 1
            case "inbox/claimed":
                self.running[owner] = data["generation"]
                self.claimed.add((owner, data["generation"]))
                self.begun.update(data["ids"])
            case "inbox/answered":
                self._end(owner, "answered", [data["id"]])
                if data["by"] == "turn":
                    self.running[owner] = None
            case "inbox/merged" | "inbox/dropped":
                self._end(owner, event.type.removeprefix("inbox/"), data["ids"])
            case "inbox/interrupted":
                self.running[owner] = None
            case "lane/merged":
                self._move(owner, data)
            case "user/message" | "assistant/message":
                said = (data["turn"], data["text"], data["id"] if "at" in data else "")
                self._say(owner, event, said)
            case "surface/reset":
                self._go_back(owner, event)
            case "tool/call":
                self.calls.add((owner, data["id"]))
            case "tool/result":
                self.results.add((owner, data["id"]))
                self._say(owner, event, (data["turn"], None, ""))
            case "delivery/owed":
                self.owed.add(data["id"])
                if data.get("attempt"):
                    first = data.get("first", len(data["parts"]))
                    self.attempts.update((data["id"], part) for part in range(first))
            case "delivery/attempt":
                self.attempts[data["id"], data["part"]] += 1
            case _:
                self._take_other(event)

    def _take_other(self, event: Event) -> None:
        data = event.data
        match event.type:
            case "delegation/started":
                self.works.add(data["id"])
            case "delegation/ended":
                self.over.add(data["id"])
            case "inbox/steered":
                self.steered.update(data["ids"])
            case _:
                pass

    def _move(self, lane: str, data: Data) -> None:
        """Messages without an outcome count where they wait."""
        counts = self._counts.setdefault(lane, Counter())
        waiting = self._waiting.setdefault(lane, set())
        if "into" in data:
            counts["accepted"] -= len(data["ids"])
            waiting.difference_update(data["ids"])
        else:
            moved = {told["id"] for told, _, _ in data["waiting"]}
            counts["accepted"] += len(moved)
            waiting |= moved

    def _end(self, lane: str, outcome: str, ids: Sequence[str]) -> None:
        for inbox_id in ids:
            if inbox_id not in self._waiting.get(lane, ()):
                self._complain(f"{lane}: {inbox_id} was {outcome} without waiting")
            self._waiting[lane].discard(inbox_id)
            self._counts[lane][outcome] += 1

    def _law_1(self, log: LogId, hot: Hot) -> None:
        self.checked["law_1"] += 1
        lane = log.partition(":")[2]
        counts = self._counts.get(lane, Counter())
        told = (hot.accepted, hot.answered, hot.merged, hot.dropped, hot.waiting)
        names = ("accepted", "answered", "merged", "dropped")
        if told != (*(counts[name] for name in names), len(self._waiting.get(lane, ()))):
            self._complain(f"law 1: {lane} counts {told}, its log says {dict(counts)} and {self._waiting.get(lane)}")
        if hot.accepted != hot.answered + hot.merged + hot.dropped + hot.waiting:
            self._complain(f"law 1: {lane} counts {told}")

    # --- what leaves -----------------------------------------------------------------------------------

    def acks(self, message_id: str) -> None:
        """The platform is told that a message is taken."""
        self._law_2(message_id in self.messages, f"{message_id} was acked before it was durable")

    def starts(self, job: TurnJob) -> None:
        """A turn is started: claimed durably, and for the first time."""
        name = (job.lane, job.generation)
        self._law_2(name in self.claimed, f"{job.lane}: turn {job.generation} was started before its claim was durable")
        if self._effects.started[name]:
            self._complain(f"{job.lane}: turn {job.generation} was started twice")
        self._effects.started[name] += 1

    def begins(self, job: TurnJob) -> None:
        """A turn's agent sees the conversation for the first time: it is what the log holds.

        What the turn itself is to answer, and nobody has answered at an attempt before, is not part of it.
        """
        told = [message.text for message in job.history if message.role != "tool"]
        said = [told for told in self._said.get(job.session, ()) if told[0] < job.number]
        if job.resumed_from is not None:
            # What is asked again, with nothing done about it yet, stands in the turn itself.
            again = {inbox_id for claim in job.claims for inbox_id in (claim.id, *claim.items)}
            while said and said[-1][2] in again:
                del said[-1]
        known = [text for _, text, _ in said if text is not None]
        self.checked["history_is_the_log"] += 1
        if told != known:
            self._complain(f"{job.lane}: turn {job.generation} sees {told}, the log says {known}")

    def cancels(self, lane: str, generation: int, why: str) -> None:
        """A turn is cancelled: its end is durable, the actor that owned it has died, or the store is another's now."""
        fenced = "crashed" in why or "taken over" in why or self.running.get(lane) != generation
        self._law_2(fenced, f"{lane}: turn {generation} was cancelled before its end was durable")

    def proceeds(self, lane: str, calls: tuple[str, ...]) -> None:
        """An agent goes on with the results of calls."""
        durable = {call for _, call in self.results}.issuperset(calls)
        self._law_2(durable, f"{lane}: the agent went on before the results of {calls} were durable")

    def answers(self, lane: str, value: Any) -> None:
        """An agent gets what it asked of its lane: background work begins, or messages are its own."""
        if isinstance(value, str):
            self._law_2(value in self.works, f"{lane}: background work began before its start was durable")
        elif isinstance(value, tuple):
            ids = {claim.id for claim in value}
            self._law_2(ids <= self.steered, f"{lane}: {ids} were handed over before that was durable")

    def ends_work(self, names: tuple[str, ...]) -> None:
        """Background work is stopped from outside."""
        self._law_2(self.over.issuperset(names), f"{names} were stopped before their end was durable")

    def runs(self, ran: Ran) -> None:
        """A tool runs."""
        known = ran.effects != "write" or (ran.session, ran.call) in self.calls
        self._law_2(known, f"{ran.lane}: tool call {ran.call} ran before it was durable")

    def sends(self, out: Outbound) -> None:
        """A part is given to the platform: owed, and this attempt recorded. A draft: its turn has begun."""
        if out.delivery.startswith(DRAFT):
            claim = out.delivery.removeprefix(DRAFT)
            self._law_2(claim in self.begun, f"{claim}'s draft was shown before its turn had begun durably")
            return
        name = (out.delivery, out.part)
        self._effects.sent[name] += 1
        sent, recorded = self._effects.sent[name], self.attempts[name]
        self._law_2(out.delivery in self.owed, f"{out.delivery} was sent before it was owed durably")
        if not self._idempotent and recorded < sent:
            self._complain(f"{out.delivery}.{out.part} was sent {sent} times, {recorded} are recorded")

    def _law_2(self, holds: bool, text: str) -> None:
        self.checked["law_2"] += 1
        if not holds:
            self._complain(text)


DRAFT: Final = "draft "
"""What the names of drafts begin with, as deliveries of their own."""


def all_logs(reader: StoreReader) -> list[LogId]:
    """Every log of the store."""
    logs: list[LogId] = []
    for prefix in (ALIASES, "lane:", "session:"):
        while page := reader.logs(prefix, logs[-1] if logs and logs[-1].startswith(prefix) else ""):
            logs += page
    return logs


def whole(reader: StoreReader, log: LogId, archived: Mapping[LogId, list[Event]]) -> list[Event]:
    """All events of a log; ``archived``: those that compactions were about to remove."""
    archive, events = read_whole(reader, log)
    return events if archive is None else archived[log][: archive.base] + events


class WitnessedStore(WrappedStore):
    """A store with the witness beside it; below any fault that is played.

    ``watched`` is called with a name and what to do, for each step of upkeep; ``archived`` gets the events that go.
    """

    def __init__(
        self,
        inner: Store,
        witness: Witness,
        watched: Callable[[str, Callable[[], Any]], Any],
        archived: dict[LogId, list[Event]],
    ) -> None:
        super().__init__(inner)
        self._watched = watched
        self._archived = archived
        self._witness = witness
        self._readers: list[StoreReader] = []

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        """See ``Store.commit``."""
        outcomes = self.inner.commit(commits)
        for commit, outcome in zip(commits, outcomes, strict=True):
            if type(outcome) is Durable:
                self._witness.wrote(commit)
        return outcomes

    def keep(self, checkpoints: Sequence[Checkpoint]) -> int:
        """See ``Store.keep``."""
        kept: int = self._watched("keep", partial(self.inner.keep, checkpoints))
        return kept

    def compact(self, archive: Archive, parts_max: int) -> bool:
        """See ``Store.compact``."""
        reader = self.inner.reader()
        events = self._archived.setdefault(archive.log, [])
        if archive.base > len(events):
            events += reader.read(archive.log, len(events), archive.base - len(events))
        reader.close()
        more: bool = self._watched("compact", partial(self.inner.compact, archive, parts_max))
        return more

    def reader(self) -> StoreReader:
        """See ``Store.reader``; closed with the store."""
        reader = self.inner.reader()
        self._readers.append(reader)
        return reader

    def close(self) -> None:
        """Close the store and every reader of it."""
        for reader in self._readers:
            reader.close()
        self.inner.close()
