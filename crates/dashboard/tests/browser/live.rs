//! Pages follow the store without being loaded again.

use crate::ground::Ground;
use crate::screen::Screen;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_taken_appears_and_nothing_jumps() {
    let ground = Ground::start().await;
    let mut guards = Vec::new();
    for number in 0..60 {
        let lock = ground.client.mutex(format!("old-{number:02}")).expect("a name");
        guards.push(lock.lock().await.expect("free"));
    }
    ground.until("/dashboard/locks", "60 names").await;
    let screen = Screen::of(&ground);
    // The table is wider than that.
    screen.set_size(700, 600);
    screen.show("/dashboard/locks");
    screen.await_text("Live");
    // Another document would not have the mark.
    let at = screen.eval(
        "window.mark = true;
        const link = [...document.querySelectorAll('tbody a')].at(-1);
        link.focus();
        window.scrollTo(0, 900);
        document.querySelector('#locks-table').scrollLeft = 40;
        window.focused = link.id;
        return window.scrollY;",
    );
    assert!(at.as_f64() > Some(100.0), "the page is long: {at}");
    let guard = ground.client.mutex("taken-later").expect("a name").lock().await.expect("free");
    screen.await_text("taken-later");
    let after = screen.eval(
        "return [window.mark, window.scrollY, document.querySelector('#locks-table').scrollLeft,
            document.activeElement.id === window.focused]",
    );
    assert_eq!(after, serde_json::json!([true, at, 40, true]));
    let _ = guard.release().await;
    screen.until("!document.body.innerText.includes('taken-later')");
    assert_eq!(screen.eval("return window.mark"), true);
    screen.assert_quiet("live updates");
    drop(guards);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_page_stands_still_until_it_goes_on() {
    let ground = Ground::start().await;
    let screen = Screen::of(&ground);
    screen.show("/dashboard");
    screen.await_text("Live");
    screen.click("#live-pause");
    screen.await_text("Paused");
    let held = "document.querySelector('.figures dd').innerText";
    let before = screen.eval(&format!("return {held}"));
    assert_eq!(before, "0");
    let _guard = ground.client.mutex("a").expect("a name").lock().await.expect("free");
    ground.until("/dashboard/locks", "1 name,").await;
    // The page has had the news of this by now, as this stream has them.
    let _ = screen.eval(
        "window.news = 0;
        new EventSource('/dashboard/live').addEventListener('changed', () => window.news += 1)",
    );
    screen.until("window.news >= 2");
    assert_eq!(screen.eval(&format!("return {held}")), "0");
    assert_eq!(screen.eval("return document.querySelector('#live-status').innerText"), "Paused");
    screen.click("#live-pause");
    screen.until(&format!("{held} === '1'"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forms_follow_the_lock_until_somebody_uses_them() {
    let ground = Ground::start().await;
    let screen = Screen::of(&ground);
    screen.show("/dashboard/lock?name=a");
    screen.await_text("Live");
    assert!(!screen.text().contains("Revoke token"));
    let lock = ground.client.mutex("a").expect("a name");
    let guard = lock.lock().await.expect("free");
    screen.await_text(&format!("Revoke token {}", guard.fencing_token()));
    screen.click("details:has(form[action$='/lock/revoke']) summary");
    screen.type_into("form[action$='/lock/revoke'] input[name=reason]", "half a sen");
    let _ = guard.release().await;
    let guard = lock.lock().await.expect("free");
    screen.await_text("The lock has changed meanwhile");
    screen.until("document.activeElement.value === 'half a sen'");
    assert!(!screen.text().contains(&format!("Revoke token {}", guard.fencing_token())));
    screen.assert_quiet("forms");
    let _ = guard.release().await;
}
