"""Metrics as the Prometheus StatsD exporter presents them: its mapping, as far as ours goes."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from tests.airflow_runs import ROOT

FOLDER = ROOT / "example_metrics"
RULES = FOLDER / "prometheus-rules.yml"
PANELS = json.loads((FOLDER / "grafana-dashboard.json").read_text())["panels"]
MAPPINGS = yaml.safe_load((FOLDER / "statsd-mapping.yml").read_text())["mappings"]
KEYS = {"match", "name", "labels", "observer_type", "histogram_options"}


def mapped(name: str) -> tuple[Mapping[str, Any], dict[str, str]]:
    """Return the mapping of a metric, and the labels that its name becomes. A star is one part of a name."""
    for each in MAPPINGS:
        assert each.keys() <= KEYS, "this is an exporter of nothing else"
        pattern = re.escape(each["match"]).replace(r"\*", r"([^.]+)")
        if found := re.fullmatch(pattern, name):
            labels = each.get("labels", {}).items()
            return each, {label: found.expand(value.replace("$", "\\")) for label, value in labels}
    raise LookupError(name)


def samples(line: str) -> Iterator[tuple[str, float]]:
    """Return by how much a line that Airflow has sent raises which series."""
    named, _, measured = line.partition(":")
    (name, *tags), (value, kind) = named.split(","), measured.split("|")
    mapping, labels = mapped(name)
    labels |= dict(tag.split("=", 1) for tag in tags)
    if kind == "c":
        assert "observer_type" not in mapping
        yield series(mapping["name"], labels), float(value)
        return
    assert (kind, mapping["observer_type"]) == ("ms", "histogram")
    seconds = float(value) / 1000
    yield series(f"{mapping['name']}_sum", labels), seconds
    yield series(f"{mapping['name']}_count", labels), 1
    for limit in (*mapping["histogram_options"]["buckets"], float("inf")):
        at = {"le": str(limit).replace("inf", "+Inf")}
        yield series(f"{mapping['name']}_bucket", labels | at), seconds <= limit


def series(name: str, labels: Mapping[str, str]) -> str:
    return f"{name}{{{', '.join(f'{label}={json.dumps(value)}' for label, value in sorted(labels.items()))}}}"


def scraped(steps: Sequence[Sequence[str]]) -> list[dict[str, str]]:
    """Return the input series of ``promtool`` for an exporter that gets these lines before each scrape."""
    values: Counter[str] = Counter()
    scrapes = []
    for lines in steps:
        for line in lines:
            for name, value in samples(line):
                values[name] += value  # type: ignore[assignment]
        scrapes.append(dict(values))
    return [
        {"series": name, "values": " ".join(repeated([scrape.get(name, "_") for scrape in scrapes]))}
        for name in values
    ]


def repeated(values: Sequence[Any]) -> Iterator[str]:
    """Shorten repetitions, of which ``promtool`` counts those after the first, except for missing values."""
    for value, each in groupby(values):
        times = len([*each])
        yield f"_x{times}" if value == "_" else f"{value}x{times - 1}"


def promtool(*command: str, cwd: Path = FOLDER) -> None:
    subprocess.run(["promtool", *command], cwd=cwd, check=True)  # noqa: S607
