"""Real crews and flows of CrewAI, in an interpreter of their own: ``make test-crews``."""
