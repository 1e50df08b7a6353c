"""The instruments that come with Tilewright: they measure passes, show what passes change, and check it."""
