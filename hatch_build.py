"""What an index shows of this project: the README of the checkout, with links that lead there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE = re.compile(r"\]\((?!https?://|#)([^)]+)\)")
_PICTURES = (".gif", ".png", ".svg")


class ReadmeHook(MetadataHookInterface):
    """Hatchling asks it for the README of every wheel and sdist."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Have the links lead to the address in ``[project.urls]``, once there is one."""
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source")
        shown = linked(readme, source, metadata["version"]) if source else readme
        metadata["readme"] = {"content-type": "text/markdown", "text": shown}


def linked(readme: str, source: str, version: str) -> str:
    """Return it with links to what the tag of the version has, as GitHub shows it."""

    def absolute(found: re.Match[str]) -> str:
        kind = "raw" if found[1].endswith(_PICTURES) else "blob"
        return f"]({source}/{kind}/v{version}/{found[1]})"

    return _RELATIVE.sub(absolute, readme)
