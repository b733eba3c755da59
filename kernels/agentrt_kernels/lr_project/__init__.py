"""Low-rank activations of all adapters, straight into the slots of their columns."""

from agentrt_kernels.lr_project.reference import Deposit, lr_project

__all__ = ["Deposit", "lr_project"]
