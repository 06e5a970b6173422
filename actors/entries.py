"""Entries: the sessions of a store as the logs tell them, for those who look from outside the lanes.

An entry is folded from its lane's two logs when somebody asks, and kept with the place up to which that log was
folded: a listing looks at every lane's head and folds again only what has grown. Deleting all of it costs time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TypeVar

from seriatim.actors.loading import read_state
from seriatim.actors.surfaces import read_messages
from seriatim.entry import SessionEntry
from seriatim.errors import AmbiguousKeyError, CorruptionError, InvalidInputError, StoreUnhealthyError
from seriatim.events import Event, lane_log, session_log
from seriatim.facts import entry
from seriatim.keys import parse_session_key
from seriatim.limits import ENTRIES_CACHED_MAX, LIST_PAGE
from seriatim.storage.contract import StoreReader

T = TypeVar("T")
_LANE = "lane:"


def text_of(key: str) -> str:
    """How people know the lane: the seed's form of its key; a key of another make is its own text."""
    try:
        return parse_session_key(key).text
    except InvalidInputError:
        return key


class Entries:
    """Any thread; one read at a time, on a connection of its own. Reads raise what the reader raises."""

    def __init__(self, open_reader: Callable[[], StoreReader]) -> None:
        self._open_reader = open_reader
        self._reader: StoreReader | None = None
        self._guard = threading.RLock()
        self._kept: OrderedDict[str, tuple[int, SessionEntry | None]] = OrderedDict()
        self._texts: dict[str, set[str]] | None = None
        self._noted: set[str] = set()
        self._noting = threading.Lock()
        self._closed = False

    # --- which lane ------------------------------------------------------------------------------------

    def note(self, key: str) -> None:
        """There is such a lane now. Any thread, also one that must not wait for a read."""
        with self._noting:
            self._noted.add(key)

    def lane(self, session_key: str) -> str | None:
        """The canonical key that either form names, None where no such lane has been. Raises AmbiguousKeyError."""
        with self._guard:
            if self._look().header(lane_log(session_key)) is not None:
                return session_key
            return self.lane_of_text(session_key)

    def lane_of_text(self, text: str) -> str | None:
        """The same for the text form alone."""
        with self._guard:
            found = self._by_text().get(text, ())
            if len(found) > 1:  # what has no conversation any more stands in nobody's way
                found = {key for key in found if self.get(key) is not None} or found
            if len(found) > 1:
                raise AmbiguousKeyError(text, sorted(found))
            return next(iter(found), None)

    def lane_of_session(self, session_id: str) -> str | None:
        """The lane that a session belongs to."""
        if not session_id:
            return None
        with self._guard:
            log = self._look().binding(session_log(session_id))
        return None if log is None else log.removeprefix(_LANE)

    def _by_text(self) -> dict[str, set[str]]:
        if self._texts is None:
            self._texts = {}
            for key, _ in self._lanes():
                self._add(key)
        with self._noting:
            noted, self._noted = self._noted, set()
        for key in noted:
            self._add(key)
        return self._texts

    def _add(self, key: str) -> None:
        assert self._texts is not None
        self._texts.setdefault(text_of(key), set()).add(key)

    # --- entries ---------------------------------------------------------------------------------------

    def get(self, key: str) -> SessionEntry | None:
        """The lane's entry as of now."""
        with self._guard:
            info = self._look().info(lane_log(key))
            return None if info is None else self._fold(key, info.head)

    def by_session(self, session_id: str) -> SessionEntry | None:
        """The entry of the lane whose present session that is."""
        with self._guard:
            key = self.lane_of_session(session_id)
            found = None if key is None else self.get(key)
        return found if found is not None and found.session_id == session_id else None

    def items(
        self,
        pace: Callable[[], object] = lambda: None,
        left_out: Callable[[str, CorruptionError], object] | None = None,
    ) -> list[tuple[str, SessionEntry]]:
        """Canonical key and entry of every lane that has a session. ``pace`` is called between two of them.

        ``left_out``: told of a lane whose log is damaged, which is then passed over; without it, that raises.
        """
        found = []
        for key, head in self._lanes():
            try:
                with self._guard:
                    told = self._fold(key, head)
            except CorruptionError as error:
                if left_out is None:
                    raise
                left_out(key, error)
                continue
            if told is not None:
                found.append((key, told))
            pace()
        return found

    def any_session(self) -> bool:
        """Whether there ever was a session."""
        with self._guard:
            return bool(self._look().logs("session:", limit=1))

    def empty(self) -> bool:
        """Whether the store holds no lane and no session."""
        with self._guard:
            return not self.any_session() and not self._look().logs(_LANE, limit=1)

    def open_turns(self) -> list[str]:
        """The lanes whose log has an open turn."""
        with self._guard:
            return [log.removeprefix(_LANE) for log, hot in self._look().open_work() if hot.open_turn]

    def messages(self, session_id: str) -> tuple[Event, ...]:
        """What a session shows, oldest first; nothing where there is none."""
        with self._guard:
            info = self._look().info(session_log(session_id))
            return () if info is None else read_messages(self._look(), session_log(session_id), info.head)[0]

    def close(self) -> None:
        """Give the connection back; what is being read breaks off at the next lane."""
        self._closed = True
        with self._guard:
            reader, self._reader = self._reader, None
            if reader is not None:
                reader.close()

    def _fold(self, key: str, head: int) -> SessionEntry | None:
        kept = self._kept.get(key)
        if kept is not None and kept[0] == head:
            self._kept.move_to_end(key)
            return kept[1]
        state = read_state(self._look(), key)
        told = entry(state, text_of(key))
        self._kept[key] = (state.head, told)
        self._kept.move_to_end(key)
        if len(self._kept) > ENTRIES_CACHED_MAX:
            self._kept.popitem(last=False)
        return told

    def _lanes(self) -> Iterator[tuple[str, int]]:
        """Key and head of every lane."""
        after = ""
        while True:
            with self._guard:
                page = self._look().scan(_LANE, after, LIST_PAGE)
            if not page:
                return
            yield from ((info.log.removeprefix(_LANE), info.head) for info in page)
            after = page[-1].log

    def _look(self) -> StoreReader:
        if self._closed:
            raise StoreUnhealthyError("the sessions are closed")
        if self._reader is None:
            self._reader = self._open_reader()
        return self._reader
