"""`python -m rocketmq_spark` is `rocketmq-spark`."""

from rocketmq_spark.cli import main

main()
