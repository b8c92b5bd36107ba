"""The version of the testbed."""

VERSION = "0.1.0"
