//! Fenced blocks of Markdown: what is compiled, what is run, what is only read; and links.

/// One fenced block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fence {
    /// The line of the opening fence, from one.
    pub(crate) line: usize,
    /// The words after the opening fence, split at spaces and commas.
    pub(crate) words: Vec<String>,
    pub(crate) body: Vec<String>,
}

impl Fence {
    pub(crate) fn language(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    pub(crate) fn has(&self, word: &str) -> bool {
        self.words.iter().any(|w| w == word)
    }
}

/// The fenced blocks of `text`, in order. A fence that is never closed ends with the text.
pub(crate) fn fences(text: &str) -> Vec<Fence> {
    let mut found: Vec<Fence> = Vec::new();
    let mut open: Option<(&str, usize)> = None;
    for (index, line) in text.lines().enumerate() {
        let bare = line.trim_start();
        let indent = line.len() - bare.len();
        let ticks = &bare[..bare.len() - bare.trim_start_matches('`').len()];
        match open {
            None if ticks.len() >= 3 && !bare[ticks.len()..].contains('`') => {
                let info = bare[ticks.len()..].split([' ', ',']).filter(|w| !w.is_empty());
                let words = info.map(str::to_owned).collect();
                found.push(Fence { line: index + 1, words, body: Vec::new() });
                open = Some((ticks, indent));
            }
            Some((opening, _)) if ticks.len() >= opening.len() && bare.trim_end() == ticks => {
                open = None;
            }
            Some((_, indent)) => {
                let cut = indent.min(line.len() - bare.len());
                if let Some(fence) = found.last_mut() {
                    fence.body.push(line[cut..].to_owned());
                }
            }
            None => {}
        }
    }
    found
}

/// The lines of `text` outside of fences, with their numbers from one.
pub(crate) fn prose(text: &str) -> Vec<(usize, &str)> {
    let blocks = fences(text);
    let inside = |number: usize| {
        blocks.iter().any(|f| number >= f.line && number <= f.line + f.body.len() + 1)
    };
    text.lines().enumerate().map(|(i, l)| (i + 1, l)).filter(|(n, _)| !inside(*n)).collect()
}

/// The targets of `[text](path#part)` and of `[text]: path`, without addresses of the web.
pub(crate) fn targets(line: &str) -> impl Iterator<Item = &str> {
    let links = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let apart = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    let targets = links.map(|(target, _)| target).chain(apart.map(|(_, target)| target.trim()));
    targets.filter(|target| !target.is_empty() && !target.contains(':'))
}

/// The path from the root; none if it leads out of the repository.
pub(crate) fn resolved(directory: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = directory.split('/').filter(|p| !p.is_empty()).collect();
    for part in target.split('/').filter(|p| !p.is_empty() && *p != ".") {
        if part == ".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_carry_their_words_and_their_body() {
        let text = "a\n```sh run\necho\n```\n- b\n  ```rust,no_run\n  fn f() {}\n  ```\n";
        let found = fences(text);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].line, found[0].language()), (2, "sh"));
        assert!(found[0].has("run"));
        assert_eq!(found[0].body, ["echo"]);
        assert!(found[1].has("no_run"));
        assert_eq!(found[1].body, ["fn f() {}"]);
    }

    #[test]
    fn a_longer_fence_holds_a_shorter_one() {
        let found = fences("````text\n```\ninner\n```\n````\n");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].body, ["```", "inner", "```"]);
    }

    #[test]
    fn prose_is_what_lies_outside() {
        assert_eq!(prose("a\n```sh\nb\n```\nc"), [(1, "a"), (5, "c")]);
    }
}
