"""What growing old costs: a start, an activation and a cold read, of large stores against small ones, as ratios.

    python -m benchmarks.growth [--json] [--lanes N] [--rounds N]

``boot_100k_vs_1k``: opening the store, finding the open work and folding its lanes; 20 lanes have some, whether 100,000
others rest or 1,000. ``cold_open_vs_json``: reading, checking and decoding a session of 10,000 events, against
``json.loads`` of the same texts one by one. ``cold_open_memory_vs_log``: the peak of Python's memory meanwhile (by
tracemalloc, the events that are returned included), against the bytes of the log as JSON lines.
``lane_100k_events_activation_vs_100``: folding a lane of 100,000 lane events as its actor is started, with a session of
as many turns, against one of 100; with the checkpoints that the live lane would have left, the session's last one as
long ago as it can be. Nothing of the long lane is compacted. Medians; files are in the page cache.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from seriatim.actors.loading import ReadLane, read_lane
from seriatim.actors.upkeep import Bookmarks
from seriatim.commits import Binding, Commit, Durable, Hot, Part
from seriatim.events import Data, Event, LogId, lane_log, session_log
from seriatim.lane import LaneState, SessionPart, apply_lane, apply_session
from seriatim.limits import CHECKPOINT_EVENTS
from seriatim.storage.contract import Checkpoint
from seriatim.storage.sqlite import SqliteStore
from seriatim.storage.sqlite_reader import SqliteReader

LANES: Final = 100_000
LANES_FEW: Final = 1_000
OPEN: Final = 20
GROUP: Final = 512
TIME: Final = 1_767_225_600_000
TEXT: Final = "Could you look at the log of last night's run and tell me why the second job was late? "
_NOBODY: Final[Any] = None
LANE_EVENTS: Final = 5
SESSION_EVENTS: Final = 6


def lane_events(chat: str, number: int, *, answered: bool = True) -> list[tuple[str, Data]]:
    """A plain turn as the lane log tells it."""
    inbox, to = f"{chat}-{number}", {"platform": "bench", "account": "", "chat_id": chat}
    source = {"platform": "bench", "chat_id": chat, "chat_type": "dm", "user_id": f"u{chat}", "user_name": "Ada"}
    told: list[tuple[str, Data]] = [
        ("inbox/accepted", {"id": inbox, "kind": "human", "text": TEXT, "source": source, "place": "slot"}),
        (
            "inbox/claimed",
            {
                "ids": [inbox],
                "kind": "human",
                "session": f"s{chat}",
                "turn": number,
                "generation": number,
                "attempt": 1,
            },
        ),
        ("inbox/answered", {"id": inbox, "by": "turn", "end": "completed"}),
        ("delivery/owed", {"id": f"d{inbox}", "parts": [TEXT], "to": to, "turn": number, "attempt": 1}),
        ("delivery/settled", {"id": f"d{inbox}", "part": 0}),
    ]
    return told if answered else told[:2]


def session_events(number: int) -> list[tuple[str, Data]]:
    """The same turn as its session tells it."""
    return [
        ("turn/start", {"turn": number, "claims": [f"{number}"]}),
        ("user/message", {"turn": number, "id": f"{number}", "text": TEXT, "at": TIME, "author": "Ada"}),
        ("step/start", {"turn": number, "step": 1}),
        ("assistant/message", {"turn": number, "step": 1, "text": TEXT * 2, "finish": "stop"}),
        ("step/end", {"turn": number, "step": 1}),
        ("turn/end", {"turn": number, "reason": {"kind": "completed"}}),
    ]


def numbered(first: int, told: list[tuple[str, Data]]) -> tuple[Event, ...]:
    """As events of a log from there on."""
    return tuple(Event(kind, first + i, TIME + first + i, data) for i, (kind, data) in enumerate(told))


def newborn(chat: str, *, answered: bool) -> Commit:
    """A lane with one turn, as one commit."""
    lane, session = lane_log(chat), session_log(f"s{chat}")
    told = [("route/bound", {"session": f"s{chat}", "reason": "first"}), *lane_events(chat, 1, answered=answered)]
    hot = Hot(0, 0, 0, "idle", TIME, 1, 1, 0, 0) if answered else Hot(1, 1, 0, "running", TIME, 1, 0, 0, 0)
    parts = (
        Part(lane, 0, numbered(0, told), hot, {"id": chat}),
        Part(session, 0, numbered(0, session_events(1)[: 6 if answered else 3]), None, {"id": f"s{chat}"}),
    )
    return Commit(f"born {chat}", lane, 1, parts, (f"key {chat}",), (Binding(session, None, lane),))


def write(store: SqliteStore, commits: Iterator[Commit]) -> None:
    """In groups as large as the writer makes them."""
    group: list[Commit] = []
    for commit in commits:
        group.append(commit)
        if len(group) == GROUP:
            assert all(type(outcome) is Durable for outcome in store.commit(group))
            group = []
    assert all(type(outcome) is Durable for outcome in store.commit(group))


def populous(path: Path, lanes: int) -> None:
    """A store of so many lanes, spread among them those with open work."""
    store = SqliteStore(path)
    every = lanes // OPEN
    write(store, (newborn(f"{number:06d}", answered=number % every != every // 2) for number in range(lanes)))
    store.close()


def boot(path: Path) -> float:
    """Seconds of a start up to the last folded lane."""
    start = time.perf_counter()
    store = SqliteStore(path)
    reader = store.reader()
    work = reader.open_work()
    for log, _ in work:
        read_lane(reader, ReadLane(log.removeprefix("lane:"), 1, frozenset(), _NOBODY))
    seconds = time.perf_counter() - start
    assert len(work) == OPEN
    reader.close()
    store.close()
    return seconds


def measure_boot(folder: Path, lanes: int, rounds: int) -> dict[str, Any]:
    """The ratio of many lanes to few."""
    many, few = folder / "many.db", folder / "few.db"
    began = time.perf_counter()
    populous(many, lanes)
    built = time.perf_counter() - began
    populous(few, LANES_FEW)
    boot(many)
    boot(few)
    pairs = [(boot(many), boot(few)) for _ in range(rounds * 5)]
    return {
        "boot_100k_vs_1k": _ratio(pairs),
        "boot_lanes": lanes,
        "boot_ms": round(statistics.median(p[0] for p in pairs) * 1e3, 2),
        "built_s": round(built, 1),
    }


def long_session(path: Path, events: int) -> LogId:
    """A session of so many events that nobody has opened for long."""
    log = session_log("long")
    store = SqliteStore(path)

    def commits() -> Iterator[Commit]:
        yield Commit("born", log, 1, (Part(log, 0, (), None, {"id": "long"}),))
        for number in range(events // SESSION_EVENTS + 1):
            first = number * SESSION_EVENTS
            told = numbered(first, session_events(number + 1))[: events - first]
            for at, part in ((0, told[:3]), (3, told[3:])):  # T1 and T4
                if part:
                    yield Commit(f"t{number}.{at}", log, 1, (Part(log, first + at, part),))

    write(store, commits())
    store.close()
    return log


def measure_cold(folder: Path, rounds: int, events: int = 10_000) -> dict[str, Any]:
    """Time and memory of reading a whole session."""
    path = folder / "session.db"
    log = long_session(path, events)
    reader = SqliteReader(path)
    found = reader.read(log)
    assert len(found) == events
    texts = [json.dumps(event.data, ensure_ascii=False, separators=(",", ":")) for event in found]
    size = sum(len(_line(event)) for event in found)
    del found
    gc.collect()
    pairs = [
        (_seconds(lambda: reader.read(log)), _seconds(lambda: [json.loads(t) for t in texts])) for _ in range(rounds)
    ]
    tracemalloc.start()
    kept = reader.read(log)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == events
    reader.close()
    return {
        "cold_open_vs_json": _ratio(pairs),
        "cold_open_ms": round(statistics.median(p[0] for p in pairs) * 1e3, 1),
        "cold_open_memory_vs_log": round(peak / size, 2),
        "cold_open_memory_held_vs_log": round(held / size, 2),
        "cold_open_log_bytes": size,
    }


def _line(event: Event) -> bytes:
    """The event as a line of an exported log."""
    envelope = {"type": event.type, "seq": event.seq, "time": event.time, "data": event.data}
    return json.dumps(envelope, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class Aging:
    """A lane that lives through many turns, and takes its checkpoints as a live one would."""

    def __init__(self, store: SqliteStore, chat: str) -> None:
        self.store = store
        self.chat = chat
        self.lane, self.session = lane_log(chat), session_log(f"s{chat}")
        self.state = LaneState(chat)
        self.part = SessionPart(f"s{chat}")
        self.turns = 0
        self.marks = Bookmarks()

    def live(self, turns: int) -> None:
        """So many turns more."""
        for first in range(0, turns, GROUP):
            checkpoints: dict[LogId, Checkpoint] = {}
            commits = []
            for _ in range(min(turns - first, GROUP)):
                commits.append(self._turn())
                due = self.marks.due(self.state, CHECKPOINT_EVENTS)
                checkpoints.update((checkpoint.log, checkpoint) for checkpoint in due)
            write(self.store, iter(commits))
            assert self.store.keep(list(checkpoints.values())) == len(checkpoints)

    @property
    def tail(self) -> tuple[int, int]:
        """Events after the last checkpoint of the lane's and the session's log."""
        assert self.state.session is not None
        return self.state.head - self.marks.lane, self.state.session.head - self.marks.session_at

    def _turn(self) -> Commit:
        state, part, number = self.state, self.part, self.turns
        told = lane_events(self.chat, number + 1)
        if not number:
            told.insert(0, ("route/bound", {"session": part.id, "reason": "first"}))
        lane, session = numbered(state.head, told), numbered(part.head, session_events(number + 1))
        headers = ({"id": self.chat}, {"id": part.id}) if not number else (None, None)
        parts = (
            Part(self.lane, state.head, lane, Hot(0, 0, 0, "idle", TIME, number, number, 0, 0), headers[0]),
            Part(self.session, part.head, session, None, headers[1]),
        )
        for event in lane:
            apply_lane(state, event)
        for event in session:
            apply_session(part, event)
        state.session = part
        self.turns += 1
        bindings = (Binding(self.session, None, self.lane),) if not number else ()
        return Commit(f"{self.chat} {number}", self.lane, 1, parts, (), bindings)


def measure_activation(folder: Path, rounds: int, events: int = 100_000) -> dict[str, Any]:
    """The ratio of an old lane to a young one, each read and folded as for its actor."""
    store = SqliteStore(folder / "lanes.db")
    young, old = Aging(store, "young"), Aging(store, "old")
    young.live(100 // LANE_EVENTS)
    old.live(events // LANE_EVENTS)
    while old.tail[1] < CHECKPOINT_EVENTS - SESSION_EVENTS:
        old.live(1)
    reader = store.reader()

    def activate(lane: Aging) -> Callable[[], object]:
        return lambda: read_lane(reader, ReadLane(lane.chat, 1, frozenset(), _NOBODY))

    pairs = [(_seconds(activate(old)), _seconds(activate(young))) for _ in range(rounds * 5)]
    whole = _seconds(lambda: (reader.read(old.lane), reader.read(old.session)))
    reader.close()
    store.close()
    return {
        "lane_100k_events_activation_vs_100": _ratio(pairs),
        "activation_ms": round(statistics.median(p[0] for p in pairs) * 1e3, 2),
        "activation_tail_events": list(old.tail),
        "reading_both_logs_whole_ms": round(whole * 1e3),
    }


def _seconds(work: Callable[[], object]) -> float:
    gc.collect()
    start = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    del result
    return seconds


def _ratio(pairs: list[tuple[float, float]]) -> float:
    """Of each pair by itself, so that a busy moment of the machine spoils one pair."""
    return round(statistics.median(a / b for a, b in pairs), 2)


def measure(folder: Path, *, lanes: int = LANES, rounds: int = 7) -> dict[str, Any]:
    """All figures of one run."""
    return {
        **measure_boot(folder, lanes, rounds),
        **measure_cold(folder, rounds),
        **measure_activation(folder, rounds),
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description="What growing old costs, as ratios.")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--lanes", type=int, default=LANES, help="lanes of the large store")
    parser.add_argument("--rounds", type=int, default=7, help="pairs of runs for each figure")
    parser.add_argument("--folder", help="where the files are made (default: the temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        result = measure(Path(folder), lanes=options.lanes, rounds=options.rounds)
    print(json.dumps(result) if options.json else "\n".join(f"{name}: {value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
