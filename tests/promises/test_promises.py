"""Each promise, kept by each kind of task."""

from __future__ import annotations

import pytest

from tests.promises.kinds import KINDS
from tests.promises.promises import PROMISES, cells
from tests.supported import AIRFLOW

pytest_plugins = ["tests.promises.fixtures"]
pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="A batch needs the task state store of Airflow 3.3.")


@pytest.mark.parametrize(("promise", "kind"), [*cells(*KINDS)])
def test_promise_is_kept(world, promise, kind):
    PROMISES[promise](world, KINDS[kind])
