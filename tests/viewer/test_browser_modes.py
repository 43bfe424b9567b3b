"""Search, paint, track and scene in a real browser; keyboard and touch; and the commands that the page hands out."""

import io
import re
import shlex
import threading
from contextlib import redirect_stdout

import numpy as np
import pytest
import torch
from playwright.sync_api import expect

from geocaps.cli import run
from geocaps.data.corruption import crop_half_space
from geocaps.geometry.se3 import Pose
from geocaps.io import load_points, save_points
from geocaps.viewer import track_mode
from geocaps.viewer.clouds import embedded_cloud
from geocaps.viewer.mode import CANONICAL_AT, INPUT_AT, in_a_row
from geocaps.viewer.page import MODES, ply_bytes
from geocaps.viewer.scene_mode import _SCAN_AT, EXAMPLE_SCAN
from tests.viewer.browser import WAIT, Person, changed, first_camera, hues, motion, on_screen
from tests.viewer.conftest import BAD_FRAME, FRAMES


def switch(person, mode):
    person.press(mode)
    return person.wait(lambda state: state["mode"] == mode)


def run_code(person, folder, monkeypatch):
    """Run the command and the Python that the page shows, in a folder; and return what both print."""
    command, _, python = person.server.modes[person.server.mode].code().partition("\n\n")
    (line,) = (line for line in command.splitlines() if line.startswith("geocaps "))
    monkeypatch.chdir(folder)
    told = io.StringIO()
    with redirect_stdout(told):
        assert run(shlex.split(line)[1:]) == 0
        exec(compile(python, "<page>", "exec"), {})
    return told.getvalue()


def partial_scan(name, share, seed=3):
    """A part of an embedded object, somewhere else and turned: points, and where they went."""
    generator = torch.Generator().manual_seed(seed)
    seen = crop_half_space(torch.from_numpy(embedded_cloud(name, 16).points), share, generator)[0]
    return Pose.random(generator=generator).apply(seen).numpy() + np.float32([0.3, -0.2, 0.1])


def test_a_partial_scan_is_found_and_laid_over_the_object(person, tmp_path, monkeypatch):
    switch(person, "Search")
    save_points(tmp_path / "scan.ply", partial_scan("chair 1", 0.7))
    person.upload("scan.ply", (tmp_path / "scan.ply").read_bytes())
    state = person.wait(lambda state: state.get("searched") == "scan.ply")
    assert state["found"]
    assert state["hits"][0] == "chair 1"
    person.read("chair 1 explains scan.ply")
    hit = person.server.modes["Search"].result().hits[0]
    assert hit.confidence > 0.5
    on_object, on_scan = person.sent("/search/cloud1"), person.sent("/search/over1")
    apart = np.linalg.norm(on_scan[:, None] - on_object, axis=2).min(axis=1)
    assert np.median(apart) < 0.05, "the scan lies on the object"
    shown = person.page.locator(".geocaps-pose").text_content()
    np.testing.assert_allclose(np.loadtxt(io.StringIO(shown)), hit.pose.matrix(), atol=1e-4)
    assert hues(person.look()) >= 2
    assert "chair 1" in run_code(person, tmp_path, monkeypatch)

    save_points(tmp_path / "other.ply", partial_scan("airplane 1", 0.7))
    person.upload("other.ply", (tmp_path / "other.ply").read_bytes())
    state = person.wait(lambda state: state.get("searched") == "other.ply")
    assert not state["found"]
    person.read("none of these: nothing in the index explains other.ply")
    grey = person.sent("/search/cloud1", "colors").astype(int)
    assert np.ptp(grey, axis=1).max() <= 1, "what does not explain the scan is grey"


