//! Each page loads, complains of nothing, asks nobody else, fits, and can be read by everybody.

use holdline_services::{Media, RedisConfig, RedisServer, axe};
use serde_json::{Value, json};

use crate::ground::{Ground, S3CRET, token};
use crate::scene::Scene;
use crate::screen::Screen;

const LOCK: &str = "/dashboard/lock?name=db%2Fmigrate";
/// Pages that the navigation of the default store does not lead to.
const MORE: [&str; 2] = [LOCK, "/stores/eu/dashboard/quorum"];

/// Widths in CSS pixels: a small phone, a notebook, 4K.
const WIDTHS: [u32; 3] = [320, 1280, 3840];

/// The pages of the navigation, and those that it leads to.
fn pages(screen: &Screen) -> Vec<String> {
    screen.show("/dashboard");
    let links = screen.eval(
        "return [...document.querySelectorAll('nav a')].map((link) => link.getAttribute('href'))",
    );
    let links = links.as_array().expect("links").iter().filter_map(Value::as_str);
    let pages: Vec<String> = links.map(str::to_owned).chain(MORE.map(str::to_owned)).collect();
    assert!(pages.len() >= 5, "{pages:?}");
    pages
}

/// What keeps people from reading the page or from acting on it.
fn barriers(screen: &Screen, axe: &str) -> Vec<Value> {
    let found = screen.eval_async(&format!(
        "const done = arguments[arguments.length - 1];
        {axe};
        axe.run({{ resultTypes: ['violations'] }})
            .then((found) => done(found.violations.map(({{ id, impact, help, nodes }}) =>
                ({{ id, impact, help, nodes: nodes.map(({{ html, failureSummary }}) =>
                    html.slice(0, 200) + ' ' + failureSummary) }}))))
            .catch((error) => done([{{ impact: 'critical', id: String(error) }}]));"
    ));
    found.as_array().expect("a list").clone()
}

