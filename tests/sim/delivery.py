"""The sending side of the simulated world: one account's delivery, and the platform that keeps what it got."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from attrs import Factory, define

from seriatim.effects import Deliver, DropDelivery, Owes, SendPart
from seriatim.mail import AttemptWanted, Mail, PartAbandoned, PartFailed, PartSettled
from seriatim.outbox import Channel, marked

RETRY_MS = 400
_BARRED = 0.1


@define
class Arrival:
    """One message as the platform got it."""

    lane: str
    delivery: str
    part: int
    text: str
    time: int


@define
class Platform:
    """What users see. ``idempotent``: a repeated key posts nothing. Survives the gateway's crashes."""

    idempotent: bool
    text_max: int
    up: bool = True
    got: list[Arrival] = Factory(list)
    keys: set[tuple[str, int]] = Factory(set)
    barred: set[tuple[str, int]] = Factory(set)

    def receive(self, arrival: Arrival) -> None:
        """A send arrives."""
        key = (arrival.delivery, arrival.part)
        if self.idempotent and key in self.keys:
            return
        self.keys.add(key)
        self.got.append(arrival)

    def channel(self) -> Channel:
        """The way there as of now."""
        return Channel(up=self.up, idempotent=self.idempotent, text_max=self.text_max)


@define
class _Job:
    lane: str
    effect: Deliver
    due: deque[int]
    recorded: bool
    attempt: int = 0
    asked: bool = False
    sending: bool = False


@define
class Delivery:
    """Per chat in order, part by part, as actors/delivery does it. Dies with the process."""

    platform: Platform
    rng: Random
    post: Callable[[str, Mail], None]
    later: Callable[[int, Callable[[], None]], None]
    time: Callable[[], int]
    faulty: Callable[[], bool]
    chats: dict[str, deque[_Job]] = Factory(dict)
    jobs: dict[str, _Job] = Factory(dict)
    resting: set[str] = Factory(set)

    def take_up(self, lane: str, effect: Deliver) -> None:
        """A lane owes a reply."""
        job = self.jobs.get(effect.delivery)
        if job is None:
            job = _Job(lane, effect, deque(effect.due), effect.first_attempt_recorded)
            self.jobs[effect.delivery] = job
            self.chats.setdefault(lane, deque()).append(job)
        else:
            job.asked = False
        self._advance(lane)

    def owes(self, lane: str, effect: Owes) -> None:
        """A new incarnation of the lane says what it owes."""
        for job in list(self.chats.get(lane, ())):
            if job.effect.delivery not in effect.deliveries:
                self.drop(DropDelivery(job.effect.target, job.effect.delivery))

    def drop(self, effect: DropDelivery) -> None:
        """Some of it is not to be sent."""
        job = self.jobs.get(effect.delivery)
        if job is None:
            return
        keep = [part for part in job.due if part < effect.first]
        if job.sending and not keep:
            job.due.clear()
            return
        job.due = deque(keep)
        job.asked = False
        self._advance(job.lane)

    def permitted(self, effect: SendPart) -> None:
        """The attempt is recorded."""
        job = self.jobs.get(effect.delivery)
        if job is not None and job.asked and not job.sending and job.due and job.due[0] == effect.part:
            job.asked = False
            self._send(job, effect.attempt, repeat=effect.marked)

    def _advance(self, lane: str) -> None:
        chat = self.chats[lane]
        while chat and lane not in self.resting:
            job = chat[0]
            if job.sending or job.asked:
                return
            if not job.due:
                chat.popleft()
                del self.jobs[job.effect.delivery]
                continue
            channel = self.platform.channel()
            if not channel.up:
                self._rest(lane)
            elif job.recorded or channel.idempotent:
                self._send(job, max(1, job.attempt), repeat=False)
            else:
                job.asked = True
                self.post(lane, AttemptWanted(job.effect.delivery, job.due[0]))
            return

    def _rest(self, lane: str) -> None:
        self.resting.add(lane)

        def rested() -> None:
            self.resting.discard(lane)
            self._advance(lane)

        self.later(RETRY_MS, rested)

    def _send(self, job: _Job, attempt: int, *, repeat: bool) -> None:
        part = job.due[0]
        text = job.effect.parts[part]
        job.sending = True
        job.attempt = attempt
        arrival = Arrival(job.lane, job.effect.delivery, part, marked(text) if repeat else text, 0)
        fate = self.rng.random() if self.faulty() else 1.0
        if (arrival.delivery, part) in self.platform.barred:
            fate = _BARRED
        elif _BARRED <= fate < 0.11:
            self.platform.barred.add((arrival.delivery, part))

        def arrive() -> None:
            if fate >= 0.2 or fate < 0.06:
                arrival.time = self.time()
                self.platform.receive(arrival)
            self.later(self.rng.randint(1, 40), lambda: self._done(job, part, fate))

        self.later(self.rng.randint(1, 30), arrive)

    def _done(self, job: _Job, part: int, fate: float) -> None:
        """``fate``: below 0.06 doubtful and arrived, below 0.1 doubtful and lost, below 0.2 surely failed."""
        job.sending = False
        lane, delivery = job.lane, job.effect.delivery
        if fate >= 0.2:
            if job.due:
                job.due.popleft()
            self.post(lane, PartSettled(delivery, part, None))
        elif _BARRED <= fate < 0.11 and job.due:
            self.post(lane, PartAbandoned(delivery, part, "refused for good"))
            self.chats[lane].popleft()
            del self.jobs[delivery]
        elif job.due:
            if fate >= 0.1:
                self.post(lane, PartFailed(delivery, part, "surely failed"))
            job.recorded = False
            self._rest(lane)
        self._advance(lane)
