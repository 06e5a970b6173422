"""What a SessionStore has to do, once more and as simply as can be: dictionaries and lists, no log, no threads."""

from __future__ import annotations

from typing import Any

from attrs import Factory, define


@define
class Session:
    """A transcript: the lane that it belongs to, its visible turns, and how many there ever were."""

    lane: str
    turns: list[list[dict[str, Any]]] = Factory(list)
    ended: int = 0

    def shown(self) -> list[dict[str, Any]]:
        """What a load gives, without stamps."""
        return [message for turn in self.turns for message in turn]


@define
class Lane:
    """A lane and its flags. ``session``: None where its route is forgotten."""

    session: str | None = None
    updated: int = 0
    suspended: bool = False
    resume: str | None = None
    fresh: bool = False
    auto: bool = False
    activity: bool = False
    prompts: int = 0


@define
class Model:
    """``sessions`` are known by the ids that the store gave them; a new one is told to the model."""

    lanes: dict[str, Lane] = Factory(dict)
    sessions: dict[str, Session] = Factory(dict)

    def bound(self, key: str) -> Lane | None:
        """The lane, if it has a session."""
        lane = self.lanes.get(key)
        return lane if lane is not None and lane.session is not None else None

    def makes_new(self, key: str, *, force: bool) -> bool:
        """Whether a get_or_create makes a session."""
        lane = self.bound(key)
        return lane is None or force or lane.suspended

    def get_or_create(self, key: str, now: int, new: str, *, force: bool) -> None:
        """A session for the lane; ``new``: the id of the one that is made, where one is."""
        lane = self.bound(key)
        if lane is None or force:
            self.lanes[key] = Lane(new, now)
        elif lane.suspended:
            self.lanes[key] = Lane(new, now, auto=True, activity=self._ended(lane) > 0)
        else:
            lane.updated = now
            return
        self.sessions[new] = Session(key)

    def reset(self, key: str, now: int, new: str) -> None:
        """A fresh session."""
        lane = self.bound(key)
        assert lane is not None
        self.lanes[key] = Lane(new, now, fresh=True, activity=self._ended(lane) > 0)
        self.sessions[new] = Session(key)

    def switches(self, key: str, target: str, expected: str | None) -> bool:
        """Whether a switch is done (or is there already)."""
        lane = self.bound(key)
        return lane is not None and expected in (None, lane.session) and target in self.sessions

    def switch(self, key: str, now: int, target: str) -> None:
        """Another session for the lane; whoever had it has none."""
        lane = self.lanes[key]
        if lane.session == target:
            return
        owner = self.sessions[target].lane
        if owner != key:
            there = self.lanes[owner]
            if there.session == target:
                there.session = None
            self.sessions[target].lane = key
        self.lanes[key] = Lane(target, now, prompts=0)

    def prune(self, before: int, protected: set[str]) -> list[str]:
        """The keys that a prune forgets."""
        gone = [
            key
            for key, lane in self.lanes.items()
            if lane.session is not None and not lane.suspended and lane.updated < before and key not in protected
        ]
        for key in gone:
            self.lanes[key].session = None
        return gone

    def append(self, session: str, message: dict[str, Any]) -> None:
        """A turn of its own."""
        self.sessions[session].turns.append([message])
        self.sessions[session].ended += 1

    def rewrite(self, session: str, messages: list[dict[str, Any]]) -> None:
        """Only these: each user message begins a turn."""
        turns: list[list[dict[str, Any]]] = []
        for message in messages:
            if not turns or message["role"] == "user":
                turns.append([])
            turns[-1].append(message)
        self.sessions[session].turns = turns
        self.sessions[session].ended += len(turns)

    def rewound(self, session: str, turns: int) -> dict[str, Any] | None:
        """What a rewind answers."""
        gone = self.sessions[session].turns[-max(1, turns) :]
        if not gone:
            return None
        messages = [message for turn in gone for message in turn]
        target = next((message["content"] for message in messages if message["role"] == "user"), "")
        return {"rewound_count": len(messages), "turns_undone": len(gone), "target_text": target}

    def rewind(self, session: str, turns: int) -> None:
        """Take the turns away."""
        del self.sessions[session].turns[-max(1, turns) :]

    def _ended(self, lane: Lane) -> int:
        return 0 if lane.session is None else self.sessions[lane.session].ended
