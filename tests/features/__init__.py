"""What was promised, feature by feature, and the tests that show each of it: ``python -m tests.features``."""
