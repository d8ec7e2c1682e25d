"""Check from this process whether a crew may reach the receiver of its questions."""

import socket
from ipaddress import ip_address
from urllib.parse import urlsplit

import requests
from airflow.providers.common.compat.sdk import conf

from airflow_provider_crew.client.settings import is_loopback

_PATIENCE = 10.0
_UNAUTHORIZED = 401


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
