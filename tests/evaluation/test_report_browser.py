"""The report in a real browser: narrow and wide, light and dark."""

import json
import shutil
import subprocess
import time
import urllib.request

import pytest

from tests.evaluation.test_report import make_page, make_results

BROWSER = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
LOOK = """(() => {
  const page = document.documentElement, found = [];
  const scrolls = e => ["auto", "scroll"].includes(getComputedStyle(e).overflowX);
  const inside = e => e && (scrolls(e) || inside(e.parentElement));
  for (const e of document.querySelectorAll("body *")) {
    const box = e.getBoundingClientRect(), name = e.tagName + "." + e.className;
    if (box.width && (box.right > page.clientWidth + 1 || box.left < -1) && !inside(e))
      found.push(name + " is outside");
    const hides = ["hidden", "clip"].includes(getComputedStyle(e).overflowX);
    if (hides && e.clientWidth && e.scrollWidth > e.clientWidth + 1)
      found.push(name + " is cut");
  }
  const images = [...document.images];
  return {found, width: page.clientWidth, needed: page.scrollWidth,
    images: images.length, shown: images.filter(i => i.naturalWidth).length,
    scrolling: [...document.querySelectorAll(".scroll")].filter(
      e => e.scrollWidth > e.clientWidth + 1).length,
    ink: getComputedStyle(document.body).color,
    paper: getComputedStyle(document.body).backgroundColor};
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
  """Calls of Chromium's own protocol on one empty page."""
  client = pytest.importorskip("websockets.sync.client")
  folder = tmp_path_factory.mktemp("browser")
  options = ["--headless=new", "--no-sandbox", "--disable-gpu"]
  options += ["--remote-debugging-port=0", f"--user-data-dir={folder}"]
  process = subprocess.Popen(
    [BROWSER, *options, "about:blank"],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
  )
  try:
    port = _wait(lambda: (folder / "DevToolsActivePort").read_text().split()[0])
    tabs = _wait(lambda: _pages(port))
    address = tabs[0]["webSocketDebuggerUrl"]
    with client.connect(address, max_size=None, ping_interval=None) as socket:

      def call(method, **params):
        socket.send(json.dumps({"id": 1, "method": method, "params": params}))
        while "id" not in (answer := json.loads(socket.recv(timeout=120))):
          pass
        return answer["result"]

      yield call
  finally:
    process.terminate()
    process.wait()


def _pages(port: str) -> list[dict]:
  with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
    tabs = [tab for tab in json.load(answer) if tab["type"] == "page"]
  if not tabs:
    raise OSError("no page yet")
  return tabs


def _wait(attempt):
  for _ in range(600):
    try:
      return attempt()
    except (OSError, IndexError):
      time.sleep(0.1)
  raise TimeoutError("the browser does not start")


def _brightness(color: str) -> int:
  return sum(map(int, color.removeprefix("rgb(").removesuffix(")").split(",")))


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")
@pytest.mark.parametrize("width", [420, 1400])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_cut_off(tmp_path, browser, width, theme):
  (tmp_path / "r.html").write_text(make_page(make_results(tmp_path)))
  size = {"width": width, "height": 900, "deviceScaleFactor": 1}
  browser("Emulation.setDeviceMetricsOverride", mobile=width < 500, **size)
  scheme = {"name": "prefers-color-scheme", "value": theme}
  browser("Emulation.setEmulatedMedia", features=[scheme])
  browser("Page.navigate", url=(tmp_path / "r.html").as_uri())
  ready = "document.readyState == 'complete' && document.images.length > 0"
  for _ in range(600):
    if browser("Runtime.evaluate", expression=ready)["result"].get("value"):
      break
    time.sleep(0.1)
  answer = browser("Runtime.evaluate", expression=LOOK, returnByValue=True)
  seen = answer["result"]["value"]
  assert seen["found"] == []
  assert seen["needed"] <= seen["width"] <= width
  assert seen["shown"] == seen["images"] == 12
  # Wide tables scroll by themselves on a phone, and need not on a screen.
  assert (seen["scrolling"] > 0) == (width == 420)
  dark = _brightness(seen["paper"]) < _brightness(seen["ink"])
  assert dark == (theme == "dark")
