"""Number of rows that ``max_tokens`` lets start. It follows from facts that each process and attempt knows."""

import math

# Executions that may run before one has reported its tokens, and that may start before that.
_AT_ONCE = 4
_IN_ALL = 50


def affordable(  # noqa: PLR0913 - the facts
    limit: int | None, tokens: int, metered: int, executions: int, running: int, *, has_result: bool
) -> float:
    """
    Return the number of rows that may start now. 0 or less: none may.

    :param tokens: Tokens of the executions whose tokens are known.
    :param metered: Number of these executions. Each of the others counts as an average one.
    :param executions: Number of all executions, of any attempt, even if they are uncertain.
    :param running: Number of executions that are or may be running.
    :param has_result: Whether an execution has completed. If none of its tokens are known, the crew reports none.
    """
    if limit is None:
        return math.inf
    if not tokens:
        return 0 if has_result else min(_AT_ONCE - running, _IN_ALL - executions)
    return math.ceil((limit - tokens) * metered / tokens) - (executions - metered)


def estimate(tokens: int, metered: int, rows: int) -> int | None:
    """Return the tokens of all rows if each uses the average, to two digits. None if no tokens are known."""
    return int(float(f"{tokens / metered * rows:.2g}")) if metered else None
