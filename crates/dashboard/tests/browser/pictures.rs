//! The pictures of the docs: `cargo xtask screenshots` writes them.

use std::path::Path;
use std::time::Duration;

use holdline_services::Media;

use crate::scene::Scene;
use crate::screen::Screen;

/// Whether to write them, and to let the store be busy for minutes before.
const WRITE: &str = "HOLDLINE_WRITE_SCREENSHOTS";
/// All pictures together, in bytes: they are a part of each clone.
const MOST_BYTES: usize = 600_000;

/// A picture: its file, its page, who looks, and how large it is.
const PICTURES: [(&str, &str, Media, (u32, u32)); 5] = [
    ("dashboard-overview", "/dashboard", Media::Light, (1200, 720)),
    ("dashboard-locks", "/dashboard/locks", Media::Dark, (1440, 720)),
    ("dashboard-lock", "/dashboard/lock?name=invoices%2Fclose-month", Media::Light, (1200, 1110)),
    ("dashboard-timeline", "/dashboard/timeline?period=10min", Media::Light, (1200, 760)),
    ("dashboard-narrow", "/dashboard", Media::Dark, (320, 720)),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pictures_of_a_busy_store() {
    let scene = Scene::start().await;
    let writes = std::env::var_os(WRITE).is_some();
    scene.ground.until("/dashboard/lock?name=backup%2Fnightly", "perhaps expired").await;
    let screen = Screen::of(&scene.ground);
    // The server looks at the store more often while somebody looks at a page.
    screen.show("/dashboard");
    if writes {
        tokio::time::sleep(Duration::from_secs(200)).await; // event: the store has a past
    }
    let mut bytes = 0;
    for (file, page, media, (width, height)) in PICTURES {
        screen.set_media(media);
        screen.set_size(width, height);
        screen.show(page);
        let picture = screen.screenshot();
        assert!(picture.starts_with(b"\x89PNG"), "{file}");
        // A blank page is a few thousand bytes.
        assert!(picture.len() > 10_000, "{file}: {} bytes", picture.len());
        bytes += picture.len();
        if writes {
            let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
            std::fs::create_dir_all(&place).expect("a directory");
            std::fs::write(place.join(format!("{file}.png")), picture).expect("written");
        }
    }
    assert!(bytes <= MOST_BYTES, "{bytes} bytes");
}
