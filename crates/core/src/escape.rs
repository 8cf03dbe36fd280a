//! Text from outside, escaped for terminals, logs and tables.

use std::fmt;

/// Shows text with everything escaped that a terminal could interpret or hide.
///
/// Control characters, bidirectional controls, zero-width and other invisible formatting
/// characters appear as `\u{…}`; a backslash is doubled, so that the result is unambiguous.
///
/// ```
/// use holdline_core::Escaped;
/// assert_eq!(Escaped("a\u{1b}[31mb").to_string(), "a\\u{1b}[31mb");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.width().is_some() || f.precision().is_some() {
            let mut text = String::with_capacity(self.0.len());
            write_escaped(&mut text, self.0)?;
            return f.pad(&text);
        }
        write_escaped(f, self.0)
    }
}

fn write_escaped(out: &mut impl fmt::Write, text: &str) -> fmt::Result {
    for character in text.chars() {
        match character {
            '\\' => out.write_str("\\\\")?,
            c if is_hidden(c) => write!(out, "\\u{{{:x}}}", u32::from(c))?,
            c => out.write_char(c)?,
        }
    }
    Ok(())
}

/// Returns whether a character is invisible or changes how others are shown.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(u32::from(character),
            0x00ad | 0x061c | 0x180e | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f
            | 0xfe00..=0xfe0f | 0xfeff | 0xfff0..=0xfffb | 0xe0000..=0xe0fff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_text_is_unchanged_and_control_characters_are_escaped() {
        for (text, shown) in [
            ("plain ключ 🔒", "plain ключ 🔒"),
            ("a\nb", "a\\u{a}b"),
            ("\u{202e}x", "\\u{202e}x"),
            ("zero\u{200b}width", "zero\\u{200b}width"),
            ("back\\slash", "back\\\\slash"),
        ] {
            assert_eq!(Escaped(text).to_string(), shown);
        }
        assert_eq!(format!("[{:6}]", Escaped("ab")), "[ab    ]");
    }
}
