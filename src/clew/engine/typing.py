"""Types of expressions, found by Spark's analyser without running anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from clew.engine.catalyst import failed_in_spark, first_line
from clew.engine.plan import Columns, Typer
from clew.errors import BoxFailed, SchemaError, TypeProblem
from clew.model.schema import schema_text, spark_schema
from clew.model.types import parse_type
from clew.network.boxes import Box

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkTyper:
    """Asks Spark for the types of expressions that clew's own evaluator does not take."""

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._session = session

    def __call__(self, columns: Columns, schema: pa.Schema, box: Box) -> list[pa.DataType]:
        from pyspark.errors import PySparkException

        try:
            empty = self._session().createDataFrame([], spark_schema(schema))
        except failed_in_spark() as error:
            raise BoxFailed(
                f"box '{box.name}' cannot be looked at: Spark failed",
                details=[first_line(error)],
                hint="the types of its expressions need a session that runs",
                at=box.at or None,
            ) from error
        kinds = []
        for name, sql in columns:
            try:
                found = empty.selectExpr(f"{sql}\nAS `{name}`").schema.fields[0].dataType.simpleString()
            except PySparkException as error:
                raise TypeProblem(
                    f"has an expression that Spark refuses: '{sql}'",
                    details=[first_line(error), f"input: {schema_text(schema)}"],
                    at=box.at or None,
                ) from error
            try:
                kinds.append(parse_type(found))
            except SchemaError as error:
                raise TypeProblem(
                    f"computes '{sql}', which is {found.upper()}: no column can hold it",
                    details=error.details,
                    hint="cast it to another type",
                    at=box.at or None,
                ) from error
        return kinds


class StoredTyper:
    """Gives the types that Spark found when the store got its network; asks anew for what it was not asked then."""

    def __init__(self, typed: Mapping[str, Mapping[str, str]], otherwise: Typer) -> None:
        self._typed, self._otherwise = typed, otherwise

    def __call__(self, columns: Columns, schema: pa.Schema, box: Box) -> list[pa.DataType]:
        known = self._typed.get(box.name, {})
        if all(sql in known for _, sql in columns):
            return [parse_type(known[sql]) for _, sql in columns]
        return self._otherwise(columns, schema, box)
