"""What must hold: the invariants of a run, checked as it goes and once it has come to rest."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from seriatim.effects import AckDuplicate, Effect, Finished, Nack, Permit, RunTurn, SendPart
from seriatim.events import Event, lane_log, session_log
from seriatim.lane import LaneState, hot
from seriatim.outbox import RECOVERED_NOTICE

if TYPE_CHECKING:
    from .world import Shell, World


class Violation(AssertionError):  # noqa: N818 - a finding about the core, no error of this program
    """An invariant is broken."""


def require(holds: bool, *what: object) -> None:
    """Raise a Violation unless ``holds``."""
    if not holds:
        raise Violation(" ".join(map(str, what)))


class Oracle:
    """Judges one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.nacked: set[str] = set()
        self.finished: dict[str, str] = {}

    # --- as it goes ------------------------------------------------------------------------------------

    def leaves(self, shell: Shell, permit: Permit, effect: Effect) -> None:
        """Law 2: the commit that explains the effect is durable, and of this incarnation."""
        world = self.world
        durable = permit.commit == "fold" or permit.commit in world.disk.ids
        require(durable, "left before its commit was durable:", effect)
        require(permit.lane == shell.gate.lane, "a permit of another lane")
        require(permit.incarnation == shell.gate.incarnation, "a permit of another incarnation")
        if isinstance(effect, RunTurn):
            live = world.agents.live(shell.key)
            require(not live, "two turns at a time:", live, effect)
            require(bool(effect.claims), "a turn without claims")
        elif isinstance(effect, AckDuplicate):
            user = world.inbox.get(effect.id)
            require(user is not None and user.key in world.disk.keys, "a duplicate of nothing durable")
        elif isinstance(effect, Finished):
            before = self.finished.setdefault(effect.id, effect.outcome)
            require(before == effect.outcome, "finished twice:", effect, before)
        elif isinstance(effect, SendPart):
            owed = shell.gate.durable.owed.get(effect.delivery)
            require(owed is None or not effect.marked or not world.plan.idempotent, "marked without need")

    def nack(self, effect: Nack) -> None:
        """A refused delivery; it must never turn up as accepted."""
        self.nacked.add(effect.id)

    def after(self, shell: Shell) -> None:
        """After each step of a shell: law 1, and no work that nobody will take up."""
        state = shell.gate.durable
        law_1(state)
        idle = shell.alive and shell.gate.quiescent() and not shell.mailbox and not shell.granted
        if idle and state.running is None and state.queue and not self.world.draining:
            slots = self.world.slots
            require(shell.key in slots.queue, "work waits in an idle lane:", shell.key, state.queue)

    def durable(self, shell: Shell) -> None:
        """Now and then after a commit: what the gate holds is what the logs tell."""
        if shell.alive and shell.gate.quiescent() and self.world.rng.random() < 0.2:
            self.same(shell)

    def same(self, shell: Shell) -> None:
        """Replay equals live, the boot index too."""
        live = shell.gate.durable
        told, _ = self.world.fold(shell.key)
        require(live == told, "live differs from the logs:\n", live, "\n", told)
        row = self.world.disk.hot.get(lane_log(shell.key))
        require(row is None or row == hot(live), "the boot index differs:", row, hot(live))

    # --- at rest ---------------------------------------------------------------------------------------

    def judge(self) -> None:
        """Everything has come to rest: each message has had its fate, each reply has been sent."""
        world = self.world
        for shell in world.shells.values():
            require(shell.gate.quiescent(), "not quiescent:", shell.key)
            self.same(shell)
        for user in world.users.values():
            require(user.acked, "never acknowledged:", user)
        require(not +world.slots.held, "slots are held at rest:", world.slots.held)
        total: Counter[str] = Counter()
        for key in world.lanes:
            total += Judgement(world, key).judge(self.nacked)
        balance = world.reader.counters()
        require(balance.holds, "law 1 over the counters:", balance)
        for name in ("accepted", "answered", "merged", "dropped"):
            require(getattr(balance, name) == total[name], name, "counters", balance, "logs", total)
            world.counts[name] += total[name]


def law_1(state: LaneState) -> None:
    """Accepted = answered + merged + dropped + waiting."""
    gone = state.answered + state.merged + state.dropped
    require(state.accepted == gone + len(state.waiting), "law 1:", state)


