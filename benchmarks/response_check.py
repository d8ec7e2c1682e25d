"""What a user writes for HttpEventTrigger. Alone in its module, because every poll loads the module anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import requests


async def is_over(response: requests.Response) -> bool:
    """Whether the execution has ended."""
    return bool(response.json()["status"] != "running")
