//! The dashboard in a real browser: each page, with scripts and without, narrow and wide, light and
//! dark, by mouse and by keyboard.
//!
//! All tests share one browser, one after the other. The pages are those of the navigation, so a
//! new page is tested as soon as it has its row in `SECTIONS`.
//!
//! Read next: `screen` for a test's tab, `scene` for what the pages show.

mod actions;
#[path = "../it/ground.rs"]
#[allow(dead_code, reason = "the tests without a browser use the rest")]
mod ground;
mod hostile;
mod keyboard;
mod live;
mod pages;
mod pictures;
mod scene;
mod screen;
