"""What a model's calls cost: kernel by kernel, beside what the machine could do."""