fn assert_no_barrier(screen: &Screen, axe: &str, about: &str) {
    let found = barriers(screen, axe);
    let bad = |one: &&Value| one["impact"] == "serious" || one["impact"] == "critical";
    let bad: Vec<_> = found.iter().filter(bad).collect();
    assert!(bad.is_empty(), "{about}: {bad:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_page_is_quiet_fits_and_has_no_barrier() {
    let scene = Scene::start().await;
    let screen = Screen::of(&scene.ground);
    let axe = axe();
    scene.ground.until("/dashboard/lock?name=backup%2Fnightly", "perhaps expired").await;
    for page in pages(&screen) {
        for media in [Media::Light, Media::Dark] {
            screen.set_media(media);
            // Nothing but colours depends on them.
            let widths = if media == Media::Light { &WIDTHS[..] } else { &WIDTHS[..1] };
            for width in widths.iter().copied() {
                let about = format!("{page}, {width} px, {media:?}");
                screen.set_size(width, 800);
                screen.show(&page);
                assert!(screen.text().contains("seen since"), "{about}: {}", screen.text());
                screen.assert_fits(&about);
                // The narrow page has all that the wide ones have.
                if width == WIDTHS[0] {
                    assert_no_barrier(&screen, &axe, &about);
                }
                screen.assert_quiet(&about);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_searched_for_barriers_has_some() {
    let ground = Ground::start().await;
    let screen = Screen::of(&ground);
    screen.show("/dashboard");
    let changed = screen.eval(
        "document.querySelector('main').innerHTML += '<img src=\"/dashboard/icon.svg\"><input>'",
    );
    assert!(changed.is_null());
    let found = barriers(&screen, &axe());
    let ids: Vec<&Value> = found.iter().map(|one| &one["id"]).collect();
    assert!(ids.contains(&&json!("image-alt")) && ids.contains(&&json!("label")), "{found:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_may_ask_nobody_else() {
    let (ground, other) = (Ground::start().await, Ground::start().await);
    let screen = Screen::of(&ground);
    screen.show("/dashboard");
    screen.assert_quiet("the page");
    let asked = screen.eval_async(&format!(
        "const done = arguments[arguments.length - 1];
        fetch('http://{}/dashboard').then(() => done('reached'), () => done('refused'))",
        other.address
    ));
    assert_eq!(asked, "refused");
    let complaints = screen.complaints();
    assert!(complaints.iter().any(|line| line.contains("Security Policy")), "{complaints:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_login_page_fits_and_has_no_barrier() {
    let ground = Ground::with(&token("ana", S3CRET, r#"["view"]"#, "")).await;
    let screen = Screen::of(&ground);
    for media in [Media::Light, Media::Dark] {
        screen.set_media(media);
        for width in WIDTHS {
            screen.set_size(width, 800);
            screen.show("/dashboard");
            screen.assert_fits(&format!("{width} px"));
        }
        assert_no_barrier(&screen, &axe(), "the login");
    }
    let complaints = screen.complaints();
    let expected = |line: &String| line.contains("status of 401");
    assert!(complaints.iter().all(expected), "{complaints:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_page_reads_the_same_without_scripts() {
    let scene = Scene::start().await;
    let screen = Screen::of(&scene.ground);
    scene.ground.until("/dashboard/contention", "By holder").await;
    // Numbers change from one look to the next.
    let outline =
        "return [...document.querySelectorAll('h1, h2, thead th, dt, figcaption, summary')]
        .map((element) => element.innerText.replace(/[0-9]+/g, '0')).join('|')";
    for page in pages(&screen) {
        screen.show(&page);
        let with = screen.eval(outline);
        screen.set_scripts(false);
        screen.show(&page);
        let without = screen.eval(outline);
        screen.set_scripts(true);
        assert_eq!(without, with, "{page}");
        assert!(without.as_str().is_some_and(|text| text.len() >= 5), "{page}: {without}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_chart_has_its_table() {
    let scene = Scene::start().await;
    let screen = Screen::of(&scene.ground);
    scene.ground.until("/dashboard/timeline", "released").await;
    let mut charts = 0;
    for page in pages(&screen).into_iter().chain(["/dashboard/lock?name=mail%2Foutbox".into()]) {
        screen.show(&page);
        let counts = screen.eval(
            "const charts = [...document.querySelectorAll('svg.chart')];
            const hidden = charts.filter((chart) => chart.getAttribute('aria-hidden') === 'true');
            const twofold = charts.filter((chart) => {
                const place = chart.closest('figure, table').parentElement;
                return place.querySelector('table') || place.querySelector('a[href^=\"#\"]');
            });
            return [charts.length, hidden.length, twofold.length];",
        );
        let counts: Vec<u64> = serde_json::from_value(counts).expect("numbers");
        assert!(counts[0] == counts[1] && counts[0] == counts[2], "{page}: {counts:?}");
        charts += counts[0];
    }
    assert!(charts >= 3, "{charts} charts");
}

/// A lock key of another library that never ends, and one that does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_another_library_are_shown_and_those_without_an_expiry_are_marked() {
    let server = RedisServer::start(RedisConfig::default());
    server.raw().say("SETNX lock:leaked 1").expect("an answer");
    server.raw().say("SET lock:theirs 1 PX 600000").expect("an answer");
    let url = format!("{}?dialect=plain&key_template=lock:{{name}}", server.url());
    let ground = Ground::of_urls(&[("default", &url)], "").await;
    ground.until("/dashboard/locks", "leaked").await;
    let screen = Screen::of(&ground);
    let axe = axe();
    for (page, marked) in [
        ("/dashboard/locks", true),
        ("/dashboard/lock?name=leaked", true),
        ("/dashboard/lock?name=theirs", false),
    ] {
        screen.set_size(WIDTHS[0], 800);
        screen.show(page);
        let shown = screen.text();
        assert_eq!(shown.contains("no expiry"), marked, "{page}: {shown}");
        assert!(shown.contains("foreign"), "{page}: {shown}");
        screen.assert_fits(page);
        assert_no_barrier(&screen, &axe, page);
        screen.assert_quiet(page);
    }
}
