"""How policies choose while the rewards of earlier decisions are outstanding."""
