"""One Spark for all tests, on this machine alone."""

import os
import sys
import warnings

import pytest

with warnings.catch_warnings():  # of their own imports
    warnings.simplefilter("ignore")
    import tmlt.analytics  # noqa: F401
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1",
                "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark"))}  # fmt: skip
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    yield made
    made.stop()
