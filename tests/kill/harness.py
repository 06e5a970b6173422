"""Kills a gateway again and again, and says what came of its messages.

Fault model: SIGKILL of the whole process, from outside, at a random moment (start-up and recovery included) or while
it is halted at a named point. What the process had handed to the kernel survives, as it does in a real kill; power
failures are the crash enumerator's part (tests.crash). The platform hangs up now and then, gives again what wasn't
acked, and keeps what it got. The seed chooses points, moments and messages; threads and sockets keep their own time,
so a run is not repeated exactly.
"""

from __future__ import annotations

import asyncio
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from attrs import Factory, define, frozen

from seriatim.errors import StoreUnhealthyError
from seriatim.storage.audit import audit
from seriatim.storage.sqlite_reader import SqliteReader
from tests.kill.judge import Said, Verdict, judge, read_logs
from tests.kill.platform import Platform
from tests.kill.process import Armed, Child

KINDS: dict[str, tuple[str, ...]] = {
    "mid-turn": ("mid-turn", "in-tool", "after tool/call", "before tool/result", "after tool/result"),
    "recovery": ("opened", "before inbox/interrupted", "in inbox/interrupted", "after inbox/interrupted"),
    "reply durable, unsent": ("reply-unsent", "after delivery/owed"),
    "sent, unsettled": ("sent-unsettled", "sent-unconfirmed", "before delivery/settled"),
    "accepted, unacked": ("accepted-unacked", "after inbox/accepted"),
    "inside a commit": ("in inbox/accepted", "in delivery/owed", "in tool/call", "in delivery/settled"),
    "while draining": ("",),
    "random": ("",),
}
"""Each kind of kill with its points; "recovery" follows a kill that leaves a turn open."""
RARE = {"in-tool", "after tool/call", "in tool/call", "before tool/result", "after tool/result"}
"""Points that few turns pass."""

REACH_S_MAX = 6.0
"""A point not reached so long after the child has connected is given up, and the child killed where it is."""
START_S_MAX = 30.0
QUIET_S_MAX = 60.0
SAID_A_ROUND_MAX = 60
OPEN_MAX = 24
DEPTH_MAX = 250
"""Steps of SQLite's machine; a commit of a few events takes some hundred."""


@frozen
class Kill:
    """One kill: where it is ``armed``, else ``delay_s`` after the process's start, or its connection if ``live``.

    ``drain_s``: SIGTERM then, and SIGKILL so much later, if there is anything left to kill.
    """

    kind: str
    armed: Armed | None = None
    delay_s: float = 0.0
    live: bool = True
    drain_s: float | None = None


@define
class Report:
    """What a run shows. ``reached``: named points at which a child was killed; ``missed``: armed and not reached.
    ``unbalanced``: kills after which the counters or logs didn't add up.
    """

    seed: int
    verdict: Verdict
    kills: int = 0
    reached: Counter[str] = Factory(Counter)
    missed: Counter[str] = Factory(Counter)
    interruptions: int = 0
    unbalanced: int = 0
    seconds: float = 0.0


class HarnessError(Exception):
    """The run itself failed: a child died by itself, or never came to rest. Says what the child said last."""


def plan(kills: int, rng: random.Random) -> Iterator[Kill]:
    """Every kind in each cycle, in random order, recovery behind a kill inside a turn."""
    made = 0
    while made < kills:
        kinds = [kind for kind in KINDS if kind != "recovery"]
        rng.shuffle(kinds)
        at = kinds.index("mid-turn")
        kinds[at:at] = ["mid-turn", "recovery"]
        for kind in kinds[: kills - made]:
            yield _kill(kind, rng)
            made += 1


def _kill(kind: str, rng: random.Random) -> Kill:
    point = rng.choice(KINDS[kind])
    if kind == "while draining":
        return Kill(kind, delay_s=rng.uniform(0.1, 0.5), drain_s=rng.uniform(0, 0.3))
    if not point:
        live = rng.random() < 0.7
        return Kill(kind, delay_s=rng.uniform(0.1, 0.8) if live else rng.uniform(0, 1.5), live=live)
    # Not the first passes: a lane whose turn is interrupted in every round is given up, as it should be.
    count = 1 if kind == "recovery" else rng.randint(1, 4) if point in RARE else rng.randint(4, 20)
    return Kill(kind, Armed(point, count, rng.randint(1, DEPTH_MAX)))


