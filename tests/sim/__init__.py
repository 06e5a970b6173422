"""The core's simulator: real gates over a store in memory, everything else scripted, on one thread.

Fault model. The store may be slow, refuse a commit (surely absent) or answer Unknown with the commit written
or not. A lane's incarnation may die at any point between two of its steps; its successor fences, folds and
recovers. The process may die at any point: what was not durable is gone, the platform gives again what it was
not acknowledged. Sends may fail surely, fail doubtfully (arrived or not), be refused for good; an adapter may
be down for a while. Agents run steps with tools, fail, stay silent, and ignore their cancelling. The platform
delivers a message twice at will. Turn slots are scarce. Time jumps between starts.

Outside of it: threads and the actors themselves (directory, receipts, mailbox bounds: actors/simulation and
the stress tests have those), torn writes and real files (the crash enumerator has them), two processes on one
home, /resume and lane merges, clocks that run backwards, disks that lie.

A run is a seed: same seed, same checksum of its trace. ``python -m tests.sim --seeds N [--from S] [--json]``.
"""
