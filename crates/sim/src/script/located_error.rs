//! Errors of library functions, with the line of the script that called.

use mlua::Lua;

/// The largest number of host functions between an error and the line that caused it.
const DEPTH: usize = 4;

/// An error with its source line in the text.
#[derive(Debug, Clone)]
pub(super) struct LocatedError(pub(super) Vec<u8>);

impl std::fmt::Display for LocatedError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl std::error::Error for LocatedError {}

/// A line of Lua.
pub(super) struct SourceLine {
    pub(super) source: String,
    pub(super) short: String,
    pub(super) line: usize,
}

/// Returns the innermost running line of Lua; host functions count as their caller.
pub(super) fn place(lua: &Lua) -> Option<SourceLine> {
    (1..=DEPTH).find_map(|level| {
        let found = lua.inspect_stack(level, |debug| {
            let names = debug.source();
            let own = |name: Option<std::borrow::Cow<'_, str>>| name.map(|name| name.into_owned());
            // The prelude counts as its caller.
            let source = own(names.source)?;
            let short = own(names.short_src)?;
            let line = debug.current_line().filter(|_| source != "=prelude")?;
            Some(SourceLine { source, short, line })
        });
        found.flatten()
    })
}

/// Makes an error of a library function, prefixed with the line of its caller.
pub(super) fn raise(lua: &Lua, text: &str) -> mlua::Error {
    let place = place(lua).map(|place| format!("{}:{}: ", place.short, place.line));
    let text = place.unwrap_or_default() + text;
    mlua::Error::external(LocatedError(text.into_bytes()))
}