class Run:
    """One run over one home."""

    def __init__(self, folder: Path, kills: Sequence[Kill], seed: int, sin: str = "") -> None:
        self._home = folder / "home"
        self._socket = folder / "platform"
        self._log = folder / "child.log"
        self._kills = kills
        self._rng = random.Random(seed)
        self._platform = Platform()
        self._report = Report(seed, Verdict())
        self._sin = sin
        self._findings: list[str] = []

    async def run(self) -> Report:
        """Do it. Raises HarnessError."""
        began = time.monotonic()
        report = self._report
        await self._platform.open(self._socket)
        try:
            for kill in self._kills:
                await self._round(kill)
                report.kills += 1
            await self._come_to_rest()
        finally:
            await self._platform.close()
        logs = read_logs(self._home / "state.db")
        report.verdict = judge(self._platform.world, logs)
        report.verdict.findings += self._findings
        report.interruptions = logs.interruptions
        report.seconds = round(time.monotonic() - began, 1)
        return report

    async def _start(self, armed: Armed | None) -> Child:
        separate = ["--separate-attempt"] if self._rng.random() < 0.3 else []
        arguments = [str(self._home), str(self._socket), *separate, *(["--sin", self._sin] if self._sin else [])]
        return await Child.start("tests.kill.child", arguments, self._log, armed)

    async def _round(self, kill: Kill) -> None:
        child = await self._start(kill.armed)
        talk = asyncio.ensure_future(self._talk())
        try:
            where = await self._wait(child, kill)
        finally:
            talk.cancel()
            await asyncio.gather(talk, return_exceptions=True)
            await child.kill()
        if not await self._platform.until(lambda: not self._platform.connected, START_S_MAX):
            raise HarnessError("the dead child's connection is still open")
        self._audit(kill)
        if kill.armed is not None:
            (self._report.reached if where else self._report.missed)[kill.armed.point] += 1

    def _audit(self, kill: Kill) -> None:
        """Law 1 holds at every instant: also in what a kill left behind."""
        database = self._home / "state.db"
        if not database.exists():
            return  # killed before it made one
        try:
            reader = SqliteReader(database)
        except StoreUnhealthyError:
            return  # killed before its tables were there
        try:
            found = audit(reader)
        finally:
            reader.close()
        if not found.holds:
            self._report.unbalanced += 1
            self._findings.append(f"after {kill}: {found.problems or found.counters}")

    async def _wait(self, child: Child, kill: Kill) -> str:
        """Return when the child is to be killed; the name of the point where it halted, if it did."""
        if kill.live and kill.armed is None and not await self._platform.until(self._is_connected, START_S_MAX):
            raise HarnessError(self._last_words("the child doesn't connect"))
        if kill.armed is not None:
            connected = asyncio.ensure_future(self._platform.until(self._is_connected, START_S_MAX))
            first: set[asyncio.Future[Any]] = {child.halted, connected}
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            connected.cancel()
        limit_s = kill.delay_s if kill.armed is None else REACH_S_MAX
        done, _ = await asyncio.wait({child.halted}, timeout=limit_s)
        if not done and kill.drain_s is not None:
            child.process.send_signal(signal.SIGTERM)
            await asyncio.wait({child.halted}, timeout=kill.drain_s)
        elif done and not child.halted.result():
            raise HarnessError(self._last_words("the child ended by itself"))
        return child.halted.result() if done else ""

    def _is_connected(self) -> bool:
        return self._platform.connected

    async def _talk(self) -> None:
        """People talk: single messages, bursts into one lane, /queue, tools, long replies."""
        rng = self._rng
        left = SAID_A_ROUND_MAX
        while left > 0:
            lane = rng.choice(LANES)
            burst = rng.randint(2, 8) if rng.random() < 0.3 else 1
            for _ in range(burst):
                self._say(*lane)
            left -= burst
            if self._platform.connected and rng.random() < 0.01:
                self._platform.hang_up()
            await asyncio.sleep(rng.uniform(0, 0.03))  # people's pace, not a wait for something
            await self._platform.until(lambda: self._platform.open_count < OPEN_MAX, START_S_MAX)

    def _say(self, chat: str, chat_type: str, user: str) -> None:
        rng = self._rng
        name = f"m{len(self._platform.world.said) + 1}"
        kind = "queue" if rng.random() < 0.15 else "human"
        text = name + (" tool" if rng.random() < 0.25 else "") + (" long" if rng.random() < 0.1 else "")
        said = Said(name, f"{chat}/{user}", chat, kind)
        self._platform.say(said, user=user, chat_type=chat_type, text=f"/queue {text}" if kind == "queue" else text)

    async def _come_to_rest(self) -> None:
        """One last child that nobody kills: it has to answer everything and to stop cleanly."""
        child = await self._start(None)
        try:
            if not await self._platform.until(self._is_connected, START_S_MAX):
                raise HarnessError(self._last_words("the last child doesn't connect"))
            done = await self._platform.all_done(QUIET_S_MAX)
            child.process.send_signal(signal.SIGTERM)
            await asyncio.wait({ended := asyncio.ensure_future(child.process.wait())}, timeout=QUIET_S_MAX)
            code = ended.result() if ended.done() else None
        finally:
            await child.kill()
        if code != 0:
            raise HarnessError(self._last_words(f"the last child's exit code: {code}"))
        if not done:
            self._findings.append("not everything was answered in time")

    def _last_words(self, what: str) -> str:
        return f"{what}\n{self._log.read_text(errors='replace')[-4000:]}"


LANES = (
    *((f"dm{number}", "dm", f"u{number}") for number in range(4)),
    ("room", "group", "u0"),
    ("room", "group", "u1"),
)
"""Chat, its type, and who writes there; in a group each person has a lane."""


def run(kills: int | Sequence[Kill], seed: int, sin: str = "") -> Report:
    """Run once in a folder of its own, which is gone afterwards. Raises HarnessError.

    ``kills``: these, or so many of the seed's choice.
    """
    planned = list(plan(kills, random.Random(seed))) if isinstance(kills, int) else kills
    with tempfile.TemporaryDirectory(prefix="seriatim-kill-") as folder:
        return asyncio.run(Run(Path(folder), planned, seed, sin).run())
