"""The page in a real browser: everything a person does there, checked by the page's own state and by what is drawn."""

import json
import threading

import numpy as np
import pytest
from playwright.sync_api import expect

from geocaps.apps.drawing import label_colors
from geocaps.io import load_points, save_points
from geocaps.viewer import cloud_modes
from geocaps.viewer.clouds import MAX_UPLOAD_BYTES
from geocaps.viewer.mode import CANONICAL_AT, INPUT_AT, lit
from geocaps.viewer.page import export_page
from tests.viewer.browser import WAIT, Person, changed, first_camera, hues, motion, new_context, on_screen


def test_parts_are_coloured_and_the_canonical_view_stands_still(person):
    person.tick("canonical frame")
    state = person.wait(lambda state: "object_frame" not in state["shown"])
    assert state["object"] == "chair 1"
    assert state["parts_seen"] > 4
    seen = person.server.object.picture
    paint = label_colors(seen.labels, len(seen.surfaces))
    np.testing.assert_allclose(person.sent("/object/input/points", "colors"), 255 * lit(paint, seen.normals), atol=0.51)
    given, canonical = person.sent("/object/input/points"), person.sent("/object/canonical/points")
    input_picture, canonical_picture = person.look(INPUT_AT), person.look(CANONICAL_AT)
    assert hues(input_picture) >= 5
    assert hues(canonical_picture) >= 5

    person.press("random rotation")
    state = person.wait(lambda state: state["angles"] != [0.0, 0.0, 0.0])
    assert state["rotation_error_degrees"] < 1
    assert state["canonical_motion"] < 0.02
    assert motion(given, person.sent("/object/input/points")) > 0.1
    assert motion(canonical, person.sent("/object/canonical/points")) < 0.02
    assert changed(input_picture, person.look(INPUT_AT)) > 0.3
    assert changed(canonical_picture, person.look(CANONICAL_AT)) < 0.05
    person.read("rotation error against the turn")

    person.tick("part colours")
    person.wait(lambda state: "colors" not in state["shown"])
    plain = person.sent("/object/input/points", "colors").astype(float)
    assert np.ptp(plain / plain.max(axis=1, keepdims=True), axis=0).max() < 0.02, "one colour, lit"
    assert hues(person.look(INPUT_AT)) <= 2
    person.tick("part colours")

    person.enter("about y", 90)
    turned = person.wait(lambda state: state["angles"][1] == 90.0)
    assert turned["rotation_error_degrees"] < 1
    assert turned["canonical_motion"] < 0.02
    person.press("upright")
    person.wait(lambda state: state["angles"] == [0.0, 0.0, 0.0])
    np.testing.assert_array_equal(person.sent("/object/input/points"), given)


def test_a_picture_is_of_all_that_was_sent(person):
    """Right after a change of colours too, when viser has not yet found the size of the points."""
    page = person.server
    for on in (False, True):
        with page.lock:
            page.object.switches["colors"].value = on
            at_once = page.picture(200, 200, WAIT)
        np.testing.assert_array_equal(page.picture(200, 200, WAIT), at_once)


def test_the_algorithm_can_be_watched(person):
    person.unfold("Watch the algorithm")
    colors = person.sent("/object/input/points", "colors")
    last, picture = person.state["iteration"], person.look(INPUT_AT)
    person.enter("routing iteration", 0)
    person.wait(lambda state: state["iteration"] == 0)
    early = person.sent("/object/input/points", "colors")
    assert (early != colors).any(axis=1).mean() > 0.01, "points are in other parts at first"
    assert changed(picture, person.look(INPUT_AT)) > 0.01
    person.enter("routing iteration", last)
    person.wait(lambda state: state["iteration"] == last)
    np.testing.assert_array_equal(person.sent("/object/input/points", "colors"), colors)
    person.tick("show viewpoints")
    state = person.wait(lambda state: state["viewpoints"] is not None)
    own = person.server.object.session.now.voting(0, seed=0)[0]
    assert state["viewpoints"] == len(own.viewpoints.wxyz) > 1
    person.choose("starts", "8 at random (the paper)")
    person.wait(lambda state: state["viewpoints"] == 8)
    at_start, picture = person.sent("/object/viewpoints", "batched_wxyzs"), person.look()
    person.enter("voting step", 2)
    person.wait(lambda state: state["vote"] == 2)
    person.read("viewpoint 7")
    assert motion(at_start, person.sent("/object/viewpoints", "batched_wxyzs")) > 0.05, "viewpoints turn"
    assert changed(picture, person.look()) > 0.01
    person.tick("show viewpoints")
    person.wait(lambda state: state["viewpoints"] is None)


