"""What Spark raises outside of any batch comes as an error of clew's, with Spark's own words in it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

import clew
from clew.engine.spark_session import local_session
from clew.engine.typing import SparkTyper
from clew.errors import BoxFailed, JavaMissing

BIND = (
    "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
    ": java.net.BindException: Cannot assign requested address: Service 'sparkDriver' failed after 16 retries\n"
    "\tat java.base/sun.nio.ch.Net.bind0(Native Method)"
)


def test_a_context_that_cannot_start_is_told_in_spark_s_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise Py4JError(BIND)

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", fail)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    with pytest.raises(JavaMissing) as told:
        local_session()
    assert told.value.message == "Spark could not start in its Java process"
    assert told.value.details[0] == (
        "java.net.BindException: Cannot assign requested address: Service 'sparkDriver' failed after 16 retries"
    )
    assert isinstance(told.value.__cause__, Py4JError)


def test_a_session_that_has_stopped_is_told_with_the_box() -> None:
    class Stopped:
        def createDataFrame(self, *_: Any) -> None:  # noqa: N802
            raise PySparkRuntimeError("the session has stopped")

    net = clew.Network("net")
    net.stream("s", "t LONG", order="t", key="t").filter("t > 0", name="some").output("o")
    box = net.box("some")
    with pytest.raises(BoxFailed) as told:
        SparkTyper(Stopped)([("x", "t")], pa.schema([("t", pa.int64())]), box)  # type: ignore[arg-type]
    assert str(told.value) == (
        "box 'some' cannot be looked at: Spark failed\n  the session has stopped\n"
        f"  hint: the types of its expressions need a session that runs\n  at {box.at}"
    )
