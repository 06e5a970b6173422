"""Every error that Seriatim raises, in one tree.

    SeriatimError
    ├── InvalidInputError            the caller: a value at the boundary is malformed
    │   ├── LosslessJsonError        the caller: an event's data can't be kept exactly as JSON
    │   └── SurfaceError             the caller: an operation doesn't fit what a session shows
    │       └── SurfaceHorizonError  it reaches further back than was kept; fold the whole log
    ├── ConfigError                  the operator: one key of the configuration is wrong
    ├── HomeError                    the operator: the state home can't be used
    │   └── HomeBusyError            another process owns the home
    ├── StoreError                   the world or a bug below: storage said no
    │   ├── LogNotFoundError         no such log
    │   ├── BlobNotFoundError        no such blob; put it first
    │   ├── BlobTooLargeError        the caller: more than a blob may hold
    │   ├── LogExistsError           a log of that id is already there
    │   ├── HeadMismatchError        the log has moved on; fold it again
    │   ├── LogCompactedError        the log's beginning is in its archive
    │   ├── KeysTakenError           a unique key of the commit is already there (a duplicate)
    │   ├── BindingMismatchError     the session is bound to another lane
    │   ├── OwnershipLostError       a newer owner (epoch or incarnation) has taken over; stop
    │   ├── CommitTooLargeError      the commit exceeds a limit; repeating it can't succeed
    │   ├── ReadOnlyError            the handle was opened for reading
    │   ├── StoreUnhealthyError      the disk refuses; nothing was written; try again later
    │   ├── WriteUnknownError        a write may or may not be there; read before repeating it
    │   ├── CorruptionError          bytes on disk are not what was written
    │   │   └── SessionPersistenceCorruptionError   the same of one session's log
    │   ├── FormatUnsupportedError   the file belongs to another version or another program
    │   │   └── SessionFormatUnsupportedError       the same of one session's log
    │   ├── SequenceMismatchError    the caller: a batch doesn't go on where the log ends
    │   ├── SessionLiveError         the caller: the session is alive; only its owner may do that
    │   ├── SessionReservedError     the session is being resumed; try later
    │   ├── SessionGoneError         the caller: this session object was retired
    │   ├── SessionForkError         the caller: a session can't be forked there
    │   ├── RawArtifactsUnsupportedError   the caller: this backend keeps no artifact per session
    │   └── PersistenceClosedError   the caller: the event-log service was closed
    ├── ActorError                   the engine
    │   ├── ActorDeadError           the actor has stopped
    │   ├── MailboxFullError         the actor's mailbox is at its bound
    │   ├── BlockingAskError         an actor was about to block on another
    │   │   └── WaitCycleError       a turn was about to wait for its own end
    │   ├── NameTakenError           a live actor has the name
    │   ├── SystemStoppingError      nothing is started any more
    │   ├── DispatcherClosedError    it will never run anything again
    │   ├── SimulationDeadlockError  nothing in the simulation can end a wait
    │   └── SimulationEndlessError   the simulation never comes to rest
    ├── LaneBusyError                a turn is open; try again when it has ended
    ├── GatewayClosedError           the caller: the gateway isn't running
    ├── StopOverdueError             something blocks the loop, or won't end; the stop was broken off
    ├── WrongThreadError             the caller: a blocking call where it would stall a loop
    ├── TurnError                    the agent's side
    │   ├── TurnCancelledError       the turn was cancelled; unwind
    │   ├── ReplyTooLargeError       the agent: its reply is larger than a reply may be
    │   └── ModelError               the model's server: no whole answer came
    └── SendError                    the platform: a send did not succeed

Each class says in its docstring who is at fault and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

SendCode = Literal["gone", "blocked", "too_long", "refused", "anchor", "thread"]
"""What a refused send was about."""


class SeriatimError(Exception):
    """Base of everything raised on purpose by this library."""

    repeatable = False
    """Whether the same call may succeed later without being changed."""


class InvalidInputError(SeriatimError):
    """A value handed in is malformed: the caller's fault; nothing was stored.

    ``field`` names the argument or attribute, ``reason`` says what was expected.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class AmbiguousKeyError(InvalidInputError):
    """The caller: a key's text names several lanes. Use one of their canonical forms, ``keys``."""

    def __init__(self, text: str, keys: Sequence[str]) -> None:
        super().__init__("session_key", f"{text!r} names {len(keys)} lanes: {', '.join(keys)}")
        self.keys = tuple(keys)


