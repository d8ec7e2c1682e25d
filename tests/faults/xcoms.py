"""An XCom backend that hangs, for one triggerer."""

from __future__ import annotations

import threading
from typing import Any

from airflow.sdk.bases.xcom import BaseXCom


class HangingXComs(BaseXCom):
    """An XCom backend that never returns if it is asked for an XCom of the first mapped task."""

    @classmethod
    def get_one(cls, *, map_index: int | None = None, **which: Any) -> Any:
        _hang(map_index)
        return super().get_one(map_index=map_index, **which)

    @classmethod
    def set(cls, key: str, value: Any, *, map_index: int = -1, **which: Any) -> None:
        _hang(map_index)
        super().set(key, value, map_index=map_index, **which)


def _hang(map_index: int | None) -> None:
    if map_index == 0:
        threading.Event().wait()
