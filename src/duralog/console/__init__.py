"""The web page on a store or a broker: what is in it and how it is. Needs the extra `duralog[console]`.

| here | what it is |
|---|---|
| `command` | `duralog console` |
| `app`, `access`, `socket_messages` | the web server, which clients and messages it accepts |
| `login`, `sessions`, `viewers` | users, if there are any, and what each may do |
| `pages` | one module a page, and its parts |
| `ui` | what pages are made of: layout, elements, tables, charts, and the files for the browser |
| `drawing` | facts in, pictures and texts out |
| `sources` | a directory, a broker, or both: where the facts are read |
| `source`, `facts` | the protocol of a source, and the values that it returns |

Imports go down this table. Pages know a source by its protocol, and never read a log themselves.
"""
