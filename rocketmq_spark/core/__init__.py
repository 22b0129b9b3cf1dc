"""Values and rules: pure functions of the standard library, nothing that waits or fails by itself."""