def test_a_clicked_part_shows_its_feature_and_folds(person):
    picture, camera = person.server.object.picture, first_camera(person)
    front = picture.points[np.linalg.norm(picture.points + INPUT_AT - camera.position, axis=1).argmin()] + INPUT_AT
    expected = picture.part_under_ray(camera.position - INPUT_AT, front - camera.position)[0]
    person.page.mouse.click(*on_screen(front, camera, person))
    person.wait_for_message(f"part {expected}: ")
    state = person.wait(lambda state: state["part"] == expected)
    person.unfold("A part's feature")
    expect(person.page.locator(".geocaps-bar")).to_have_count(len(state["part_feature"]))
    name = f"/object/input/surfaces/{expected}"
    surface, before = person.sent(name, "vertices"), person.look(INPUT_AT)
    person.enter("feature 0", state["part_feature"][0] + 0.3)
    folded = person.wait(lambda state: "surfaces" in state["shown"])
    assert folded["part_feature"][0] == pytest.approx(state["part_feature"][0] + 0.3, abs=0.01)
    assert motion(surface, person.sent(name, "vertices")) > 1e-3
    assert changed(before, person.look(INPUT_AT)) > 0.01
    person.press("as it was found")
    person.wait(lambda now: now["part_feature"] == state["part_feature"])
    np.testing.assert_array_equal(person.sent(name, "vertices"), surface)


def test_directions_of_the_objects_feature_move_what_it_decodes_to(person):
    person.unfold("The object's feature")
    person.enter("direction 1", 2)
    person.wait(lambda state: "from_object" in state["shown"])
    decoded, picture = person.sent("/object/input/from_object"), person.look(INPUT_AT)
    person.enter("direction 1", -2)
    person.wait(lambda state: state["directions"][0] == -2)
    assert motion(decoded, person.sent("/object/input/from_object")) > 1e-3
    assert changed(picture, person.look(INPUT_AT)) > 0.005


def saved(person, button, folder):
    """What a button hands to the browser."""
    with person.page.expect_download() as download:
        person.press(button)
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def test_what_is_seen_is_saved(person, tmp_path, monkeypatch):
    monkeypatch.setattr("geocaps.viewer.page._PNG_WAIT", WAIT)
    assert saved(person, "PNG picture", tmp_path).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(load_points(saved(person, "PLY points", tmp_path)).points) == 2048
    record = json.loads(saved(person, "JSON data", tmp_path).read_text())
    assert record["name"] == "chair 1"
    np.testing.assert_array_equal(np.loadtxt(saved(person, "TXT pose (4 × 4)", tmp_path)), record["pose"]["matrix"])
    person.press("Paint")
    person.wait(lambda state: state["mode"] == "Paint")
    person.press("TXT pose (4 × 4)")
    person.wait_for_message("painting finds labels, not a pose")


def test_what_gives_the_same_is_copied(person):
    person.unfold("The same as a command, and in Python")
    person.press("copy")
    person.button("copied").wait_for()
    copied = person.page.evaluate("navigator.clipboard.readText()")
    assert copied == person.page.locator("#geocaps-code").text_content() == person.server.object.code()
    assert "geocaps parts chair_1.ply --out parts.ply" in copied


def test_it_is_copied_where_the_browser_has_no_clipboard_for_the_page(person):
    """As over plain HTTP from another machine: by a selection, as a person would."""
    person.page.evaluate(
        """() => {
            Object.defineProperty(navigator, "clipboard", {value: undefined, configurable: true});
            document.addEventListener("copy", () => { window.taken = getSelection().toString(); });
        }"""
    )
    person.unfold("The same as a command, and in Python")
    person.press("copy")
    person.button("copied").wait_for()
    assert person.page.evaluate("window.taken").strip() == person.server.object.code()


def test_two_clouds_are_aligned(person):
    # A table looks nearly the same from its other side: it is laid on one.
    person.choose("object", "table 2")
    person.wait(lambda state: state["object"] == "table 2")
    person.enter("about x", 70)
    person.wait(lambda state: state["angles"] == [70.0, 0.0, 0.0])
    person.press("Align")
    person.wait(lambda state: state["mode"] == "Align")
    expect(person.page.locator("#geocaps-mode")).to_contain_text("choose two clouds")
    expect(person.page.get_by_label("B (blue)", exact=True)).to_have_value("chair 2")  # another than the first object
    person.choose("B (blue)", "table 2")
    person.press("Align A to B")
    found = person.wait(lambda state: state["alignment"] is not None)["alignment"]
    assert found["residual"] < 0.2 * found["residual_before"]
    assert found["ways"] > 1
    person.read("residual after")
    still, moved = person.sent("/align/before_a"), person.sent("/align/after_a")
    before, after = person.look(INPUT_AT), person.look(CANONICAL_AT)
    assert hues(before) >= 2, "orange and blue"
    person.press("Next way")
    other = person.wait(lambda state: state["alignment"]["way"] == 1)["alignment"]
    assert found["residual"] < other["residual"] < found["residual_before"]
    np.testing.assert_array_equal(person.sent("/align/before_a"), still)
    assert motion(moved, person.sent("/align/after_a")) > 0.1
    assert changed(before, person.look(INPUT_AT)) == 0
    assert changed(after, person.look(CANONICAL_AT)) > 0.02
    for _ in range(found["ways"] - 1):
        person.press("Next way")
    person.wait(lambda state: state["alignment"]["way"] == 0)


