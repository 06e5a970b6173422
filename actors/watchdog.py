"""The watch over a stop, outside the loop: a loop that is blocked for ever can't run the timer that should end it.

``Watchdog`` counts down on a daemon thread of its own; ``SignalTap`` hears SIGTERM although the main thread is stuck;
``dump_stacks`` tells what each thread is at. None of it is the lanes': what is durable needs no help, and a turn that
stays open in the log is taken up by the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable

__all__ = ["SignalTap", "Watchdog", "dump_stacks"]


class Watchdog:
    """Calls *overdue*, once and on a thread of its own, unless it is disarmed in time. Any thread.

    Armed again, for less time say, the earlier end counts.
    """

    def __init__(self, overdue: Callable[[], None]) -> None:
        self._overdue = overdue
        self._disarmed = threading.Event()
        self._guard = threading.Lock()
        self._bitten = False

    def arm(self, seconds: float) -> None:
        """Begin to count; *overdue* is called *seconds* from now."""
        threading.Thread(
            target=self._count, args=(min(seconds, threading.TIMEOUT_MAX),), name="seriatim-watchdog", daemon=True
        ).start()

    def disarm(self) -> None:
        """What was watched has ended."""
        self._disarmed.set()

    def _count(self, seconds: float) -> None:
        if self._disarmed.wait(seconds):
            return
        with self._guard:
            if self._bitten or self._disarmed.is_set():
                return
            self._bitten = True
        self._overdue()


class SignalTap:
    """Hears signals on a thread of its own and passes each on to the event loop. Made and closed on the main thread.

    Python runs signal handlers, asyncio's too, on the main thread only. Its C part writes each signal's number to a
    file descriptor at once, though; asyncio reads that one on the loop. The tap puts itself in between. Whoever calls
    ``loop.add_signal_handler`` later takes it out again: then signals are heard by the loop alone.
    """

    def __init__(self, heard: Callable[[int], None]) -> None:
        """*heard* is called with each signal's number, on the tap's thread; it must not raise."""
        self._heard = heard
        self._mine, self._theirs = socket.socketpair()
        self._theirs.setblocking(False)
        self._loop_fd = signal.set_wakeup_fd(self._theirs.fileno(), warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._listen, name="seriatim-signals", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Give the descriptor back."""
        before = signal.set_wakeup_fd(self._loop_fd)
        if before != self._theirs.fileno():
            signal.set_wakeup_fd(before)  # somebody else's by now
        self._theirs.close()  # ends the thread
        self._thread.join()
        self._mine.close()

    def _listen(self) -> None:
        while numbers := self._mine.recv(64):
            for number in numbers:
                self._heard(number)
            with contextlib.suppress(OSError):  # the loop is closed
                os.write(self._loop_fd, numbers)


def dump_stacks(loop: asyncio.AbstractEventLoop | None = None) -> str:
    """Where each thread of this process is, and each task of *loop*: code only, no values. Any thread."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    told: list[str] = []
    for ident, frame in sys._current_frames().items():
        told.append(f"thread {names.get(ident, ident)}:\n")
        told.extend(traceback.format_stack(frame))
    tasks: set[asyncio.Task[object]] = set()
    if loop is not None:
        with contextlib.suppress(RuntimeError):  # the set changed meanwhile: the loop runs, its tasks say little
            tasks = asyncio.all_tasks(loop)
    for task in tasks:
        told.append(f"task {task.get_name()}:\n")
        for frame in task.get_stack(limit=5):
            told.extend(traceback.format_stack(frame, limit=1))
    return "".join(told)
