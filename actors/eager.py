"""Tasks that begin at once: what never waits then costs no pass of the loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

if sys.version_info >= (3, 12):

    def begin(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task on the running *loop*, run up to its first wait before this returns; before 3.12, merely scheduled."""
        return asyncio.Task(work, loop=loop, eager_start=True)

else:

    def begin(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task on the running *loop*, scheduled; from 3.12 on it begins at once."""
        return loop.create_task(work)
