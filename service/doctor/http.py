"""``GET /doctor``: what is wrong with the installation of this process."""

import falcon
import msgspec

from extender.explain.http import refuse_unknown_parameters
from service.doctor.self_check import SelfCheck


class DoctorResource:
    """``GET /doctor``: findings, what was not checked, and the facts behind, as JSON.

    The only request that waits for the API server: `self_check.ASK_SECONDS` for all
    rights, and five seconds for each of a few other questions, at most.
    """

    def __init__(self, self_check: SelfCheck) -> None:
        self._self_check = self_check

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Examine, and answer."""
        refuse_unknown_parameters(req, ())
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(self._self_check.examine())
