//! A headless Chromium, spoken to over its debugging pipe: what it shows of a page, at which width and in which scheme.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use serde::Deserialize;
use serde_json::{Value, json};

/// Where a Chromium is.
pub struct Chromium(PathBuf);

/// What the reader prefers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    Light,
    Dark,
}

/// What a page looks like.
#[derive(Debug)]
pub struct Seen {
    /// Pixels of the window.
    pub width: u32,
    pub scheme: Scheme,
    /// The colour behind everything.
    pub background: String,
    /// What reaches beyond the window's sides, or, of a drawing, beyond the drawing's.
    pub too_wide: Vec<String>,
    /// Pixels of the picture of the whole page.
    pub screenshot_width: u32,
}

/// All of the page unfolded. What scrolls by itself may be wider inside; its own box may not.
const LOOK: &str = "
(() => {
    document.querySelectorAll('details').forEach(details => details.open = true);
    const name = element => element.tagName + '.' + (element.getAttribute('class') || '') + ': ' + element.textContent.slice(0, 60);
    const boxed = element => element.getClientRects().length > 0;
    const tooWide = [];
    if (document.documentElement.scrollWidth > innerWidth) tooWide.push('the page: ' + document.documentElement.scrollWidth);
    for (const element of document.body.querySelectorAll('*')) {
        const scroll = element.parentElement.closest('.scroll');
        const svg = element.closest('svg');
        if (!boxed(element) || (scroll && !svg)) continue;
        const box = element.getBoundingClientRect();
        const frame = svg && svg !== element ? svg.getBoundingClientRect() : { left: 0, right: innerWidth };
        if (scroll && element === svg) continue;
        if (box.left < frame.left - 1 || box.right > frame.right + 1) tooWide.push(name(element));
    }
    return JSON.stringify({
        width: innerWidth,
        is_dark: matchMedia('(prefers-color-scheme: dark)').matches,
        background: getComputedStyle(document.body).backgroundColor,
        too_wide: tooWide,
    });
})()";

#[derive(Deserialize)]
struct Look {
    width: u32,
    is_dark: bool,
    background: String,
    too_wide: Vec<String>,
}

impl Chromium {
    /// The one that the environment names in `CHROMIUM`, or one on the path.
    pub fn find() -> Option<Self> {
        let named = std::env::var_os("CHROMIUM").map(PathBuf::from);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let on_path = || {
            let directories = std::env::split_paths(&path);
            let mut programs = directories.flat_map(|directory| {
                ["chromium", "chromium-browser", "google-chrome"].map(|name| directory.join(name))
            });
            programs.find(|program| program.is_file())
        };
        named.or_else(on_path).map(Self)
    }

    /// Shows a page; the picture stays in the directory.
    pub fn look(&self, directory: &Path, html: &str, width: u32, scheme: Scheme) -> Seen {
        let page = directory.join("report.html");
        std::fs::write(&page, html).unwrap();
        let mut browser = Browser::start(&self.0, &directory.join("profile"));
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))["targetId"].clone();
        let session = browser.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        let is_phone = width < 600;
        let metrics = json!({ "width": width, "height": 844, "deviceScaleFactor": 1, "mobile": is_phone });
        browser.call("Emulation.setDeviceMetricsOverride", metrics);
        let value = if scheme == Scheme::Dark { "dark" } else { "light" };
        let feature = json!({ "name": "prefers-color-scheme", "value": value });
        browser.call("Emulation.setEmulatedMedia", json!({ "features": [feature] }));
        browser.call("Page.enable", json!({}));
        browser.call("Page.navigate", json!({ "url": format!("file://{}", page.display()) }));
        while browser.read()["method"] != "Page.loadEventFired" {}
        let look = browser.call("Runtime.evaluate", json!({ "expression": LOOK, "returnByValue": true }));
        let look: Look =
            serde_json::from_str(look["result"]["value"].as_str().unwrap_or_else(|| panic!("{look}"))).unwrap();
        let shot = browser.call("Page.captureScreenshot", json!({ "format": "png", "captureBeyondViewport": true }));
        let png = from_base64(shot["data"].as_str().unwrap());
        std::fs::write(directory.join(format!("{width}-{value}.png")), &png).unwrap();
        browser.call("Browser.close", json!({}));
        Seen {
            width: look.width,
            scheme: if look.is_dark { Scheme::Dark } else { Scheme::Light },
            background: look.background,
            too_wide: look.too_wide,
            // After signature, length and name of the first chunk.
            screenshot_width: u32::from_be_bytes(png[16..20].try_into().unwrap()),
        }
    }
}

struct Browser {
    child: Child,
    answers: BufReader<ChildStdout>,
    session: Option<String>,
    calls: u64,
}

impl Browser {
    fn start(program: &Path, profile: &Path) -> Self {
        // The debugging pipe is at the descriptors 3 and 4. A sandbox is not to be had in most containers, and the page is ours.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1"])
            .arg(program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"])
            .args(["--disable-dev-shm-usage", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers, session: None, calls: 0 }
    }

    /// The next answer or event.
    fn read(&mut self) -> Value {
        let mut text = Vec::new();
        self.answers.read_until(0, &mut text).unwrap();
        assert_eq!(text.pop(), Some(0), "Chromium has gone away");
        serde_json::from_slice(&text).unwrap()
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.calls += 1;
        let mut call = json!({ "id": self.calls, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            call["sessionId"] = session.as_str().into();
        }
        let pipe = self.child.stdin.as_mut().unwrap();
        pipe.write_all(format!("{call}\0").as_bytes()).unwrap();
        loop {
            let mut answer = self.read();
            if answer["id"] == self.calls {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].take();
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn from_base64(text: &str) -> Vec<u8> {
    let digit = |character: u8| match character {
        b'A'..=b'Z' => character - b'A',
        b'a'..=b'z' => character - b'a' + 26,
        b'0'..=b'9' => character - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let bytes = text.trim_end_matches('=').as_bytes().chunks(4).flat_map(|digits| {
        let bits = digits
            .iter()
            .enumerate()
            .fold(0u32, |bits, (place, &character)| bits | u32::from(digit(character)) << (18 - 6 * place));
        bits.to_be_bytes()[1..digits.len()].to_vec()
    });
    bytes.collect()
}