class LosslessJsonError(InvalidInputError):
    """An event's data would not survive JSON unchanged: the caller's fault; refused before any I/O.

    ``event_type`` names the event, ``path`` the place inside its data.
    """

    def __init__(self, event_type: str, path: str, reason: str) -> None:
        super().__init__(f"{event_type} data{path}", reason)
        self.event_type = event_type
        self.path = path


class SurfaceError(InvalidInputError):
    """A message or an operation doesn't fit the surface it is meant for: nothing was changed.

    ``event_type`` names the event or the operation.
    """

    def __init__(self, event_type: str, reason: str) -> None:
        super().__init__(event_type, reason)
        self.event_type = event_type


class SurfaceHorizonError(SurfaceError):
    """A reset reaches back beyond what this surface kept: fold the whole log, then repeat it.

    ``as_of``: where it leads; ``horizon``: the first seq that was kept for it.
    """

    def __init__(self, event_type: str, as_of: int, horizon: int) -> None:
        super().__init__(event_type, f"leads back to {as_of}, but only turns from {horizon} on were kept")
        self.as_of = as_of
        self.horizon = horizon


class ConfigError(SeriatimError):
    """One configuration key is wrong: the operator's fault; nothing was started or written.

    ``key`` is the dotted key (or the file), ``reason`` says what to change.
    """

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}")
        self.key = key
        self.reason = reason


class HomeError(SeriatimError):
    """The state home can't be used: the operator's fault; nothing was written.

    ``home`` is the folder, ``reason`` says why and what to do.
    """

    def __init__(self, home: str, reason: str) -> None:
        super().__init__(f"{home}: {reason}")
        self.home = home
        self.reason = reason


class HomeBusyError(HomeError):
    """Another live process owns the home; stop it, or open the home for reading.

    ``owner`` describes the process as it described itself when it took the lock.
    """

    repeatable = True

    def __init__(self, home: str, owner: str) -> None:
        super().__init__(home, f"owned by {owner}; stop that process or use another home")
        self.owner = owner


class StoreError(SeriatimError):
    """Storage said no; what it means for the commit is said by the outcome that carries it."""


class LogNotFoundError(StoreError):
    """No log of that id: the caller named one that was never created, or was erased."""

    def __init__(self, log: str) -> None:
        super().__init__(f"no log {log!r}")
        self.log = log


class BlobNotFoundError(StoreError):
    """There is no blob of that hash: it was never put, or nothing referred to it and it was swept. Put it first.

    ``hash``: what was asked for.
    """

    def __init__(self, hash: str) -> None:  # noqa: A002  (the blob's name, as everywhere)
        super().__init__(f"no blob {hash}")
        self.hash = hash


class BlobTooLargeError(StoreError):
    """The caller's fault: the blob is larger than ``bytes_max``; nothing was kept."""

    def __init__(self, size: int, bytes_max: int) -> None:
        super().__init__(f"a blob of {size} bytes, at most {bytes_max}")
        self.bytes_max = bytes_max


class LogExistsError(StoreError):
    """A log of that id is already there: choose another id, or append to it."""

    def __init__(self, log: str) -> None:
        super().__init__(f"log {log!r} already exists")
        self.log = log


class HeadMismatchError(StoreError):
    """The log is not where the writer believed: fold it again before the next commit."""

    def __init__(self, log: str, expected: int, actual: int) -> None:
        super().__init__(f"log {log!r} is at {actual}, the commit expected {expected}")
        self.log = log
        self.expected = expected
        self.actual = actual


class LogCompactedError(StoreError):
    """The log was compacted: events below ``base`` are gone, its archive has their fold. Read from ``base`` on."""

    def __init__(self, log: str, base: int) -> None:
        super().__init__(f"{log}: compacted; it begins at {base}, with an archive of what was before")
        self.log = log
        self.base = base


class KeysTakenError(StoreError):
    """Unique keys of the commit are already in the store: the messages are duplicates."""

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__(f"already accepted: {', '.join(keys)}")
        self.keys = tuple(keys)


class BindingMismatchError(StoreError):
    """The session is bound to another lane than the commit expects; look the binding up again."""

    def __init__(self, session: str, expected: str | None, actual: str | None) -> None:
        super().__init__(f"session {session!r} is bound to {actual!r}, the commit expected {expected!r}")
        self.session = session
        self.expected = expected
        self.actual = actual


class OwnershipLostError(StoreError):
    """A newer epoch or incarnation has taken over: this writer is gone and must stop."""


class CommitTooLargeError(StoreError):
    """The commit exceeds a limit of the store; the same commit can't succeed by repetition."""


