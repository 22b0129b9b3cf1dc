# Databricks notebook source
# MAGIC %md
# MAGIC # RocketMQ into a table
# MAGIC
# MAGIC Reads what a topic holds and what has come since the last run, and appends it to a table of
# MAGIC the catalog. Import this file into a workspace, set the widgets above, and run it by hand or
# MAGIC as a scheduled job. It needs a runtime with Spark 4, a network path from the cluster to the
# MAGIC brokers, and a checkpoint folder that stays, such as one in a volume.

# COMMAND ----------

# MAGIC %pip install rocketmq-spark

# COMMAND ----------

# MAGIC %restart_python

# COMMAND ----------

dbutils.widgets.text("name_server", "rocketmq.example.com:9876", "Name server")
dbutils.widgets.text("topic", "orders", "Topic")
dbutils.widgets.text("table", "main.default.orders", "Table")
dbutils.widgets.text("checkpoint", "/Volumes/main/default/checkpoints/orders", "Checkpoint")

topic = dbutils.widgets.get("topic")
table = dbutils.widgets.get("table")

# COMMAND ----------

# MAGIC %md
# MAGIC The plan shares the topic's queues among the slots of the cluster. Where the planner cannot
# MAGIC see the executors (serverless, shared clusters), set the option `executors` to the number of
# MAGIC slots.
# MAGIC
# MAGIC For a cluster with accounts, add the options `accessKey` and `secretKey`, from
# MAGIC `dbutils.secrets.get(scope, key)`.

# COMMAND ----------

import rocketmq_spark

rocketmq_spark.register(spark)

messages = (
    spark.readStream.format("rocketmq")
    .option("nameServer", dbutils.widgets.get("name_server"))
    .option("topic", topic)
    .option("startingOffsets", "earliest")
    .load()
    .selectExpr(
        "storeTimestamp",
        "tags",
        "keys",
        "cast(body AS string) AS body",
        "brokerName",
        "queueId",
        "queueOffset",
    )
)

# COMMAND ----------

query = (
    messages.writeStream.option("checkpointLocation", dbutils.widgets.get("checkpoint"))
    .trigger(availableNow=True)
    .toTable(table)
)
query.awaitTermination()

# COMMAND ----------

print(f"{spark.table(table).count()} messages of {topic} in {table}")
spark.sql(f"SELECT tags, count(*) AS messages FROM {table} GROUP BY tags ORDER BY tags").show()
