"""What lies where in the state folder."""

LOG_FILE, SNAPSHOTS, KEYS = "events.db", "snapshots", "keys.json"
