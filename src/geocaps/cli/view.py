"""``geocaps view``: the page in a browser, or one object as a page to send."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import tyro

from geocaps.cli.output import UNSET, console, messages, print_json
from geocaps.errors import UsageError


def view(
    files: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILES"), UNSET] = (),
    export: Annotated[str | None, tyro.conf.arg(metavar="PAGE.html"), UNSET] = None,
    index: Annotated[str | None, tyro.conf.arg(metavar="FOLDER"), UNSET] = None,
    model: Annotated[str | None, tyro.conf.arg(metavar="FOLDER"), UNSET] = None,
    host: str = "127.0.0.1",
    port: Annotated[int | None, UNSET] = None,
    browser: bool = True,
    drop_invalid: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Look at objects, their parts and poses in a web page, turn them, align two, search an index.

    The page is for this machine alone unless --host says otherwise, and runs until Ctrl-C. With --export no server is
    started: one object is written as a single HTML file that needs no network and no geocaps.

    Example: geocaps view chair.ply scan.pcd --index shapes.lance

    Args:
        files: Clouds or meshes to have at hand; embedded objects always are.
        export: Write the first file (without files: an embedded chair) as one self-contained page, and stop.
        index: Folder of an index, made by geocaps index add, to search in.
        model: Checkpoint folder; the weights that ship with the package unless given.
        host: Address to serve at; 0.0.0.0 lets other machines in.
        port: Port to serve at; 8080 or, when that is taken, any free one unless given.
        browser: Open the page in the browser.
        drop_invalid: Leave out points that are NaN or infinite; otherwise they are refused, but in PCD files.
        json: One JSON object on standard output: the address, or what was exported.
    """
    if len(files) > 1 and export is not None:
        raise UsageError(f"--export writes one object, and {len(files)} files were given: name one")
    if port is not None and not 0 <= port <= 65535:
        raise UsageError(f"--port must be from 0 to 65535, not {port}")
    from geocaps.apps.encode import load
    from geocaps.viewer.clouds import EXAMPLE, by_name, embedded_cloud, file_cloud

    loaded = load(model)
    minimum = loaded.config.parts.parts
    clouds = [file_cloud(path, minimum, drop_invalid=drop_invalid) for path in files]
    if export is not None:
        from geocaps.viewer.page import export_page

        cloud = clouds[0] if clouds else embedded_cloud(EXAMPLE, minimum)
        size = export_page(export, loaded, cloud)
        if json:
            print_json({"out": export, "object": cloud.name, "dropped": cloud.dropped, "bytes": size})
        else:
            console().print(f"wrote {export}: {cloud.name}, {size:,} bytes", markup=False)
        return

    import rich

    from geocaps.viewer.server import Shared, Viewer, is_private

    # viser says goodbye through rich's global console: not on standard output, which is for results.
    rich.reconfigure(stderr=True)
    found = None
    if index is not None:
        from geocaps.index import Index

        found = Index(index, loaded)
        found.info()
    viewer = Viewer(Shared(loaded, by_name(clouds), found), host, port)
    try:
        if json:
            print_json({"url": viewer.url})
        else:
            console().print(f"the page is at {viewer.url}", markup=False)
        if not is_private(host):
            messages().print("anyone who can reach this machine can open the page: it asks for no password")
        messages().print("stop it with Ctrl-C")
        if browser:
            webbrowser.open(viewer.url)
        viewer.server.sleep_forever()
    except KeyboardInterrupt:
        # How a page is meant to end.
        pass
    finally:
        viewer.stop()
