"""The node itself: versions, configs, directories, coordinators."""
