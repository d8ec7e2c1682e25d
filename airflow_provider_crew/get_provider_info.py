"""Provider metadata for Airflow, and the switches that it declares. It imports nothing of this package."""

from typing import Any

from airflow_provider_crew import __version__


def _field(label: str, description: str, kind: str = "string", **schema: Any) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": [kind, "null"], **schema}}


# Fields of the connection form, from Airflow 3.2 on.
CONNECTION_FIELDS = {
    "dashboard_url": _field(
        "Dashboard address", "Page that tasks link to. With {kickoff_id}, each task links to its execution."
    ),
    "user_bearer_token": _field(
        "User bearer token",
        "Alternative to the organization's token, with the permissions of one user. From the crew's Status tab.",
        format="password",
    ),
    "token_type": _field(
        "Token to use",
        "organization or user. Empty: the organization's if there is one, or else the user's.",
        enum=["organization", "user"],
    ),
    "request_timeout": _field(
        "Request timeout (s)",
        "Limit of one request, including at most 10 seconds to connect. Empty: 60.",
        "integer",
        minimum=1,
    ),
    "verify": _field(
        "Verify TLS certificates", "true, false, or the path of a file of CA certificates. Empty: true."
    ),
    "max_kickoffs_per_day": _field(
        "Kickoffs per day",
        "Daily limit (UTC). Needs the DAG crew_budget, which counts kickoffs. Empty: no limit.",
        "integer",
        minimum=0,
    ),
    "cancel_on_kill": _field(
        "Cancel on kill",
        "Cancel the execution if someone marks the task as failed, success or skipped, or dagrun_timeout or "
        "fail_fast stops it. The task argument of the same name takes precedence.",
        "boolean",
        default=False,
    ),
    "cancel_on_timeout": _field(
        "Cancel on timeout",
        "Cancel the execution at a timeout. The task argument of the same name takes precedence.",
        "boolean",
        default=False,
    ),
    "proxy": _field(
        "Proxy",
        "http://proxy.example:3128. Empty: the environment's proxy (https_proxy, no_proxy).",
        format="password",
    ),
    "allow_http": _field(
        "Allow plain http",
        "Send the token unencrypted to a host that is not this machine.",
        "boolean",
        default=False,
    ),
}


def _option(description: str, default: str = "True", kind: str = "boolean", **more: str) -> dict[str, Any]:
    own = {"description": description, "type": kind, "default": default, "version_added": "0.1.0"}
    return {"example": None, **own, **more}


CONFIGURATION: dict[str, Any] = {
    "crew": {
        "description": "What tasks and triggers show of crews, and how crews reach this Airflow.",
        "options": {
            "log_output": _option(
                "Show the crew's output in the task's log, up to 4 KB. Set it to False if the output may "
                "contain personal data. A task keeps its own out of the log with log_output=False.",
            ),
            "progress_xcom": _option(
                "Whether triggers push progress to the XCom crew_progress. Tasks do so in the worker in any case.",
            ),
            "tab": _option("Whether the Airflow UI has the Crew tab and the Crews page."),
            "required_actions": _option(
                "On Airflow 3.3 and later, whether a deferred task shows up under Required Actions while its "
                "crew waits for human input.",
            ),
            "events_url": _option(
                "Address of this Airflow's /crew/events, as crews reach it. Turns on the receiver of human input "
                "webhooks, which answer_in_airflow and settle_kickoffs need.",
                "",
                "string",
                example="https://airflow.example.com/crew/events",
            ),
            "webhook_conn_id": _option(
                "Connection whose password crews send to this receiver. It also signs the addresses that crews "
                "call with settle_kickoffs.",
                "",
                "string",
                example="crew_webhook",
            ),
            "settle_kickoffs": _option(
                "Experimental: whether each kickoff asks the crew to call this receiver when it has started. A "
                "kickoff whose response is lost then finds its execution. Needs events_url, webhook_conn_id and "
                "Airflow 3.3. Set it for the API server as well.",
                "False",
            ),
            "settle_within": _option(
                "Seconds that a task waits for that call after a kickoff without a response.", "120", "float"
            ),
        },
    },
}


def is_on(switch: str, log: Any) -> bool:
    """Whether a switch of ``[crew]`` is on. It is off if it is unreadable: no setting may cost a result."""
    from airflow.providers.common.compat.sdk import conf

    default = CONFIGURATION["crew"]["options"][switch]["default"]  # some Airflow processes do not load it
    try:
        return bool(conf.getboolean("crew", switch, fallback=default == "True"))
    except Exception as error:  # noqa: BLE001 - Airflow raises an exception for a value like "off"
        log.warning("[crew] %s is unreadable, so it counts as False: %s", switch, error)
        return False


def get_provider_info() -> dict[str, Any]:
    """Return the metadata for the ``apache_airflow_provider`` entry point."""
    return {
        "package-name": "airflow-provider-crew",
        "name": "Crew",
        "description": "Run CrewAI crews and flows from Apache Airflow, with retries that pick up the running "
        "crew instead of starting another. Not affiliated with CrewAI Inc. or the Apache Software Foundation.",
        "versions": [__version__],
        "task-decorators": [{"class-name": "airflow_provider_crew.decorators.crew.crew_task", "name": "crew"}],
        "notifications": ["airflow_provider_crew.notifications.CrewAlert"],
        "extra-links": ["airflow_provider_crew.links.crew.CrewDashboardLink"],
        "config": CONFIGURATION,
        "connection-types": [
            {
                "connection-type": "crew",
                "hook-class-name": "airflow_provider_crew.hooks.crew.CrewHook",
                "hook-name": "Crew",
                "conn-fields": CONNECTION_FIELDS,
                "ui-field-behaviour": {
                    "hidden-fields": ["login", "schema", "extra"],
                    "relabeling": {"host": "Crew address", "password": "Organization bearer token"},
                    "placeholders": {
                        "host": "https://my-crew.crewai.com",
                        "password": "from the Status tab of the crew",
                        "port": "443, needed by Test Connection",
                    },
                },
            }
        ],
    }
