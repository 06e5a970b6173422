"""The event-log service: sessions kept as append-only logs, over any backend that can keep them (seed 1)."""