class ReadOnlyError(StoreError):
    """The store was opened for reading; open it as its owner to write."""


class StoreUnhealthyError(StoreError):
    """The medium refuses for now (full, locked, failing); surely nothing was written."""

    repeatable = True


class CorruptionError(StoreError):
    """Bytes on disk are not what was written. Never written over.

    ``where`` names the place in words; ``log``, ``seq`` (the first event that can't be trusted) and ``file`` say it
    for programs, each None where it isn't known or doesn't apply.
    """

    def __init__(
        self,
        where: str,
        reason: str,
        *,
        log: str | None = None,
        seq: int | None = None,
        file: str | None = None,
    ) -> None:
        super().__init__(f"{where}: {reason}")
        self.where = where
        self.reason = reason
        self.log = log
        self.seq = seq
        self.file = file


class FormatUnsupportedError(StoreError):
    """The file is of another format; ``direction`` is "upgrade", "no path" or "foreign"."""

    def __init__(self, where: str, direction: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where = where
        self.direction = direction
        self.reason = reason


class WriteUnknownError(StoreError):
    """An I/O error: the write may or may not be there. Read before repeating it; what is there isn't written twice."""

    repeatable = True


class SessionPersistenceCorruptionError(CorruptionError):
    """A session's log was read, and is not what was written: nothing goes on with it but a salvage."""


class SessionFormatUnsupportedError(FormatUnsupportedError):
    """A session's log is intact, but this version can't read it faithfully.

    ``direction``: "upgrade" (a newer version wrote it), "no path" (older, or a shape without a version) or "foreign".
    ``location``: where its raw text can be read, if the backend keeps one artifact per session.
    """

    def __init__(self, where: str, direction: str, reason: str, location: str | None = None) -> None:
        super().__init__(where, direction, reason if location is None else f"{reason}; its raw text is {location}")
        self.location = location


class SequenceMismatchError(StoreError):
    """A batch doesn't go on where the log ends, or has a hole: the caller's fault; nothing was stored.

    ``expected``: the number that the event at ``index`` of the batch must have; ``got``: the one that it has.
    """

    def __init__(self, session: str, expected: int, index: int, got: int) -> None:
        super().__init__(f"session {session!r}: event {index} of the batch must be number {expected}, not {got}")
        self.session = session
        self.expected = expected
        self.index = index
        self.got = got


class SessionLiveError(StoreError):
    """The session is alive (or another object has its id): the caller's fault; ask its owner."""

    def __init__(self, session: str, reason: str) -> None:
        super().__init__(f"session {session!r} {reason}")
        self.session = session
        self.reason = reason


class SessionReservedError(StoreError):
    """The session is prepared for somebody who is about to resume it; wait until that is over."""

    repeatable = True

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} is reserved for a resume")
        self.session = session


class SessionGoneError(StoreError):
    """The session object was retired and takes nothing any more: resume the session to go on."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} was retired; resume it to go on")
        self.session = session


class SessionForkError(StoreError):
    """A session can't be forked there: the caller's fault; nothing was made.

    ``code``: "source not found", "source not live", "child exists", "bad boundary" or "open turn".
    """

    def __init__(self, session: str, code: str, reason: str) -> None:
        super().__init__(f"session {session!r} can't be forked: {reason}")
        self.session = session
        self.code = code
        self.reason = reason


class RawArtifactsUnsupportedError(StoreError):
    """The backend keeps no artifact per session: ask ``supports_raw_artifacts`` first."""


class PersistenceClosedError(StoreError):
    """The event-log service was closed; open another."""


class ActorError(SeriatimError):
    """What the actor engine refuses."""


class ActorDeadError(ActorError):
    """The actor told or asked is stopped, stopping, crashed, or its dispatcher is closed. The world's fault: start
    another one, or drop the message.

    Attributes:
        name: the actor's name.
        reason: why it can't take mail.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"actor {name!r} takes no mail: {reason}")
        self.name = name
        self.reason = reason


class MailboxFullError(ActorError):
    """The mailbox holds as much data mail as it may. Retry later, or tell the sender so.

    Attributes:
        name: the actor's name.
        capacity: data messages that may wait.
        sequence: the number the refused message would have had; all smaller ones were taken in before it.
    """

    def __init__(self, name: str, capacity: int, sequence: int) -> None:
        super().__init__(f"mailbox of {name!r} is full ({capacity} waiting); refused message number {sequence}")
        self.name = name
        self.capacity = capacity
        self.sequence = sequence


