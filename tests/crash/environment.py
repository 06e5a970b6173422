"""Rows that no point of a run is: what surrounds the process fails it, or somebody else holds its files.

Each makes its own few runs on real files and gives their number and what was wrong.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest import mock

from attrs import Factory, define

from seriatim.actors.delivery import SendDone
from seriatim.actors.receipts import Receipt
from seriatim.commits import Commit, Part
from seriatim.config import GatewayConfig, StopConfig
from seriatim.errors import FormatUnsupportedError, HomeBusyError
from seriatim.events import Event, lane_log, session_log
from seriatim.gateway import Gateway
from seriatim.model import MessageEvent, Outbound, Platform, SessionSource
from seriatim.outbox import RECOVERED_NOTICE
from seriatim.storage import files, schema, sqlite, sqlite_reader
from seriatim.storage.audit import audit
from seriatim.storage.event_log.files import TEMPORARY
from seriatim.storage.event_log.header import SessionHeader
from seriatim.storage.event_log.jsonl import JsonlLogs
from seriatim.storage.event_log.store_logs import StoreLogs
from seriatim.storage.home import Home
from seriatim.storage.sqlite import SqliteStore
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.testing.clock import START_MS
from seriatim.testing.judge import judge
from seriatim.testing.snapshot import beside, snapshot_files, wal_frames
from tests.crash.enumeration import spread
from tests.crash.ground import Ground
from tests.crash.life import Life
from tests.crash.points import Fate
from tests.crash.scenario import Scenario
from tests.crash.scenarios import SCENARIOS

STEPS_TRIED: Final = 8
"""At how many moments of a life the outside strikes."""
AWAY_MS: Final = 2_000


@define
class Found:
    """How many runs, and what was wrong in them."""

    runs: int = 0
    wrong: list[str] = Factory(list)

    def ran(self, wrong: list[str]) -> None:
        """One more."""
        self.runs += 1
        self.wrong += wrong


@contextmanager
def _folder() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="seriatim-crash-", dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def _named(name: str) -> Scenario:
    return next(scenario for scenario in SCENARIOS if scenario.name == name)


def _steps(scenario: Scenario) -> int:
    with _folder() as folder:
        life = Life(Ground(scenario), folder / "state.db", Fate(), 1, START_MS)
        life.run()
        life.close()
        return life.steps


def _moments(scenario: Scenario) -> list[int]:
    return spread(_steps(scenario), STEPS_TRIED)


# --- two processes ---------------------------------------------------------------------------------------


def second_opener() -> Found:
    """K54. While a gateway owns its home, whoever else opens it is told who does, and may read what is durable."""
    found, scenario = Found(), _named("one tool")
    for steps in _moments(scenario):
        with _folder() as folder:
            ground, home = Ground(scenario), Home.own(folder / "home")
            life = Life(ground, Path(home.database), Fate(), 1, START_MS)
            life.run(steps)
            try:
                Home.own(folder / "home")
                ground.complain("a second process took the home")
            except HomeBusyError as busy:
                if f"process {os.getpid()} " not in busy.owner:
                    ground.complain(f"the owner is told as {busy.owner}")
            reader = SqliteReader(home.database)
            if not audit(reader).counters.holds:
                ground.complain("what the second one reads doesn't hold")
            reader.close()
            life.run()
            judge(ground, life)
            life.close()
            home.close(clean=False)
        found.ran(ground.wrong)
    return found


def woken_owner() -> Found:
    """K55. The owner is frozen with its machine, another takes over and comes to rest; then the first one wakes."""
    found, scenario = Found(), _named("one tool")
    for steps in _moments(scenario):
        with _folder() as folder:
            ground, path = Ground(scenario), folder / "state.db"
            old = Life(ground, path, Fate(), 1, START_MS)
            old.run(steps)
            ground.deaths += 1
            news = [(done, _arrived(ground, out)) for out, done in old.sending]  # the network doesn't stop with it
            old.sending.clear()
            ground.life += 1
            new = Life(ground, path, Fate(), 2, START_MS + AWAY_MS)
            new.run()
            written = new.witness.heads.copy()
            for done, came in news:
                done(came)
            old.run()
            heads = {log: info.head for log in written if (info := new.reader().info(log)) is not None}
            if heads != written:
                ground.complain(f"the woken owner wrote: {heads}, not {written}")
            judge(ground, new)
            old.close()
            new.close()
            found.ran([text for text in ground.wrong if not _is_marked_repeat(ground, text)])
    return found


def _arrived(ground: Ground, out: Outbound) -> SendDone:
    return SendDone(out.delivery, out.part, ground.platform.receive(out).message_id, None)


def _is_marked_repeat(ground: Ground, text: str) -> bool:
    """Whether a reply arrived twice because it had left before the pause: the new owner's copy says what it may be."""
    twice = [got.out.text for got in ground.platform.received]
    return "arrived again, unmarked" in text and sum(said.startswith(RECOVERED_NOTICE) for said in twice) == 1


