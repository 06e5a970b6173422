"""Pages of ``docs/`` that are made from the source: ``python -m tests.pages`` writes them anew, tests compare."""
