//! A tab of the browser.

use super::webdriver::{Driver, capabilities};
use crate::wait::{LIMIT, until};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::fmt::Display;

/// The field that holds an element's id, by the standard.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Whom the page is shown to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Media {
    /// Somebody with a light screen.
    Light,
    /// Somebody with a dark screen.
    Dark,
}

/// A tab. It is left when this value is dropped; the next one closes it.
///
/// # Panics
/// All functions do if the browser refuses; the message has its reason.
#[derive(Debug)]
pub struct Tab {
    driver: Driver,
    session: String,
}

impl Tab {
    pub(super) fn new(driver: &Driver, debugger: &str) -> Result<Self, String> {
        let session = driver.post("/session", &capabilities(debugger))?;
        let session = format!("/session/{}", text(&session["sessionId"]));
        let tab = Self { driver: *driver, session };
        let before = tab.get("window/handles")?;
        let fresh = tab.post("window/new", &json!({"type": "tab"}))?;
        for old in before.as_array().into_iter().flatten() {
            tab.post("window", &json!({"handle": old}))?;
            driver.delete(&tab.path("window"))?;
        }
        tab.post("window", &json!({"handle": fresh["handle"]}))?;
        // What the others have reported.
        let _ = (tab.complaints(), tab.requests());
        Ok(tab)
    }

    fn path(&self, what: &str) -> String {
        format!("{}/{what}", self.session)
    }

    fn get(&self, what: &str) -> Result<Value, String> {
        self.driver.get(&self.path(what))
    }

    fn post(&self, what: &str, body: &Value) -> Result<Value, String> {
        self.driver.post(&self.path(what), body)
    }

    fn done(&self, what: &str, body: &Value) -> Value {
        self.post(what, body).unwrap_or_else(|why| panic!("the browser refuses: {why}"))
    }

    /// Opens a page, and waits until it is loaded.
    pub fn open(&self, url: impl Display) {
        self.done("url", &json!({"url": url.to_string()}));
    }

    /// Runs a function's body in the page, and returns what it returns. Works without scripts, too.
    #[must_use]
    pub fn eval(&self, body: &str) -> Value {
        self.done("execute/sync", &json!({"script": body, "args": []}))
    }

    /// The same for a body that calls its last argument with the result.
    #[must_use]
    pub fn eval_async(&self, body: &str) -> Value {
        self.done("execute/async", &json!({"script": body, "args": []}))
    }

    /// Waits until an expression is true in the page.
    pub fn until(&self, expression: &str) {
        let body = format!("return Boolean({expression})");
        // A page that is being exchanged for another cannot be asked.
        let asked = || self.post("execute/sync", &json!({"script": body, "args": []}));
        if until(LIMIT, || (asked() == Ok(Value::Bool(true))).then_some(())).is_none() {
            let page = json!({"script": "return document.body.innerText", "args": []});
            panic!("never so: {expression}\n{:#?}", self.post("execute/sync", &page));
        }
    }

    /// Returns what is to be read on the page.
    #[must_use]
    pub fn text(&self) -> String {
        text(&self.eval("return document.body.innerText"))
    }

    fn element(&self, selector: &str) -> String {
        let how = json!({"using": "css selector", "value": selector});
        text(&self.done("element", &how)[ELEMENT])
    }

    /// Clicks at an element as a person does: it must be in sight, and nothing above it.
    pub fn click(&self, selector: &str) {
        let element = self.element(selector);
        self.done(&format!("element/{element}/click"), &json!({}));
    }

    /// Types into an element.
    pub fn type_into(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.done(&format!("element/{element}/value"), &json!({"text": text}));
    }

    /// Presses a key, by its code point of WebDriver or as a letter, wherever the focus is.
    pub fn press(&self, key: char) {
        let actions = ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key}));
        self.done(
            "actions",
            &json!({"actions": [{"type": "key", "id": "keys", "actions": actions}]}),
        );
    }

    /// Sends a command of Chromium's own protocol.
    pub fn command(&self, name: &str, parameters: &Value) -> Value {
        self.done("goog/cdp/execute", &json!({"cmd": name, "params": parameters}))
    }

    /// Sets the size of what is in sight, in CSS pixels.
    pub fn set_size(&self, width: u32, height: u32) {
        self.command(
            "Emulation.setDeviceMetricsOverride",
            &json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}),
        );
    }

    /// Sets what the page's style may ask for. Nothing moves.
    pub fn set_media(&self, media: Media) {
        let scheme = match media {
            Media::Light => "light",
            Media::Dark => "dark",
        };
        let features = json!([
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]);
        self.command("Emulation.setEmulatedMedia", &json!({"features": features}));
    }

    /// Sets whether the scripts of pages run, from the next page on.
    pub fn set_scripts(&self, run: bool) {
        self.command("Emulation.setScriptExecutionDisabled", &json!({"value": !run}));
    }

    /// Returns a picture of what is in sight, as PNG.
    #[must_use]
    pub fn screenshot(&self) -> Vec<u8> {
        let picture = self.get("screenshot").unwrap_or_else(|why| panic!("no picture: {why}"));
        STANDARD.decode(text(&picture)).expect("base64")
    }

    /// Returns whether the page shows a dialog.
    #[must_use]
    pub fn has_dialog(&self) -> bool {
        self.get("alert/text").is_ok()
    }

    /// Returns the errors and warnings since the last call: of scripts, of files that did not load,
    /// of the page's policy.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let log = self.done("se/log", &json!({"type": "browser"}));
        let lines = log.as_array().into_iter().flatten();
        let bad = lines.filter(|line| line["level"] == "SEVERE" || line["level"] == "WARNING");
        bad.map(|line| text(&line["message"])).collect()
    }

    /// Returns the URLs that were asked for since the last call.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        let log = self.done("se/log", &json!({"type": "performance"}));
        let events = log.as_array().into_iter().flatten();
        let events = events.filter_map(|line| {
            let event: Value = serde_json::from_str(line["message"].as_str()?).ok()?;
            let event = &event["message"];
            let is_request = event["method"] == "Network.requestWillBeSent";
            is_request.then(|| text(&event["params"]["request"]["url"]))
        });
        events.collect()
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        // A session that does not end is of no account: the next one closes its tab.
        let _ = self.driver.delete(&self.session);
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
