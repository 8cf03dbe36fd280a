//! A page by keyboard only.

use serde_json::json;

use crate::ground::Ground;
use crate::screen::Screen;

/// WebDriver's code points.
const TAB: char = '\u{E004}';
const ENTER: char = '\u{E007}';
const SPACE: char = ' ';

/// What has the focus, and whether that is in sight and marked.
const FOCUS: &str = "const element = document.activeElement;
    const box = element.getBoundingClientRect();
    const style = getComputedStyle(element);
    const shown = box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.left >= 0;
    const marked = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
    return [element.tagName, (element.innerText || element.name || element.id).trim(),
        shown && marked];";

/// Presses Tab until something has the focus that fits, and checks each stop.
fn tab_to(screen: &Screen, fits: impl Fn(&str, &str) -> bool) {
    let mut stops = Vec::new();
    for _ in 0..60 {
        screen.press(TAB);
        let focus = screen.eval(FOCUS);
        let (tag, label) = (focus[0].as_str().unwrap_or(""), focus[1].as_str().unwrap_or(""));
        assert_eq!(focus[2], true, "the focus cannot be seen: {focus}");
        if fits(tag, label) {
            return;
        }
        stops.push(format!("{tag} {label}"));
    }
    panic!("the focus never comes there: {stops:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_is_revoked_by_keyboard() {
    let ground = Ground::start().await;
    let guard = ground.client.mutex("deploy").expect("a name").lock().await.expect("free");
    ground.until("/dashboard/locks", "deploy").await;
    let screen = Screen::of(&ground);
    screen.show("/dashboard");
    tab_to(&screen, |_, label| label == "Skip to the content");
    screen.press(ENTER);
    assert_eq!(
        screen.eval("return [document.activeElement.id, location.hash]"),
        json!(["main", "#main"])
    );

    screen.show("/dashboard");
    tab_to(&screen, |tag, label| tag == "A" && label == "Locks");
    screen.press(ENTER);
    screen.await_text("1 name,");
    tab_to(&screen, |tag, label| tag == "A" && label == "deploy");
    screen.press(ENTER);
    screen.await_text("Lock deploy");
    tab_to(&screen, |tag, label| tag == "SUMMARY" && label.starts_with("Revoke"));
    screen.press(ENTER);
    tab_to(&screen, |tag, label| tag == "INPUT" && label == "reason");
    for key in "stuck".chars() {
        screen.press(key);
    }
    tab_to(&screen, |tag, label| tag == "INPUT" && label == "force");
    screen.press(SPACE);
    tab_to(&screen, |tag, label| tag == "BUTTON" && label == "Revoke");
    screen.press(ENTER);
    screen.await_text("The grant is revoked and over");
    screen.assert_quiet("by keyboard");
    drop(guard);
}
