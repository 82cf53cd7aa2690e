# SPDX-License-Identifier: MIT
"""Chromium without a window, driven by Selenium, and what it was up to."""
import contextlib
import json
import tempfile
import urllib.parse

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic",
         "--disable-dev-shm-usage", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update")


class Browser:
    def __init__(self, driver):
        self.driver = driver
        self.driver.set_page_load_timeout(60)
        self.driver.set_script_timeout(60)

    def open(self, url):
        self.driver.get(url)

    def resize(self, width, height=900, dark=False):
        """The size of what the page has, and the colours it should have."""
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1,
            "mobile": width < 600})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme",
             "value": "dark" if dark else "light"}]})

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def text(self, element):
        """The text of an element, by its id; rows of a table as lists."""
        return self.run("return document.getElementById(arguments[0])"
                        ".textContent", element)

    def cells(self, table):
        return self.run(
            "return [...document.getElementById(arguments[0]).rows].map("
            "(row) => [...row.cells].map((cell) => cell.textContent))", table)

    def console(self):
        """What it complained about since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def hosts(self):
        """host:port of all that was asked for since the last call."""
        events = [json.loads(entry["message"])["message"]
                  for entry in self.driver.get_log("performance")]
        urls = [event["params"]["request"]["url"] for event in events
                if event["method"] == "Network.requestWillBeSent"]
        # Its own first page is of chrome:.
        return {urllib.parse.urlsplit(url).netloc for url in urls
                if not url.startswith(("data:", "chrome:"))}

    def screenshot(self, path):
        self.driver.save_screenshot(str(path))


@contextlib.contextmanager
def chromium():
    with tempfile.TemporaryDirectory(prefix="lsd-chromium-") as profile:
        options = Options()
        options.binary_location = "/usr/bin/chromium"
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs",
                               {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"),
                                  options=options)
        try:
            yield Browser(driver)
        finally:
            driver.quit()
