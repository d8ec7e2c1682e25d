"""
What this package says of the calls to a crew, of settings and of a watch, when they end badly.

Each message has three lines, which fit a screen: what happened, what is known of the money, and what to do next.
What does not fit, or few need, stands in its details. ``docs/messages.md`` is written from here.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple


class Money(StrEnum):
    """What is known of an execution that is paid for."""

    NOTHING = "nothing_started"
    ENDED = "ended"
    GOES_ON = "goes_on"
    UNKNOWN = "not_known"

    @property
    def sentence(self) -> str:
        """Say it to people."""
        return _OF_MONEY[self]


_OF_MONEY = {
    Money.NOTHING: "Nothing was started, and there is nothing to pay for.",
    Money.ENDED: "It was paid for, and has ended.",
    Money.GOES_ON: "It is running, or waits, as far as is known, and is paid for.",
    Money.UNKNOWN: "Not known. An execution may have been started, and is paid for then.",
}


class Message(NamedTuple):
    """What there is to say of one thing that happens; ``{names}`` in it are filled in."""

    what: str
    money: Money
    next: str = ""
    details: str = ""

    def filled(self, words: Mapping[str, Any]) -> "Message":
        """Return it with the words of one case."""
        what, following, details = (text.format_map(words) for text in (self.what, self.next, self.details))
        return Message(what, self.money, following, details)


# Settings, most of them from a connection.

NO_CONNECTION = Message(
    "There is none of that name.",
    Money.NOTHING,
    "Add the connection, or set {variable}.",
    "Add it with the type Crew (Admin, Connections), or set {variable}. If that is set, Airflow cannot read it: "
    "in a URI, everything in the token but letters and digits has to be percent-encoded.",
)
NO_ORGANIZATION_TOKEN = Message(
    "There is no organization token.",
    Money.NOTHING,
    "Put the token into the password field.",
    "Put the bearer token from the crew's Status tab into the password field (in a URI behind a colon, "
    "crew://:TOKEN@host; what stands before the colon is the login).",
)
NO_USER_TOKEN = Message(
    "The user's token is asked for (token_type user), and there is none.",
    Money.NOTHING,
    "Put the user's token into the connection.",
    "Put it into the field User bearer token (user_bearer_token in the extra), or use token_type organization.",
)
INVALID_EXTRA = Message(
    "The extra is not a JSON object.",
    Money.NOTHING,
    "Correct the extra.",
    'Write it like {{"token_type": "user", "user_bearer_token": "..."}}.',
)
INVALID_FIELD = Message("{name} must be {description}.", Money.NOTHING, "Correct the connection.")
INVALID_PROXY = Message(
    "The proxy must look like http://proxy.example:3128.",
    Money.NOTHING,
    "Correct the proxy.",
    "It comes from proxy in the extra, or from https_proxy, http_proxy or all_proxy in the environment. SOCKS "
    "proxies are not supported.",
)
PLAIN_HTTP = Message(
    "The address {address} would send the token unencrypted, which is refused.",
    Money.NOTHING,
    "Use https://, or set allow_http.",
    "Use https://, or set allow_http to true in the extra if the network is trusted. (Loopback addresses are "
    "always allowed.)",
)
NO_CERTIFICATES = Message(
    "No certificates can be read from {path}.",
    Money.NOTHING,
    "Correct verify.",
    "The path comes from verify in the extra, or from REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE in the environment of "
    "the task.",
)
CONNECTION_NOT_READ = Message(
    "The connection {connection} cannot be read: {why}.",
    Money.NOTHING,
    "Try again later.",
)
CONNECTION_NOT_READ_HERE = Message(
    "The connection {connection} cannot be read here: {why}.",
    Money.NOTHING,
    "Run this where Airflow can read it, or set {variable}.",
    "MetastoreBackend is Airflow's database; others are secrets backends. 'airflow connections get' says more.",
)
CONNECTION_IN_DOUBT = Message(
    "The connection {connection} cannot be read just now.", Money.GOES_ON, "Mend this.", "{why}"
)

# What a kickoff sends, checked before it costs anything.

NO_OBJECT = Message(
    "{name} is of type {kind}, and must be an object of names and values.", Money.NOTHING, "Correct {name}."
)
NO_JSON = Message(
    "{path}, of type {kind}, is no JSON.",
    Money.NOTHING,
    "Correct it.",
    "Give texts, finite numbers, lists, and objects whose names are texts.",
)
NEEDED_INPUTS = Message(
    "The crew needs inputs that are not given: {names}.",
    Money.NOTHING,
    "Give the inputs that the crew lists.",
    "{more}",
)
LISTED_INPUTS = NEEDED_INPUTS._replace(what="The crew lists inputs that are not given: {names}.")
UNLISTED_INPUT = NEEDED_INPUTS._replace(what="The crew does not list the input {name}.{meant}")
INVALID_WEBHOOKS = Message("webhooks must have a url, and a list of events.", Money.NOTHING, "Correct webhooks.")
SECRET_IN_WEBHOOKS = Message(
    "webhooks.authentication would be shown to everybody as a rendered template.",
    Money.NOTHING,
    "Use webhook_conn_id instead.",
    "Put the secret into the password of a connection, and name that in webhook_conn_id.",
)
SECRET_WITHOUT_WEBHOOKS = Message(
    "webhook_conn_id holds the secret of webhooks, and there are none.", Money.NOTHING, "Give webhooks."
)
INVALID_KICKOFF_ID = Message(
    "The kickoff id {given} {fault}.", Money.NOTHING, "Give it as the kickoff returned it."
)

# A call to the crew. ``told``: which request was answered with what.

TOKEN_REJECTED = Message(
    "The crew does not accept the token: it answers 401 to {call}.",
    Money.NOTHING,
    "Renew the token in the connection.",
    "{told} The bearer token is not valid: renew it in the connection with the one on the crew's Status tab.",
)
TOKEN_NOT_ALLOWED = Message(
    "The token may not do this: the crew answers 403 to {call}.",
    Money.NOTHING,
    "Use the organization's token.",
    "{told} The token may not do this: use the organization's token, or have the user's permissions widened.",
)
NOT_FOUND = Message(
    "{execution}: the crew does not know it.",
    Money.UNKNOWN,
    "Look into the crew's dashboard before you kick off again.",
    "{told} It may be waiting for a person's answer, or it was started by another crew or long ago, or the id is "
    "not one.",
)
RATE_LIMITED = Message(
    "The crew takes no more requests for now: it answers 429 to {call}.",
    Money.NOTHING,
    "Try again later.",
    "{told}",
)
SERVICE_ERROR = Message("The crew answers {status} to {call}.", Money.UNKNOWN, "Try again later.", "{told}")
REFUSED = Message("The crew refuses {call}: it answers {status}.", Money.NOTHING, "Mend what it says.", "{told}")
REFUSED_FOR_INPUTS = Message(
    "The crew needs inputs that are not given: {names}.", Money.NOTHING, "Give them.", "{told}"
)
REDIRECTED = Message(
    "The crew redirects {call}, which is not followed: it answers {status}.",
    Money.NOTHING,
    "Check the host in the connection.",
    "{told} It redirects to {target}, which is not followed. If that is where the crew is now, put that address "
    "into the connection.",
)
NO_CREW = Message(
    "There is no crew at this address: it answers 404 to {call}.",
    Money.NOTHING,
    "Check the host in the connection.",
    "{told}",
)
UNREADABLE = Message(
    "The answer to {call} cannot be read: {fault}.",
    Money.UNKNOWN,
    "Check the host in the connection.",
    "{request} answers {status} with {content_type} that cannot be read. It begins: {excerpt}.",
)
TOO_LARGE = Message(
    "The answer to {call} is too large to be read.",
    Money.UNKNOWN,
    "Look into the crew's dashboard.",
    "{request} answers with more than {limit} MiB, which is not read. What is in it can be seen in the crew's "
    "dashboard.",
)
NO_ANSWER = Message(
    "{call} got no complete answer: {reason}.", Money.UNKNOWN, "Try again later.", "{request} was sent."
)
NOT_POLLED = Message(
    "A poll got no answer within {seconds} s.",
    Money.GOES_ON,
    "Check whether the crew answers.",
    "It may have waited for others: a triggerer has at most 100 polls of one crew under way.",
)
NOT_REACHED = Message(
    "The crew cannot be reached at {host}: {reason}.",
    Money.NOTHING,
    "Check the host and the port.",
    "{request} did not reach the crew. Check the host and the port in the connection, and whether the crew is "
    "deployed.",
)
NOT_TRUSTED = Message(
    "The crew cannot be trusted at {host}: {reason}.",
    Money.NOTHING,
    "Check the host, or verify.",
    "{request} did not reach the crew. Check the host in the connection. If an authority of your own has signed "
    "the certificate, put the path of that authority's certificate into verify in the connection; if it has "
    "expired, have it renewed.",
)
UNCERTAIN = Message(
    "It is not known whether the kickoff started an execution.",
    Money.UNKNOWN,
    "Look into the crew's dashboard before starting it again.",
    "{why} The crew may be running, and paid for, without anybody watching it.",
)

# A watch of an execution.

FAILED = Message(
    "{execution} failed{after}{place}.",
    Money.ENDED,
    "Only a new kickoff runs the crew again, and is paid for again.",
    "The crew says: {said}.",
)
WAITED_TOO_LONG = Message(
    "{execution} was still going when the time to wait was over.",
    Money.GOES_ON,
    "Wait for it with its kickoff id and more time; do not kick off again.",
    "It was watched for {watched}. Last seen: {progress}.{trouble} It cannot be cancelled.",
)
TIME_LIMIT = Message(
    "{execution} was still going when execution_timeout was over.",
    Money.GOES_ON,
    details="It cannot be cancelled.",
)
TIME_LIMIT_AT_READING = Message(
    "{execution}: no time was left to read its result.",
    Money.ENDED,
    details="It has completed, and execution_timeout was over before its result was read.",
)
NO_LONGER_WATCHED = Message(
    "{execution} can no longer be watched.",
    Money.GOES_ON,
    "Mend this; do not kick off again.",
    "{why}",
)
TOKEN_REJECTED_MEANWHILE = Message(
    "{execution}: the crew does not accept the token.",
    Money.GOES_ON,
    "Renew the token in the connection.",
    "It can no longer be watched. {why}",
)
CANNOT_BE_WATCHED = Message(
    "{execution} cannot be watched.",
    Money.GOES_ON,
    "Mend this; do not kick off again.",
    "{why}",
)
LOST_CONTACT = Message(
    "{execution}: there was no usable answer for {lasted}.",
    Money.GOES_ON,
    "Wait for it with its kickoff id when the service is back; do not kick off again.",
    "{why}{hint} Last seen before: {progress}.",
)
STILL_UNKNOWN = Message(
    "{execution}: the service has not known it for {lasted}.",
    Money.GOES_ON,
    "Look into the crew's dashboard, and answer what it asks. Do not kick off again before that.",
    "The service says that it does not know it. Last seen before: {progress}. A crew that waits for a person's "
    "answer reads like this: it may be alive, and it is paid for.",
)
KNOWN_ELSEWHERE = Message(
    "{execution} was kicked off at another address.",
    Money.GOES_ON,
    "Let the connection lead there again. Do not kick off again before that.",
    "It was kicked off at {elsewhere}, and is not known at {asked}, where the connection leads now. "
    "Let the connection lead there again, or wait for it with a connection that does.",
)
OUT_OF_REACH = Message(
    "{execution} has completed, and its result cannot be read.",
    Money.ENDED,
    "Look into the crew's dashboard, which may show the result.",
    "The service has said for {lasted} that it does not know it.",
)

# How an execution stands, told to whoever asks at a terminal.

IS_GOING_ON = Message(
    "{execution} is going on.",
    Money.GOES_ON,
    "Let its task wait on, or wait with CrewExecutionSensor; do not kick off again.",
)
IS_PAUSED = Message(
    "{execution} is paused: it waits for a person's answer.",
    Money.GOES_ON,
    "Look into the crew's dashboard, and answer what it asks. Do not kick off again before that.",
)
HAS_COMPLETED = Message(
    "{execution} completed{after}.",
    Money.ENDED,
    "If no task has returned its result, CrewExecutionSensor with this kickoff id does.",
)

# What the crew has put out.

INVALID_OUTPUT_TYPE = Message(
    "output_type {type} cannot be used.", Money.NOTHING, "Mend output_type.", "{kind}: {fault}."
)
MISFITTING_OUTPUT = Message(
    "{execution} has completed, and its output does not fit.",
    Money.ENDED,
    "Mend output_type.",
    "The output does not fit output_type: {why}",
)
UNCHECKED_OUTPUT = Message(
    "{execution} has completed, and its output cannot be checked.", Money.ENDED, "Mend output_type.", "{why}"
)
