"""Adapters: the platforms on which people write, and (in ``agents``) who answers."""
