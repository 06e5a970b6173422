"""What a lane's state tells as a SessionEntry (gateway seed §2): each field is a fold of the logs.

The lane's part knows when and from where, the session's part sums what its turns used.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import astuple, replace

from seriatim.entry import SessionEntry
from seriatim.errors import InvalidInputError
from seriatim.events import Data
from seriatim.model import Platform, SessionSource

if TYPE_CHECKING:
    from seriatim.lane import LaneState


class Used(Struct, frozen=True):
    """What a session's turns used, summed; ``prompt`` and ``cost_status`` are the last that were told.

    ``turn``: the turn that told ``prompt``, 0 for none.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total: int = 0
    cost_usd: float = 0.0
    cost_status: str = "unknown"
    prompt: int = 0
    turn: int = 0

    def plus(self, usage: Data, turn: int) -> Used:
        """With one reply's ``usage``, as its event tells it."""
        get = usage.get
        put_in, put_out = get("input", 0), get("output", 0)
        prompt = get("lastPromptTokens", 0)
        return Used(
            self.input + put_in,
            self.output + put_out,
            self.cache_read + get("cacheRead", 0),
            self.cache_write + get("cacheWrite", 0),
            self.total + get("total", put_in + put_out),
            self.cost_usd + get("estimatedCostUsd", 0.0),
            get("costStatus", self.cost_status),
            prompt or self.prompt,
            turn if prompt else self.turn,
        )

    def plain(self) -> list[Any]:
        """As JSON."""
        return list(astuple(self))


class Facts(Struct, frozen=True):
    """What the lane's log tells of the session that it is bound to.

    ``created_at``: epoch ms, 0 where an old archive doesn't say. ``origin``: the source that began the conversation,
    as logged; a reset keeps it. ``display_name``: where it was given one. ``finalized``: an old record's fence.
    ``prompt`` and ``prompt_turn``: a host's word about the last prompt's tokens, and how many turns there had been.
    ``before``: what an imported record had counted.
    """

    created_at: int = 0
    origin: Data | None = None
    display_name: str | None = None
    finalized: bool = False
    prompt: int = 0
    prompt_turn: int = -1
    before: Used | None = None

    def plain(self) -> list[Any]:
        """As JSON; ``of`` is its inverse."""
        before = None if self.before is None else self.before.plain()
        return [*astuple(self)[:-1], before]

    @classmethod
    def of(cls, fields: list[Any]) -> Facts:
        """The inverse of ``plain``."""
        made = cls(*fields)
        return made if made.before is None else replace(made, before=Used(*fields[-1]))


_MOVED: Final = frozenset({"switch", "resume", "moved"})
"""Why a lane is bound to a session that was there before; one that doesn't say when it was made has it in its name."""

NOTHING: Final = Facts()
UNUSED: Final = Used()


def bound_facts(before: Facts, data: Data, time: int) -> Facts:
    """The facts of a session that the lane is bound to by this ``route/bound``."""
    used = data.get("used")
    made = 0 if data["reason"] in _MOVED else time
    return Facts(
        data.get("createdAt", made),
        data.get("source", before.origin),
        data.get("displayName", before.display_name),
        data.get("finalized", False),
        before=None if used is None else UNUSED.plus(used, 0),
    )


def entry(state: LaneState, session_key: str | None = None) -> SessionEntry | None:
    """The record of the session that the lane is bound to; None where there is none.

    ``session_key``: how its lane is called there, default the canonical key. A flag that is told once is told until
    the commit that starts the next turn takes it. Raises nothing for what an old log holds.
    """
    if state.bound is None:
        return None
    facts = state.facts
    used = UNUSED if state.session is None else state.session.used
    before = facts.before
    source = _source(facts.origin)
    created = facts.created_at or _stamp_of(state.bound) or state.since
    fresh, suspended = state.boundary == "fresh", state.boundary == "suspended"
    pending = state.resume_reason is not None
    prompt = facts.prompt if facts.prompt_turn >= used.turn else used.prompt
    if before is not None:
        prompt = prompt or before.prompt
        used = _summed(before, used)
    return SessionEntry(
        session_key=state.key if session_key is None else session_key,
        session_id=state.bound,
        created_at=_time(created),
        updated_at=_time(max(state.active_at, created)),
        origin=source,
        display_name=facts.display_name or (None if source is None else source.chat_name),
        platform=None if source is None else source.platform,
        chat_type="dm" if source is None else source.chat_type,
        input_tokens=used.input,
        output_tokens=used.output,
        cache_read_tokens=used.cache_read,
        cache_write_tokens=used.cache_write,
        total_tokens=used.total,
        estimated_cost_usd=used.cost_usd,
        cost_status=used.cost_status,
        last_prompt_tokens=prompt,
        was_auto_reset=suspended,
        auto_reset_reason="suspended" if suspended else None,
        reset_had_activity=state.had_activity and (fresh or suspended),
        is_fresh_reset=fresh,
        expiry_finalized=facts.finalized,
        suspended=state.suspended_at is not None,
        resume_pending=pending,
        resume_reason=state.resume_reason,
        last_resume_marked_at=_time(state.resume_marked_at) if pending else None,
    )


def _summed(before: Used, used: Used) -> Used:
    status = before.cost_status if used.cost_status == "unknown" else used.cost_status
    return Used(
        before.input + used.input,
        before.output + used.output,
        before.cache_read + used.cache_read,
        before.cache_write + used.cache_write,
        before.total + used.total,
        before.cost_usd + used.cost_usd,
        status,
    )


def _source(data: Data | None) -> SessionSource | None:
    if data is None:
        return None
    try:
        return SessionSource.from_dict(data)
    except InvalidInputError:  # checked when it came in, by the rules of its day
        return None


def _platform(source: SessionSource | None) -> Platform | None:
    return None if source is None else source.platform


def _stamp_of(session_id: str) -> int:
    """When a session was made, by its name, epoch ms; 0 where the name doesn't say."""
    try:
        made = datetime.strptime(session_id[:15], "%Y%m%d_%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return 0
    return int(made.timestamp() * 1000)


def _time(stamp: int) -> datetime:
    return datetime.fromtimestamp(stamp / 1000, UTC)
