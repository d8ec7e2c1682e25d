"""Check from this process whether a crew may reach the receiver of its questions, and whether it calls it."""

import socket
import time
from ipaddress import ip_address
from urllib.parse import urlsplit

import requests
from airflow.providers.common.compat.sdk import conf

from airflow_provider_crew.client import timing
from airflow_provider_crew.client.calls import best_id, new_address
from airflow_provider_crew.client.settings import is_loopback
from airflow_provider_crew.hooks.connection import load_secret

_PATIENCE = 10.0
_UNAUTHORIZED = 401
# Looks for a call, with a second between two. Each may reach another process of the API server.
_LOOKS = 15


def check_receiver(crew_address: str) -> dict[str, object]:
    """Return facts about ``[crew] events_url``, and doubts whether the crew at an address reaches it."""
    url = conf.get("crew", "events_url")
    doubts = [] if conf.get("crew", "webhook_conn_id", fallback="") else ["[crew] webhook_conn_id is not set."]
    if urlsplit(url).scheme != "https":
        doubts.append("It is not https, so others can read the secret and the drafts in transit.")
    if not is_loopback(crew_address):
        doubts += _doubts_about_host(url)
    problem = _problem_from_here(url)
    return {"receiver": url, "receiver_from_here": problem or "proven", "receiver_doubts": doubts}


def new_checked_address() -> tuple[str, str] | None:
    """Return an address that the crew is asked to call when it has started. None if there is no receiver."""
    url, secret_id = (conf.get("crew", name, fallback="") for name in ("events_url", "webhook_conn_id"))
    return new_address(url, load_secret(secret_id).password, {}, "") if url and secret_id else None


def what_settles(address: str, kickoff_id: str) -> str:
    """Return whether the crew has called an address with a kickoff ID, or else what is missing."""
    missing = ""
    for _ in range(_LOOKS):
        try:
            with requests.Session() as session:
                session.trust_env = False
                response = session.get(address, timeout=_PATIENCE, allow_redirects=False)
            called = best_id(response.json()) if response.ok else ""
            missing = "The crew has not called the receiver."
            if not response.ok:  # as from a proxy that lets only POST through
                missing = f"The receiver does not list the calls that it got: status {response.status_code}."
        except (requests.RequestException, ValueError, AttributeError) as error:
            return f"The receiver does not list the calls that it got: {type(error).__name__}."
        if called:
            is_same = called == kickoff_id
            return "proven" if is_same else f"The crew has called with a different ID: {called}"
        time.sleep(timing.current().settle_look / 2)
    return missing


def _doubts_about_host(url: str) -> list[str]:
    """Return why a crew elsewhere may not reach the host. A name may have another address there."""
    host = urlsplit(url).hostname or ""
    try:
        addresses = {str(found[4][0]).partition("%")[0] for found in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return [f"The host name {host} does not resolve here."]
    private = sorted(address for address in addresses if not ip_address(address).is_global)
    if not private:
        return []
    return [f"The host resolves to {', '.join(private)} here, which a crew in another network cannot reach."]


def _problem_from_here(url: str) -> str:
    """Send a delivery without a secret. Return what is wrong, unless the receiver rejects it."""
    try:
        with requests.Session() as session:
            session.trust_env = False  # neither a proxy nor .netrc, which the crew does not have
            response = session.post(url, json={}, timeout=_PATIENCE, allow_redirects=False)
    except (requests.RequestException, ValueError) as error:  # urllib3's own, for a malformed host
        return f"There is no response: {type(error).__name__}."
    if response.status_code == _UNAUTHORIZED and b"webhook secret" in response.content:
        return ""
    return f"HTTP {response.status_code} is not from the receiver. The API server needs [crew] events_url as well."