class Judgement:
    """One lane at rest, from its logs alone."""

    def __init__(self, world: World, key: str) -> None:
        self.world = world
        self.key = key
        self.events: list[Event] = world.reader.read(lane_log(key))
        self.accepted: dict[str, Event] = {}
        self.outcomes: dict[str, list[str]] = defaultdict(list)

    def judge(self, nacked: set[str]) -> Counter[str]:
        """Check the lane; the counts of its messages by outcome."""
        state, _ = self.world.fold(self.key)
        at_rest = state.running is None and not state.queue and not state.interrupted
        require(at_rest and not state.waiting, "work left at rest:", state)
        require(not state.owed, "owed at rest:", state.owed)
        interrupted = 0
        keys: Counter[str] = Counter()
        for event in self.events:
            data = event.data
            if event.type == "inbox/accepted":
                require(data["id"] not in self.accepted, "accepted twice:", data)
                self.accepted[data["id"]] = event
                if data["id"] in self.world.inbox:
                    keys[self.world.inbox[data["id"]].key] += 1
            elif event.type == "inbox/answered":
                self.outcomes[data["id"]].append("answered")
            elif event.type in ("inbox/merged", "inbox/dropped"):
                for inbox_id in data["ids"]:
                    self.outcomes[inbox_id].append(event.type[6:])
            interrupted += event.type == "inbox/interrupted"
        require(not nacked & self.accepted.keys(), "refused, yet accepted:", nacked & self.accepted.keys())
        require(all(count == 1 for count in keys.values()), "a message was accepted twice:", keys)
        require(interrupted <= self.world.crashes[self.key], "interrupted without a crash:", interrupted)
        for user in self.world.users.values():
            require(user.lane != self.key or keys[user.key] == 1, "acknowledged, never accepted:", user)
        for inbox_id in self.accepted:
            require(len(self.outcomes[inbox_id]) == 1, "outcomes of", inbox_id, self.outcomes[inbox_id])
        self._turns()
        self._replies()
        counts = Counter(outcome for outcomes in self.outcomes.values() for outcome in outcomes)
        counts["accepted"] = len(self.accepted)
        counts["interruptions"] = interrupted
        return counts

    # --- turns -----------------------------------------------------------------------------------------

    def _turns(self) -> None:
        """/queue items have a turn each, in order; each turn says what its own agent said."""
        generations: dict[tuple[str, int], int] = {}
        first_claims: list[str] = []
        for event in self.events:
            if event.type != "inbox/claimed":
                continue
            data = event.data
            generations[data["session"], data["turn"]] = data["generation"]
            kinds = {self.accepted[i].data["kind"] for i in data["ids"]}
            require("queue" not in kinds or len(data["ids"]) == 1, "a /queue item shares a turn:", data)
            require(len(kinds) == 1, "kinds share a turn:", data)
            if "queue" in kinds and data["ids"][0] not in first_claims:
                first_claims.append(data["ids"][0])
        seqs = [self.accepted[i].seq for i in first_claims]
        require(seqs == sorted(seqs), "/queue items out of order:", first_claims)
        for session in {session for session, _ in generations}:
            self._session(session, generations)

    def _session(self, session: str, generations: dict[tuple[str, int], int]) -> None:
        open_turn = 0
        messages: Counter[str] = Counter()
        for event in self.world.reader.read(session_log(session)):
            data = event.data
            if event.type == "turn/start":
                require(not open_turn, "a turn starts in another's:", session, data)
                open_turn = data["turn"]
            elif event.type == "turn/end":
                require(open_turn == data["turn"], "a turn ends that isn't open:", session, data)
                open_turn = 0
            elif event.type == "user/message":
                messages[data["id"]] += 1
            elif event.type == "assistant/message" and data["text"].startswith("<g"):
                said = int(data["text"][2:].partition(">")[0])
                meant = generations[session, data["turn"]]
                require(said == meant, "a late result in another's turn:", said, meant, session, data)
        require(not open_turn, "an open turn at rest:", session)
        require(all(n == 1 for n in messages.values()), "a user message repeated:", messages)

    # --- replies ---------------------------------------------------------------------------------------

    def _replies(self) -> None:
        """Each reply is sent, or given up before anybody saw it; repeats are marked; order holds."""
        ends: dict[tuple[str, int], Event] = {}
        owed: dict[str, int] = {}
        parts: set[tuple[str, int]] = set()
        for event in self.events:
            if event.type == "delivery/owed":
                owed[event.data["id"]] = event.seq
                parts |= {(event.data["id"], n) for n in range(len(event.data["parts"]))}
            elif event.type in ("delivery/settled", "delivery/abandoned"):
                part = event.data["id"], event.data["part"]
                require(part not in ends, "a part ended twice:", event)
                ends[part] = event
        seen: dict[tuple[str, int], int] = {}
        order: list[int] = []
        for arrival in self.world.platform.got:
            if arrival.lane != self.key:
                continue
            part = arrival.delivery, arrival.part
            require(arrival.delivery in owed, "sent, never owed:", arrival)
            if part in seen:
                self.world.counts["repeats"] += 1
                require(arrival.text.startswith(RECOVERED_NOTICE), "an unmarked repeat:", arrival)
            else:
                order.append(owed[arrival.delivery] * 64 + arrival.part)
            seen[part] = arrival.time
        require(order == sorted(order), "replies out of order:", order)
        for part in parts:
            ended = ends[part]
            if ended.type == "delivery/settled":
                require(part in seen, "settled, never sent:", part)
            elif ended.data["reason"] == "stop":
                require(part not in seen, "abandoned by /stop, yet sent:", part)
