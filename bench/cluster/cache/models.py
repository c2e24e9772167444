"""Decodes the pages of a list with the models of the ``kubernetes`` client.

``python -m bench.cluster.cache.models URL`` prints what it took: seconds of decoding
alone (the bytes are there before the clock starts) and the number of objects.
"""

import json
import sys
import time
from typing import Final

import urllib3
from kubernetes.client import ApiClient

PATHS: Final = {"V1NodeList": "/api/v1/nodes", "V1PodList": "/api/v1/pods"}


def decode_all(url: str) -> tuple[float, int]:
    """Return seconds and number of objects; each page is dropped once it is decoded."""
    client, http = ApiClient(), urllib3.PoolManager()
    seconds, objects = 0.0, 0
    for model, path in PATHS.items():
        following: str | None = "0"
        while following:
            fields = {"limit": "500", "continue": following}
            text = http.request("GET", url + path, fields=fields).data.decode()
            started = time.perf_counter()
            page = client.deserialize(text, model, "application/json")
            seconds += time.perf_counter() - started
            objects += len(page.items)
            following = page.metadata._continue  # noqa: SLF001  `continue` is taken
    return seconds, objects


if __name__ == "__main__":
    print(json.dumps(decode_all(sys.argv[1])))
