"""Contract suites: one class of tests per seam, which every implementation of that seam inherits and passes."""

import pytest

pytest.register_assert_rewrite("tests.contract.world")
