//! The page in a real browser, if one is installed: nothing overflows the screen, and dark mode is dark.

use super::{fixture, render};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Widths of two phones, a tablet and a desktop.
const WIDTHS: [u32; 4] = [360, 390, 820, 1280];

const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

fn browser() -> Option<PathBuf> {
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let files = folders.iter().flat_map(|folder| BROWSERS.map(|name| folder.join(name)));
    files.into_iter().find(|file| file.is_file())
}

/// Embeds the page in a frame of each width, high enough to need no scroll bar. The frames report measurements; the page itself runs no scripts.
fn frames(page: &str) -> String {
    let page = page.replace('&', "&amp;").replace('"', "&quot;");
    let frame = |width: &u32| {
        format!("<iframe width=\"{width}\" height=\"50000\" style=\"border:0\" srcdoc=\"{page}\"></iframe>")
    };
    let frames: String = WIDTHS.iter().map(frame).collect();
    format!("<!DOCTYPE html><body>{frames}<script>{MEASURE}</script></body>")
}

const MEASURE: &str = r##"
onload = () => {
  const measure = frame => {
    const page = frame.contentDocument, root = page.documentElement;
    page.querySelectorAll("details").forEach(details => details.open = true);
    const beyond = [...page.querySelectorAll("main *")].filter(node =>
      !node.closest(".scroll table") && node.getBoundingClientRect().right > root.clientWidth + 0.5);
    const text = node => parseFloat(frame.contentWindow.getComputedStyle(node).fontSize) * node.ownerSVGElement.getBoundingClientRect().width / node.ownerSVGElement.viewBox.baseVal.width;
    return {
      width: root.clientWidth, scrolls: root.scrollWidth, beyond: beyond.map(node => node.outerHTML.slice(0, 80)),
      smallest: Math.min(...[...page.querySelectorAll("svg.plot text")].map(text)),
      background: frame.contentWindow.getComputedStyle(page.body).backgroundColor,
    };
  };
  const found = [...document.querySelectorAll("iframe")].map(measure);
  document.body.innerHTML = "";
  document.body.textContent = "<<" + JSON.stringify(found) + ">>";
};"##;

fn measure(browser: &Path, scheme: u32) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("frames.html");
    std::fs::write(&file, frames(&render(&fixture()))).unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--virtual-time-budget=10000", "--dump-dom"])
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(&file)
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = dom.split_once("&lt;&lt;").and_then(|(_, rest)| Some(rest.split_once("&gt;&gt;")?.0));
    let found = found.unwrap_or_else(|| panic!("{}: {dom}", String::from_utf8_lossy(&output.stderr)));
    let json = found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&json).unwrap()
}

/// The page on a phone, a tablet and a desktop, with everything unfolded.
#[test]
fn nothing_is_wider_than_the_screen_and_text_can_be_read() {
    let Some(browser) = browser() else {
        eprintln!("skipped: none of {} is on the path", BROWSERS.join(", "));
        return;
    };
    let mut backgrounds = Vec::new();
    for scheme in [1, 0] {
        let found = measure(&browser, scheme);
        assert_eq!(found.len(), WIDTHS.len());
        for (page, width) in found.iter().zip(WIDTHS) {
            assert!(page["width"].as_u64().unwrap() <= u64::from(width));
            assert_eq!((&page["scrolls"], &page["beyond"]), (&page["width"], &Value::Array(Vec::new())), "{width}");
            assert!(page["smallest"].as_f64().unwrap() >= 9.5, "{page}");
        }
        backgrounds.push(found[0]["background"].clone());
    }
    assert_eq!(backgrounds, ["rgb(246, 246, 243)", "rgb(15, 19, 23)"], "light, then dark");
}
