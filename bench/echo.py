"""The floor: Falcon on waitress, tuned as ours, all names decoded and encoded back."""

import falcon
import msgspec
import waitress.server

from cluster.objects import Pod
from service.server import waitress_options
from service.process_settings import ServerSettings


class Args(msgspec.Struct, frozen=True, rename="pascal"):
    pod: Pod
    node_names: list[str]


class FilterResult(msgspec.Struct, frozen=True, rename="pascal"):
    node_names: list[str]
    nodes: None = None
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


class HostPriority(msgspec.Struct, frozen=True, rename="pascal"):
    host: str
    score: int


class EchoResource:
    def on_post(self, req: falcon.Request, resp: falcon.Response, verb: str) -> None:
        names = msgspec.json.decode(req.bounded_stream.read(), type=Args).node_names
        filtered = FilterResult(names) if verb == "filter" else None
        found = filtered or [HostPriority(name, 5) for name in names]
        resp.content_type, resp.data = falcon.MEDIA_JSON, msgspec.json.encode(found)


if __name__ == "__main__":
    app = falcon.App()
    app.add_route("/scheduler/{verb}", EchoResource())
    options = waitress_options(ServerSettings(port=0))
    server = waitress.server.create_server(app, **options)
    print(server.effective_port, flush=True)
    server.run()
