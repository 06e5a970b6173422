"""``python -m tests.sessions.histories``: a SessionStore against a model, over random operations, reopens and crashes.

Real SQLite, one home a history. A crash leaves the files as they are just before a commit or just after it; the store
is opened again from a copy of them. Fault model: the process dies, what was synced stays. Each history is made from its
number; ``--first N --histories 1`` runs one again.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from attrs import define

from seriatim.actors.ids import Ids
from seriatim.actors.sessions import SessionStore
from seriatim.config import GatewayConfig
from seriatim.keys import SessionKey
from seriatim.model import SessionSource
from seriatim.storage.audit import audit
from tests.sessions.model import Lane, Model

STEPS: Final = 20
CHATS: Final = ("1", "2", "3")
DAY_MS: Final = 86_400_000
CONFIG: Final = GatewayConfig(write_sessions_json=False)


class Died(BaseException):
    """The process is gone."""


@define
class Ticking:
    """A clock that stands still between operations."""

    now: int

    def now_ms(self) -> int:
        """Epoch ms."""
        return self.now


def source_of(chat: str) -> SessionSource:
    """A direct chat."""
    return SessionSource("telegram", chat, user_id="u")


def text_of(chat: str) -> str:
    """Its lane, as the store calls it."""
    return SessionKey.from_source(source_of(chat), CONFIG).text


class History:
    """One history. ``done``: counts of what was done."""

    def __init__(self, number: int, folder: Path) -> None:
        self.rng = random.Random(number)
        self.folder = folder
        self.clock = Ticking(1_700_000_000_000)
        self.model = Model()
        self.protected: set[str] = set()
        self.done: Counter[str] = Counter()
        self.lives = 0
        self.store = self._open()

    def run(self) -> None:
        """All steps, and a last look after a reopen."""
        for _ in range(self.rng.randint(8, STEPS)):
            self.clock.now += self.rng.choice((0, 1, 1_000, 60_000))
            name = self.rng.choice(NAMES)
            self.done[name] += 1
            OPERATIONS[name](self)
            if self.rng.random() < 0.05:
                self._reopen()
            elif self.rng.random() < 0.05:
                self.done["killed between"] += 1
                self._revive()
        self._reopen()
        reader = self.store._ops.entries._open_reader()
        assert audit(reader).holds
        reader.close()
        self.store.close()

    # --- lives -----------------------------------------------------------------------------------------

    def _open(self) -> SessionStore:
        self.lives += 1
        rng = random.Random(self.rng.random())
        ids = Ids(self.clock, lambda digits: f"{rng.getrandbits(4 * digits):0{digits}x}")
        home = self.folder / str(self.lives)
        return SessionStore(home, CONFIG, lambda key: key in self.protected, clock=self.clock, ids=ids)

    def _reopen(self) -> None:
        self.done["reopened"] += 1
        self.store.close()
        self.lives -= 1
        self.store = self._open()
        self.check()

    def _revive(self) -> None:
        """The process is dead: what its files hold is opened elsewhere."""
        dead, alive = self.folder / str(self.lives), self.folder / str(self.lives + 1)
        alive.mkdir(mode=0o700)
        for name in ("state.db", "state.db-wal"):
            if (dead / name).exists():
                shutil.copyfile(dead / name, alive / name)
                (alive / name).chmod(0o600)
        self.store.close()
        shutil.rmtree(dead)
        self.store = self._open()
        self.check()

    def mutate(self, call: Callable[[], Any], apply: Callable[[Any], None], answers: Callable[[Any], bool]) -> None:
        """Do it, and in the model; or die at its commit, before or after that is durable."""
        fate = self.rng.random()
        if fate >= 0.1:
            answer = call()
            assert answers(answer), answer
            apply(answer)
        else:
            written = self._die_in(call, after=fate < 0.05)
            if written:
                apply(None)
            if written is not None:
                self._revive()
                return
        self.check_some()

    def _die_in(self, call: Callable[[], Any], *, after: bool) -> bool | None:
        """Whether the commit was written; None where the call makes none, and so went through."""
        store = self.store._ops._door.lanes._store  # type: ignore[attr-defined]
        real = store.commit

        def commit(commits: Any) -> Any:
            if after:
                real(commits)
            raise Died

        store.commit = commit
        try:
            call()
        except Died:
            self.done["killed after" if after else "killed before"] += 1
            return after
        finally:
            del store.commit
        return None

    # --- looks -----------------------------------------------------------------------------------------

    def check_some(self) -> None:
        """One lane and one transcript."""
        chat = self.rng.choice(CHATS)
        self._check_lane(chat)
        if self.model.sessions:
            self._check_session(self.rng.choice(list(self.model.sessions)))

    def check(self) -> None:
        """All that the store tells."""
        for chat in CHATS:
            self._check_lane(chat)
        for session in self.model.sessions:
            self._check_session(session)
        bound = {text_of(chat): lane for chat, lane in self.model.lanes.items() if lane.session is not None}
        listed = self.store.list_sessions()
        assert {entry.session_key for entry in listed} == bound.keys()
        stamps = [entry.updated_at for entry in listed]
        assert stamps == sorted(stamps, reverse=True)
        assert self.store.has_any_sessions() is bool(self.model.sessions)
        minutes = self.rng.choice((0, 1, 10))
        since = self.clock.now - minutes * 60_000
        recent = {entry.session_key for entry in self.store.list_sessions(active_minutes=minutes)}
        assert recent == {key for key, lane in bound.items() if lane.updated >= since}

    def _check_lane(self, chat: str) -> None:
        lane = self.model.bound(chat)
        found = [entry for entry in self.store.list_sessions() if entry.session_key == text_of(chat)]
        if lane is None:
            assert found == []
            return
        [entry] = found
        assert lane.session is not None
        told = Lane(
            entry.session_id,
            round(entry.updated_at.timestamp() * 1000),
            entry.suspended,
            entry.resume_reason,
            entry.is_fresh_reset,
            entry.was_auto_reset,
            entry.reset_had_activity,
            entry.last_prompt_tokens,
        )
        assert told == lane
        assert entry.resume_pending is (lane.resume is not None)
        assert (entry.auto_reset_reason == "suspended") is lane.auto
        assert self.store.lookup_by_session_id(lane.session) == entry

    def _check_session(self, session: str) -> None:
        loaded = self.store.load_transcript(session)
        plain = [{name: told for name, told in message.items() if name != "timestamp"} for message in loaded]
        assert plain == self.model.sessions[session].shown()
        holders = [lane for lane in self.model.lanes.values() if lane.session == session]
        assert len(holders) <= 1
        if not holders:
            assert self.store.lookup_by_session_id(session) is None

    # --- what operations share -------------------------------------------------------------------------

    def chat(self) -> str:
        """One of the lanes."""
        return self.rng.choice(CHATS)

    def session(self) -> str:
        """A session, mostly one that there is."""
        known = list(self.model.sessions)
        return self.rng.choice(known) if known and self.rng.random() < 0.95 else "20200101_000000_00000000"

    def message(self) -> dict[str, Any]:
        """A message."""
        return {"role": self.rng.choice(("user", "user", "assistant")), "content": f"m{self.rng.random()}"}

    def new_of(self, chat: str) -> str:
        """The session that the lane has now by the store's word."""
        found = self.store._ops.entries.get(SessionKey.from_source(source_of(chat), CONFIG).canonical)
        assert found is not None
        assert found.session_id not in self.model.sessions, "a new session has a new id"
        return found.session_id


