"""One Spark session for all tests that need one, and hypothesis settled."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from clew.engine.spark_session import local_session

settings.register_profile("here", deadline=None, database=None)
settings.register_profile("ci", deadline=None, database=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session on two cores, stopped at the end of the run."""
    session = local_session(cores=2, memory="2g")
    yield session
    session.stop()
