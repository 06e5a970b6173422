"""The event-log service: sessions kept as append-only logs, over any backend that can keep them.

Its contract is the event-log seed, a specification; "seed §15" in these modules is a section of it.
"""
