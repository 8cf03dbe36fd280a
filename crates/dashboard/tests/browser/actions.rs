//! Log in, revoke, freeze, unfreeze and log out, with scripts and without.

use holdline::{Guard, LockName};

use crate::ground::{DEADLINE, Ground, OTHER, S3CRET, token};
use crate::screen::Screen;

const LOCK: &str = "/dashboard/lock?name=deploy";

fn config() -> String {
    token("ana", S3CRET, r#"["view", "operate"]"#, "") + &token("bo", OTHER, r#"["view"]"#, "")
}

async fn hold(ground: &Ground, name: &str) -> Guard {
    ground.client.mutex(name).expect("a name").lock().await.expect("free")
}

fn fill_and_revoke(screen: &Screen) {
    screen.click("form[action$='/lock/revoke'] input[name=reason]");
    screen.type_into("form[action$='/lock/revoke'] input[name=reason]", "stuck & <b>");
    screen.click("form[action$='/lock/revoke'] button");
}

async fn an_operator_acts(scripts: bool) {
    let ground = Ground::with(&config()).await;
    let guard = hold(&ground, "deploy").await;
    let screen = Screen::of(&ground);
    screen.set_scripts(scripts);
    screen.log_in("s3cret");
    screen.await_text("You are ana");

    screen.show(LOCK);
    screen.click("details:has(form[action$='/lock/revoke']) summary");
    fill_and_revoke(&screen);
    screen.await_text("The holder is notified");
    screen.await_text("revoked: stuck & <b>");
    tokio::time::timeout(DEADLINE, guard.at_risk()).await.expect("the holder is notified");
    drop(guard);

    // The page shows a token that is out of date by the time of the click.
    let guard = hold(&ground, "other").await;
    screen.show("/dashboard/lock?name=other");
    screen.click("details:has(form[action$='/lock/revoke']) summary");
    let _ = guard.release().await;
    let guard = hold(&ground, "other").await;
    fill_and_revoke(&screen);
    screen.await_text("fencing token");
    screen.await_text("What to do");
    assert!(guard.is_valid(), "nothing was changed");
    let _ = guard.release().await;

    screen.show("/dashboard/lock?name=other");
    screen.click("details:has(form[action$='/lock/freeze']) summary");
    screen.type_into("form[action$='/lock/freeze'] input[name=reason]", "release day");
    screen.click("form[action$='/lock/freeze'] button");
    screen.await_text("The name is frozen");
    screen.await_text("release day");
    assert!(ground.client.mutex("other").expect("a name").try_lock().await.is_err());
    screen.click("form[action$='/lock/unfreeze'] button");
    screen.await_text("The freeze is over");
    let _ = hold(&ground, "other").await.release().await;

    screen.click("form[action$='/logout'] button");
    screen.until("document.querySelector('input[type=password]')");
    screen.show(LOCK);
    screen.until("document.querySelector('input[type=password]')");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_acts_with_scripts() {
    an_operator_acts(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_acts_without_scripts() {
    an_operator_acts(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_there_is_no_form_and_a_forged_one_is_refused() {
    let ground = Ground::with(&config()).await;
    let guard = hold(&ground, "deploy").await;
    let screen = Screen::of(&ground);
    screen.log_in("other");
    screen.show(LOCK);
    screen.await_text("you need the right operate");
    let forms = screen.eval("return document.querySelectorAll('main form').length");
    assert_eq!(forms, 0);
    // The form of another action, with the right token of forms, bent to this one.
    let _ = screen.eval(&format!(
        "const form = document.querySelector('form[action$=\"/logout\"]');
        form.action = '/dashboard/lock/revoke';
        for (const [name, value] of [['name', 'deploy'], ['token', '{}'], ['reason', 'x']]) {{
            const field = document.createElement('input');
            [field.name, field.value] = [name, value];
            form.append(field);
        }}",
        guard.fencing_token()
    ));
    screen.click("form[action='/dashboard/lock/revoke'] button");
    screen.await_text("operate");
    screen.until("document.title.includes('Holdline') && !document.querySelector('nav')");
    let name = LockName::new("deploy").expect("a name");
    assert!(
        ground.client.admin().inspect(&name).await.expect("a store").is_held() && guard.is_valid()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_token_is_refused_and_the_form_stays() {
    let ground = Ground::with(&config()).await;
    let screen = Screen::of(&ground);
    screen.show(LOCK);
    screen.type_into("input[name=token]", "wrong");
    screen.click("button.primary");
    screen.await_text("does not know this token");
    screen.type_into("input[name=token]", "s3cret");
    screen.click("button.primary");
    // Where the first request wanted to go.
    screen.await_text("Lock deploy");
}
