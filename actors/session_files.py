"""What a SessionStore keeps on disk besides the database: the mirror ``sessions.json``, and, alone, the home itself."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from seriatim.actors.entries import Entries
from seriatim.actors.ids import Ids, NowMs
from seriatim.actors.solo import Solo
from seriatim.batch import Rules
from seriatim.config import GatewayConfig
from seriatim.entry import SessionEntry
from seriatim.errors import CorruptionError, InvalidInputError, SeriatimError
from seriatim.keys import KeySettings, SessionKey
from seriatim.storage.contract import Store
from seriatim.storage.home import Home
from seriatim.storage.mirror import read_mirror, write_mirror
from seriatim.storage.sqlite import SqliteStore
from seriatim.store_calls import Import

_log = logging.getLogger("seriatim.sessions")

SESSIONS: Final = "sessions.json"
IMPORTING: Final = ".sessions.json.importing"
README: Final = "Mirror of the sessions in state.db, for people and old tools; never read while there is a log."
DEBOUNCE_S: Final = 1.0
"""How long a change of routes waits for others to be mirrored with it."""
PERIOD_S: Final = 60.0
"""How often other changes (activity, counts) are looked for."""
PACE_S: Final = 0.0005
"""Rest between two lanes that are looked at."""
CLOSE_S_MAX: Final = 5.0
"""How long a stop waits for the last write."""


class SessionsFile:
    """Keeps the mirror, on a thread of its own, off everybody's way. What it can't write is told to the log."""

    def __init__(
        self, folder: Path, entries: Entries, *, debounce_s: float = DEBOUNCE_S, period_s: float = PERIOD_S
    ) -> None:
        self.path = folder / SESSIONS
        self._entries = entries
        self._debounce_s = debounce_s
        self._period_s = period_s
        self._due = threading.Event()
        self._over = threading.Event()
        self._writing = threading.Lock()
        self._written: dict[str, Any] | None = None
        self._damaged: set[str] = set()
        self._thread = threading.Thread(target=self._keep, name="seriatim-mirror", daemon=True)
        self._thread.start()

    def soon(self) -> None:
        """A route has changed. Any thread."""
        self._due.set()

    def write(self) -> None:
        """Write what there is now, if it is not what was written last. Blocks; never raises for trouble."""
        with self._writing:
            try:
                content = _content(self._entries, self._pace, self._left_out)
                if content != self._written:
                    write_mirror(self.path, content, README)
                    self._written = content
            except (OSError, SeriatimError) as error:
                _log.warning("%s is not up to date: %s", SESSIONS, error)

    def _left_out(self, key: str, error: CorruptionError) -> None:
        """A log that can't be read keeps the others from no mirror; it is told once, not each time."""
        if key not in self._damaged:
            self._damaged.add(key)
            _log.warning("%s leaves a conversation out: %s", SESSIONS, error)

    def close(self) -> None:
        """Write for the last time, if that takes no longer than CLOSE_S_MAX."""
        self._over.set()
        self._due.set()
        self._thread.join(CLOSE_S_MAX)

    def _keep(self) -> None:
        over = False
        while not over:
            if self._due.wait(self._period_s):
                self._over.wait(self._debounce_s)
            self._due.clear()
            over = self._over.is_set()  # before the look at what there is, which a close wants to be the last
            self.write()

    def _pace(self) -> None:
        # A home of many lanes is folded once in a process's life: others shall hardly notice.
        self._over.wait(PACE_S)


def _content(
    entries: Entries, pace: Callable[[], object], left_out: Callable[[str, CorruptionError], object]
) -> dict[str, Any]:
    """By key; two lanes that people would call the same stand under their canonical keys."""
    items = entries.items(pace, left_out)
    names: dict[str, int] = {}
    for _, told in items:
        names[told.session_key] = names.get(told.session_key, 0) + 1
    return {(told.session_key if names[told.session_key] == 1 else key): told.to_dict() for key, told in items}


