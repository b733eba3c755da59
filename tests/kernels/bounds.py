"""The kernels' error bound as an assertion."""

from agentrt_kernels.testing import measure_error


def assert_within(got, truth, plain):
    error = measure_error(got, truth, plain)
    assert error.ok, error
