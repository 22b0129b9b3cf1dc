"""`rocketmq-spark demo`: orders flow through a real RocketMQ into a real Spark, and are counted."""
