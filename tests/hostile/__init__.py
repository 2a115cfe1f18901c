"""Programs that do what RL code does every day, each run bare and traced: the host never notices."""
