"""Models that other programs wrote, as modules."""