class BlockingAskError(ActorError):
    """A blocking wait where nobody could answer, or a worker would be lost. The caller's fault: reply by message.

    Attributes:
        asker: who tried to block.
        target: whose answer it wanted, as far as known.
    """

    def __init__(self, asker: str, target: str) -> None:
        super().__init__(
            f"{asker} may not block on an answer from {target}: it would hold up its dispatcher, for ever if the "
            f"answer needs the same thread; let {target} answer by message"
        )
        self.asker = asker
        self.target = target


class WaitCycleError(BlockingAskError):
    """A turn was about to wait for an answer that can come only after it has ended. The agent's fault: end the turn,
    or wait in a task that the turn doesn't wait for.

    Attributes:
        cycle: the lanes that wait for each other; the first is the last, too.
    """

    def __init__(self, cycle: Sequence[str]) -> None:
        first, second = cycle[0], cycle[1]
        ActorError.__init__(
            self,
            f"the turn of {first} may not wait for an answer of {second}, which waits for this turn to end: "
            + " -> ".join(cycle),
        )
        self.asker = first
        self.target = second
        self.cycle = tuple(cycle)


class NameTakenError(ActorError):
    """A live actor of this system has the name already. The caller's fault."""


class SystemStoppingError(ActorError):
    """The system is being stopped and starts nothing any more. The caller's fault."""


class DispatcherClosedError(ActorError):
    """The dispatcher, or the event loop under it, is closed. The caller's fault: stop the actors first."""


class SimulationDeadlockError(ActorError):
    """A blocking wait that nothing in the simulation can end: no mailbox is runnable and no timer is set. The fault
    of the actors that were simulated.
    """


class SimulationEndlessError(ActorError):
    """Still busy after the allowed steps: actors that keep telling each other, or a periodic timer. Their fault, or
    allow more steps.
    """


class LaneBusyError(SeriatimError):
    """A turn of the session is open: nobody is at fault. Try again when it has ended."""

    repeatable = True

    def __init__(self, operation: str, reason: str) -> None:
        super().__init__(f"{operation}: {reason}")
        self.operation = operation


class GatewayClosedError(SeriatimError):
    """The gateway isn't running (not started, stopping, or forked into this process)."""


class StopOverdueError(SeriatimError):
    """A stop did not end in its time: an agent, a hook or an adapter blocks the loop, or the store hangs. The log has
    the stacks. What was accepted is durable; open turns go on at the next start.

    ``seconds``: what it had after the drain.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the stop had not ended {seconds:g} s after the drain, and was broken off")
        self.seconds = seconds


class WrongThreadError(SeriatimError):
    """A blocking call on a thread whose event loop it would stall; use the awaitable twin."""


class TurnError(SeriatimError):
    """Raised inside a turn, to the agent or by it."""


class TurnCancelledError(TurnError):
    """The turn was cancelled (``reason`` says why): an agent lets it pass and returns."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the turn was cancelled: {reason}")
        self.reason = reason


class ReplyTooLargeError(TurnError):
    """The agent's reply is too large to keep or send: its fault; the turn ends as failed."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"the reply is larger than {bytes_max} bytes")
        self.bytes_max = bytes_max


class ModelError(TurnError):
    """The model's server gave no whole answer: its fault, or the network's, or the configuration's.

    ``status``: the HTTP status, or None when there was none. ``partial``: what had arrived of the answer.
    """

    def __init__(self, reason: str, *, status: int | None = None, partial: str = "") -> None:
        said = f"{reason}; until then it had said: {partial}" if partial else reason
        super().__init__(said)
        self.reason = reason
        self.status = status
        self.partial = partial


class SendError(SeriatimError):
    """A send did not succeed. Raised by adapters; ``ambiguous`` says that it may have arrived.

    ``permanent``: the platform will never take it. ``retry_after_s``: what the platform asked to wait, seconds, or
    None. ``code``: what it was about, where that is known. "gone" (no such chat), "blocked" (they don't want to hear
    from us), "too_long" and "refused" are permanent; "anchor" and "thread" say that the message replied to, or the
    thread, is gone: the part surely wasn't sent, and is tried without. ``moved_to``: the chat has this id now; the part
    surely wasn't sent, and goes there with all else that the chat is owed.
    """

    def __init__(
        self,
        reason: str,
        *,
        ambiguous: bool = False,
        permanent: bool = False,
        retry_after_s: float | None = None,
        code: SendCode | None = None,
        moved_to: str | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.moved_to = moved_to
        self.ambiguous = ambiguous
        self.permanent = permanent
        self.retry_after_s = retry_after_s
        self.code = code
