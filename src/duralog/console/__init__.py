"""The web page on a store or a broker: what is in it and how it is. Needs the extra `duralog[console]`."""
