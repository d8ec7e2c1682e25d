"""What the log of a task tells at the end of an execution that has a result."""

from collections.abc import Mapping
from typing import Any, Protocol

from airflow.providers.common.compat.sdk import conf

from airflow_provider_crew.service.result_words import in_all, wrote
from airflow_provider_crew.service.text import quoted, size
from airflow_provider_crew.tasks.running import RunningTask

_MOST_OUTPUT = 4_000


class ReportArguments(Protocol):
    """What an operator was given. ``log_output``: the log may show what the crew has put out."""

    log_output: bool
    do_xcom_push: bool


def may_log_output(given: ReportArguments) -> bool:
    """Whether the log of the triggerer may show what the crew has put out."""
    try:
        return _may_show_output(given)
    except Exception:  # noqa: BLE001 - the report warns of a setting that cannot be read
        return False


def report(task: RunningTask, given: ReportArguments, result: Mapping[str, Any]) -> None:
    """
    Tell what each task of the crew took and wrote, what all of it cost, and what came of it.

    The result is paid for, so whatever fails here fails no more than the report.
    """
    try:
        about = f"Execution {result['kickoff_id']}:"
        for line in (*wrote(result), *in_all(result)):
            task.log.info("%s %s", about, line)
        if output := result["output"].strip():
            where = "in XCom return_value" if given.do_xcom_push else "in the crew's dashboard"
            if _may_show_output(given):
                _show(task, f"{about} its output, {size(output)}", output, where)
            else:
                task.log.info(
                    "%s its output, %s, is %s: log_output keeps it out of the log.", about, size(output), where
                )
    except Exception as error:  # noqa: BLE001 - whatever it is; its text may hold what is not to be shown
        task.log.warning("What the execution has put out could not be told here: %s", type(error).__name__)


def _show(task: RunningTask, heading: str, output: str, where: str) -> None:
    shown, is_cut = quoted(output, _MOST_OUTPUT)
    # Each a record of its own: Airflow's log page takes the whole record for the heading.
    task.log.info("::group::%s", heading)
    task.log.info("%s:\n%s\n", f"Its beginning. All of it is {where}" if is_cut else "All of it", shown)
    task.log.info("::endgroup::")


def _may_show_output(given: ReportArguments) -> bool:
    """Whether the author of the task and those who run this Airflow let outputs into its logs."""
    return given.log_output and bool(conf.getboolean("crew", "log_output", fallback=True))
