"""The page in a real browser against a real server: drop, watch, look at the picture, cancel."""

from __future__ import annotations

import io
import json
from typing import Any

from kit.cluster import ServerProcess
from kit.page_window import Window
from kit.prompts import txt2img
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import expect

# A preview is replaced by the next one at any time, so that waiting for one to decode may fail.
_LOADED_WIDTH = """(image) => new Promise((resolve) => {
    const look = () => image.naturalWidth > 0 && resolve(image.naturalWidth);
    image.addEventListener("load", look);
    look();
})"""
LONG_STEPS = 400  # long enough to be cancelled by hand, short enough to end if that fails


def as_json(prompt: dict[str, Any]) -> bytes:
    return json.dumps(prompt).encode()


def picture_width(window: Window) -> int:
    picture = window.page.locator("img.picture").first
    expect(picture).to_be_visible()
    width: int = picture.evaluate(
        "async (image) => { await image.decode(); return image.naturalWidth; }"
    )
    return width


def test_a_dropped_json_is_run_and_every_node_is_done_by_a_named_executor(window: Window) -> None:
    window.drop("mine.json", as_json(txt2img(seed=11, steps=4, size=64)))
    window.expect_done()
    page = window.page
    # 2 texts, latent, begin + 4 evaluations + end, decode, save
    expect(page.locator(".cell")).to_have_count(11)
    expect(page.locator('.cell[data-state="done"][data-executor="cpu0"]')).to_have_count(11)
    expect(page.locator('.box[data-group="3"]')).to_contain_text("4 \u00d7 denoise + 2")
    expect(page.locator('.box[data-group="3"]')).to_contain_text("done 6/6 · cpu0")
    expect(page.locator("#graph-note")).to_contain_text("CheckpointLoaderSimple #4")
    assert page.locator("#bar").evaluate("(bar) => bar.value === bar.max && bar.max === 11")
    expect(page.locator("#now-heading")).to_have_text("mine.json")
    assert picture_width(window) == 64


def test_progress_and_previews_are_shown_while_it_runs(window: Window) -> None:
    window.drop("slow.json", as_json(txt2img(seed=12, steps=40)))
    expect(window.page.locator("#now-line")).to_contain_text("KSampler #3: step")
    preview = window.page.locator("img.preview")
    assert preview.evaluate(_LOADED_WIDTH) > 0
    expect(window.page.locator('.cell[data-state="running"]').first).to_be_visible()
    window.expect_done()
    expect(preview).to_have_count(0)
    assert picture_width(window) == 64


def test_a_dropped_png_runs_the_workflow_that_it_carries(window: Window) -> None:
    info = PngInfo()
    info.add_text("workflow", "{}")
    info.add_text("prompt", json.dumps(txt2img(seed=13, steps=2)), zip=True)
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "png", pnginfo=info)
    window.drop("with workflow.png", file.getvalue(), "image/png")
    window.expect_done()
    assert picture_width(window) == 64


def test_a_chosen_file_is_run_like_a_dropped_one(window: Window) -> None:
    content = as_json(txt2img(seed=14, steps=1))
    with window.page.expect_file_chooser() as chooser:
        window.page.get_by_role("button", name="Choose a file").click()
    chooser.value.set_files({"name": "c.json", "mimeType": "application/json", "buffer": content})
    window.expect_done()


def test_the_sample_runs(window: Window) -> None:
    window.page.get_by_role("button", name="Run the sample workflow").click()
    window.expect_done()
    expect(window.page.locator(".cell")).to_have_count(27)
    assert picture_width(window) == 128


def test_what_is_no_workflow_is_refused_with_a_reason(window: Window) -> None:
    window.expected = ["status of 400"]
    problems = window.page.locator("#problems")
    window.drop("photo.jpg", b"\xff\xd8\xff\xe0 jpeg", "image/jpeg")
    expect(problems).to_contain_text("the picture can't be read")
    window.drop("broken.json", b"{")
    expect(problems).to_contain_text("broken.json: not JSON")
    window.drop("other.json", b'{"a": 1}')
    expect(problems).to_contain_text("neither a workflow")


