"""How Spark finds the source: it imports every top-level module called pyspark_* and registers its
`DefaultSource`. A module that fails to import would switch this off for all others."""

from rocketmq_spark.spark.source import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
