"""Campaigns of the simulator, ``seriatim.testing.simulator``: its fault model and what lies outside stand there.

``python -m tests.sim --seeds N [--from S] [--shrink] [--json]`` runs seeds, ``--mutants`` looks for planted bugs.
"""
