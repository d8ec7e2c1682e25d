"""Build a release, check it, and describe it: ``make release``. What is said at the end is left to a person."""

from __future__ import annotations

import filecmp
import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_DIST = _ROOT / "dist"
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
    if newest is None or not re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", newest[1]):
        raise NotReady(f"CHANGELOG.md has to begin with '## {version} (YYYY-MM-DD)', and with what is new.")
    return newest[2].strip()


def _version() -> str:
    from airflow_provider_crew import __version__

    return __version__


def _require_committed() -> None:
    changed = _run("git", "status", "--porcelain")
    if changed:
        raise NotReady(f"these files are not committed:\n{changed}")


def _built() -> list[Path]:
    """Build the sdist and from it the wheel, which has to be the one that is built from here."""
    with tempfile.TemporaryDirectory() as folder:
        _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", _DIST, _ROOT)
        _run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", folder, _ROOT)
        (again,) = Path(folder).glob("*.whl")
        wheel = _DIST / again.name
        if not filecmp.cmp(wheel, again, shallow=False):
            raise NotReady("the sdist builds another wheel than this folder does.")
    if "\nProject-URL: " not in _metadata(wheel):
        raise NotReady("[project.urls] in pyproject.toml has to say where the project is to be found.")
    built = [wheel, *_DIST.glob(f"airflow_provider_crew-{_version()}.tar.gz")]
    _run(sys.executable, "-m", "twine", "check", "--strict", *built)
    return built


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
