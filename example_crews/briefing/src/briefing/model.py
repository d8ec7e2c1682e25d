"""The model of the crew: a real one where the environment has a key, or else one that follows a script."""

import os
import re
import time
from typing import Any

from crewai import LLM, BaseLLM

_FACTS = (
    "It is older than most people think.",
    "It costs less than it did.",
    "Nobody knows yet what it will do to the neighbours.",
)


def model() -> Any:
    """Return the model for an agent."""
    if "OPENAI_API_KEY" in os.environ:
        return LLM(model=os.environ.get("MODEL", "openai/gpt-4.1-mini"))
    return ScriptedModel(model="scripted")


class ScriptedModel(BaseLLM):
    """Writes what the tasks of this crew ask for. It needs no key, and costs nothing."""

    def call(self, messages: Any, *_args: Any, **_options: Any) -> str:
        """Answer, after as long as BRIEFING_SECONDS says."""
        time.sleep(float(os.environ.get("BRIEFING_SECONDS", "1")))
        prompt = messages if isinstance(messages, str) else "\n".join(str(each["content"]) for each in messages)
        answer = _answer(prompt)
        used, written = len(prompt.split()), len(answer.split())
        self._track_token_usage_internal(
            {"prompt_tokens": used, "completion_tokens": written, "total_tokens": used + written}
        )
        return f"Thought: I now can give a great answer\nFinal Answer: {answer}"


def _answer(prompt: str) -> str:
    if found := re.search(r"Find three facts about (.+)\.", prompt):
        return "\n".join(f"- {found[1]}: {fact}" for fact in _FACTS)
    if found := re.search(r"Write a briefing about (.+) for (.+), from the facts", prompt):
        return f"# {found[1].capitalize()}, for {found[2]}\n\n" + "\n".join(f"- {fact}" for fact in _FACTS)
    if found := re.search(r"# .+(?:\n+- .+)+", prompt):
        return f"{found[0]}\n\nChecked."
    return "I have no script for this."
