"""Build a release, check it, and describe it: ``make release``. What is said at the end is left to a person."""

from __future__ import annotations

import filecmp
import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from datetime import date
from email.parser import Parser
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_DIST = _ROOT / "dist"
_RELATIVE_LINK = re.compile(r"\]\((?!https?://|#)([^)]+)\)")
_ENTRY = re.compile(r"^## (.*?)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)


class NotReady(Exception):
    """What keeps this from being a release. The message says what to do."""


def main() -> int:
    """Build it, unless something is in the way."""
    try:
        version = _version()
        entry = changelog_entry((_ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
        _require_committed()
        built = _built()
    except NotReady as error:
        print(f"No release: {error}", file=sys.stderr)
        return 1
    print(f"Version {version}\n\n{entry}\n")
    for path in built:
        print(f"{path.relative_to(_ROOT)}: {path.stat().st_size:,} bytes, sha256 {_digest(path)}")
    print(
        f"\nThe tests are not part of this: .ci/run and make matrix come first. Then:\n"
        f"git tag -s v{version} -m 'Version {version}' && git push origin v{version}"
    )
    return 0


def changelog_entry(changelog: str, version: str) -> str:
    """Return what the changelog says of a version, which has to come first and have a date."""
    newest = _ENTRY.search(changelog)
    if newest is None or not _is_dated(newest[1], version) or not newest[2].strip():
        raise NotReady(f"CHANGELOG.md has to begin with '## {version} (YYYY-MM-DD)', and with what is new.")
    return newest[2].strip()


def _is_dated(heading: str, version: str) -> bool:
    named, _, released = heading.partition(" ")
    try:
        return named == version and f"({date.fromisoformat(released[1:-1])})" == released
    except ValueError:
        return False


def _version() -> str:
    from airflow_provider_crew import __version__

    return __version__


def _require_committed() -> None:
    """Refuse what is not committed, and a version that has been released."""
    changed = _run("git", "status", "--porcelain")
    if changed:
        raise NotReady(f"these files are not committed:\n{changed}")
    tag = f"v{_version()}"
    if _run("git", "tag", "--list", tag, "--no-contains", "HEAD"):
        raise NotReady(f"{tag} is the tag of another commit: that version has been released.")


def _built() -> list[Path]:
    """Build the sdist and from it the wheel, which has to be the one that is built from here."""
    with tempfile.TemporaryDirectory() as folder:
        _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", _DIST, _ROOT)
        _run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", folder, _ROOT)
        (again,) = Path(folder).glob("*.whl")
        wheel = _DIST / again.name
        if not filecmp.cmp(wheel, again, shallow=False):
            raise NotReady("the sdist builds another wheel than this folder does.")
    require_address(_metadata(wheel))
    built = [wheel, *_DIST.glob(f"airflow_provider_crew-{_version()}.tar.gz")]
    _run(sys.executable, "-m", "twine", "check", "--strict", *built)
    return built


def require_address(metadata: str) -> None:
    """Refuse metadata that leave open where the project is, or with links that an index does not resolve."""
    told = Parser().parsestr(metadata)
    if "Project-URL" not in told:
        raise NotReady("[project.urls] in pyproject.toml has to say where the project is to be found.")
    if relative := _RELATIVE_LINK.findall(str(told.get_payload())):
        raise NotReady(
            f"an index does not resolve {', '.join(relative)}: README.md has to link to the project's address."
        )


def _metadata(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(name).decode()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _run(*command: str | Path) -> str:
    done = subprocess.run(  # noqa: S603 - the commands above
        [str(part) for part in command], check=False, cwd=_ROOT, capture_output=True, text=True
    )
    if done.returncode:
        raise NotReady(f"{' '.join(map(str, command))} fails:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
