//! Patterns of names: `*`, `?`, `[a-z]`, `[^a]` and `\` before any of them.

/// Returns whether the whole `text` matches `pattern`.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let mut p = 0;
    let mut t = 0;
    // Where to continue if the last star matches one byte more.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, t));
            p += 1;
            continue;
        }
        let step = if t < text.len() { one(&pattern[p..], text[t]) } else { None };
        if let Some(taken) = step {
            p += taken;
            t += 1;
        } else if t == text.len() && p == pattern.len() {
            return true;
        } else if let Some((after, from)) = star.filter(|(_, from)| *from < text.len()) {
            star = Some((after, from + 1));
            p = after;
            t = from + 1;
        } else {
            return false;
        }
    }
}

/// Returns the length of the pattern that matches this byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', rest @ ..] => set(rest, byte).map(|taken| taken + 1),
        [plain, ..] => (*plain == byte).then_some(1),
        [] => None,
    }
}

fn set(pattern: &[u8], byte: u8) -> Option<usize> {
    let negated = pattern.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    loop {
        match &pattern[at.min(pattern.len())..] {
            [b'\\', escaped, ..] => {
                found |= *escaped == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [] => break,
            [from, b'-', to, ..] => {
                let low = from.min(to);
                let high = from.max(to);
                found |= (low..=high).contains(&&byte);
                at += 3;
            }
            [plain, ..] => {
                found |= *plain == byte;
                at += 1;
            }
        }
    }
    (found != negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_as_on_the_server() {
        let table = [
            ("*", "", true),
            ("*", "abc", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a*b*c", "axbxbxc", true),
            ("", "", true),
            ("", "a", false),
        ];
        for (pattern, text, fits) in table {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), fits, "{pattern} {text}");
        }
    }
}
