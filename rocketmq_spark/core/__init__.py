"""Values and rules: pure functions of the standard library; nothing here waits."""
