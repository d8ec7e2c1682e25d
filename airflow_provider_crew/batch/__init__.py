"""One task that runs a crew for each row of a table. Nothing of a single run imports this package."""