def marker() -> Found:
    """K50. The marker of a clean stop stands, and the process went on, or a turn is open beside it."""
    found, scenario = Found(), _named("one tool")
    for steps in _moments(scenario):
        for wrote_on in (False, True):
            with _folder() as folder:
                ground, home = Ground(scenario), Home.own(folder / "home")
                first = Life(ground, Path(home.database), Fate(), 1, START_MS)
                first.run(steps)
                home.close(clean=True)
                if wrote_on:
                    SqliteStore(home.database).close()  # a later epoch: the marker is another life's
                home = Home.own(folder / "home")
                if home.was_clean is wrote_on:
                    ground.complain(f"a marker counts as {home.was_clean}")
                ground.deaths += 1
                ground.life += 1
                second = Life(ground, Path(home.database), Fate(), 2, START_MS + AWAY_MS)
                second.run()
                judge(ground, second)
                first.close()
                second.close()
                home.close(clean=True)
            found.ran(ground.wrong)
    return found


# --- disks -----------------------------------------------------------------------------------------------


def lying_disk() -> Found:
    """K53. The machine lost its power and the disk what it said it had: the log's end is missing, and nothing else.

    Outside of the promise: what was acked is gone. What is there is whole, and a platform that gives its messages again
    (its cursor stands where the log ends) gets them answered.
    """
    found, scenario = Found(), _named("one after the other")
    with _folder() as folder:
        clean = Life(Ground(scenario), folder / "state.db", Fate(), 1, START_MS)
        clean.run()
        clean.close()
        commits = list(clean.frames.items())
    for at in spread(len(commits), STEPS_TRIED):
        point, (before, _) = commits[at]
        with _folder() as folder:
            ground = Ground(scenario)
            life = Life(ground, folder / "0" / "state.db", Fate(at=point), 1, START_MS)
            life.path.parent.mkdir()
            life.run()
            ground.deaths += 1
            path = Path(snapshot_files(life.path, folder / "1", frames=before))
            life.close()
            ground.life += 1
            after = Life(ground, path, Fate(), 2, life.clock.now_ms() + AWAY_MS)
            kept = SqliteStore(path)
            known = kept.reader().has_keys([f"inbound:fake:fake::{n}:{m}" for n in "1" for m in ("in1", "in2", "in3")])
            kept.close()
            for posted in ground.platform.posted:
                posted.acked = f"inbound:fake:fake::1:{posted.event.message_id}" in known
            after.run()
            judge(ground, after)
            after.close()
        found.ran(ground.wrong)
    return found


def blobs() -> Found:
    """K47. A blob was written and its commit wasn't: it stays for those who may still commit, then it is swept."""
    found = Found()
    for commits in (False, True):
        with _folder() as folder:
            wrong = []
            store = SqliteStore(folder / "state.db")
            name = store.put_blob(b"a picture", START_MS)
            if commits:
                event = Event("inbox/accepted", 0, START_MS, {"id": "i"})
                part = Part(lane_log("a"), 0, (event,), None, {"version": 1, "id": "a", "createdAt": START_MS})
                store.commit([Commit("c", lane_log("a"), 1, (part,), blobs=(name,))])
            path = snapshot_files(folder / "state.db", folder / "1")
            if (folder / "blobs").exists():
                shutil.copytree(folder / "blobs", folder / "1" / "blobs")
            store.close()
            store = SqliteStore(path)
            if store.sweep_blobs(START_MS).count:
                wrong.append("a blob was swept while its commit might come")
            if store.sweep_blobs(START_MS + 1).count is commits:
                wrong.append("a blob was swept with its commit there" if commits else "an orphan wasn't swept")
            store.close()
        found.ran(wrong)
    return found


