"""Subjects of a schema registry: `/subjects`, and one of them with its versions and their differences."""
