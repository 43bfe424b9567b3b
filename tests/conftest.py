"""What ``slow`` means is checked, what takes longest begins first, and examples are drawn alike on every machine."""

import resource
import time

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "every run alike",
    derandomize=True,
    deadline=None,  # of the wall clock, which a busy machine makes longer; so is the check that is left out
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("every run alike")

SLOW = 5.0
"""Seconds of processor time (its own and that of processes it waited for) above which a test is marked ``slow``."""
LIMIT = 4 * SLOW
"""An unmarked test that takes longer than this fails: wide, as processors differ. A busy machine changes nothing."""


def processor_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    before = processor_seconds()
    result = yield
    took = processor_seconds() - before
    if took > LIMIT and item.get_closest_marker("slow") is None:
        pytest.fail(f"took {took:.0f} s of processor time: make it cheaper, or mark it slow (over {SLOW:.0f} s)")
    return result


def pytest_collection_modifyitems(items):
    """Files with the most slow tests first: workers take whole files in this order, so that none ends long after."""
    weight = dict.fromkeys((item.path for item in items), 0)
    for item in items:
        weight[item.path] += item.get_closest_marker("slow") is not None
    items.sort(key=lambda item: -weight[item.path])
