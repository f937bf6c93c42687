"""The web page on a store or a broker: its contents and its health. Needs the extra `duralog[console]`.

| here | what it is |
|---|---|
| `command` | `duralog console` |
| `app`, `access`, `socket_messages` | the web server; which clients and messages it accepts |
| `login`, `sessions`, `viewers` | users, if there are any, and what each may do |
| `pages` | one module a page, and its parts |
| `ui` | the parts of pages: layout, elements, tables, charts, and the files for the browser |
| `drawing` | turns facts into pictures and texts |
| `sources` | reads the facts from a directory, a broker, or both |
| `source`, `facts` | the protocol of a source, and the values that it returns |

Imports go down this table. Pages use a source through its protocol, and never read a log themselves.
"""
