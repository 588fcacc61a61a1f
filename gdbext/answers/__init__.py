"""Objects of the reading rooms as the shapes of the JSON answers (docs/json.md) and as text for people."""
