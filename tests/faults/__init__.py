"""Faults that systems of this kind are known for, and the tests that show them absent here."""
