"""The stages of benchmarks.gpu, one file each: `run(setup, report)`."""