def test_one_object_is_painted_and_its_kind_follows(person, tmp_path, monkeypatch):
    switch(person, "Paint")
    painting = person.server.modes["Paint"].result()
    size, places = in_a_row(len(painting.clouds))
    camera = first_camera(person)
    # The lowest point in front: a leg.
    points = size * painting.row()[0][0]
    leg = points[(points @ [0.0, -1.0, 0.5]).argmax()]
    before = [person.sent(f"/paint/cloud{number}", "colors") for number in range(3)]
    picture = person.look(places[1])
    person.choose("a click paints", "a spot")
    person.enter("size of a spot", 0.4)
    person.page.mouse.click(*on_screen(leg + places[0], camera, person))
    state = person.wait(lambda state: state["painted"]["share"] > 0)["painted"]
    assert state == {**state, "object": "chair 1", "labels": [0, 1], "others": {"chair 2": [0, 1], "chair 3": [0, 1]}}
    for number, (placed, labels) in enumerate(painting.row()):
        assert placed[labels == 1, 1].mean() < -0.3, "a leg, in all of them"
        touched = (person.sent(f"/paint/cloud{number}", "colors") != before[number]).any(axis=1)
        np.testing.assert_array_equal(touched, labels == 1)
    assert changed(picture, person.look(places[1])) > 0.005

    # The same with the controls alone.
    top = int(np.bincount(painting.parts[points[:, 1] > 0.5 * size]).argmax())
    person.choose("colour", "label 2")
    person.choose("or choose a part", f"part {top}")
    person.press("Paint this part")
    person.wait(lambda state: 2 in state["painted"]["labels"])
    assert (painting.labels[painting.parts == top] == 2).all()

    for cloud in painting.clouds[1:]:
        save_points(tmp_path / f"{cloud.name.replace(' ', '_')}.ply", cloud.points)
    with person.page.expect_download() as download:
        person.press("PLY points")
    download.value.save_as(tmp_path / download.value.suggested_filename)
    run_code(person, tmp_path, monkeypatch)
    given = load_points(tmp_path / "labelled" / "chair_2.ply").labels
    assert (given == painting.others[0].labels).mean() > 0.99
    person.press("Begin again")
    person.wait(lambda state: state["painted"]["labels"] == [0])


def test_a_tracked_sequence_plays(person, tmp_path, monkeypatch):
    switch(person, "Track")
    person.press("Track the object")
    state = person.wait(lambda state: state["track"] is not None)["track"]
    assert state == {**state, "frames": FRAMES, "frame": 0, "playing": False, "lost": False}
    assert state["parts_visible"] > 4
    assert state["confidence"] > 0.3
    placed, picture = person.sent("/track/object"), person.look()
    # So slowly that the next frame never comes.
    with monkeypatch.context() as slowly:
        slowly.setattr(track_mode, "_RATE", 1e-4)
        person.press("Play")
        person.wait(lambda state: state["track"]["playing"])
        person.press("Pause")
        assert person.wait(lambda state: not state["track"]["playing"])["track"]["frame"] == 0
    # At its own speed: a slow browser may show nothing of it but its end.
    person.press("Play")
    person.wait(lambda state: state["track"]["frame"] == FRAMES - 1 and not state["track"]["playing"])
    assert motion(placed, person.sent("/track/object")) > 0.02
    assert changed(picture, person.look()) > 0.05
    expect(person.page.locator(".geocaps-frame")).to_have_count(FRAMES)
    person.enter("frame", BAD_FRAME)
    state = person.wait(lambda state: state["track"]["frame"] == BAD_FRAME)["track"]
    assert state["lost"]
    person.read(f"{BAD_FRAME}.ply has 3 points")
    saved = np.loadtxt(io.BytesIO(saved_pose(person)))
    np.testing.assert_array_equal(saved, person.server.modes["Track"].pose().matrix())
    run_code(person, tmp_path, monkeypatch)
    assert len((tmp_path / "poses.jsonl").read_text().splitlines()) == FRAMES


def saved_pose(person):
    with person.page.expect_download() as download:
        person.press("TXT pose (4 × 4)")
    return download.value.path().read_bytes()


@pytest.mark.slow
def test_a_scene_is_taken_apart(person, tmp_path, monkeypatch):
    switch(person, "Scene")
    expect(person.page.get_by_label("scan", exact=True)).to_have_value(EXAMPLE_SCAN)
    person.press("Find the objects")
    state = person.wait(lambda state: state["scene"] is not None)["scene"]
    assert state["objects"] >= 4
    assert state["planes"] == 1
    mode, camera = person.server.modes["Scene"], first_camera(person)
    seen = mode.result()
    floor = seen.placed(seen.cloud.scan[seen.parsed.labels < 0])
    standing = seen.placed(seen.cloud.scan[seen.parsed.labels >= 0])
    assert np.ptp(floor[:, 1]) < 0.1 * np.ptp(floor[:, 0]), "the floor is level"
    assert standing[:, 1].mean() > floor[:, 1].mean()
    # The highest point of all is in nobody's shadow.
    top = standing[standing[:, 1].argmax()] + _SCAN_AT
    number = int(seen.parsed.labels[seen.parsed.labels >= 0][standing[:, 1].argmax()])
    picture = person.look()
    person.page.mouse.click(*on_screen(top, camera, person))
    person.wait(lambda state: state["scene"]["chosen"] == number)
    assert "/scene/object_frame" in person.server.canvas.nodes
    assert len(person.sent("/scene/object_points")) == len(seen.parsed.objects[number].points)
    person.read("a colour each")
    person.read("capsule", exact=True)
    said = "none of the index" if state["matches"][number] else "without an index"
    if mode._title(number) == f"object {number + 1}":
        person.read(said)
    assert changed(picture, person.look()) > 0.05
    person.choose("look at", "none")
    person.wait(lambda state: state["scene"]["chosen"] is None)
    assert "/scene/object_points" not in person.server.canvas.nodes

    (tmp_path / "example_objects_on_a_floor.ply").write_bytes(ply_bytes(*mode.cloud()))
    assert f"ParsedScene({state['objects']} objects" in run_code(person, tmp_path, monkeypatch)


