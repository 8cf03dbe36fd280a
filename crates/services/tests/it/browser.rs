//! A browser that shows a page.

use holdline_services::{Browser, Media};
use serde_json::json;
use std::time::{Duration, Instant};

const PAGE: &str = "data:text/html,<title>a</title><style>@media (prefers-color-scheme: dark) \
    {p {color: red}}</style><p>one</p><input><button>b</button><script>document.querySelector('p')\
    .textContent = 'two'; console.error('odd'); addEventListener('keydown', (event) => \
    window.key = event.key)</script>";

#[test]
fn a_tab_shows_types_and_reports() {
    let browser = Browser::start();
    let tab = browser.tab();
    tab.set_size(320, 500);
    tab.set_media(Media::Dark);
    tab.open(PAGE);
    assert_eq!(tab.text().lines().next(), Some("two"));
    let state = "return [innerWidth, getComputedStyle(document.querySelector('p')).color]";
    assert_eq!(tab.eval(state), json!([320, "rgb(255, 0, 0)"]));
    let complaints = tab.complaints();
    assert!(complaints.len() == 1 && complaints[0].contains("odd"), "{complaints:?}");
    assert_eq!(tab.requests().len(), 1);
    assert!(tab.requests().is_empty(), "each is reported once");
    tab.type_into("input", "abc");
    assert_eq!(tab.eval("return document.querySelector('input').value"), "abc");
    tab.press('x');
    assert_eq!(tab.eval("return window.key"), "x");
    tab.click("button");
    assert_eq!(tab.eval("return document.activeElement.tagName"), "BUTTON");
    assert!(tab.screenshot().starts_with(b"\x89PNG") && !tab.has_dialog());
    tab.set_scripts(false);
    tab.open(PAGE);
    assert_eq!(tab.text().lines().next(), Some("one"));
    drop(tab);

    let tab = browser.tab();
    assert_eq!(tab.eval("return location.href"), "about:blank", "a tab begins empty");
    let _ = tab.eval("setTimeout(() => alert(1))");
    let limit = Instant::now() + Duration::from_secs(60);
    while !tab.has_dialog() {
        assert!(Instant::now() < limit, "the dialog is not seen");
    }
}