def forks() -> Found:
    """K44. A fork's copy of its parent is there whole or not at all, wherever the writing of it ends."""
    found = Found()
    told = [Event("user/message", n, START_MS + n, {"turn": 1, "text": f"word {n}"}) for n in range(6)]
    header = SessionHeader(id="child", created_at=START_MS, parent_session="parent", seed_length=len(told))
    with _folder() as folder:
        store = SqliteStore(folder / "state.db")
        before = wal_frames(folder / "state.db-wal")
        StoreLogs(store).append("child", header, 0, told)
        for frames in range(before, wal_frames(folder / "state.db-wal") + 1):
            copy = SqliteStore(snapshot_files(folder / "state.db", folder / f"cut {frames}", frames=frames))
            found.ran(_half(StoreLogs(copy), len(told)))
            copy.close()
        store.close()
        logs = JsonlLogs(folder / "logs", "raw")
        logs.append("child", header, 0, told)
        path = Path(logs.locate(header).path)
        whole = path.read_bytes()
        for size in spread(len(whole), 24):  # it is written under another name, and published whole
            shutil.rmtree(folder / "logs")
            path.parent.mkdir(parents=True)
            path.with_name(TEMPORARY).write_bytes(whole[:size])
            wrong = [] if JsonlLogs(folder / "logs", "raw").read("child") is None else ["half a fork is there"]
            JsonlLogs(folder / "logs", "raw").append("child", header, 0, told)
            found.ran(wrong + _half(JsonlLogs(folder / "logs", "raw"), len(told)))
    return found


def _half(logs: Any, length: int) -> list[str]:
    stored = logs.read("child")
    return [] if stored is None or len(stored.events) in (0, length) else [f"half a fork: {len(stored.events)} events"]


def half_upgrade() -> Found:
    """K60. The program dies at each statement of a migration: the file is old or new, and the next start ends it."""
    found = Found()
    step = ("CREATE TABLE later(n INTEGER PRIMARY KEY) STRICT", "INSERT INTO later SELECT at FROM events")
    newer = schema.FORMAT + 1
    with _folder() as folder:
        scenario = _named("one message")
        life = Life(Ground(scenario), folder / "state.db", Fate(), 1, START_MS)
        life.run()
        life.close()
        patches = [mock.patch.object(module, "FORMAT", newer) for module in (schema, files, sqlite, sqlite_reader)]
        with mock.patch.object(schema, "STEPS", (*schema.STEPS, step)):
            for patch in patches:
                patch.start()
            try:
                for left in range(1, 100):
                    if not _dies_migrating(folder, left, found):
                        break
            finally:
                for patch in patches:
                    patch.stop()
    return found


class _Died(BaseException):
    pass


def _dies_migrating(folder: Path, left: int, found: Found) -> bool:
    """Whether the migration had a statement of that number to die at."""
    source = Path(snapshot_files(folder / "state.db", folder / f"{left} before"))
    saved: list[str] = []

    class Dying(sqlite3.Connection):
        count = 0

        def execute(self, *call: Any) -> sqlite3.Cursor:
            Dying.count += 1
            if Dying.count == left:
                saved.append(snapshot_files(source, folder / f"{left} after"))
                raise _Died
            return super().execute(*call)

    def connect(*arguments: Any, **named: Any) -> sqlite3.Connection:
        return sqlite3.connect(*arguments, **named, factory=Dying)

    fake = mock.Mock(connect=connect, Error=sqlite3.Error)
    try:
        with mock.patch.dict(schema.__dict__, {"sqlite3": fake}):
            SqliteStore(source).close()
    except _Died:
        pass
    else:
        return False
    wrong = []
    connection = sqlite3.connect(saved[0])
    events = connection.execute("SELECT count(*) FROM events").fetchone()[0]
    connection.close()
    store = SqliteStore(saved[0])
    connection = sqlite3.connect(saved[0])
    if connection.execute("PRAGMA user_version").fetchone()[0] != schema.FORMAT:
        wrong.append("the next start didn't end the upgrade")
    if connection.execute("SELECT count(*) FROM later").fetchone()[0] != events:
        wrong.append("the upgrade is not whole")
    connection.close()
    store.close()
    found.ran(wrong)
    return True


# --- damage and strangers --------------------------------------------------------------------------------


def bit_rot() -> Found:
    """K58. A row of one lane's logs is other than it was written: that lane is refused, untouched; others go on."""
    return _damaged(lambda connection, at: connection.execute(
        "UPDATE events SET data = replace(data, '\"id\"', '\"ix\"') || ' ' WHERE at = ?", (at,)
    ))  # fmt: skip


