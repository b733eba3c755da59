"""Load tests: trajectories that arrive whether or not the engine has finished those before."""
