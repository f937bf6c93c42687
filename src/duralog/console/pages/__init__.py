"""One module for each page of the console. Each has `register(console)`, which `duralog.console.app` calls once."""
