//! The pictures of the dashboard in the docs. Its browser tests take them of a busy store; here
//! they write them, after some minutes of work in that store.

use crate::cargo::cargo;
use crate::process;

/// Runs the test that takes the pictures.
pub(crate) fn write() -> Result<bool, String> {
    let test = "pictures_of_a_busy_store";
    let package = ["test", "--package", "holdline-dashboard", "--all-features"];
    let mut run = cargo(&package);
    run.args(["--test", "browser", test]).env("HOLDLINE_WRITE_SCREENSHOTS", "1");
    process::watch(&mut run, None, |_| ()).map(|()| true)
}
