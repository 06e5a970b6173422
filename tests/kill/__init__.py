"""Proof with real processes: a gateway under load is SIGKILLed again and again, and nothing is lost."""
