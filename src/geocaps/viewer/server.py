"""The web server of the page: 127.0.0.1 by default, a free port, one :class:`Page` for each browser."""

from __future__ import annotations

import errno
import itertools
import socket
import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from geocaps.apps.encode import Model
from geocaps.errors import GeocapsError, MissingExtraError, UsageError
from geocaps.viewer.clouds import EXAMPLE, MAX_UPLOAD_BYTES, ShownCloud, check_upload, embedded_cloud, embedded_names
from geocaps.viewer.mode import EYE, trouble
from geocaps.viewer.page import Page
from geocaps.viewer.session import Principal
from geocaps.viewer.track_mode import ToTrack

if TYPE_CHECKING:
    from viser import ClientHandle, ViserServer

DEFAULT_PORT = 8080
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass
class Shared:
    """Immutable state for all browsers: the model, and what was given on the command line."""

    model: Model
    files: dict[str, ShownCloud]
    index: Any = None
    sequence: ToTrack | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def minimum(self) -> int:
        """The minimum number of points in a cloud."""
        return self.model.config.parts.parts

    @property
    def first(self) -> str:
        """The cloud that is shown at first."""
        return next(iter(self.files), EXAMPLE)

    @property
    def names(self) -> tuple[str, ...]:
        """The clouds to choose from in every browser, with the files first."""
        return (*self.files, *(name for name in embedded_names() if name not in self.files))

    def cloud(self, name: str) -> ShownCloud:
        return self.files[name] if name in self.files else embedded_cloud(name, self.minimum)

    def principal(self) -> Principal:
        """Principal directions, computed once for all browsers."""
        with self._lock:
            return self._principal

    @cached_property
    def _principal(self) -> Principal:
        return Principal.of_embedded_objects(self.model)


class Viewer:
    """A running page; ``pages`` are those of the connected browsers."""

    def __init__(self, shared: Shared, host: str = "127.0.0.1", port: int | None = None) -> None:
        try:
            import viser
        except ImportError as error:
            raise MissingExtraError("geocaps view", "viewer") from error
        self._seeds = itertools.count()
        self.shared = shared
        self.pages: dict[int, Page] = {}
        self.server: ViserServer = viser.ViserServer(host, free_port(host, port), label="geocaps", verbose=False)
        self.server.gui.configure_theme(control_width="large", show_logo=False, show_share_button=False)
        self.server.scene.world_axes.visible = False
        self.server.scene.set_up_direction("+y")
        # viser's environment map arrives after the objects, and takes seconds without a graphics card.
        self.server.scene.configure_environment_map(None)
        self.server.scene.add_light_hemisphere("/light", ground_color=(200, 200, 200), intensity=2.0)
        self.server.initial_camera.up = (0.0, 1.0, 0.0)
        self.server.initial_camera.position = tuple(EYE)
        self.server.initial_camera.look_at = (0.0, 0.0, 0.0)
        self.server.gui.main_panel.dock_right()
        self.server.on_client_connect(self._connected)
        self.server.on_client_disconnect(self._disconnected)

    @property
    def url(self) -> str:
        host = self.server.get_host()
        shown = "localhost" if host in ("0.0.0.0", "::", "") else host
        return f"http://{f'[{shown}]' if ':' in shown else shown}:{self.server.get_port()}"

    def stop(self) -> None:
        self.server.stop()

    def _connected(self, client: ClientHandle) -> None:
        if not self._is_own_page(client):
            client.gui.add_html(trouble(f"this page belongs to another address: open {self.url} itself"))
            return
        page = Page(client, self.shared, seed=next(self._seeds))
        bound_uploads(client, page)
        self.pages[client.client_id] = page
        page.publish()

    def _disconnected(self, client: ClientHandle) -> None:
        page = self.pages.pop(client.client_id, None)
        if page is not None:
            page.close()

    def _is_own_page(self, client: ClientHandle) -> bool:
        connection = self.server._websock_server._live_connections.get(client.client_id)
        if connection is None or connection.request is None:
            return False
        headers = connection.request.headers
        return is_own_page(headers.get("Origin", ""), headers.get("Host", ""), self.server.get_host())


def is_private(host: str) -> bool:
    """Whether only this machine can reach the address."""
    return host in _LOOPBACK


def is_own_page(origin: str, host: str, served_at: str) -> bool:
    """Whether a request comes from our own page: other pages in the same browser must not see these clouds.

    Its origin must be the requested host. On a loopback address, the name of that host must be a loopback name as well;
    any other name was made to point here (DNS rebinding).
    """
    if urlsplit(origin).netloc != host:
        return False
    return not is_private(served_at) or urlsplit(f"//{host}").hostname in _LOOPBACK


def bound_uploads(client: ClientHandle, page: Page) -> None:
    """Drops uploads as soon as they are known to be too large or of an unknown format: viser accepts any size."""
    from viser import _messages

    pending = client.gui._current_file_upload_states

    def refuse(message: Any, sentence: str) -> None:
        pending.pop(message.transfer_uuid, None)
        page.complain(sentence)
        # The browser's button works again only after the last byte was acknowledged.
        client.gui._websock_interface.queue_message(
            _messages.FileTransferPartAck(message.source_component_uuid, message.transfer_uuid, 1, 1)
        )

    def started(_: int, message: _messages.FileTransferStartUpload) -> None:
        try:
            check_upload(message.filename, message.size_bytes)
        except GeocapsError as error:
            refuse(message, str(error))
        if len(pending) > 1:
            refuse(message, "one file at a time: wait until the other one has come")

    def part_came(_: int, message: _messages.FileTransferPart) -> None:
        state = pending.get(message.transfer_uuid)
        if state is not None and state["transferred_bytes"] > MAX_UPLOAD_BYTES:
            refuse(message, "the browser sent more bytes than it had declared: the upload was dropped")

    client.gui._websock_interface.register_handler(_messages.FileTransferStartUpload, started)
    client.gui._websock_interface.register_handler(_messages.FileTransferPart, part_came)


def free_port(host: str, port: int | None) -> int:
    """The requested port, or the default one if that is free, or else 0 for any free one."""
    wanted = DEFAULT_PORT if port is None else port
    try:
        family = socket.getaddrinfo(host, wanted, type=socket.SOCK_STREAM)[0][0]
    except (OSError, OverflowError, UnicodeError) as error:
        raise UsageError(f"cannot serve at {host}:{wanted}: {error}") from error
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, wanted))
        except (OSError, OverflowError) as error:
            if port is None and isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                return 0
            raise UsageError(f"cannot serve at {host}:{wanted}: {error}; choose another --port or --host") from error
    return wanted
