"""What optimization levels, and single passes, do to a model: its code, its build, its calls."""
