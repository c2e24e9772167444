"""The floor: Falcon on waitress, tuned as ours, all names decoded and encoded back."""

import falcon
import msgspec
from waitress.server import create_server

from cluster.decode.objects import Pod
from service.http.plain import waitress_options
from service.settings.process import ServerSettings


class Args(msgspec.Struct, frozen=True, rename="pascal"):
    pod: Pod
    node_names: list[str]


class FilterResult(msgspec.Struct, frozen=True, rename="pascal"):
    node_names: list[str]
    nodes: None = None
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


Host = msgspec.defstruct("Host", [("host", str), ("score", int, 5)], rename="pascal")


class EchoResource:
    def on_post(self, req: falcon.Request, resp: falcon.Response, verb: str) -> None:
        names = msgspec.json.decode(req.bounded_stream.read(), type=Args).node_names
        filtered = FilterResult(names) if verb == "filter" else None
        resp.data = msgspec.json.encode(filtered or list(map(Host, names)))


if __name__ == "__main__":
    app = falcon.App()
    app.add_route("/scheduler/{verb}", EchoResource())
    server = create_server(app, **waitress_options(ServerSettings(port=0)))
    print(server.effective_port, flush=True)
    server.run()