def newer_format() -> Found:
    """K59. A log holds an event that this program doesn't know and may not pass over: it is read, never written."""
    found = Found()
    for log in (lane_log, session_log):
        with _folder() as folder:
            lane, session = _lived(folder)
            store = SqliteStore(folder / "state.db")
            name = log(lane if log is lane_log else session)
            info = store.reader().info(name)
            assert info is not None
            event = Event("future/thing", info.head, START_MS, {})
            store.commit([Commit("future", lane_log(lane), 1_000, (Part(name, info.head, (event,), None),))])
            store.close()
            found.ran(_speak(folder, name))
    with _folder() as folder:
        _lived(folder)
        connection = sqlite3.connect(folder / "state.db")
        connection.execute(f"PRAGMA user_version = {schema.FORMAT + 1}")
        connection.close()
        before = (folder / "state.db").read_bytes()
        wrong = []
        try:
            Home.own(folder).close(clean=False)
            wrong.append("a newer database was opened")
        except FormatUnsupportedError:
            pass
        if (folder / "state.db").read_bytes() != before:
            wrong.append("a newer database was written")
        found.ran(wrong)
    return found


def _damaged(change: Callable[[sqlite3.Connection, int], object]) -> Found:
    found = Found()
    with _folder() as folder:
        lane, _ = _lived(folder)
        connection = sqlite3.connect(folder / "state.db")
        name = lane_log(lane)
        rows = connection.execute(
            "SELECT at FROM events WHERE log = (SELECT n FROM logs WHERE id = ?)", (name,)
        ).fetchall()
        connection.close()
        for which in spread(len(rows), STEPS_TRIED):
            copy = folder / f"row {which}"
            copy.mkdir()
            shutil.copyfile(folder / "state.db", copy / "state.db")
            connection = sqlite3.connect(copy / "state.db")
            change(connection, rows[which][0])
            connection.commit()
            connection.close()
            found.ran(_speak(copy, name))
    return found


def _event(text: str, chat: str) -> MessageEvent:
    return MessageEvent(text, SessionSource(Platform("host"), chat, user_id="7"))


def _config() -> GatewayConfig:
    return GatewayConfig(stop=StopConfig(drain_s=1.0))


def _lived(folder: Path) -> tuple[str, str]:
    """A home with two conversations; lane and session of the first."""

    async def main() -> Receipt:
        async with Gateway(_echo, home=folder, config=_config()) as gateway:
            receipts = [await gateway.accept(_event("hi", chat)) for chat in ("1", "2")]
            for receipt in receipts:
                await receipt.answered()
            return receipts[0]

    first = asyncio.run(main())
    for suffix in ("-wal", "-shm"):
        beside(folder / "state.db", suffix).unlink(missing_ok=True)
    assert first.session_id is not None
    return first.session_key, first.session_id


def _speak(folder: Path, name: str) -> list[str]:
    """Start on the home, write to both conversations: the damaged one refuses and stays as it is, the other answers."""
    before = _rows(folder, name)

    async def main() -> list[str]:
        async with Gateway(_echo, home=folder, config=_config(), on_error=lambda where, error: None) as gateway:
            damaged = await gateway.accept(_event("more", "1"))
            sound = await gateway.accept(_event("more", "2"))
            end = await sound.answered()
            return [damaged.outcome, end.text or end.reason]

    said = asyncio.run(main())
    wrong = [] if said == ["refused", "echo more"] else [f"damaged and sound conversation said {said}"]
    return wrong if _rows(folder, name) == before else [*wrong, f"{name} was written"]


def _rows(folder: Path, name: str) -> list[Any]:
    connection = sqlite3.connect(folder / "state.db")
    try:
        return connection.execute(
            "SELECT * FROM events WHERE log = (SELECT n FROM logs WHERE id = ?) ORDER BY seq", (name,)
        ).fetchall()
    finally:
        connection.close()


async def _echo(turn: Any) -> str:
    return f"echo {turn.text}"


ENVIRONMENTS: Final[dict[str, Callable[[], Found]]] = {
    "second_opener": second_opener,
    "woken_owner": woken_owner,
    "marker": marker,
    "lying_disk": lying_disk,
    "blobs": blobs,
    "forks": forks,
    "half_upgrade": half_upgrade,
    "bit_rot": bit_rot,
    "newer_format": newer_format,
}
