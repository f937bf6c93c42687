"""The web page on a store or a broker: what is in it and how it is. Needs the extra `duralog[console]`.

| here | what it is |
|---|---|
| `command`, `app`, `access`, `socket_messages` | the command, the server, who may speak to it, and what |
| `pages` | one module a page, and its parts |
| `layout`, `elements`, `partition_elements`, `theme`, `assets` | what pages are made of, and how they look |
| `data_table`, `columns`, `charts` | tables and charts |
| `drawing` | facts in, pictures and texts out |
| `facts`, `source` | what pages show, and the face of what tells it |
| `sources` | a directory, a broker, or both behind that face |
| `reading` | what is in the logs of a directory that others may write to |

Pages know a source by its face and never read a log themselves.
"""
