"""The crash enumerator: the product's actors on real SQLite files, killed at every point of a scenario's own trace.

Fault model. One thread runs everything; a seed decides who goes next and time is virtual, so a run up to its crash is
the run that the clean trace told. What may happen to a run:

- the process dies before or after a group commit of the store, an acknowledgement to the platform, a start, cancel,
  release or go-ahead of the runner, a tool call, the start of a send, its arrival, the news of its end. Then nothing
  more leaves it, and what is left is what ``kill -9`` leaves: the database and its WAL, copied while open;
- it dies inside a commit: the WAL is cut at each frame that the commit wrote;
- it dies again in the next life, at any point of the recovery or after it (pairs), or at the same place three times;
- a lane's actor dies before any of its envelopes, alone or before a death of the process; so does an actor that all
  lanes need, and then the process with it;
- the store refuses for a while, or doesn't know (and the commit is there, or isn't);
- the platform repeats what was not acked, repeats what was, or (like IRC) never repeats anything; a send is refused,
  or its end is unknown (and it arrived, or didn't).

The points come from the trace of each scenario's clean run, never from a list. What must hold is in
``seriatim.testing``: ``judge`` (at the end of a run, from the logs by a fold of its own) and ``witness`` (at each
effect: is the commit that explains it durable?).

Outside of it: power loss and lying disks (a kill leaves what was written, synced or not; files may lie on tmpfs), real
threads and asyncio, hence the loop dispatcher's hand-offs and group commits larger than what the simulation happens to
gather, real agents and adapters, actors dying amid an envelope, a clock that jumps, drains, media, several accounts.
The process harness in tests/kill has the real ones.
"""
