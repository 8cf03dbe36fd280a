//! A real browser: Debian's Chromium, without a window.
//!
//! The browser and its driver are two processes of ours, so that both end with us. The driver
//! starts no browser: it connects to the one that runs.
//!
//! Read next: [`Tab`], and `webdriver` for what is sent.

mod tab;
mod webdriver;

pub use tab::{Media, Tab};
use webdriver::Driver;

use crate::npm::NpmPackage;
use crate::ports::Port;
use crate::scratch::Scratch;
use crate::server_process::ServerProcess;
use crate::{Failure, programs, spawner};
use std::process::Command;

/// Searches a page for what keeps people from reading it: deque's axe.
const AXE: NpmPackage = NpmPackage {
    package: "axe-core",
    version: "4.14.1",
    sha256: "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745",
    directory: "package",
    has_programs: false,
};

/// What the browser leaves out: all that asks somebody who is not the page's server.
const QUIET: [&str; 8] = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--metrics-recording-only",
];

/// A running Chromium with its driver. Both end with this value.
#[derive(Debug)]
pub struct Browser {
    chromium: ServerProcess,
    debugger: String,
    driver: Driver,
    _chromedriver: ServerProcess,
    _port: Port,
}

impl Browser {
    /// Starts the browser, with an empty profile, and its driver.
    ///
    /// # Panics
    /// A program is missing or does not start; the message says why.
    #[must_use]
    pub fn start() -> Self {
        Self::try_start().unwrap_or_else(|failure| panic!("{failure}"))
    }

    fn try_start() -> Result<Self, Failure> {
        let (chromium, debugger) = chromium()?;
        let program =
            programs::of_system("chromedriver", "chromium-driver", "HOLDLINE_CHROMEDRIVER")?;
        let port = Port::reserve()?;
        let process = ServerProcess::new(Scratch::new("driver")?);
        let driver = Driver::at(port.number());
        let mut command = spawner::mortal(&program);
        command.arg(format!("--port={}", port.number()));
        command.env("HOME", process.directory());
        process.start("chromedriver", command, || driver.is_ready())?;
        Ok(Self { chromium, debugger, driver, _chromedriver: process, _port: port })
    }

    /// Opens a tab that nothing was done in, and closes the others.
    ///
    /// # Panics
    /// The browser does not do so.
    #[must_use]
    pub fn tab(&self) -> Tab {
        Tab::new(&self.driver, &self.debugger).unwrap_or_else(|why| {
            let log = self.chromium.log();
            panic!("{}", Failure::because(why, log))
        })
    }
}

/// Starts the browser; returns the address at which it takes commands.
fn chromium() -> Result<(ServerProcess, String), Failure> {
    let program = programs::of_system("chromium", "chromium", "HOLDLINE_CHROMIUM")?;
    let process = ServerProcess::new(Scratch::new("chromium")?);
    let profile = process.directory().join("profile");
    let mut command: Command = spawner::mortal(&program);
    // The pages are our own; its sandbox works neither for root nor in most containers.
    command.args(["--headless=new", "--no-sandbox", "--disable-dev-shm-usage"]);
    command.args(["--remote-debugging-port=0", "--hide-scrollbars"]).args(QUIET);
    command.arg(format!("--user-data-dir={}", profile.display())).arg("about:blank");
    command.env("HOME", process.directory()).env_remove("DISPLAY");
    // Its first line is the port.
    let file = profile.join("DevToolsActivePort");
    let port = || {
        let text = std::fs::read_to_string(&file).ok()?;
        text.lines().next()?.parse::<u16>().ok()
    };
    process.start("chromium", command, || port().is_some())?;
    let port = port().ok_or_else(|| Failure::new("chromium says no port"))?;
    Ok((process, format!("127.0.0.1:{port}")))
}

/// Returns the script that adds `axe`, a search for barriers, to a page.
///
/// # Panics
/// It cannot be downloaded.
#[must_use]
pub fn axe() -> String {
    let file = AXE.directory().map(|directory| directory.join("axe.min.js"));
    let file = file.unwrap_or_else(|failure| panic!("{failure}"));
    std::fs::read_to_string(&file).unwrap_or_else(|why| panic!("{}: {why}", file.display()))
}