def test_the_editors_own_file_runs_and_its_notes_are_shown(window: Window) -> None:
    nodes = [
        {"id": 1, "type": "EmptyImage", "widgets_values": [40, 24, 1, 255], "outputs": [{}]},
        {"id": 2, "type": "ImageInvert", "mode": 4, "outputs": [{"type": "IMAGE"}]},
        {"id": 3, "type": "PreviewImage"},
    ]
    nodes[1]["inputs"] = [{"name": "image", "type": "IMAGE", "link": 1}]
    nodes[2]["inputs"] = [{"name": "images", "type": "IMAGE", "link": 2}]
    links = [[1, 1, 0, 2, 0, "IMAGE"], [2, 2, 0, 3, 0, "IMAGE"]]
    window.drop("editor.json", as_json({"nodes": nodes, "links": links}))
    window.expect_done()
    assert picture_width(window) == 40
    window.page.locator("#opened-notes summary").click()
    expect(window.page.locator("#opened-notes-list")).to_contain_text("ImageInvert #2: bypassed")


def test_a_bad_workflow_is_refused_with_node_field_and_reason(window: Window) -> None:
    window.expected = ["status of 400"]  # the browser logs every answer that is no success
    prompt = txt2img(steps=2, sampler="no such sampler")
    prompt["5"]["inputs"]["width"] = 1
    del prompt["9"]["inputs"]["filename_prefix"]
    window.drop("bad.json", as_json(prompt))
    at = window.page.locator("#problems")
    expect(at.locator('[data-problem-node="3"]')).to_contain_text("KSampler #3")
    sampler = at.locator('[data-problem-node="3"] [data-problem-field="sampler_name"]')
    expect(sampler).to_contain_text("Value not in list")
    width = at.locator('[data-problem-node="5"] [data-problem-field="width"]')
    expect(width).to_contain_text("Value 1 smaller than min of 16")
    prefix = at.locator('[data-problem-node="9"] [data-problem-field="filename_prefix"]')
    expect(prefix).to_contain_text("Required input is missing")


def test_an_unknown_class_is_refused_by_name(window: Window) -> None:
    window.expected = ["status of 400"]
    window.drop("odd.json", b'{"1": {"class_type": "NoSuchNode", "inputs": {}}}')
    expect(window.page.locator("#problems")).to_contain_text("NoSuchNode does not exist")
    expect(window.page.locator("#problems")).to_contain_text("#1")


def test_a_running_request_is_cancelled(window: Window) -> None:
    window.drop("long.json", as_json(txt2img(seed=15, steps=LONG_STEPS, size=128)))
    row = window.page.locator('#queue [data-state="running"]', has_text="long.json")
    row.get_by_role("button", name="Cancel long.json").click()
    expect(window.page.locator("#now")).to_have_attribute("data-state", "stopped")
    expect(window.page.locator("#now-line")).to_have_text("Cancelled.")
    expect(row).to_have_count(0)


def test_a_waiting_request_is_taken_out_and_the_running_one_goes_on(window: Window) -> None:
    page = window.page
    window.drop("first.json", as_json(txt2img(seed=16, steps=LONG_STEPS, size=128)))
    first = page.locator('#queue li[data-state="running"]', has_text="first.json")
    expect(first).to_be_visible()
    # It has no step to share with the first one, so it waits for its turn.
    second_prompt = {
        "1": {
            "class_type": "EmptyImage",
            "inputs": {"width": 64, "height": 64, "batch_size": 1, "color": 0},
        },
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}},
    }
    window.drop("second.json", as_json(second_prompt))
    second = page.locator('#queue li[data-state="waiting"]', has_text="second.json")
    second.get_by_role("button", name="Cancel second.json").click()
    expect(page.locator("#now-line")).to_have_text("Taken out of the queue.")
    expect(second).to_have_count(0)
    expect(first).to_be_visible()
    first.get_by_role("button", name="first.json", exact=False).first.click()
    page.locator("#cancel").click()
    expect(page.locator("#now-line")).to_have_text("Cancelled.")