def test_every_mode_explains_itself_and_the_active_one_is_marked(person):
    for mode in (*MODES[1:], MODES[0]):
        switch(person, mode)
        expect(person.page.get_by_role("button", name="▸")).to_have_text([f"▸ {mode}"])
        expect(person.page.locator("#geocaps-mode")).to_have_text(re.compile(rf"^{mode}: .*\.$"))
        if nothing := person.server.modes[mode].nothing:
            person.press("JSON data")
            person.wait_for_message(nothing)


def test_the_keyboard_is_enough(person):
    # A slider by arrow keys.
    thumb = person.page.locator("[role=slider]").first
    thumb.focus()
    thumb.press("ArrowRight")
    state = person.wait(lambda state: state["angles"] == [1.0, 0.0, 0.0])
    assert state["rotation_error_degrees"] < 1
    # From control to control, and a button by the key of return.
    person.button("Align").focus()
    person.page.keyboard.press("Tab")
    expect(person.button("Search")).to_be_focused()
    person.page.keyboard.press("Enter")
    person.wait(lambda state: state["mode"] == "Search")
    # A choice by arrow keys.
    person.button("Object").focus()
    person.page.keyboard.press("Enter")
    person.wait(lambda state: state["mode"] == "Object")
    person.page.get_by_label("object", exact=True).focus()
    person.page.keyboard.press("ArrowDown")
    person.page.get_by_role("option").first.wait_for()
    person.page.keyboard.press("ArrowDown")
    person.page.keyboard.press("Enter")
    person.wait(lambda state: state["object"] != "chair 1")
    # The view, when no control has the focus.
    camera = person.server.client.camera
    moved, started = watch_camera(camera)
    person.page.evaluate("document.activeElement.blur()")
    person.page.keyboard.down("ArrowLeft")
    assert moved.wait(WAIT), f"the camera is still at {started}"
    person.page.keyboard.up("ArrowLeft")


def watch_camera(camera):
    """An event that the camera has moved, and where it was."""
    moved, started = threading.Event(), np.array(camera.position)

    def check(_):
        if np.linalg.norm(np.asarray(camera.position) - started) > 0.05:
            moved.set()

    camera.on_update(check)
    return moved, started


def test_fingers_are_enough(browser, viewer):
    person = Person(browser, viewer, touch=True)
    try:
        page, camera = person.page, first_camera(person)
        picture = person.server.object.picture
        front = picture.points[np.linalg.norm(picture.points + INPUT_AT - camera.position, axis=1).argmin()] + INPUT_AT
        expected = picture.part_under_ray(camera.position - INPUT_AT, front - camera.position)[0]
        page.touchscreen.tap(*on_screen(front, camera, person))
        person.wait_for_message(f"part {expected}: ")
        person.button("random rotation").tap()
        person.wait(lambda state: state["angles"] != [0.0, 0.0, 0.0])
        person.button("Align").tap()
        person.wait(lambda state: state["mode"] == "Align")
        # Last: a browser takes the first tap after a swipe for the end of the swipe.
        moved, started = watch_camera(camera)
        x, y = on_screen(CANONICAL_AT, camera, person)
        finger = person.context.new_cdp_session(page)
        finger.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
        for step in range(1, 9):
            point = {"x": x - 12 * step, "y": y}
            finger.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [point]})
        finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        assert moved.wait(WAIT), f"the camera is still at {started}"
    finally:
        person.context.close()
