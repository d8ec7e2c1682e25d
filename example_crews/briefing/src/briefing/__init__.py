"""A crew in the shape that CrewAI makes: it researches a topic and writes a briefing about it."""