def test_markup_in_a_workflow_stays_text(window: Window) -> None:
    attack = '<img src=x onerror="window.attacked = 1"><script>window.attacked = 1</script>'
    prompt = txt2img(seed=18, steps=1, text=attack)
    prompt["6"]["_meta"] = {"title": attack}
    window.drop(f"{attack}.json", as_json(prompt))
    window.expect_done()
    expect(window.page.locator("#now-heading")).to_have_text(f"{attack}.json")
    expect(window.page.locator('.box[data-group="6"] title').first).to_contain_text(attack)
    window.page.locator('.box[data-group="6"]').click()
    expect(window.page.locator("#graph-detail caption")).to_have_text(f"{attack} #6")
    assert window.page.evaluate("() => window.attacked") is None
    assert window.page.locator("main img[src='x'], main script").count() == 0


def test_the_policy_forbids_foreign_and_inline_code(window: Window) -> None:
    policy = window.page.request.get(window.url).headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    window.expected = ["Content Security Policy"]
    window.page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.attacked = 1";
            document.body.append(script);
        }"""
    )
    assert window.page.evaluate("() => window.attacked") is None
    assert len(window.complaints) == 1  # so that violations elsewhere would be seen


def test_a_failing_node_is_named_with_its_error(window: Window, web_server: ServerProcess) -> None:
    whole = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(whole, "png")
    (web_server.base / "input" / "cut.png").write_bytes(whole.getvalue()[:300])
    prompt = {
        "1": {"class_type": "LoadImage", "inputs": {"image": "cut.png"}},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}},
    }
    window.drop("cut.json", as_json(prompt))
    expect(window.page.locator("#now")).to_have_attribute("data-state", "failed")
    expect(window.page.locator("#now-line")).to_have_text("Failed in LoadImage #1.")
    expect(window.page.locator("#failure")).to_contain_text("cut.png")


def test_the_keyboard_reaches_a_box_and_opens_its_nodes(window: Window) -> None:
    window.drop("keys.json", as_json(txt2img(seed=19, steps=2)))
    window.expect_done()
    window.page.locator('.box[data-group="3"]').focus()
    window.page.keyboard.press("Enter")
    rows = window.page.locator("#graph-detail tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.nth(1)).to_contain_text("denoise")
    expect(rows.nth(1)).to_contain_text("sd15/denoiser:tiny-random-sd15.safetensors")
    window.page.keyboard.press("Enter")
    expect(rows).to_have_count(0)


def test_after_a_reload_the_running_request_is_followed_again(window: Window) -> None:
    window.drop("reload.json", as_json(txt2img(seed=20, steps=30)))
    expect(window.page.locator("#now-line")).to_contain_text("step")
    window.open()
    expect(window.page.locator("#now-heading")).to_have_text("reload.json")
    expect(window.page.locator("#now-line")).to_contain_text("step")
    window.expect_done()
    expect(window.page.locator('.cell[data-state="done"]')).to_have_count(37)


def test_a_lost_connection_comes_back_and_the_run_is_seen_to_its_end(window: Window) -> None:
    sockets = []
    window.page.route_web_socket(
        "**/ws?*", lambda socket: sockets.append((socket, socket.connect_to_server()))
    )
    window.open()
    window.drop("lost.json", as_json(txt2img(seed=21, steps=24)))
    expect(window.page.locator("#now-line")).to_contain_text("step")
    for side in sockets[-1]:
        side.close()
    expect(window.page.locator("#connection")).to_have_attribute("data-state", "open")
    window.expect_done()
    assert len(sockets) >= 2
    assert picture_width(window) == 64


def test_an_ended_request_is_shown_again_from_the_history(window: Window) -> None:
    window.drop("ended.json", as_json(txt2img(seed=22, steps=1)))
    window.expect_done()
    window.open()
    row = window.page.locator("#queue button.request", has_text="ended.json").first
    row.click()
    expect(window.page.locator("#now-heading")).to_have_text("ended.json")
    assert picture_width(window) == 64


def test_a_narrow_page_has_nothing_that_sticks_out(window: Window) -> None:
    window.page.set_viewport_size({"width": 390, "height": 844})
    window.drop("phone.json", as_json(txt2img(seed=23, steps=4)))
    window.expect_done()
    width = "() => document.documentElement.scrollWidth"
    assert window.page.evaluate(width) <= 390
    boxes = window.page.locator(".box").evaluate_all(
        "(boxes) => boxes.map((box) => box.getBoundingClientRect().right)"
    )
    assert max(boxes) <= 390
