"""``geocaps view``: the web page, or one object as a single HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

from tyro.conf import Positional, arg

from geocaps.cli.output import UNSET, Count, DropInvalid, Json, Text, show, tell
from geocaps.errors import UsageError

_Out = Annotated[Optional[Path], arg(name="export", metavar="PAGE.html", aliases=("--out",), help_behavior_hint="")]  # noqa: UP045
_Weights = Annotated[Optional[Path], arg(name="model", metavar="FOLDER", aliases=("--weights",), help_behavior_hint="")]  # noqa: UP045


def view(
    files: Annotated[tuple[str, ...], Positional, arg(metavar="FILES"), UNSET] = (),
    out: _Out = None,
    index: Annotated[Text, arg(metavar="FOLDER")] = None,
    frames: Annotated[Text, arg(metavar="FOLDER")] = None,
    poses: Annotated[Text, arg(metavar="POSES.jsonl")] = None,
    weights: _Weights = None,
    host: str = "127.0.0.1",
    port: Count = None,
    browser: bool = True,
    drop_invalid: DropInvalid = False,
    json: Json = False,
) -> None:
    """View objects on a web page: rotate them, align two, search an index, paint labels, track, parse a scene.

    Only this machine can open the page, unless --host says otherwise; stop it with Ctrl-C. With --out no server is
    started: one object is written as a single HTML file that needs neither a network nor geocaps.

    Example: geocaps view chair.ply scan.pcd --index shapes.lance

    Args:
        files: Clouds or meshes to choose from, in addition to the embedded objects.
        out: Write the first file (or, without files, an embedded chair) as one self-contained page, and exit.
        index: Index to search, made by geocaps index add.
        frames: Frames (a folder of clouds, or an NPY or NPZ array) to track the first of the files through; without
            files, the first frames build up the object.
        poses: Poses that geocaps track wrote for these frames, to show instead of tracking again.
        weights: Checkpoint folder (default: the weights that ship with the package).
        host: Address to serve on; 0.0.0.0 makes the page available to other machines.
        port: Port to serve on (default: 8080 or, if that is taken, any free one).
        browser: Open the page in a browser.
    """
    if len(files) > 1 and out is not None:
        raise UsageError(f"--out writes one object, but {len(files)} files were given: name one")
    if port is not None and not 0 <= port <= 65535:
        raise UsageError(f"--port must be from 0 to 65535, not {port}")
    if poses is not None and frames is None:
        raise UsageError("--poses needs the frames that the poses belong to: name them with --frames")
    from geocaps.apps.encode import load
    from geocaps.viewer.clouds import EXAMPLE, by_name, embedded_cloud, file_cloud

    model = load(weights)
    minimum = model.config.parts.parts
    clouds = [file_cloud(path, minimum, drop_invalid=drop_invalid) for path in files]
    if out is not None:
        from geocaps.viewer.page import export_page

        cloud = clouds[0] if clouds else embedded_cloud(EXAMPLE, minimum)
        size = export_page(out, model, cloud)
        record = {"out": out, "object": cloud.name, "dropped": cloud.dropped, "bytes": size}
        show(json, record, [f"wrote {out}: {cloud.name}, {size:,} bytes"])
        return

    import sys
    import webbrowser

    import rich

    from geocaps.viewer.server import Shared, Viewer, is_private
    from geocaps.viewer.track_mode import ToTrack

    # viser says goodbye through rich's global console: not on standard output, which is for results.
    rich.reconfigure(stderr=True)
    found = None
    if index is not None:
        from geocaps.index import Index

        found = Index(index, model)
        found.info()
    followed = None if frames is None else ToTrack.of_files(frames, files[0] if files else None, poses)
    viewer = Viewer(Shared(model, by_name(clouds), found, followed), host, port)
    try:
        show(json, {"url": viewer.url}, [f"the page is at {viewer.url}"])
        sys.stdout.flush()
        if not is_private(host):
            tell("anyone who can reach this machine can open the page: there is no password")
        tell("press Ctrl-C to stop")
        if browser:
            webbrowser.open(viewer.url)
        viewer.server.sleep_forever()
    except KeyboardInterrupt:
        # The intended end of a page.
        pass
    finally:
        viewer.stop()
