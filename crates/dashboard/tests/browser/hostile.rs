//! Text from outside is shown, does nothing, and breaks no page.

use holdline::LockOptions;
use holdline::admin::HolderFields;

use crate::ground::Ground;
use crate::screen::Screen;

/// What browsers take for markup, hidden characters, and a word that nothing breaks.
fn texts() -> [String; 4] {
    [
        "<img src=x onerror=\"window.hit=1\"><script>window.hit=1</script>".to_owned(),
        "'\"--></title></textarea><svg onload=alert(1)>&amp;".to_owned(),
        "safe\u{202e}gpj.exe\u{2066}\u{200b}\u{200f}".to_owned(),
        "W".repeat(500),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_text_is_shown_does_nothing_and_breaks_no_page() {
    let ground = Ground::start().await;
    let mut held = Vec::new();
    for text in texts() {
        // All fields together have a limit.
        let short: String = text.chars().take(90).collect();
        let holder = HolderFields {
            host: short.clone(),
            program: short.clone(),
            user: short,
            ..HolderFields::default()
        };
        let options = LockOptions::default().with_holder(holder);
        let lock = ground.client.mutex_with(&text, &options.with_reason(&text)).expect("a name");
        held.push(lock.lock().await.expect("free"));
        let waiter = ground.client.mutex_with(&text, &LockOptions::default()).expect("a name");
        tokio::spawn(async move { waiter.lock().await });
    }
    ground.until("/dashboard/contention", "WWW").await;
    let screen = Screen::of(&ground);
    let locks = texts().map(|text| {
        let quoted: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
        (format!("/dashboard/lock?name={quoted}"), Some(text))
    });
    let pages = ["", "/locks", "/timeline", "/contention"];
    let pages = pages.map(|page| (format!("/dashboard{page}"), None));
    for (page, text) in pages.into_iter().chain(locks) {
        for width in [320, 1280] {
            let about = format!("{page:.60}, {width} px");
            screen.set_size(width, 800);
            screen.show(&page);
            screen.assert_fits(&about);
            screen.assert_quiet(&about);
            let state = screen.eval(
                "return [window.hit ?? null, document.querySelectorAll('main img, main script, \
                main svg:not(.chart)').length, document.title.includes('Holdline')]",
            );
            assert_eq!(state, serde_json::json!([null, 0, true]), "{about}");
            let shown = screen.text();
            let hidden = ['\u{202e}', '\u{2066}', '\u{200b}', '\u{200f}'];
            assert!(!shown.contains(hidden), "{about}: {shown}");
            if let Some(text) = &text {
                let first: String = text.chars().take(4).collect();
                assert!(shown.contains(&first), "{about}: {shown}");
            }
        }
    }
    drop(held);
}
