"""How examples are drawn: random streams by name, and the samplers of vectorised and of simple tasks."""
