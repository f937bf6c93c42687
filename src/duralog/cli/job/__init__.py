"""`duralog job`: the commands that run on Spark."""
