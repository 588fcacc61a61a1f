"""What `scripts/demo` and `scripts/test` share: environments, real engines, the system's packages. Standard library only."""