def get_or_create(h: History) -> None:
    """Mostly plain."""
    chat, force, now = h.chat(), h.rng.random() < 0.2, h.clock.now
    makes = h.model.makes_new(chat, force=force)

    def apply(_: Any) -> None:
        h.model.get_or_create(chat, now, h.new_of(chat) if makes else "", force=force)

    h.mutate(lambda: h.store.get_or_create_session(source_of(chat), force), apply, lambda entry: entry is not None)


def update(h: History) -> None:
    """With a count or without."""
    chat, count = h.chat(), h.rng.choice((None, 7, 900))
    lane = h.model.bound(chat)

    def apply(_: Any) -> None:
        if lane is not None:
            lane.updated = h.clock.now
            lane.prompts = lane.prompts if count is None else count

    h.mutate(lambda: h.store.update_session(text_of(chat), count), apply, lambda answer: answer is (lane is not None))


def reset(h: History) -> None:
    """As /reset."""
    chat = h.chat()
    there = h.model.bound(chat) is not None

    def apply(_: Any) -> None:
        if there:
            h.model.reset(chat, h.clock.now, h.new_of(chat))

    h.mutate(lambda: h.store.reset_session(text_of(chat)), apply, lambda entry: (entry is not None) is there)


def switch(h: History) -> None:
    """To any session, with any expectation."""
    chat, target = h.chat(), h.session()
    lane = h.model.bound(chat)
    expected = h.rng.choice((None, "other", lane.session if lane is not None else None))
    goes = h.model.switches(chat, target, expected)

    def apply(_: Any) -> None:
        if goes:
            h.model.switch(chat, h.clock.now, target)

    h.mutate(
        lambda: h.store.switch_session(text_of(chat), target, expected_session_id=expected),
        apply,
        lambda entry: (entry is not None and entry.session_id == target) is goes,
    )


