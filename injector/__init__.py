"""The admission webhook: resources per GPU and MIG fallback for created pods."""
