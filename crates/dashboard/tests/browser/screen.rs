//! The browser that all tests share, and a tab that looks at one server.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use holdline_services::{Browser, Tab};
use serde_json::Value;

use crate::ground::Ground;

static BROWSER: LazyLock<Mutex<Browser>> = LazyLock::new(|| Mutex::new(Browser::start()));

/// A tab, and the browser for as long as the test runs.
pub(crate) struct Screen {
    tab: Tab,
    address: SocketAddr,
    _browser: MutexGuard<'static, Browser>,
}

impl Deref for Screen {
    type Target = Tab;

    fn deref(&self) -> &Tab {
        &self.tab
    }
}

impl Screen {
    /// A tab of 1280 by 800 pixels.
    pub(crate) fn of(ground: &Ground) -> Screen {
        // A test that failed leaves its tab, which the next tab closes.
        let browser = BROWSER.lock().unwrap_or_else(PoisonError::into_inner);
        let tab = browser.tab();
        tab.set_size(1280, 800);
        Screen { tab, address: ground.address, _browser: browser }
    }

    /// Opens a page by its path.
    pub(crate) fn show(&self, path: &str) {
        self.tab.open(format_args!("http://{}{path}", self.address));
    }

    /// Waits until the page shows a text.
    pub(crate) fn await_text(&self, text: &str) {
        self.tab.until(&format!("document.body.innerText.includes({})", Value::from(text)));
    }

    /// Logs in by the form.
    pub(crate) fn log_in(&self, token: &str) {
        self.show("/dashboard");
        self.tab.type_into("input[name=token]", token);
        self.tab.click("button.primary");
        self.await_text("You are");
        // The page before answered 401, which browsers log.
        let _ = self.tab.complaints();
    }

    /// Checks that nothing went wrong in the page, and that nobody but our server was asked.
    pub(crate) fn assert_quiet(&self, about: &str) {
        let complaints = self.tab.complaints();
        assert!(complaints.is_empty(), "{about}: {complaints:#?}");
        assert!(!self.tab.has_dialog(), "{about}: a dialog");
        let ours = format!("http://{}/", self.address);
        let requests = self.tab.requests();
        assert!(!requests.is_empty(), "{about}: the browser reports no request");
        let foreign: Vec<_> = requests.iter().filter(|url| !url.starts_with(&ours)).collect();
        assert!(foreign.is_empty(), "{about}: {foreign:?}");
    }

    /// Checks that the page itself does not scroll sideways, and that no text leaves its box.
    pub(crate) fn assert_fits(&self, about: &str) {
        let wide = self.tab.eval(
            "const page = document.scrollingElement, out = [];
            for (const element of document.querySelectorAll('body *')) {
                if (element.closest('.scroll, svg, .skip')) continue;
                const { right, left, width } = element.getBoundingClientRect();
                if (width > 0 && (right > innerWidth + 1 || left < -1)) {
                    out.push(`${element.tagName}.${element.className} ${left}..${right}`);
                }
            }
            const spills = (element) => element.scrollWidth > element.clientWidth + 1;
            if (page.scrollWidth > innerWidth) {
                const all = [...document.querySelectorAll('body *')].filter(spills);
                out.push(...all.map((element) => `${element.tagName}.${element.className} spills`));
            }
            return page.scrollWidth > innerWidth || out.length > 0 ? out : null;",
        );
        assert!(wide.is_null(), "{about}: wider than the window: {wide:#}");
    }
}