def take_over(store: Store, folder: Path, keys: KeySettings, clock: NowMs, ids: Ids) -> int:
    """Import ``sessions.json`` into a store that holds nothing; how many entries. On a thread that may write to it.

    A bad file is a warning, and so is each bad entry or field; the others stand. An import that was cut off goes on at
    the next start, from a copy that stands beside the file until all is in. Raises StoreError.
    """
    copy = folder / IMPORTING
    if not copy.exists() and not (folder / SESSIONS).exists():
        return 0
    entries = Entries(store.reader)
    try:
        if not copy.exists() and not entries.empty():
            return 0
    finally:
        entries.close()
    try:
        if not copy.exists():
            copy.hardlink_to(folder / SESSIONS)  # which is replaced, never changed
        content = read_mirror(copy)
    except (OSError, ValueError, RecursionError) as error:
        _log.warning("%s can't be taken over: %s", folder / SESSIONS, error)
        copy.unlink(missing_ok=True)
        return 0
    lanes = Solo(store, clock, ids, Rules())
    try:
        taken = sum(_take(lanes, at, content[name], keys) for at, name in enumerate(content))
    finally:
        lanes.close()
    copy.unlink()
    return taken


def open_with_mirror(open_store: Callable[[], Store], folder: Path, keys: KeySettings, clock: NowMs, ids: Ids) -> Store:
    """Open a home's database; where it is new, with what an older system's ``sessions.json`` in ``folder`` tells.

    Raises what ``open_store`` raises, and StoreError.
    """
    store = open_store()
    try:
        take_over(store, folder, keys, clock, ids)
    except BaseException:
        store.close()
        raise
    return store


def _take(lanes: Solo, at: int, record: Any, keys: KeySettings) -> bool:
    def report(field: str, reason: str) -> None:
        _log.warning("%s, entry %d: %s is left out: %s", SESSIONS, at, field, reason)

    try:
        old = SessionEntry.from_dict(record, report)
        return bool(lanes.ask(_lane_of(old, keys), Import(old)))
    except InvalidInputError as error:  # told by its kind: a person's ids don't go to the log
        _log.warning("%s, entry %d is left out: %s", SESSIONS, at, type(error).__name__)
        return False


def _lane_of(old: SessionEntry, keys: KeySettings) -> str:
    """The lane of an old record: by its origin, if that makes its key, else as a lane of that name alone."""
    if old.origin is None:
        raise InvalidInputError("origin", "is missing; its lane can't be told")
    return SessionKey.from_source(old.origin, keys).canonical


class StandaloneHome:
    """The home of a SessionStore without a gateway: owned, opened, an old mirror taken over. See SessionStore."""

    def __init__(self, folder: Path, config: GatewayConfig, clock: NowMs, ids: Ids) -> None:
        self.routed: Callable[[str], object] = lambda key: None
        with ExitStack() as undo:
            self._home = Home.own(folder)
            undo.callback(self._home.close, clean=False)
            opener = partial(SqliteStore, self._home.database)
            self._store = open_with_mirror(opener, folder, config, clock, ids)
            undo.callback(self._store.close)
            lanes = Solo(self._store, clock, ids, Rules(), self._on_routed)
            undo.pop_all()
        self.door = SoloDoor(lanes, clock, ids)
        self.entries = Entries(self._store.reader)

    def _on_routed(self, key: str) -> None:
        self.routed(key)

    def close(self) -> None:
        """Close the store, then give the home up."""
        clean = not self.door.lanes.any_open_turn()
        self.door.lanes.close()
        self._store.close()
        self._home.close(clean=clean)


class SoloDoor:
    """The way to lanes that nobody else serves."""

    recovers = False

    def __init__(self, lanes: Solo, clock: NowMs, ids: Ids) -> None:
        self.lanes = lanes
        self._clock = clock
        self._ids = ids

    def ask(self, key: str, question: Any) -> Any:
        """See ``Door.ask``."""
        return self.lanes.ask(key, question)

    def move_session(self, session_id: str, key: str, expected: str | None) -> bool:
        """See ``Door.move_session``."""
        return self.lanes.move_session(session_id, key, expected)

    def present(self, key: str) -> str:
        """See ``Door.present``."""
        return self.lanes.present(key)

    def accounts(self, platform: str) -> Sequence[str]:
        """None: no adapter runs here."""
        return ()

    def now_ms(self) -> int:
        """See ``Door.now_ms``."""
        return self._clock.now_ms()

    def fresh(self) -> str:
        """See ``Door.fresh``."""
        return self._ids.fresh()
