import pytest

from pyrategate import ManualClock


@pytest.fixture
def clock():
    return ManualClock()