def test_a_bad_file_gets_a_sentence_and_the_page_goes_on(person, tmp_path):
    person.upload("broken.ply", b"ply\nformat nonsense\n")
    person.wait_for_message("broken.ply")
    person.upload("virus.exe", b"MZ")
    person.wait_for_message("virus.exe has '.exe', which is not read")
    large = tmp_path / "large.ply"
    with large.open("wb") as file:
        file.truncate(MAX_UPLOAD_BYTES + 1)
    person.page.locator("input[type=file]").set_input_files(large)
    person.wait_for_message("the page takes 33,554,432")
    assert person.server.object.session.still.cloud.name == "chair 1", "what was shown stays"
    assert person.server.client.gui._current_file_upload_states == {}, "nothing of what was refused is kept"

    points = np.random.default_rng(0).normal(size=(300, 3)) * [1, 2, 3]
    save_points(tmp_path / "good.ply", points)
    person.upload("good.ply", (tmp_path / "good.ply").read_bytes())
    person.wait(lambda state: state["object"] == "good.ply")
    expect(person.page.locator("#geocaps-message")).to_have_text("good.ply: 300 points")
    person.choose("object", "mug 2")
    person.wait(lambda state: state["object"] == "mug 2")


def test_a_file_can_be_dropped(person):
    text = "\\n".join(" ".join(f"{v:.4f}" for v in row) for row in np.random.default_rng(1).normal(size=(40, 3)))
    person.page.evaluate(
        f"""() => {{
            const data = new DataTransfer();
            data.items.add(new File(["{text}"], "dropped.xyz"));
            const zone = document.getElementById("geocaps-drop");
            zone.dispatchEvent(new DragEvent("drop", {{dataTransfer: data, bubbles: true}}));
        }}"""
    )
    person.wait(lambda state: state["object"] == "dropped.xyz")


def test_two_browsers_do_not_disturb_each_other(person, browser, viewer, monkeypatch):
    """Also while one of them waits for a long answer, with a sign that it does."""
    working, go_on, align = threading.Event(), threading.Event(), cloud_modes.align

    def long_align(*args, **options):
        working.set()
        go_on.wait()  # whatever happens, it is set in the end
        return align(*args, **options)

    monkeypatch.setattr(cloud_modes, "align", long_align)
    sign = person.page.locator("#geocaps-busy")
    person.choose("object", "mug 2")
    person.wait(lambda state: state["object"] == "mug 2")
    person.press("Align")
    before = person.wait(lambda state: state["mode"] == "Align")
    expect(sign, "nothing is being done").to_have_count(0)
    other = Person(browser, viewer)
    try:
        person.press("Align A to B")
        assert working.wait(WAIT), "the button was pressed, and the server never began to align"
        sign.wait_for()
        assert other.state["object"] == "chair 1"
        viewer.wait_for_pages(2)
        other.press("random rotation")
        other.wait(lambda state: state["angles"] != [0.0, 0.0, 0.0])
        other.upload("theirs.xyz", b"\n".join(b"%d %d %d" % (i % 5, i % 7, i) for i in range(60)))
        other.wait(lambda state: state["object"] == "theirs.xyz")
        assert person.state == before
        assert {len(page.uploads) for page in viewer.pages.values()} == {0, 1}
        go_on.set()
        person.wait(lambda state: state["alignment"] is not None)
        sign.wait_for(state="detached")
        assert other.state["alignment"] is None
    finally:
        go_on.set()
        other.context.close()
    viewer.wait_for_pages(1)
    person.press("Object")
    person.press("random rotation")
    person.wait(lambda state: state["angles"] != before["angles"])


def test_an_exported_page_works_without_a_network(browser, model, chair, tmp_path):
    export_page(tmp_path / "page.html", model, chair)
    context = new_context(browser, viewport={"width": 900, "height": 500}, offline=True)
    try:
        page = context.new_page()
        asked, troubles = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto((tmp_path / "page.html").as_uri())
        assert page.title().startswith("chair 1")
        assert page.evaluate("geocaps.drawn") > 4000
        assert page.evaluate("geocaps.colorsDrawn") > 5
        yaw = page.evaluate("geocaps.yaw")
        page.mouse.move(300, 250)
        page.mouse.down()
        page.mouse.move(360, 260)
        page.mouse.up()
        assert page.evaluate("geocaps.yaw") > yaw
        drawn = page.evaluate("geocaps.drawn")
        page.get_by_label("part surfaces").check()
        assert page.evaluate("geocaps.drawn") > drawn
        page.get_by_label("part colours").uncheck()
        page.get_by_label("part surfaces").uncheck()
        page.get_by_label("canonical frame").uncheck()
        assert page.evaluate("geocaps.colorsDrawn") == 1
        assert troubles == []
        assert asked == [(tmp_path / "page.html").as_uri()]
    finally:
        context.close()
