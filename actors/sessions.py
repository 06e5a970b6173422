"""SessionStore: sessions as hosts see and change them (gateway seed §3).

Alone it owns a home and drives its lanes itself; as ``gateway.sessions`` each change is a message to the lane's actor,
decided in order with its other mail. Either way the answer comes when it is durable.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from seriatim.actors.clockwork import WallClock
from seriatim.actors.entries import Entries
from seriatim.actors.ids import Ids, NowMs
from seriatim.actors.session_files import SessionsFile, StandaloneHome
from seriatim.actors.session_ops import Door, HasActiveProcesses, Operations
from seriatim.arguments import IDS, check_config, check_functions, check_port
from seriatim.config import GatewayConfig
from seriatim.entry import SessionEntry
from seriatim.errors import StoreUnhealthyError, WrongThreadError
from seriatim.keys import SessionKey
from seriatim.model import SessionSource
from seriatim.storage.files import check_path

__all__ = ["AsyncSessions", "SessionStore"]

T = TypeVar("T")
Key = str | SessionKey
"""A lane's key: canonical, or in the seed's form."""
_WORKERS: Final = 8
"""Threads on which the awaitable twins wait."""


class AsyncSessions:
    """The awaitable twins of a SessionStore's methods, for threads that run an event loop; ``SessionStore.aio``.

    Cancelling a call doesn't take it back.
    """

    def __init__(self, ops: Operations) -> None:
        self._ops = ops
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="seriatim-sessions")

    async def _run(self, call: Callable[..., T], *args: Any, **named: Any) -> T:
        try:
            running = self._workers.submit(partial(call, *args, **named))
        except RuntimeError:
            raise StoreUnhealthyError("the sessions are closed") from None
        return await asyncio.wrap_future(running)

    def _close(self) -> None:
        self._workers.shutdown(wait=False)

    async def get_or_create_session(self, source: SessionSource, force_new: bool = False) -> SessionEntry:
        """See ``SessionStore.get_or_create_session``."""
        return await self._run(self._ops.get_or_create_session, source, force_new)

    async def update_session(self, session_key: Key, last_prompt_tokens: int | None = None) -> bool:
        """See ``SessionStore.update_session``."""
        return await self._run(self._ops.update_session, session_key, last_prompt_tokens)

    async def reset_session(self, session_key: Key, display_name: str | None = None) -> SessionEntry | None:
        """See ``SessionStore.reset_session``."""
        return await self._run(self._ops.reset_session, session_key, display_name)

    async def switch_session(
        self, session_key: Key, target_session_id: str, *, expected_session_id: str | None = None
    ) -> SessionEntry | None:
        """See ``SessionStore.switch_session``."""
        return await self._run(
            self._ops.switch_session, session_key, target_session_id, expected_session_id=expected_session_id
        )

    async def suspend_session(self, session_key: Key) -> bool:
        """See ``SessionStore.suspend_session``."""
        return await self._run(self._ops.suspend_session, session_key)

    async def mark_resume_pending(self, session_key: Key, reason: str = "restart_timeout") -> bool:
        """See ``SessionStore.mark_resume_pending``."""
        return await self._run(self._ops.mark_resume_pending, session_key, reason)

    async def clear_resume_pending(self, session_key: Key) -> bool:
        """See ``SessionStore.clear_resume_pending``."""
        return await self._run(self._ops.clear_resume_pending, session_key)

    async def recover_interrupted_turns(self, max_age_seconds: float) -> int:
        """See ``SessionStore.recover_interrupted_turns``."""
        return await self._run(self._ops.recover_interrupted_turns, max_age_seconds)

    async def prune_old_entries(self, max_age_days: float | None, *, dry_run: bool = False) -> int:
        """See ``SessionStore.prune_old_entries``."""
        return await self._run(self._ops.prune_old_entries, max_age_days, dry_run=dry_run)

    async def list_sessions(self, active_minutes: float | None = None) -> list[SessionEntry]:
        """See ``SessionStore.list_sessions``."""
        return await self._run(self._ops.list_sessions, active_minutes)

    async def lookup_by_session_id(self, session_id: str) -> SessionEntry | None:
        """See ``SessionStore.lookup_by_session_id``."""
        return await self._run(self._ops.lookup_by_session_id, session_id)

    async def lane(self, session_key: Key) -> str | None:
        """See ``SessionStore.lane``."""
        return await self._run(self._ops.lane, session_key)

    async def has_any_sessions(self) -> bool:
        """See ``SessionStore.has_any_sessions``."""
        return await self._run(self._ops.has_any_sessions)

    async def append_to_transcript(self, session_id: str, message: Mapping[str, Any], skip_db: bool = False) -> bool:
        """See ``SessionStore.append_to_transcript``."""
        return await self._run(self._ops.append_to_transcript, session_id, message, skip_db)

    async def rewrite_transcript(self, session_id: str, messages: Sequence[Mapping[str, Any]]) -> bool:
        """See ``SessionStore.rewrite_transcript``."""
        return await self._run(self._ops.rewrite_transcript, session_id, messages)

    async def load_transcript(self, session_id: str) -> list[dict[str, Any]]:
        """See ``SessionStore.load_transcript``."""
        return await self._run(self._ops.load_transcript, session_id)

    async def rewind_session(self, session_id: str, n: int = 1) -> dict[str, Any] | None:
        """See ``SessionStore.rewind_session``."""
        return await self._run(self._ops.rewind_session, session_id, n)


class SessionStore:
    """The sessions of a home. ``sessions_dir``: the home, made if there is none; this process owns it until ``close``.

    ``config``: what decides keys, and the mirror. ``has_active_processes_fn(session_key)``: whether background
    processes run for a session; then its entry isn't pruned. A key may be given as a text, canonical or in the seed's
    form, or as a SessionKey; an unknown one gives None or False. Methods block, from any thread; where an event loop
    runs they raise WrongThreadError, and their twins under ``aio`` are to be awaited. Each may raise StoreError
    (OwnershipLostError where the home is another process's by now), InvalidInputError, and AmbiguousKeyError for a text
    that names several lanes. ``clock`` and ``ids``: injected.

    Raises InvalidInputError, HomeError, HomeBusyError, FormatUnsupportedError, CorruptionError, StoreUnhealthyError:
    nothing was opened.
    """

    def __init__(
        self,
        sessions_dir: str | os.PathLike[str],
        config: GatewayConfig | None = None,
        has_active_processes_fn: HasActiveProcesses | None = None,
        *,
        clock: NowMs | None = None,
        ids: Ids | None = None,
    ) -> None:
        check_path("sessions_dir", sessions_dir)
        check_config(config)
        check_functions(has_active_processes_fn=has_active_processes_fn)
        check_port("clock", clock, ("now_ms",), "a clock")
        check_port("ids", ids, IDS, "a source of ids")
        config = config or GatewayConfig()
        clock = clock or WallClock()
        home = StandaloneHome(Path(sessions_dir), config, clock, ids or Ids(clock))
        try:
            self._begin(home.door, home.entries, config, has_active_processes_fn, Path(sessions_dir), home.close)
        except BaseException:  # no thread can be started, say
            home.close()
            raise
        home.routed = self.note_route

    @classmethod
    def through(
        cls,
        door: Door,
        entries: Entries,
        config: GatewayConfig,
        has_active_processes_fn: HasActiveProcesses | None = None,
        folder: Path | None = None,
    ) -> Self:
        """The store of a gateway, whose lanes ``door`` reaches. ``folder``: where the mirror is kept, None for none."""
        made = cls.__new__(cls)
        made._begin(door, entries, config, has_active_processes_fn, folder, lambda: None)
        return made

    def _begin(
        self,
        door: Door,
        entries: Entries,
        config: GatewayConfig,
        has_active: HasActiveProcesses | None,
        folder: Path | None,
        closed: Callable[[], None],
    ) -> None:
        self._closed = closed
        self._ops = Operations(door, entries, config, has_active)
        self._aio = AsyncSessions(self._ops)
        self._file: SessionsFile | None = None
        if folder is not None and config.write_sessions_json:
            self._file = SessionsFile(folder, entries)

    def note_route(self, key: str) -> None:
        """The lane ``key`` is bound to another session than before. Told by whoever serves the lanes; any thread."""
        self._ops.entries.note(key)
        if self._file is not None:
            self._file.soon()

    @property
    def aio(self) -> AsyncSessions:
        """The same methods, to be awaited. Any loop."""
        return self._aio

    def close(self) -> None:
        """Write the mirror, give everything back. Idempotent; blocks, from any thread."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._aio._close()
        self._ops.entries.close()
        closed, self._closed = self._closed, lambda: None
        closed()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _here(self, name: str) -> Operations:
        """The operations, for a thread that may block."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._ops
        raise WrongThreadError(f"{name}() would stall this thread's event loop: await sessions.aio.{name}() instead")

    def get_or_create_session(self, source: SessionSource, force_new: bool = False) -> SessionEntry:
        """The session of the lane that ``source`` belongs to, made if there is none; its activity is bumped.

        A suspended one is replaced first (its entry says ``was_auto_reset``), one to be resumed is kept. While a turn
        runs, its session stays. ``force_new``: another one in any case; the one before is ended, with that reason.
        Calls for one lane at the same time share one result, so that nobody gets a session of his own by chance.
        """
        return self._here("get_or_create_session").get_or_create_session(source, force_new)

    def update_session(self, session_key: Key, last_prompt_tokens: int | None = None) -> bool:
        """Bump the session's activity, and record what the last prompt took; False for an unknown key."""
        return self._here("update_session").update_session(session_key, last_prompt_tokens)

    def reset_session(self, session_key: Key, display_name: str | None = None) -> SessionEntry | None:
        """A fresh session, as /reset makes one: a running turn ends, what waited is dropped, its entry says
        ``is_fresh_reset`` until a turn has taken note. ``display_name``: what the entry calls it, of 4096 characters at
        most. None for an unknown key.
        """
        return self._here("reset_session").reset_session(session_key, display_name)

    def switch_session(
        self, session_key: Key, target_session_id: str, *, expected_session_id: str | None = None
    ) -> SessionEntry | None:
        """Go on with another session that exists. None for an unknown key or target, and, with ``expected_session_id``,
        when the lane is no longer bound to that. Another lane that was bound to the target starts fresh then.

        Raises LaneBusyError while a turn runs in either lane.
        """
        return self._here("switch_session").switch_session(
            session_key, target_session_id, expected_session_id=expected_session_id
        )

    def suspend_session(self, session_key: Key) -> bool:
        """The next message of a person starts a fresh session; False for an unknown key."""
        return self._here("suspend_session").suspend_session(session_key)

    def mark_resume_pending(self, session_key: Key, reason: str = "restart_timeout") -> bool:
        """Note that the session was interrupted; False for an unknown key, and never over a suspension."""
        return self._here("mark_resume_pending").mark_resume_pending(session_key, reason)

    def clear_resume_pending(self, session_key: Key) -> bool:
        """Nothing is to be resumed any more; False if nothing was."""
        return self._here("clear_resume_pending").clear_resume_pending(session_key)

    def recover_interrupted_turns(self, max_age_seconds: float) -> int:
        """Close the turns that a dead process left open; mark those that began less than ``max_age_seconds`` ago for
        resuming, and say how many these are. A running gateway has done so at its start: then there are none.
        """
        return self._here("recover_interrupted_turns").recover_interrupted_turns(max_age_seconds)

    def prune_old_entries(self, max_age_days: float | None, *, dry_run: bool = False) -> int:
        """Forget the entries without activity for ``max_age_days``, and say how many; None or 0: none. Logs are kept.

        Spared are those that are suspended, have open work, or active processes by the host's word.
        ``dry_run``: only count.
        """
        return self._here("prune_old_entries").prune_old_entries(max_age_days, dry_run=dry_run)

    def list_sessions(self, active_minutes: float | None = None) -> list[SessionEntry]:
        """All entries, or those active in the last minutes; the last active first."""
        return self._here("list_sessions").list_sessions(active_minutes)

    def lookup_by_session_id(self, session_id: str) -> SessionEntry | None:
        """The entry whose session that is; None when no lane is bound to it."""
        return self._here("lookup_by_session_id").lookup_by_session_id(session_id)

    def lane(self, session_key: Key) -> str | None:
        """The canonical key of the lane that is meant, which the gateway's other calls and receipts use; None for none.

        Raises AmbiguousKeyError, which lists them, where a text names two.
        """
        return self._here("lane").lane(session_key)

    def has_any_sessions(self) -> bool:
        """Whether there ever was a session; true from the first one on, whatever became of it."""
        return self._here("has_any_sessions").has_any_sessions()

    def append_to_transcript(self, session_id: str, message: Mapping[str, Any], skip_db: bool = False) -> bool:
        """Add a message (role, content, and what else the host keeps with it) as a closed turn of its own.

        ``skip_db``: the message is stored already; nothing is done. False for a session that no lane has, since only
        its lane writes to it: an unknown one, and one that came by ``seriatim import``, until a lane has been switched
        to it. Raises LaneBusyError while a turn of the session is open, and StoreError where it could not be written:
        CommitTooLargeError for one that takes more than 16 MiB of the log.
        """
        return self._here("append_to_transcript").append_to_transcript(session_id, message, skip_db)

    def rewrite_transcript(self, session_id: str, messages: Sequence[Mapping[str, Any]]) -> bool:
        """Show these messages instead of all; the log keeps what was there. False and errors as for an append.

        They become one commit, so that a crash leaves the old ones or the new. It holds 16 MiB of the log (some 70,000
        short messages); more raises CommitTooLargeError at once, and repeating doesn't help. A larger conversation is
        cut with ``rewind_session`` and goes on by appends.
        """
        return self._here("rewrite_transcript").rewrite_transcript(session_id, messages)

    def load_transcript(self, session_id: str) -> list[dict[str, Any]]:
        """What the session shows, oldest first, each message with its ``timestamp``; empty for an unknown session.

        A log that can't be read raises: it never looks like an empty conversation.
        """
        return self._here("load_transcript").load_transcript(session_id)

    def rewind_session(self, session_id: str, n: int = 1) -> dict[str, Any] | None:
        """Take back the last ``n`` turns, or as many as there are (below 1 counts as 1); the log keeps them.

        Returns ``rewound_count`` (messages), ``turns_undone`` and ``target_text`` (the first user message that went);
        None when there is nothing to take back, or no such session. Raises LaneBusyError while a turn is open.
        """
        return self._here("rewind_session").rewind_session(session_id, n)
