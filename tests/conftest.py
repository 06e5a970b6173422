"""What holds for all tests: a machine that is busy with other things makes none of them fail."""

from hypothesis import HealthCheck, settings

# As Hypothesis' own profile for CI, but for the random choice of examples, which is worth having.
settings.register_profile(
    "patient",
    parent=settings(),
    deadline=None,  # 200 ms an example by default
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("patient")