def suspend(h: History) -> None:
    """Once or again."""
    chat = h.chat()
    lane = h.model.bound(chat)

    def apply(_: Any) -> None:
        if lane is not None:
            lane.suspended = True

    h.mutate(lambda: h.store.suspend_session(text_of(chat)), apply, lambda answer: answer is (lane is not None))


def mark(h: History) -> None:
    """Never over a suspension."""
    chat, reason = h.chat(), h.rng.choice(("restart_timeout", "shutdown_timeout"))
    lane = h.model.bound(chat)
    goes = lane is not None and not lane.suspended

    def apply(_: Any) -> None:
        if lane is not None and goes:
            lane.resume = reason

    h.mutate(lambda: h.store.mark_resume_pending(text_of(chat), reason), apply, lambda answer: answer is goes)


def clear(h: History) -> None:
    """False where nothing was pending."""
    chat = h.chat()
    lane = h.model.bound(chat)
    goes = lane is not None and lane.resume is not None

    def apply(_: Any) -> None:
        if lane is not None:
            lane.resume = None

    h.mutate(lambda: h.store.clear_resume_pending(text_of(chat)), apply, lambda answer: answer is goes)


def prune(h: History) -> None:
    """By age; some are protected. Each lane is a commit of its own, so it dies between operations only."""
    h.protected = {text_of(chat) for chat in CHATS if h.rng.random() < 0.3}
    days = h.rng.choice((0, 1e-6, 1 / 1440, 1))
    dry = h.rng.random() < 0.3
    before = h.clock.now - int(days * DAY_MS)
    protected = {chat for chat in CHATS if text_of(chat) in h.protected}
    kept = {chat: lane.session for chat, lane in h.model.lanes.items()}
    gone = h.model.prune(before, protected) if days else []
    if dry:
        for chat in gone:
            h.model.lanes[chat].session = kept[chat]
    assert h.store.prune_old_entries(days, dry_run=dry) == len(gone)
    h.check_some()


def append(h: History) -> None:
    """To any session, the lane's present one or not."""
    session, message = h.session(), h.message()
    known = session in h.model.sessions

    def apply(_: Any) -> None:
        if known:
            h.model.append(session, message)

    h.mutate(lambda: h.store.append_to_transcript(session, message), apply, lambda answer: answer is known)


def rewrite(h: History) -> None:
    """With some messages, or none."""
    session, messages = h.session(), [h.message() for _ in range(h.rng.randint(0, 4))]
    known = session in h.model.sessions

    def apply(_: Any) -> None:
        if known:
            h.model.rewrite(session, messages)

    h.mutate(lambda: h.store.rewrite_transcript(session, messages), apply, lambda answer: answer is known)


def rewind(h: History) -> None:
    """By none, some or many turns."""
    session, turns = h.session(), h.rng.choice((-1, 0, 1, 2, 2, 50))
    known = session in h.model.sessions
    expected = h.model.rewound(session, turns) if known else None

    def apply(_: Any) -> None:
        if known:
            h.model.rewind(session, turns)

    h.mutate(lambda: h.store.rewind_session(session, turns), apply, lambda answer: answer == expected)


OPERATIONS: Final[dict[str, Callable[[History], None]]] = {
    "get_or_create": get_or_create,
    "update": update,
    "reset": reset,
    "switch": switch,
    "suspend": suspend,
    "mark": mark,
    "clear": clear,
    "prune": prune,
    "append": append,
    "rewrite": rewrite,
    "rewind": rewind,
}
NAMES: Final = ("get_or_create",) * 4 + ("append",) * 4 + ("rewind",) * 2 + ("switch",) * 2 + tuple(OPERATIONS)
"""What is drawn from: some operations do nothing before others."""


def run(first: int, histories: int) -> Counter[str]:
    """Run them; what was done. Raises AssertionError, with the history's number as a note, at the first that fails."""
    memory = Path("/dev/shm")
    total: Counter[str] = Counter()
    for number in range(first, first + histories):
        with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
            history = History(number, Path(folder))
            try:
                history.run()
            except BaseException as error:
                error.add_note(f"history {number}")
                raise
            total += history.done
    return total


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.sessions.histories", description=__doc__)
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    began = time.monotonic()
    done = run(given.first, given.histories)
    told = {"first": given.first, "histories": given.histories, "seconds": round(time.monotonic() - began, 1)} | done
    if given.json:
        print(json.dumps(told))
    else:
        print("\n".join(f"{name:15} {count}" for name, count in told.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
