"""Parts of gpu_check.py: what is checked and timed on a GPU, a module for each idea."""
